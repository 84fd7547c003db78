"""Budgets, rates and prices as they are written, and what is refused with what would be right."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard import price_file
from routeguard.money import NANOUSD_MAX, format_usd
from routeguard.policy import Rate
from routeguard.settings import grammar, limits
from routeguard.settings.limits import Cap, Share
from tests.configured import SECOND, USD, table


@table(
    ("written", "caps"),
    [
        ("5/day", (Cap(5 * USD, "day"),)),
        ("$5/day", (Cap(5 * USD, "day"),)),
        ("5 / Day", (Cap(5 * USD, "day"),)),
        ("5/day, 50/month", (Cap(5 * USD, "day"), Cap(50 * USD, "month"))),
        (["5/day", "50/month"], (Cap(5 * USD, "day"), Cap(50 * USD, "month"))),
        ("0.000000001/hour,2/week,100/total", (Cap(1, "hour"), Cap(2 * USD, "week"), Cap(100 * USD, "total"))),
        ("9000000/total", (Cap(NANOUSD_MAX, "total"),)),
        ("unlimited", ()),
        ("Unlimited", ()),
        ("0/day", (Cap(0, "day"),)),
        ("0", (Cap(0, "day"),)),
        ("$0.00", (Cap(0, "day"),)),
        (0, (Cap(0, "day"),)),
    ],
)
def test_budgets_are_money_per_window(written: object, caps: tuple[Cap, ...]) -> None:
    assert limits.caps(written) == caps


@table(
    ("written", "remedy"),
    [
        ("5", "'5/day' or '5/month'"),
        (5, "'5/day' or '5/month'"),
        (2.5, "'2.5/day'"),
        ("5/dya", "did you mean 'day'"),
        ("5/days", "did you mean 'day'"),
        ("5/minute", "Known: hour, day, week, month, total"),
        ("five/day", "is not an amount in USD"),
        ("-5/day", "is not an amount in USD"),
        ("1e3/day", "is not an amount in USD"),
        ("NaN/day", "is not an amount in USD"),
        ("5_0/day", "is not an amount in USD"),
        ("\N{ARABIC-INDIC DIGIT FIVE}/day", "is not an amount in USD"),
        ("$$5/day", "is not an amount in USD"),
        ("0.0000000001/day", "nine decimals"),
        ("9000000.000000001/day", "above 9,000,000 USD"),
        ("999999999999999/day", "above 9,000,000 USD"),
        ("5/day, 6/day", "twice"),
        ("1,000/day", "does not say per which window '1'"),
        ("0,5/month", "'0/day'"),
        ("5/day, 0", "'0/day'"),
        ("5/day, unlimited", "'unlimited' alone"),
        ("Unlimited, 5/day", "'unlimited' alone"),
        ("much", "'5/day'"),
        ("/day", "is not an amount in USD"),
        ("5/day/month", "Known: hour"),
        ("", "write '5/day'"),
        (True, "write '5/day'"),
        (None, "write '5/day'"),
        ({"day": 5}, "write '5/day'"),
        (math.nan, "write '5/day'"),
    ],
)
def test_a_budget_that_cannot_be_read_says_what_would_be_right(written: object, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        limits.caps(written)


@given(st.integers(0, NANOUSD_MAX), st.sampled_from(limits.WINDOW_UNITS))
@settings(max_examples=200)
def test_every_amount_down_to_a_nano_usd_is_read_exactly(nanousd: int, unit: str) -> None:
    assert [cap.limit_nanousd for cap in limits.caps(f"{format_usd(nanousd)}/{unit}")] == [nanousd]


@table(
    ("written", "part"),
    [("25%", Fraction(1, 4)), ("100%", Fraction(1)), (" 2.5 % ", Fraction(1, 40)), ("33.3%", Fraction(333, 1000))],
)
def test_a_client_budget_may_be_an_exact_share(written: str, part: Fraction) -> None:
    assert limits.caps_or_share(written) == Share(part)


@table("written", ["0%", "101%", "-5%", "%", "25%, 1/day", "25%,50%", "1e2%", ["25%", "1/day"], 0.25])
def test_a_share_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"25%|per which window|is not an amount"):
        limits.caps_or_share(written)


def test_a_client_budget_takes_the_grammar_of_budgets_too() -> None:
    assert limits.caps_or_share("1/day,5/month") == limits.caps("1/day,5/month")
    assert limits.caps_or_share("unlimited") == ()


@table(
    ("written", "pairs"),
    [
        ("10/minute, 200/day", [("client-1", 10, 60), ("client-2", 200, 86_400)]),
        (["20/30s"], [("client-1", 20, 30)]),
        ("1/second", [("client-1", 1, 1)]),
        ("1/hour", [("client-1", 1, 3_600)]),
        ("7/2h", [("client-1", 7, 7_200)]),
        ("7/31d", [("client-1", 7, 31 * 86_400)]),
        ("7/1000ms", [("client-1", 7, 1)]),
        (" 10 / Minute ", [("client-1", 10, 60)]),
        ("unlimited", []),
    ],
)
def test_rates_are_requests_per_window(written: object, pairs: list[tuple[str, int, int]]) -> None:
    expected = tuple(Rate(name, quota, window * SECOND) for name, quota, window in pairs)

    assert limits.rates("client")(written) == expected


@table(
    ("written", "remedy"),
    [
        ("10", "'10/minute'"),
        (10, "'10/minute'"),
        ("10/minuet", "did you mean 'minute'"),
        ("10/m", "Known: second, minute, hour, day"),
        ("10/month", "Known: second"),
        ("0/minute", "at least 1"),
        ("-1/minute", "'10/minute'"),
        ("1.5/minute", "'10/minute'"),
        ("1000000001/minute", "at most 1000000000, or 'unlimited'"),
        ("10/500ms", "whole seconds"),
        ("10/1500ms", "whole seconds"),
        ("10/32d", "whole seconds from '1s' to '31d'"),
        ("10/0s", "whole seconds"),
        ("10/minute, 20/60s", "twice"),
        ("10/minute, unlimited", "'10/minute'"),
        ("", "'10/minute'"),
        (None, "'10/minute'"),
    ],
)
def test_a_rate_that_cannot_be_read_says_what_would_be_right(written: object, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        limits.rates("client")(written)


@table(("written", "quota"), [("unlimited", None), ("32", 32), (1, 1)])
def test_parallel_limits_are_a_count_or_unlimited(written: object, quota: int | None) -> None:
    assert limits.count_or_unlimited(most=100)(written) == quota


@table("written", ["0", 0, "-1", "none", "", True, None, 101])
def test_a_parallel_limit_of_nothing_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="or 'unlimited'"):
        limits.count_or_unlimited(most=100)(written)


@table(
    ("written", "nanousd"),
    [("0.002", 2_000_000), ("$1", USD), (0.1, USD // 10), (Decimal("0.5"), USD // 2), (0, 0), (1e-9, 1)],
)
def test_amounts_are_exact_nano_usd(written: object, nanousd: int) -> None:
    assert limits.usd(written) == nanousd


@table("written", ["", "-1", "1e-3", 1e-10, math.inf, True, None, "1 USD", "9000001"])
def test_what_is_no_amount_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match=r"0\.002"):
        limits.usd(written)


@table(
    ("written", "price"),
    [
        ("0.25", Decimal("0.25")),
        (0, Decimal(0)),
        (0.1, Decimal("0.1")),
        ("0.0001", Decimal("0.0001")),
        (Decimal("1E+1"), 10),
    ],
)
def test_prices_are_exact_and_0_is_a_price(written: object, price: Decimal) -> None:
    assert grammar.usd_per_mtok(written) == price


@table("written", ["", "-1", "free", "1e3", math.nan, True, "1000001", "0.00000025", 2.5e-7])
def test_what_is_no_price_per_million_tokens_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="USD per million tokens"):
        grammar.usd_per_mtok(written)


def test_the_smallest_price_is_that_of_the_price_file() -> None:
    assert grammar.USD_PER_MTOK_MIN == price_file.USD_PER_MTOK_MIN
