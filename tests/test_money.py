"""Money: what text means, which way it is rounded, and that no application's decimal context changes it."""

import re
from collections.abc import Iterator
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.money import NANOUSD_MAX, ceil_div, format_usd, parse_cost_usd, parse_usd

amounts = st.integers(min_value=0, max_value=NANOUSD_MAX)


@pytest.fixture(params=["rounds to three digits", "traps what is inexact"])
def _foreign_context(request: pytest.FixtureRequest) -> Iterator[None]:
    with localcontext() as context:
        if request.param == "rounds to three digits":
            context.prec = 3
        else:
            context.traps[Inexact] = True
            context.prec = 3
        yield


@pytest.mark.parametrize(
    ("written", "nanousd"),
    [
        ("5", 5_000_000_000),
        ("$5", 5_000_000_000),
        (" 0.25 ", 250_000_000),
        ("0.000000001", 1),
        ("1e-9", 1),
        ("1.000000000000", 1_000_000_000),
        ("0", 0),
        ("-0", 0),
        ("9000000", NANOUSD_MAX),
        (5, 5_000_000_000),
        (0.1, 100_000_000),
        (1e-9, 1),
        (Decimal("0.123456789"), 123_456_789),
    ],
    ids=repr,
)
def test_an_amount_means_what_is_written(written: str | float | Decimal, nanousd: int) -> None:
    assert parse_usd(written) == nanousd


@pytest.mark.parametrize(
    "written",
    [
        "",
        "$",
        "$$5",
        "five",
        "5 USD",
        "5,00",
        "1/3",
        "-1",
        "-0.000000001",
        "nan",
        "sNaN",
        "inf",
        "-Infinity",
        "9000000.000000001",
        "9e999999999",
        "0.0000000001",
        "1.0000000000000000000000000000000001",
        "1e-999999999",
        True,
        float("nan"),
        float("inf"),
        10**30,
        Decimal("NaN"),
    ],
    ids=repr,
)
def test_what_is_not_an_amount_is_refused(written: str | float | Decimal) -> None:
    with pytest.raises(ValueError, match=r"USD|finite|negative|largest|nine decimals"):
        parse_usd(written)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("five", "'five' is not an amount in USD"),
        ("inf", "'inf' is not a finite amount in USD"),
        ("-1", "'-1' is negative"),
        ("9000001", "'9000001' is above the largest amount, 9000000 USD"),
        ("0.0000000001", "'0.0000000001' has more than nine decimals"),
    ],
)
def test_a_refused_amount_says_what_was_found_and_why(written: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_usd(written)


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        ("sk-secret", "the reported cost is not a number"),
        ("-1", "the reported cost is negative, not finite, or above 9000000 USD"),
    ],
)
def test_a_refused_cost_says_why_and_does_not_repeat_what_was_reported(reported: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_cost_usd(reported)


@pytest.mark.parametrize(
    ("reported", "nanousd"),
    [
        ("0", 0),
        (0, 0),
        (0.0, 0),
        ("0.0000000001", 1),
        ("0.0000000010000000000000000000000000000000001", 2),
        ("1e-999999999", 1),
        ("0e-999999999", 0),
        (5e-324, 1),
        (Decimal("1e-999999999999999999"), 1),
        ("8999999.9999999999", NANOUSD_MAX),
        (9_000_000, NANOUSD_MAX),
    ],
    ids=repr,
)
def test_a_reported_cost_is_rounded_up(reported: str | float | Decimal, nanousd: int) -> None:
    """Also one so fine that its exact ratio would fill the memory."""
    assert parse_cost_usd(reported) == nanousd


@pytest.mark.parametrize(
    "reported",
    ["", "$1", "many", "-1e-99", "nan", "sNaN123", "inf", "9000000.0000000001", "1e400", True, False, -1, 10**60],
    ids=repr,
)
def test_a_cost_that_cannot_be_charged_is_refused(reported: str | float) -> None:
    with pytest.raises(ValueError, match="cost"):
        parse_cost_usd(reported)


@pytest.mark.usefixtures("_foreign_context")
@pytest.mark.parametrize("written", ["1.234567891", "8999999.999999999"])
def test_the_decimal_context_of_an_application_changes_no_amount(written: str) -> None:
    exact = int(Fraction(written) * 10**9)

    assert parse_usd(written) == exact
    assert parse_cost_usd(written) == exact
    assert parse_cost_usd(written + "1") == exact + 1


def test_not_a_number_is_refused_also_where_decimals_do_not_trap_it() -> None:
    with localcontext() as context:
        context.clear_traps()

        with pytest.raises(ValueError, match="finite"):
            parse_usd("five")


@pytest.mark.parametrize(
    ("nanousd", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (2_400_000, "0.0024"),
        (5_000_000_000, "5"),
        (10_000_000_000, "10"),
        (100_000_000_000, "100"),
        (-500_000_000, "-0.5"),
        (-1, "-0.000000001"),
        (NANOUSD_MAX, "9000000"),
    ],
)
def test_money_prints_without_exponent_or_trailing_zeros(nanousd: int, text: str) -> None:
    assert format_usd(nanousd) == text


@settings(max_examples=300)
@given(amounts)
def test_what_is_printed_reads_back_the_same(nanousd: int) -> None:
    text = format_usd(nanousd)

    assert parse_usd(text) == nanousd
    assert parse_cost_usd(text) == nanousd


@settings(max_examples=300)
@given(st.decimals(min_value=0, max_value=9_000_000, allow_nan=False, allow_infinity=False))
def test_a_cost_is_never_rounded_down_and_by_less_than_a_nano_dollar_up(cost: Decimal) -> None:
    exact = Fraction(cost) * 10**9

    nanousd = parse_cost_usd(cost)

    assert 0 <= nanousd - exact < 1


@settings(max_examples=200)
@given(st.one_of(st.text(max_size=20), st.floats(), st.integers(), st.decimals()))
def test_whatever_is_given_is_money_or_a_value_error(given: str | float | Decimal) -> None:
    for parse in (parse_usd, parse_cost_usd):
        try:
            nanousd = parse(given)
        except ValueError:
            continue
        assert type(nanousd) is int
        assert 0 <= nanousd <= NANOUSD_MAX


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**12))
def test_a_division_is_rounded_up(numerator: int, denominator: int) -> None:
    quotient = ceil_div(numerator, denominator)

    assert (quotient - 1) * denominator < numerator <= quotient * denominator
