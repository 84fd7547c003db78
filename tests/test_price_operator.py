"""Prices of the operator, in settings or in a file, are taken exactly as written."""

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.price_file import LIMITS, RATES
from routeguard.price_sources import OVERHEAD_TOKENS_UNKNOWN, PriceFileError, find_model, priced, read_price_file
from routeguard.prices import OVERHEAD_TOKENS, Price, Rates, Schedule
from tests.tariffs import NOW, rates_of, usd


def test_an_operators_price_is_taken_as_written() -> None:
    model = priced(input=Decimal("0.15000000000000002"), output=Decimal(2))

    rates = rates_of(model)
    assert usd(rates.input, rates.per) == Fraction("0.15000000000000002")
    assert rates.cached_input == rates.cache_write == rates.cache_write_1h == rates.input
    assert (model.overhead_tokens, model.family) == (OVERHEAD_TOKENS, None) == (1_536, None)


def test_an_operators_cache_prices_are_taken_as_written() -> None:
    rates = rates_of(
        priced(input=Decimal(3), output=Decimal(15), cached_input=Decimal("0.3"), cache_write=Decimal("3.75"))
    )

    assert usd(rates.cached_input, rates.per) == Fraction("0.3")
    assert usd(rates.cache_write, rates.per) == usd(rates.cache_write_1h, rates.per) == Fraction("3.75")


def test_a_price_of_zero_is_a_price() -> None:
    rates = rates_of(priced(input=Decimal(0), output=Decimal(0)))

    assert rates.dearest_input == rates.dearest_output == rates.call == 0


def test_an_operators_price_leaves_the_rest_of_a_known_model() -> None:
    model = priced(input=Decimal(1), output=Decimal(2), known=find_model("perplexity/sonar"))

    rates = rates_of(model)
    assert model.name == "perplexity/sonar"
    assert model.overhead_tokens == OVERHEAD_TOKENS_UNKNOWN
    assert usd(rates.input, rates.per) == 1
    assert Fraction(rates.call, rates.per) == 12_000_000


def test_an_operators_price_holds_for_every_service_tier() -> None:
    assert not priced(input=Decimal(1), output=Decimal(2), known=find_model("gpt-5-mini")).service_tiers


PRICE_FILE = """
["gpt-5-mini"]
input = 0.25
output = 2
cached_input = 0.025
cache_write = 0.3
cache_write_1h = 0.5
input_audio = 10
output_audio = 20
reasoning = 3
web_search = 0.01
call = 0.002
max_output_tokens = 128000
context_window = 400000
overhead_tokens = 0

[["gpt-5-mini".tiers]]
above = 272000
input = 0.5
output = 3
cached_input = 0.05
cache_write = 0.6
cache_write_1h = 1
input_audio = 20
output_audio = 40
reasoning = 6

[plain]
input = 1
output = 0

[plain.service_tiers.priority]
input = 2
output = 3
call = 0.5
"""


def test_the_price_file_of_the_documentation_can_be_read() -> None:
    page = (Path(__file__).parent.parent / "docs" / "prices.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)

    models = read_price_file(example)

    assert list(models) == ["gpt-5-mini", "house/llama-4"]
    assert all(f"`{key}`" in page for key in (*RATES, *LIMITS, "tiers", "service_tiers"))


def test_a_price_file_is_read_to_the_last_digit() -> None:
    model = read_price_file(PRICE_FILE)["gpt-5-mini"]

    assert (model.overhead_tokens, model.context_window, model.max_output_tokens) == (0, 400_000, 128_000)
    base, above = (
        Rates.of(**{name: Fraction(text) for name, text in zip(NAMES, texts.split(), strict=True)})
        for texts in ("0.25 2 0.025 0.3 0.5 10 20 3 0.01 0.002", "0.5 3 0.05 0.6 1 20 40 6 0.01 0.002")
    )
    assert model.standard == Schedule.always(Price(((-1, base), (272_000, above))))


NAMES = (
    "input",
    "output",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "input_audio",
    "output_audio",
    "reasoning",
    "web_search",
    "call",
)


def test_what_a_price_file_leaves_out_is_not_limited() -> None:
    model = read_price_file(PRICE_FILE)["plain"]

    assert (model.overhead_tokens, model.context_window, model.max_output_tokens) == (OVERHEAD_TOKENS, None, None)
    assert rates_of(model).call == 0


def test_a_service_tier_has_its_own_prices() -> None:
    rates = rates_of(read_price_file(PRICE_FILE)["plain"], tier="priority")

    assert [usd(rate, rates.per) for rate in (rates.input, rates.output)] == [2, 3]
    assert Fraction(rates.call, rates.per) == 500_000_000


def test_tiers_may_be_written_in_any_order() -> None:
    text = "[m]\ninput=1\noutput=1\ntiers=[{above=9,input=3,output=3},{above=5,input=2,output=2}]"

    price, _ = read_price_file(text)["m"].standard.at(NOW)

    assert [threshold for threshold, _ in price.steps] == [-1, 5, 9]
    assert [usd(price.at(tokens).input, price.at(tokens).per) for tokens in (5, 6, 9, 10)] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("[m\n", ["the price file is not TOML: Expected ']'"], id="not TOML"),
        pytest.param("m = 1", ['"m" is 1, not a table of prices'], id="not a table"),
        pytest.param("[m]", ['"m": input is missing', '"m": output is missing'], id="no price"),
        pytest.param(
            "[m]\ninput=1\noutput=1\ncached=1", ['"m": cached is not known; did you mean cached_input?'], id="near"
        ),
        pytest.param("[m]\ninput=1\noutput=1\nzzz=1", ['"m": zzz is not known; known: input, output,'], id="far"),
        pytest.param(
            "[gpt-4.1]\ninput=1\noutput=1",
            [
                '"gpt-4": 1 is not known; a model name with a dot in it needs quotes',
                '"gpt-4": input is',
                '"gpt-4": out',
            ],
            id="a dot without quotes",
        ),
        pytest.param('[m]\ninput="1"\noutput=1', ["\"m\": input is '1'; write a number of USD from 0"], id="text"),
        pytest.param("[m]\ninput=true\noutput=1", ['"m": input is true; write a number'], id="a truth value"),
        pytest.param(
            "[m]\ninput=nan\noutput=inf", ['"m": input is nan; ', '"m": output is infinity; '], id="no number"
        ),
        pytest.param("[m]\ninput=-1\noutput=-0.5", ['"m": input is -1; ', '"m": output is -0.5; '], id="negative"),
        pytest.param("[m]\ninput=1000000.1\noutput=1000001", ['"m": input is', '"m": output is'], id="too much"),
        pytest.param("[m]\ninput=1e-31\noutput=1e999", ['"m": input is 1e-31; write', '"m": output is'], id="too fine"),
        pytest.param(
            "[m]\ninput=0.00000025\noutput=0.000002",
            [
                '"m": input is 2.5e-7; prices are in USD per million tokens',
                '"m": output is 0.000002; prices are in USD',
            ],
            id="a price of one token",
        ),
        pytest.param(
            "[m]\ninput=1\noutput=1\nmax_output_tokens=0\ncontext_window=1.5\noverhead_tokens=-1",
            [
                '"m": overhead_tokens is -1; write a whole number from 0',
                '"m": context_window is 1.5',
                '"m": max_output',
            ],
            id="limits",
        ),
        pytest.param(
            "[m]\ninput=1\noutput=1\ncache_write=2\n[[m.tiers]]\nabove=9\ninput=2\noutput=2",
            ['"m".tiers[0]: cache_write is missing'],
            id="a rate that would be cheaper in the tier",
        ),
        pytest.param(
            "[m]\ninput=1\noutput=1\n[[m.tiers]]\ninput=2\noutput=2", ['"m".tiers[0]: above is m'], id="above"
        ),
        pytest.param(
            "[m]\ninput=1\noutput=1\ntiers=[{above=9,input=1,output=1},{above=9,input=1,output=1}]",
            ['"m".tiers[1]: above is 9 in two tiers'],
            id="two tiers at one threshold",
        ),
        pytest.param(
            "[m]\ninput=1\noutput=1\ntiers=2", ['"m": tiers is not an array of tables; write [["m".t'], id="tiers"
        ),
        pytest.param("[m]\ninput=1\noutput=1\ntiers=[2]", ['"m".tiers[0] is 2, not a table of pri'], id="a tier"),
        pytest.param(
            "[m]\ninput=1\noutput=1\nservice_tiers=2",
            ['"m": service_tiers is not a table of tables'],
            id="service tiers",
        ),
        pytest.param(
            "[m]\ninput=1\noutput=1\ncached_input=1\n[[m.tiers]]\nabove=9\ninput=2\noutput=2\ncached_input=1\n"
            "[m.service_tiers.fast]\ninput=1\noutput=1\noverhead_tokens=2",
            [
                '"m".service_tiers.fast: overhead_tokens is not known',
                '"m".service_tiers.fast: cached_input is missing',
                '"m".service_tiers.fast: tiers is missing',
            ],
            id="a service tier with less than its model",
        ),
        pytest.param(
            "[a]\nx=1\ninput=1\noutput=1\n[b]\ny=1\ninput=1\noutput=1", ['"a": x is', '"b": y is'], id="two models"
        ),
    ],
)
def test_every_problem_of_a_price_file_is_reported_at_once(text: str, problems: list[str]) -> None:
    with pytest.raises(PriceFileError) as refused:
        read_price_file(text)

    assert len(refused.value.problems) == len(problems)
    for problem, beginning in zip(refused.value.problems, problems, strict=True):
        assert problem.startswith(beginning)
        assert problem in str(refused.value)


def test_an_empty_price_file_prices_nothing() -> None:
    assert read_price_file("") == {}


@given(number=st.decimals(min_value=Decimal("0.0001"), max_value=1_000_000, places=18))
def test_a_number_in_a_price_file_stays_exact(number: Decimal) -> None:
    rates = rates_of(read_price_file(f"[m]\ninput = {number:f}\noutput = 0")["m"])

    assert usd(rates.input, rates.per) == Fraction(number)


@given(text=st.text(alphabet='[]"=.,{}mabouinptr0123456789e-\n ', max_size=80))
def test_any_text_is_a_price_file_or_a_list_of_problems(text: str) -> None:
    problems: tuple[str, ...] = ()

    try:
        models = read_price_file(text)
    except PriceFileError as error:
        models, problems = {}, error.problems

    assert problems or all(rates_of(model).per > 0 for model in models.values())
