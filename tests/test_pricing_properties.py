"""Whatever prices and usage look like: costs are exact, and no call within its bounds costs more than its ceiling."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from routeguard.prices import NS_PER_DAY, NS_PER_SECOND, Era, ModelPrice, Price, Rates, Schedule
from routeguard.usage import Usage
from tests.tariffs import NOW, tariff


def cost(one: Rates, usage: Usage) -> int:
    nanousd = tariff(flat(one)).cost(usage, wall_ns=NOW, input_bytes=0)
    assert nanousd is not None
    return nanousd


def flat(one: Rates, *, overhead_tokens: int = 0, context_window: int | None = None) -> ModelPrice:
    return ModelPrice(
        name="m",
        standard=Schedule.always(Price.flat(one)),
        overhead_tokens=overhead_tokens,
        context_window=context_window,
    )


#: Prices in USD, to the sixth decimal as providers publish them.
USD = st.integers(0, 700_000_000).map(lambda millionths: Fraction(millionths, 1_000_000))
TOKENS = st.integers(0, 2_000_000)


def dearer_than(base: Fraction, surcharges: tuple[Fraction, ...], discount: Fraction) -> Rates:
    """Rates in which every part has its own price, and only a cached token costs less than a fresh one."""
    return Rates.of(
        input=base,
        cached_input=base * discount,
        cache_write=base + surcharges[0],
        cache_write_1h=base + surcharges[1],
        input_audio=base + surcharges[2],
        output=surcharges[3],
        reasoning=surcharges[4],
        output_audio=surcharges[5],
        web_search=surcharges[6] / 1_000,
        call=surcharges[7] / 1_000,
    )


RATES = st.builds(dearer_than, USD, st.tuples(*[USD] * 8), st.fractions(0, 1, max_denominator=20))


def random_price(random: Random) -> Price:
    """Up to three steps."""
    thresholds = sorted(random.sample(range(300_000), k=random.randint(0, 2)))
    return Price(tuple((threshold, random_rates(random)) for threshold in (-1, *thresholds)))


def random_rates(random: Random) -> Rates:
    millionths = [Fraction(random.choice((0, random.randrange(700_000_000))), 1_000_000) for _ in range(9)]
    return dearer_than(millionths[0], tuple(millionths[1:]), Fraction(random.randint(0, 20), 20))


def random_schedule(random: Random) -> Schedule:
    """Up to three eras around NOW, of days with up to three prices. Seeded: drawn one by one it takes seconds."""
    today = NOW // NS_PER_DAY
    starts = sorted(random.sample(range(today - 2, today + 3), k=random.randint(0, 2)))
    eras = []
    for start in (0, *starts):
        seconds = sorted(random.sample(range(1, 86_400), k=random.randint(0, 2)))
        eras.append(Era(start * NS_PER_DAY, tuple((second, random_price(random)) for second in (0, *seconds))))
    return Schedule(tuple(eras))


SCHEDULES = st.integers(0, 2**32).map(lambda seed: random_schedule(Random(seed)))
PRICES = st.integers(0, 2**32).map(lambda seed: random_price(Random(seed)))


def exact(one: Rates, parts: dict[str, int]) -> Fraction:
    """Nano-USD by the definition: each part at its own rate."""
    return one.call * Fraction(1, one.per) + sum(
        (count * Fraction(getattr(one, part), one.per) for part, count in parts.items()), start=Fraction(0)
    )


INPUT_PARTS = ("input", "cached_input", "cache_write", "cache_write_1h", "input_audio")
OUTPUT_PARTS = ("output", "reasoning", "output_audio")
PARTS = st.fixed_dictionaries(dict.fromkeys((*INPUT_PARTS, *OUTPUT_PARTS, "web_search"), TOKENS))


def usage_of(parts: dict[str, int]) -> Usage:
    """The normal form of disjoint parts."""
    return Usage(
        input_tokens=sum(parts[part] for part in INPUT_PARTS),
        cached_input_tokens=parts["cached_input"],
        cache_write_tokens=parts["cache_write"],
        cache_write_1h_tokens=parts["cache_write_1h"],
        input_audio_tokens=parts["input_audio"],
        output_tokens=sum(parts[part] for part in OUTPUT_PARTS),
        reasoning_tokens=parts["reasoning"],
        output_audio_tokens=parts["output_audio"],
        web_searches=parts["web_search"],
    )


@given(one=RATES, parts=PARTS)
def test_a_cost_is_the_exact_sum_of_its_parts_rounded_up_once(one: Rates, parts: dict[str, int]) -> None:
    nanousd = cost(one, usage_of(parts))

    assert nanousd == ceil(exact(one, parts))


@given(one=RATES, parts=PARTS, more=st.integers(1, 1_000_000), data=st.data())
def test_more_of_anything_never_costs_less(one: Rates, parts: dict[str, int], more: int, data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(sorted(parts)))

    assert cost(one, usage_of(parts | {part: parts[part] + more})) >= cost(one, usage_of(parts))


@given(
    schedules=st.lists(SCHEDULES, min_size=1, max_size=3),
    calls=st.integers(1, 4),
    input_bytes=st.integers(0, 200_000),
    max_output_tokens=st.integers(1, 5_000),
    overhead_tokens=st.integers(0, 2_048),
    wall_ns=st.integers(NOW - NS_PER_DAY, NOW + NS_PER_DAY),
    stream_seconds_max=st.integers(0, 100_000),
    tiers_allowed=st.booleans(),
    data=st.data(),
)
def test_calls_within_their_bounds_never_cost_more_than_the_ceiling(
    schedules: list[Schedule],
    calls: int,
    input_bytes: int,
    max_output_tokens: int,
    overhead_tokens: int,
    wall_ns: int,
    stream_seconds_max: int,
    tiers_allowed: bool,
    data: st.DataObject,
) -> None:
    """Whichever models answer, at whatever time of the stream, whatever of the input was cached or written."""
    models = [
        ModelPrice(
            name=f"m{position}",
            standard=schedule,
            service_tiers={"fast": data.draw(SCHEDULES)} if tiers_allowed else {},
            overhead_tokens=overhead_tokens,
        )
        for position, schedule in enumerate(schedules)
    ]
    priced = tariff(
        *models,
        calls_per_request=calls,
        max_output_tokens=max_output_tokens,
        tiers_allowed=tiers_allowed,
        stream_seconds_max=stream_seconds_max,
    )
    ceiling_nanousd = priced.ceiling(input_bytes=input_bytes, wall_ns=wall_ns)

    spent_nanousd = 0
    for call in range(calls):
        bound = input_bytes + overhead_tokens + call * max_output_tokens
        cuts = sorted(data.draw(st.integers(0, bound)) for _ in range(3))
        output_tokens = data.draw(st.integers(0, max_output_tokens))
        usage = Usage(
            input_tokens=bound,
            cached_input_tokens=cuts[0],
            cache_write_tokens=cuts[1] - cuts[0],
            cache_write_1h_tokens=cuts[2] - cuts[1],
            output_tokens=output_tokens,
            reasoning_tokens=data.draw(st.integers(0, output_tokens)),
            model=data.draw(st.sampled_from([one.name for one in models] + ["unknown", None])),
            service_tier=data.draw(st.sampled_from(["fast", "default", None])),
        )
        at_ns = data.draw(st.integers(wall_ns, wall_ns + stream_seconds_max * NS_PER_SECOND))
        spent = priced.cost(usage, wall_ns=at_ns, input_bytes=input_bytes)
        assert spent is not None
        spent_nanousd += spent

    # The ceiling is rounded up once, each of the calls by itself.
    assert spent_nanousd <= ceiling_nanousd + calls - 1


@given(
    one=RATES,
    calls=st.integers(1, 9),
    input_bytes=st.integers(0, 100_000),
    max_output_tokens=st.integers(0, 5_000),
    window=st.none() | st.integers(1, 120_000),
)
def test_a_ceiling_is_the_exact_formula(
    one: Rates, calls: int, input_bytes: int, max_output_tokens: int, window: int | None
) -> None:
    bounded = flat(one, overhead_tokens=99, context_window=window)

    ceiling_nanousd = tariff(bounded, calls_per_request=calls, max_output_tokens=max_output_tokens).ceiling(
        input_bytes=input_bytes, wall_ns=NOW
    )

    inputs = [input_bytes + 99 + call * max_output_tokens for call in range(calls)]
    read = sum(inputs if window is None else (min(tokens, window) for tokens in inputs))
    dearest_input = max(one.input, one.cached_input, one.cache_write, one.cache_write_1h)
    dearest_output = max(one.output, one.reasoning, one.output_audio)
    nanousd = Fraction(read * dearest_input + calls * max_output_tokens * dearest_output + calls * one.call, one.per)
    assert ceiling_nanousd == ceil(nanousd)


ANY_COUNT = st.integers(-(10**12), 10**12)


@given(
    counts=st.fixed_dictionaries(
        {
            "input_tokens": st.none() | ANY_COUNT,
            "output_tokens": st.none() | ANY_COUNT,
            "cached_input_tokens": ANY_COUNT,
            "cache_write_tokens": ANY_COUNT,
            "cache_write_1h_tokens": ANY_COUNT,
            "reasoning_tokens": ANY_COUNT,
            "input_audio_tokens": ANY_COUNT,
            "output_audio_tokens": ANY_COUNT,
            "web_searches": ANY_COUNT,
            "model": st.none() | st.text(max_size=20),
            "service_tier": st.none() | st.text(max_size=20),
            "cost_usd": st.none() | st.decimals(),
        }
    ),
    input_bytes=st.integers(0, 10**6),
    one=RATES,
    price=PRICES,
)
def test_no_usage_is_too_strange_to_be_charged(
    counts: dict[str, Any], input_bytes: int, one: Rates, price: Price
) -> None:
    usage = Usage(**counts)

    strange = replace(flat(one), service_tiers={"priority": Schedule.always(price)})

    nanousd = tariff(strange, flat(one)).cost(usage, wall_ns=NOW, input_bytes=input_bytes)

    assert nanousd is not None
    assert nanousd >= 0


@given(usage=st.builds(Usage, input_tokens=st.integers(1, 10**6), output_tokens=st.integers(0, 10**6)))
def test_a_priced_token_is_never_free(usage: Usage) -> None:
    cheapest = Rates.of(input=Fraction(1, 1_000_000), output=Fraction(0))

    assert cost(cheapest, usage) >= 1
