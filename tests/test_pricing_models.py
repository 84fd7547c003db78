"""Whose price a call is charged at, and which names mean a model."""

import gc
import weakref
from dataclasses import replace
from decimal import Decimal

import pytest

from routeguard.pricing import MODEL_NAME_LENGTH_MAX, MODEL_NAMES_REMEMBERED
from routeguard.usage import Usage
from tests.tariffs import GPT_4O, GPT_5_MINI, NOW, cost, model, tariff

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


@pytest.mark.parametrize(("dearer_tiers", "nanousd"), [(False, 2_500_000), (True, 4_250_000)])
def test_a_tier_that_was_asked_for_holds_for_the_other_models_of_an_answer_too(
    nanousd: int, *, dearer_tiers: bool
) -> None:
    other = Usage(model="gpt-4o", input_tokens=1_000, output_tokens=0)
    usage = Usage(model="gpt-4o", input_tokens=0, output_tokens=0, other_models=(other,))

    found = tariff(GPT_4O).cost(usage, wall_ns=NOW, input_bytes=0, dearer_tiers=dearer_tiers)

    assert found == nanousd


def test_a_tier_has_a_price_where_the_table_or_the_operator_gives_it_one() -> None:
    told = replace(GPT_4O, source="openai/gpt-4o")
    untold = replace(model("untold", input="1", output="1"), source="openai/untold")
    priced = tariff(told, untold, CHEAP)

    assert [priced.knows_tiers_of(name) for name in ("gpt-4o", "untold", "cheap")] == [True, False, True]


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


class Name(str):
    """A name that tells whether anybody still holds it."""


def test_only_so_many_names_are_remembered() -> None:
    priced = tariff(CHEAP)
    name = Name("cheap-2026-01-02")
    held = weakref.ref(name)
    assert priced.configured_name(name) == "cheap"
    del name

    for number in range(MODEL_NAMES_REMEMBERED):
        priced.configured_name(f"other-{number}")

    gc.collect()
    assert held() is None


def test_a_tariff_without_models_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a tariff needs at least one model$"):
        tariff()
