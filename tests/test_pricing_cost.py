"""What a call is charged for its usage, example by example, among them the figures of public bug reports."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from routeguard.prices import ModelPrice
from routeguard.usage import Usage
from tests.tariffs import (
    ARGON,
    GPT_4O,
    GPT_4O_MINI,
    GPT_5_6_SOL,
    GPT_5_MINI,
    NOW,
    SONNET,
    cost,
    flat,
    model,
    rates,
    stepped,
    tariff,
)

SONNET_REGIONAL = model("regional-sonnet", input="3.3", output="16.5")
GPT_5_5 = model(
    "gpt-5.5", standard=stepped((-1, rates(input="5", output="30")), (272_000, rates(input="10", output="45")))
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
                cached_input_tokens=-1,
                cache_write_tokens=-1,
                cache_write_1h_tokens=-1,
                input_audio_tokens=-1,
                reasoning_tokens=-1,
                output_audio_tokens=-1,
                web_searches=-1,
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
