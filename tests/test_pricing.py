"""Ceilings and costs, example by example, among them the figures of public bug reports."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from routeguard.prices import FOREVER_NS, NS_PER_SECOND, Era, ModelPrice, Price, Rates, Schedule
from routeguard.pricing import MODEL_NAME_LENGTH_MAX, Tariff
from routeguard.usage import Usage

NOW = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * NS_PER_SECOND
MIDNIGHT = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * NS_PER_SECOND


def rates(**usd: str) -> Rates:
    """USD per million tokens, fees in USD each, as texts."""
    return Rates.of(**{name: Fraction(price) for name, price in usd.items()})


def flat(**usd: str) -> Schedule:
    return Schedule.always(Price.flat(rates(**usd)))


def stepped(*steps: tuple[int, Rates]) -> Schedule:
    return Schedule.always(Price(steps))


def model(name: str = "m", *, standard: Schedule | None = None, overhead_tokens: int = 0, **usd: str) -> ModelPrice:
    return ModelPrice(name=name, standard=standard or flat(**usd), overhead_tokens=overhead_tokens)


def tariff(*models: ModelPrice, **settings: Any) -> Tariff:
    """A tariff of a guard whose other settings are the defaults of the package."""
    defaults = {"max_output_tokens": 1_000, "body_bytes_max": 64_000, "stream_seconds_max": 300}
    return Tariff(models, **(defaults | settings))


def cost(one: ModelPrice, usage: Usage, *, input_bytes: int = 0, wall_ns: int = NOW) -> int:
    nanousd = tariff(one).cost(usage, wall_ns=wall_ns, input_bytes=input_bytes)
    assert nanousd is not None
    return nanousd


SONNET = model("claude-3-7-sonnet", input="3", output="15", cached_input="0.3", cache_write="3.75", cache_write_1h="6")
SONNET_REGIONAL = model("regional-sonnet", input="3.3", output="16.5")
GPT_4O = replace(
    model("gpt-4o", input="2.5", output="10", cached_input="1.25", web_search="0.01"),
    service_tiers={
        "priority": flat(input="4.25", output="17", cached_input="2.125"),
        "flex": flat(input="1.25", output="5"),
    },
)
GPT_4O_MINI = model("gpt-4o-mini", input="0.15", output="0.6", overhead_tokens=256)
GPT_5_MINI = model("gpt-5-mini", input="0.25", output="2", cached_input="0.025", overhead_tokens=256)
GPT_5_5 = model(
    "gpt-5.5", standard=stepped((-1, rates(input="5", output="30")), (272_000, rates(input="10", output="45")))
)
GPT_5_6_SOL = replace(
    model(
        "gpt-5.6-sol",
        standard=stepped(
            (-1, rates(input="4", output="20", cached_input="0.4", cache_write="5")),
            (272_000, rates(input="8", output="30", cached_input="0.8", cache_write="10")),
        ),
        overhead_tokens=256,
    ),
    service_tiers={
        "priority": stepped(
            (-1, rates(input="8", output="40", cached_input="0.8", cache_write="10")),
            (272_000, rates(input="16", output="60", cached_input="1.6", cache_write="20")),
        )
    },
)
HAIKU_5_5 = model(
    "claude-haiku-5-5",
    standard=stepped(
        (-1, rates(input="0.1", output="0.5", cached_input="0.01", cache_write="0.125", cache_write_1h="0.2")),
        (100_000, rates(input="0.5", output="2.5", cached_input="0.05", cache_write="0.625", cache_write_1h="1")),
    ),
)
GEMINI_PRO_BASE = model("gemini-2.5-pro", input="1.25", output="10", cached_input="0.625")
GEMINI_PRO = model(
    "gemini-2.5-pro",
    standard=stepped(
        (-1, rates(input="1.25", output="10", cached_input="0.625")),
        (200_000, rates(input="2.5", output="15", cached_input="0.625")),
    ),
)
OPENROUTER_FLASH = model(
    "google/gemini-2.5-flash", input="0.3", output="2.5", cached_input="0.03", cache_write="0.08333333333333334"
)
GROK_MINI = model("grok-3-mini", input="0.3", output="0.5")
ONE_DOLLAR_INPUT = model(input="1", output="1", cached_input="0")
ARGON = model(
    "gemini-4-argon",
    standard=Schedule(
        (
            Era(0, ((0, Price.flat(rates(input="2", output="10", cached_input="0.1"))),)),
            Era(MIDNIGHT, ((0, Price.flat(rates(input="4", output="20", cached_input="0.2"))),)),
        )
    ),
)
#: Off-peak but for 01:00 to 04:00 and 06:00 to 10:00 UTC.
OFF_PEAK = Price.flat(rates(input="0.66", output="1.98"))
PEAK = Price.flat(rates(input="1.32", output="3.96"))
DEEPSEEK = model(
    "deepseek-v4-pro",
    standard=Schedule(
        (Era(0, ((0, OFF_PEAK), (3_600, PEAK), (4 * 3_600, OFF_PEAK), (6 * 3_600, PEAK), (10 * 3_600, OFF_PEAK))),)
    ),
)


@pytest.mark.parametrize("dearest", ["input", "cached_input", "cache_write", "cache_write_1h"])
def test_sound_that_comes_in_without_a_price_costs_the_dearest_input(dearest: str) -> None:
    usd = {"input": "1", "cached_input": "1", "cache_write": "1", "cache_write_1h": "1"} | {dearest: "7"}

    found = rates(output="1", **usd)

    assert found.input_audio == getattr(found, dearest) == 7 * 1_000 * found.per


@pytest.mark.parametrize("dearest", ["output", "reasoning"])
def test_sound_that_goes_out_without_a_price_costs_the_dearest_output(dearest: str) -> None:
    usd = {"output": "1", "reasoning": "1"} | {dearest: "7"}

    found = rates(input="1", **usd)

    assert found.output_audio == getattr(found, dearest) == 7 * 1_000 * found.per


def test_a_price_that_never_changes_has_no_end() -> None:
    price = Price.flat(rates(input="3", output="15"))

    assert Schedule.always(price).at(NOW) == (price, FOREVER_NS)


def test_a_day_of_two_prices_turns_at_its_second_and_at_midnight() -> None:
    night, day = (Price.flat(rates(input=usd, output=usd)) for usd in ("1", "2"))
    six = MIDNIGHT + 6 * 3_600 * NS_PER_SECOND
    next_midnight = MIDNIGHT + 86_400 * NS_PER_SECOND
    schedule = Schedule((Era(0, ((0, night), (6 * 3_600, day))),))

    found = [schedule.at(wall_ns) for wall_ns in (MIDNIGHT - 1, MIDNIGHT, six - 1, six, next_midnight - 1)]

    assert found == [(day, MIDNIGHT), (night, six), (night, six), (day, next_midnight), (day, next_midnight)]


def test_an_hour_that_outlives_its_era_ends_with_it() -> None:
    night, day, later = (Price.flat(rates(input=usd, output=usd)) for usd in ("1", "2", "3"))
    noon = MIDNIGHT + 12 * 3_600 * NS_PER_SECOND
    schedule = Schedule((Era(0, ((0, night), (6 * 3_600, day))), Era(noon, ((0, later),))))

    assert schedule.at(noon - 1) == (day, noon)
    assert schedule.at(noon) == (later, FOREVER_NS)


def test_a_flat_price_holds_from_the_first_token_and_one_that_never_changes_from_the_first_second() -> None:
    price = Price.flat(rates(input="3", output="15"))

    assert price.steps == ((-1, rates(input="3", output="15")),)
    assert Schedule.always(price).eras == (Era(0, ((0, price),)),)


@pytest.mark.parametrize(
    ("one", "usage", "nanousd"),
    [
        pytest.param(
            SONNET,
            Usage(input_tokens=12_307, cache_write_tokens=12_304, output_tokens=550),
            54_399_000,
            id="cache writes are charged once",
        ),
        pytest.param(
            GEMINI_PRO_BASE,
            Usage(input_tokens=262_960, cached_input_tokens=257_955, output_tokens=1_744),
            184_918_125,
            id="cached tokens are charged once",
        ),
        pytest.param(
            GEMINI_PRO,
            Usage(input_tokens=262_960, cached_input_tokens=257_955, output_tokens=1_744),
            199_894_375,
            id="cached tokens count towards the long tier",
        ),
        pytest.param(
            ONE_DOLLAR_INPUT,
            Usage(input_tokens=17_111, cached_input_tokens=17_102, output_tokens=0),
            9_000,
            id="cached tokens are inside the input",
        ),
        pytest.param(
            model(input="3", output="15"),
            Usage(input_tokens=55_416, output_tokens=133),
            168_243_000,
            id="a compaction is paid for",
        ),
        pytest.param(
            SONNET_REGIONAL, Usage(input_tokens=45, output_tokens=511), 8_580_000, id="a drained answer after a hang-up"
        ),
        pytest.param(GPT_4O, Usage(input_tokens=9, output_tokens=1), 32_500, id="gpt-4o standard"),
        pytest.param(
            GPT_4O, Usage(input_tokens=9, output_tokens=1, service_tier="default"), 32_500, id="served default"
        ),
        pytest.param(
            GPT_4O, Usage(input_tokens=9, output_tokens=1, service_tier="priority"), 55_250, id="gpt-4o priority"
        ),
        pytest.param(
            GPT_4O,
            Usage(input_tokens=9, output_tokens=1, service_tier="ON_DEMAND_PRIORITY"),
            55_250,
            id="the same tier as Vertex spells it",
        ),
        pytest.param(GPT_4O, Usage(input_tokens=9, output_tokens=1, service_tier="flex"), 16_250, id="flex is half"),
        pytest.param(
            GPT_4O,
            Usage(input_tokens=9, output_tokens=1, service_tier="on_demand_flex"),
            16_250,
            id="flex as Vertex spells it",
        ),
        pytest.param(GPT_5_5, Usage(input_tokens=272_000, output_tokens=1_000), 1_390_000_000, id="at the threshold"),
        pytest.param(
            GPT_5_5, Usage(input_tokens=272_001, output_tokens=1_000), 2_765_010_000, id="above the threshold"
        ),
        pytest.param(
            GPT_4O, Usage(input_tokens=0, output_tokens=0, web_searches=4), 40_000_000, id="four web searches"
        ),
        pytest.param(GPT_4O, Usage(input_tokens=0, output_tokens=0), 0, id="no fee for a search that never happened"),
        pytest.param(
            SONNET, Usage(input_tokens=0, output_tokens=0, web_searches=4), 0, id="no fee where searches have no price"
        ),
        pytest.param(
            OPENROUTER_FLASH,
            Usage(input_tokens=2_168, cached_input_tokens=2_161, cache_write_tokens=2_161, output_tokens=100),
            497_014,
            id="OpenRouter's overlap of read and written tokens",
        ),
        pytest.param(
            GPT_4O_MINI, Usage(input_tokens=12, output_tokens=5), 4_800, id="less than a thousandth of a cent"
        ),
        pytest.param(
            GROK_MINI,
            Usage(input_tokens=12, output_tokens=229, cost_usd=Decimal("0.00011765")),
            117_650,
            id="the cost xAI reports wins",
        ),
        pytest.param(ARGON, Usage(input_tokens=0, output_tokens=1_048_576), 10_485_760_000, id="the longest answer"),
        pytest.param(
            GPT_5_6_SOL,
            Usage(input_tokens=1_549, output_tokens=30, reasoning_tokens=0),
            6_796_000,
            id="hidden input is charged as reported",
        ),
    ],
)
def test_figures_of_public_reports_are_reproduced(one: ModelPrice, usage: Usage, nanousd: int) -> None:
    assert cost(one, usage) == nanousd


def test_a_price_change_at_midnight_is_charged_from_midnight_on() -> None:
    argon = tariff(ARGON)
    longest = Usage(input_tokens=0, output_tokens=1_048_576)

    costs = [argon.cost(longest, wall_ns=wall_ns, input_bytes=0) for wall_ns in (MIDNIGHT - 1, MIDNIGHT)]

    assert costs == [10_485_760_000, 20_971_520_000]


def test_a_clock_that_goes_back_goes_back_to_the_old_price() -> None:
    argon = tariff(ARGON)
    longest = Usage(input_tokens=0, output_tokens=1_048_576)
    argon.cost(longest, wall_ns=MIDNIGHT, input_bytes=0)

    again = argon.cost(longest, wall_ns=MIDNIGHT - 1, input_bytes=0)

    assert again == 10_485_760_000


@pytest.mark.parametrize(
    ("hour", "minute", "input_usd"),
    [
        (0, 59, "0.66"),
        (1, 0, "1.32"),
        (3, 59, "1.32"),
        (4, 0, "0.66"),
        (6, 0, "1.32"),
        (10, 0, "0.66"),
        (23, 59, "0.66"),
    ],
)
def test_a_price_by_the_hour_follows_the_utc_clock(hour: int, minute: int, input_usd: str) -> None:
    wall_ns = MIDNIGHT + (hour * 60 + minute) * 60 * NS_PER_SECOND

    assert cost(DEEPSEEK, Usage(input_tokens=1_000_000, output_tokens=0), wall_ns=wall_ns) == 10**9 * Fraction(
        input_usd
    )


@pytest.mark.parametrize(
    ("wall_ns", "output_usd"),
    [
        pytest.param(MIDNIGHT - 300 * NS_PER_SECOND - 1, 10, id="a stream that ends before"),
        pytest.param(MIDNIGHT - 300 * NS_PER_SECOND, 20, id="a stream that may touch it"),
        pytest.param(MIDNIGHT, 20, id="after"),
    ],
)
def test_a_ceiling_knows_the_price_that_starts_during_the_stream(wall_ns: int, output_usd: int) -> None:
    argon = tariff(ARGON, max_output_tokens=1_000_000)

    assert argon.ceiling(input_bytes=0, wall_ns=wall_ns) == output_usd * 10**9


def test_a_ceiling_forgets_a_dearer_hour_when_it_is_over() -> None:
    deepseek = tariff(DEEPSEEK, max_output_tokens=1_000_000)
    four = MIDNIGHT + 4 * 3_600 * NS_PER_SECOND

    ceilings = [deepseek.ceiling(input_bytes=0, wall_ns=wall_ns) for wall_ns in (four - 1, four, four - 1)]

    assert ceilings == [3_960_000_000, 1_980_000_000, 3_960_000_000]


def test_a_stream_longer_than_a_dear_hour_reserves_for_that_hour() -> None:
    whole_day = tariff(DEEPSEEK, max_output_tokens=1_000_000, stream_seconds_max=12 * 3_600)
    evening = MIDNIGHT - 3_600 * NS_PER_SECOND

    assert whole_day.ceiling(input_bytes=0, wall_ns=evening) == 3_960_000_000


@pytest.mark.parametrize(
    ("one", "tiers_allowed", "body_bytes_max", "input_usd"),
    [
        pytest.param(GPT_5_6_SOL, False, 64_000, 5, id="a cache may be written unasked"),
        pytest.param(GPT_5_6_SOL, False, 1_000_000, 10, id="and in the long tier"),
        pytest.param(GPT_5_6_SOL, True, 64_000, 10, id="a client may ask for priority"),
        pytest.param(GPT_5_6_SOL, True, 1_000_000, 20, id="and for both"),
        pytest.param(HAIKU_5_5, False, 64_000, Fraction("0.2"), id="a write for an hour"),
        pytest.param(HAIKU_5_5, False, 100_001, 1, id="a write for an hour in the long tier"),
    ],
)
def test_the_ceiling_takes_the_dearest_reachable_input_rate(
    one: ModelPrice, tiers_allowed: bool, body_bytes_max: int, input_usd: Fraction | int
) -> None:
    priced = tariff(one, tiers_allowed=tiers_allowed, body_bytes_max=body_bytes_max, max_output_tokens=0)

    assert priced.largest(NOW) == (body_bytes_max + one.overhead_tokens) * 1_000 * input_usd


def test_the_long_tier_is_not_reserved_for_while_no_call_can_reach_it() -> None:
    at_threshold = tariff(HAIKU_5_5, max_output_tokens=0).ceiling(input_bytes=100_000, wall_ns=NOW)
    above = tariff(HAIKU_5_5, max_output_tokens=0).ceiling(input_bytes=100_001, wall_ns=NOW)

    assert (at_threshold, above) == (100_000 * 200, 100_001 * 1_000)


def test_the_last_of_several_calls_may_reach_the_long_tier() -> None:
    alone = tariff(HAIKU_5_5, calls_per_request=1).ceiling(input_bytes=99_500, wall_ns=NOW)
    looping = tariff(HAIKU_5_5, calls_per_request=2).ceiling(input_bytes=99_500, wall_ns=NOW)

    assert alone == 99_500 * 200 + 1_000 * 500
    assert looping == (2 * 99_500 + 1_000) * 1_000 + 2 * 1_000 * 2_500


def test_a_cheaper_long_tier_lowers_no_ceiling() -> None:
    cheaper = model(standard=stepped((-1, rates(input="2", output="2")), (1_000, rates(input="1", output="1"))))

    assert tariff(cheaper).ceiling(input_bytes=2_000, wall_ns=NOW) == (2_000 + 1_000) * 2_000


def test_the_smallest_and_the_largest_request_are_the_empty_and_the_full_body() -> None:
    priced = tariff(GPT_5_MINI, extra_nanousd=7)

    smallest, largest = priced.smallest(NOW), priced.largest(NOW)

    assert smallest == 256 * 250 + 1_000 * 2_000 + 7
    assert largest == (64_000 + 256) * 250 + 1_000 * 2_000 + 7


def test_one_dollar_admits_650_parallel_calls_of_gpt_4o_mini() -> None:
    ceiling_nanousd = tariff(GPT_4O_MINI, max_output_tokens=500).ceiling(input_bytes=8_000, wall_ns=NOW)

    assert 10**9 // ceiling_nanousd == 650


def test_each_part_of_a_request_is_in_its_ceiling() -> None:
    priced = tariff(
        model(input="1", output="2", call="0.000003", overhead_tokens=100),
        max_output_tokens=10,
        calls_per_request=3,
        system_prompt_bytes=1_000,
        extra_input_bytes=10_000,
        extra_nanousd=5,
        media_nanousd=1_000_000,
    )

    ceiling_nanousd = priced.ceiling(input_bytes=1, media_parts=2, wall_ns=NOW)

    per_call = 1 + 100 + 1_000 + 10_000
    assert ceiling_nanousd == (3 * per_call + 3 * 10) * 1_000 + 3 * 10 * 2_000 + 3 * 3_000 + 2 * 1_000_000 + 5
    assert type(ceiling_nanousd) is int


def test_media_parts_cost_their_flat_price_and_nothing_where_they_have_none() -> None:
    request_nanousd = tariff(GPT_5_MINI).ceiling(input_bytes=10, wall_ns=NOW)

    assert tariff(GPT_5_MINI).ceiling(input_bytes=10, media_parts=3, wall_ns=NOW) == request_nanousd
    assert tariff(GPT_5_MINI, media_nanousd=9).ceiling(input_bytes=10, wall_ns=NOW) == request_nanousd
    assert (
        tariff(GPT_5_MINI, media_nanousd=9).ceiling(input_bytes=10, media_parts=3, wall_ns=NOW) == request_nanousd + 27
    )


def test_a_ceiling_is_rounded_up_once() -> None:
    third = model(input="0.0003333", output="0.0003333")

    assert tariff(third, max_output_tokens=1).ceiling(input_bytes=2, wall_ns=NOW) == 1
    assert tariff(third, max_output_tokens=1).ceiling(input_bytes=3, wall_ns=NOW) == 2


def test_the_ceiling_of_one_call_is_what_is_sent_what_may_be_answered_and_its_fee() -> None:
    """Whatever a request may add to it is known by then."""
    priced = tariff(
        model(input="1", output="2", call="0.000003", overhead_tokens=100),
        calls_per_request=3,
        system_prompt_bytes=1_000,
        extra_nanousd=5,
    )

    assert priced.call_ceiling(input_tokens=10, output_tokens=7, wall_ns=NOW) == 10 * 1_000 + 7 * 2_000 + 3_000


def test_the_ceiling_of_one_call_is_rounded_up() -> None:
    third = tariff(model(input="0.0003333", output="0.0003333"))

    assert third.call_ceiling(input_tokens=2, output_tokens=1, wall_ns=NOW) == 1
    assert third.call_ceiling(input_tokens=3, output_tokens=1, wall_ns=NOW) == 2


def test_the_ceiling_of_one_call_reads_no_more_than_the_window_and_costs_what_its_size_does() -> None:
    long = tariff(HAIKU_5_5)
    windowed = tariff(replace(HAIKU_5_5, context_window=100_000))

    sizes = (100_000, 100_001)

    assert [long.call_ceiling(input_tokens=size, output_tokens=0, wall_ns=NOW) for size in sizes] == [
        100_000 * 200,
        100_001 * 1_000,
    ]
    assert [windowed.call_ceiling(input_tokens=size, output_tokens=0, wall_ns=NOW) for size in sizes] == [
        100_000 * 200,
        100_000 * 200,
    ]


def test_the_ceiling_of_one_call_knows_the_price_that_starts_during_the_stream() -> None:
    argon, touches = tariff(ARGON), MIDNIGHT - 300 * NS_PER_SECOND

    ceilings = [
        argon.call_ceiling(input_tokens=0, output_tokens=1, wall_ns=wall_ns)
        for wall_ns in (touches - 1, touches, touches - 1)
    ]

    assert ceilings == [10_000, 20_000, 10_000]


def test_a_free_model_has_no_ceiling_and_no_cost() -> None:
    free = tariff(model(input="0", output="0"))

    assert free.largest(NOW) == 0
    assert free.cost(Usage(), wall_ns=NOW, input_bytes=10) == 0


def test_a_call_can_read_no_more_than_the_context_window() -> None:
    small = replace(model(input="1", output="1"), context_window=1_000)
    priced = tariff(small, max_output_tokens=300, calls_per_request=4)

    ceilings = [priced.ceiling(input_bytes=size, wall_ns=NOW) for size in (100, 101, 1_000, 5_000)]

    output = 4 * 300
    assert ceilings == [
        (100 + 400 + 700 + 1_000 + output) * 1_000,
        (101 + 401 + 701 + 1_000 + output) * 1_000,
        (4 * 1_000 + output) * 1_000,
        (4 * 1_000 + output) * 1_000,
    ]
    assert {type(ceiling_nanousd) for ceiling_nanousd in ceilings} == {int}


def test_the_window_bounds_only_if_every_model_has_one() -> None:
    small = replace(model("a", input="1", output="1"), context_window=1_000)
    unknown = model("b", input="1", output="1")

    assert tariff(small, unknown, max_output_tokens=0).ceiling(input_bytes=5_000, wall_ns=NOW) == 5_000 * 1_000


def test_a_window_keeps_a_call_out_of_the_long_tier() -> None:
    windowed = replace(HAIKU_5_5, context_window=100_000)

    assert tariff(windowed, max_output_tokens=0).ceiling(input_bytes=200_000, wall_ns=NOW) == 100_000 * 200


def test_a_model_that_can_say_less_lowers_the_maximum_output() -> None:
    terse = replace(model("a", input="0", output="1"), max_output_tokens=100)
    verbose = replace(model("b", input="0", output="1"), max_output_tokens=5_000)

    assert tariff(terse).max_output_tokens == 100
    assert tariff(verbose).max_output_tokens == 1_000
    assert tariff(terse, verbose).max_output_tokens == 1_000


def test_the_dearest_of_each_part_is_reserved_over_several_models() -> None:
    reader = model("reader", input="10", output="1", overhead_tokens=5)
    writer = model("writer", input="1", output="10", overhead_tokens=50)

    ceiling_nanousd = tariff(reader, writer).ceiling(input_bytes=100, wall_ns=NOW)

    assert ceiling_nanousd == 150 * 10_000 + 1_000 * 10_000
    assert tariff(reader, writer).overhead_tokens == 50


def test_sound_in_the_answer_is_reserved_for_where_it_is_priced() -> None:
    speaking = model(input="1", output="2", output_audio="64")

    assert tariff(speaking).ceiling(input_bytes=0, wall_ns=NOW) == 1_000 * 64_000


def test_the_request_fee_of_a_provider_is_in_ceiling_and_cost() -> None:
    sonar = model("sonar", input="1", output="1", call="0.012")

    assert tariff(sonar, calls_per_request=2, max_output_tokens=0).smallest(NOW) == 2 * 12_000_000
    assert cost(sonar, Usage(input_tokens=0, output_tokens=0)) == 12_000_000


def test_an_output_nobody_reported_counts_as_the_maximum() -> None:
    assert cost(model(input="1", output="2"), Usage(input_tokens=5)) == 5 * 1_000 + 1_000 * 2_000


def test_an_input_nobody_reported_counts_as_the_bound_of_the_last_call() -> None:
    priced = tariff(model(input="1", output="0", overhead_tokens=7), calls_per_request=3, max_output_tokens=10)

    assert priced.cost(Usage(output_tokens=0), wall_ns=NOW, input_bytes=100) == (100 + 7 + 20) * 1_000


def test_an_input_nobody_reported_is_at_most_the_window() -> None:
    small = replace(model(input="1", output="0"), context_window=50)

    assert cost(small, Usage(output_tokens=0), input_bytes=100) == 50 * 1_000


def test_usage_without_any_count_costs_the_ceiling() -> None:
    priced = tariff(GPT_5_MINI)

    assert priced.cost(Usage(), wall_ns=NOW, input_bytes=500) == priced.ceiling(input_bytes=500, wall_ns=NOW)


def test_sound_is_charged_at_its_own_rate() -> None:
    speaking = model(input="2.5", output="10", input_audio="32", output_audio="64")
    usage = Usage(input_tokens=100, input_audio_tokens=40, output_tokens=50, output_audio_tokens=20)

    assert cost(speaking, usage) == 60 * 2_500 + 40 * 32_000 + 30 * 10_000 + 20 * 64_000


def test_sound_without_a_price_costs_the_dearest_known_rate() -> None:
    usage = Usage(input_tokens=100, input_audio_tokens=100, output_tokens=50, output_audio_tokens=50)

    assert cost(SONNET, usage) == 100 * 6_000 + 50 * 15_000


def test_cached_sound_is_charged_as_fresh_sound() -> None:
    speaking = model(input="1", output="0", cached_input="0.1", input_audio="10")
    usage = Usage(input_tokens=100, cached_input_tokens=80, input_audio_tokens=50, output_tokens=0)

    assert cost(speaking, usage) == 50 * 10_000 + 50 * 100


def test_where_all_of_the_input_was_sound_no_cached_token_is_charged() -> None:
    speaking = model(input="1", output="0", cached_input="0.1", input_audio="10")
    usage = Usage(input_tokens=100, cached_input_tokens=80, input_audio_tokens=100, output_tokens=0)

    assert cost(speaking, usage) == 100 * 10_000


def test_where_all_of_the_input_was_read_from_or_written_to_a_cache_none_is_charged_as_plain() -> None:
    usage = Usage(input_tokens=100, cached_input_tokens=60, cache_write_tokens=40, output_tokens=0)

    assert cost(SONNET, usage) == 60 * 300 + 40 * 3_750


def test_reasoning_priced_apart_is_charged_apart() -> None:
    research = model(input="0", output="8", reasoning="3")

    assert cost(research, Usage(input_tokens=0, output_tokens=100, reasoning_tokens=60)) == 40 * 8_000 + 60 * 3_000


def test_short_and_long_cache_writes_are_charged_apart() -> None:
    usage = Usage(input_tokens=100, cache_write_tokens=30, cache_write_1h_tokens=20, output_tokens=0)

    assert cost(SONNET, usage) == 50 * 3_000 + 30 * 3_750 + 20 * 6_000


@pytest.mark.parametrize(
    ("usage", "same_as"),
    [
        pytest.param(
            Usage(input_tokens=12, cached_input_tokens=208, output_tokens=0),
            Usage(input_tokens=208, cached_input_tokens=208, output_tokens=0),
            id="more cached than read",
        ),
        pytest.param(
            Usage(input_tokens=1, cache_write_tokens=5, cache_write_1h_tokens=4, output_tokens=0),
            Usage(input_tokens=9, cache_write_tokens=5, cache_write_1h_tokens=4, output_tokens=0),
            id="more written than read",
        ),
        pytest.param(
            Usage(input_tokens=0, output_tokens=10, reasoning_tokens=11),
            Usage(input_tokens=0, output_tokens=11),
            id="more reasoning than output",
        ),
        pytest.param(
            Usage(input_tokens=0, output_tokens=10, output_audio_tokens=12),
            Usage(input_tokens=0, output_tokens=12),
            id="more sound than output",
        ),
        pytest.param(Usage(input_tokens=-5, output_tokens=-5), Usage(), id="negative totals"),
        pytest.param(
            Usage(
                input_tokens=9,
                output_tokens=9,
                cached_input_tokens=-9,
                cache_write_tokens=-9,
                cache_write_1h_tokens=-9,
                input_audio_tokens=-9,
                reasoning_tokens=-9,
                output_audio_tokens=-9,
                web_searches=-9,
            ),
            Usage(input_tokens=9, output_tokens=9),
            id="negative parts",
        ),
        pytest.param(
            Usage(input_tokens=9, output_tokens=9, cost_usd=Decimal(-1)),
            Usage(input_tokens=9, output_tokens=9),
            id="a negative cost",
        ),
        pytest.param(
            Usage(input_tokens=9, output_tokens=9, cost_usd=Decimal("NaN")),
            Usage(input_tokens=9, output_tokens=9),
            id="a cost that is no number",
        ),
    ],
)
def test_contradictory_counts_are_worth_no_discount(usage: Usage, same_as: Usage) -> None:
    assert cost(SONNET, usage, input_bytes=50) == cost(SONNET, same_as, input_bytes=50)


@pytest.mark.parametrize(
    "part", ["cached_input_tokens", "cache_write_tokens", "cache_write_1h_tokens", "input_audio_tokens"]
)
def test_a_part_larger_than_the_input_counts_towards_the_long_tier(part: str) -> None:
    long = model(standard=stepped((-1, rates(input="1", output="1")), (100, rates(input="2", output="2"))))
    fits: dict[str, Any] = {part: 100}
    above: dict[str, Any] = {part: 101}

    costs = [cost(long, Usage(input_tokens=1, output_tokens=0, **counts)) for counts in (fits, above)]

    assert costs == [100 * 1_000, 101 * 2_000]


def test_an_input_of_nothing_that_is_reported_costs_nothing() -> None:
    assert cost(SONNET, Usage(input_tokens=0, output_tokens=1), input_bytes=50) == 15_000


def test_a_reported_cost_of_zero_is_an_answer() -> None:
    assert cost(SONNET, Usage(input_tokens=9, output_tokens=9, cost_usd=Decimal(0))) == 0


def test_a_reported_cost_is_taken_as_it_is_however_fine_the_rates_are() -> None:
    fine = model(input="0.0003333", output="0.0003333")

    assert cost(fine, Usage(cost_usd=Decimal("0.001"))) == 1_000_000


def test_a_reported_cost_finer_than_a_nano_usd_is_rounded_up() -> None:
    assert cost(SONNET, Usage(cost_usd=Decimal("0.0004970133333333333"))) == 497_014


@pytest.mark.parametrize(
    ("tier", "nanousd"),
    [
        ("standard", 1_000),
        ("auto", 1_000),
        ("batch", 1_000),
        ("ON_DEMAND", 1_000),
        ("fast", 7_000),
        ("FAST", 7_000),
        ("scale-9", 7_000),
        ("slow", 500),
    ],
)
def test_a_tier_nobody_knows_costs_the_dearest(tier: str, nanousd: int) -> None:
    tiered = replace(
        model(input="1", output="1"),
        service_tiers={"Fast": flat(input="7", output="7"), "slow": flat(input="0.5", output="0.5")},
    )

    assert cost(tiered, Usage(input_tokens=1, output_tokens=0, service_tier=tier)) == nanousd


def test_where_clients_choose_the_tier_silence_costs_the_dearest() -> None:
    usage = Usage(input_tokens=9, output_tokens=1)

    chosen = tariff(GPT_4O, tiers_allowed=True).cost(usage, wall_ns=NOW, input_bytes=0)

    assert chosen == 55_250


CHEAP = model("cheap", input="1", output="1")
DEAR = model("dear", input="5", output="1")


@pytest.mark.parametrize(
    ("model_said", "model_answered", "nanousd"),
    [
        pytest.param("cheap", None, 1_000, id="the application's word"),
        pytest.param("dear", "cheap", 5_000, id="the application's word against the answer's"),
        pytest.param(None, "cheap", 1_000, id="the answer's word"),
        pytest.param(None, "cheap-2026-01-02", 1_000, id="a snapshot"),
        pytest.param(None, None, 5_000, id="nobody's word"),
        pytest.param(None, "other", 5_000, id="a model that is none of ours"),
        pytest.param("other", None, None, id="the application names none of ours"),
        pytest.param("other", "cheap", None, id="and the answer does not help it"),
        pytest.param("", "cheap", None, id="an empty name"),
    ],
)
def test_a_call_is_charged_at_its_model_or_the_dearest(
    model_said: str | None, model_answered: str | None, nanousd: int | None
) -> None:
    usage = Usage(input_tokens=1, output_tokens=0, model=model_answered)

    assert tariff(CHEAP, DEAR).cost(usage, model=model_said, wall_ns=NOW, input_bytes=0) == nanousd


def test_an_unknown_model_is_refused_even_with_a_cost() -> None:
    usage = Usage(cost_usd=Decimal(1))

    assert tariff(CHEAP).cost(usage, model="other", wall_ns=NOW, input_bytes=0) is None


def test_the_dearest_is_found_for_each_usage() -> None:
    reader, writer = model("reader", input="10", output="1"), model("writer", input="1", output="10")
    both = tariff(reader, writer)

    reading = both.cost(Usage(input_tokens=9, output_tokens=1), wall_ns=NOW, input_bytes=0)
    writing = both.cost(Usage(input_tokens=1, output_tokens=9), wall_ns=NOW, input_bytes=0)

    assert reading == writing == 91_000


def test_a_name_that_means_two_configured_models_costs_the_dearer() -> None:
    both = tariff(model("openai/m", input="1", output="1"), model("azure/m", input="2", output="1"))
    usage = Usage(input_tokens=1, output_tokens=0)

    costs = {
        name: both.cost(usage, model=name, wall_ns=NOW, input_bytes=0)
        for name in ("m", "m-2026-01-02", "openai/m", "azure/m")
    }

    assert costs == {"m": 2_000, "m-2026-01-02": 2_000, "openai/m": 1_000, "azure/m": 2_000}


def test_tokens_of_other_models_are_added_at_their_own_prices() -> None:
    advisor = Usage(input_tokens=10, output_tokens=0, model="cheap")
    stranger = Usage(input_tokens=10, output_tokens=0, model="other")
    usage = Usage(input_tokens=1, output_tokens=0, model="dear", other_models=(advisor, stranger))

    assert tariff(CHEAP, DEAR).cost(usage, wall_ns=NOW, input_bytes=0) == 5_000 + 10_000 + 50_000


def test_an_input_nobody_reported_of_another_model_counts_as_the_bound_too() -> None:
    other = Usage(output_tokens=0, model="cheap")
    usage = Usage(input_tokens=0, output_tokens=0, model="dear", other_models=(other,))

    assert tariff(CHEAP, DEAR).cost(usage, wall_ns=NOW, input_bytes=50) == 50_000


def test_the_models_in_one_answer_are_rounded_up_together() -> None:
    tenth = model(input="0.0001", output="0")
    part = Usage(input_tokens=1, output_tokens=0)

    assert cost(tenth, replace(part, other_models=(part, part))) == 1


@pytest.mark.parametrize(
    "answered",
    [
        "gpt-5-mini",
        "GPT-5-Mini",
        "openai/gpt-5-mini",
        "models/gpt-5-mini",
        "gpt-5-mini-2025-08-07",
        "openai/gpt-5-mini-2025-08-07",
        "gpt-5-mini-20250807",
        "gpt-5-mini@20250807",
        "gpt-5-mini-250807",
        "gpt-5-mini-0807",
        "gpt-5-mini-002",
        "gpt-5-mini-latest",
        "gpt-5-mini-20250807-v1:0",
        "other-name",
        "other-name-0807",
    ],
)
def test_a_model_is_known_by_its_names_and_snapshots(answered: str) -> None:
    priced = tariff(replace(GPT_5_MINI, name="openai/gpt-5-mini", aliases=frozenset({"Other-Name"})))

    assert priced.configured_name(answered)
    assert priced.configured_name(answered) == "openai/gpt-5-mini"


@pytest.mark.parametrize(
    "answered",
    [
        "",
        "gpt-5",
        "gpt-5-min",
        "gpt-5-mini-",
        "gpt-5-mini-2",
        "gpt-5-mini-20",
        "gpt-5-mini-2025-8-7",
        "gpt-5-mini-high",
        "gpt-5-mini-2025-08-07-preview",
        "gpt-5-mini2025-08-07",
        "gpt-5-mini-2024-01-01",
        "azure/gpt-5-mini",
        "xgpt-5-mini",
        "gpt-5-mini ",
        "gpt-5-mini\n",
        "gpt-5-mini-٢٠٢٥",
        "gpt-5-mini" + "-0807" * 100,
    ],
)
def test_other_models_are_not_ours(answered: str) -> None:
    priced = tariff(replace(GPT_5_MINI, name="openai/gpt-5-mini", strangers=frozenset({"GPT-5-mini-2024-01-01"})))

    assert not priced.configured_name(answered)
    assert priced.configured_name(answered) is None


def test_only_who_serves_a_model_may_be_left_out_of_its_name() -> None:
    priced = tariff(model("openrouter/openai/m", input="1", output="1"))

    assert priced.configured_name("openai/m") == "openrouter/openai/m"
    assert priced.configured_name("m") is None


def test_latest_means_every_snapshot() -> None:
    assert tariff(model("sonnet-latest", input="1", output="1")).configured_name("sonnet-20241022")


def test_a_name_longer_than_any_model_is_not_looked_at() -> None:
    long = "x" * MODEL_NAME_LENGTH_MAX
    priced = tariff(model(long, input="1", output="1"), model(long + "x", input="1", output="1"))

    assert priced.configured_name(long)
    assert not priced.configured_name(long + "x")


def test_a_tariff_without_models_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a tariff needs at least one model$"):
        tariff()
