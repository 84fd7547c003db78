"""What a request may cost at most, example by example."""

from dataclasses import replace
from fractions import Fraction

import pytest

from routeguard.prices import NS_PER_SECOND, ModelPrice
from routeguard.usage import Usage
from tests.tariffs import (
    ARGON,
    GPT_4O,
    GPT_4O_MINI,
    GPT_5_6_SOL,
    GPT_5_MINI,
    HAIKU_5_5,
    MIDNIGHT,
    NOW,
    cost,
    model,
    rates,
    stepped,
    tariff,
)


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


@pytest.mark.parametrize(
    ("tiers_allowed", "asked", "nanousd"),
    [
        (False, {}, 2_500_000),
        (False, {"dearer_tiers": False}, 2_500_000),
        (False, {"dearer_tiers": True}, 4_250_000),
        (True, {}, 4_250_000),
        (True, {"dearer_tiers": True}, 4_250_000),
    ],
)
def test_the_ceiling_of_one_call_is_that_of_its_dearest_tier_where_it_or_a_client_may_ask_for_one(
    asked: dict[str, bool], nanousd: int, *, tiers_allowed: bool
) -> None:
    priced = tariff(GPT_4O, tiers_allowed=tiers_allowed)

    found = [priced.call_ceiling(input_tokens=1_000, output_tokens=0, wall_ns=NOW, **asked) for _ in range(2)]

    assert found == [nanousd, nanousd]


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
