"""The grammar of the limits: budgets, rates, parallel streams.

`unlimited` must be written out, and every amount says per which window it is.
Parsers follow the rules of `grammar`.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, NoReturn, get_args

from routeguard.money import parse_usd
from routeguard.policy import NANOSECONDS, Rate, WindowUnit
from routeguard.settings.grammar import Parser, comma, count, duration_text_ns, entries, nearest, plain, whole

UNLIMITED: Final = "unlimited"
WINDOW_UNITS: Final[tuple[WindowUnit, ...]] = get_args(WindowUnit)

_UNIT_OF: Final[dict[str, WindowUnit]] = {unit: unit for unit in WINDOW_UNITS}
_AMOUNT = re.compile(r"\$?\s*([0-9]{1,15}(?:\.[0-9]+)?)")
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%")
_RATE_UNITS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}
_QUOTA_MAX = 10**9
#: Rates live in memory: a longer window would promise what a restart forgets.
_RATE_WINDOW_NS_MAX = 31 * 86400 * NANOSECONDS


@dataclass(frozen=True, slots=True)
class Cap:
    """An amount of money per window, before it is known whose and in which zone."""

    limit_nanousd: int
    unit: WindowUnit


@dataclass(frozen=True, slots=True)
class Share:
    """A part of each budget, above 0 and at most 1."""

    part: Fraction


def usd(value: object) -> int:
    """Nano-USD of an amount."""
    try:
        return _amount_nanousd(plain(value))
    except ValueError as error:
        raise ValueError(f"{error}; write an amount in USD, for example '0.002'") from None


def caps(value: object) -> tuple[Cap, ...]:
    """Money per window: `5/day, 50/month`; () for `unlimited`, and a lone 0 is nothing per day."""
    if _is_unlimited(value):
        return ()
    written = entries(value, example="'5/day' or '5/day, 50/month'")
    if len(written) > 1 and (bare := next((entry for entry in written if "/" not in entry), None)) is not None:
        # `0,5/month` is a decimal comma, and not nothing per day beside five per month.
        _refuse_bare(bare)
    found = [_cap(entry) for entry in written]
    units = [cap.unit for cap in found]
    for unit in WINDOW_UNITS:
        if units.count(unit) > 1:
            raise ValueError(f"names the window '{unit}' twice; write each window once, for example '5/day, 50/month'")
    return tuple(found)


def caps_or_share(value: object) -> tuple[Cap, ...] | Share:
    """Money per window, or a share of each budget: `25%`."""
    written = plain(value)
    match = _SHARE.fullmatch(written)
    if match is None:
        if "%" in written:
            raise ValueError("is not one share of each budget; write '25%', or amounts such as '1/day, 5/month'")
        return caps(value)
    part = Fraction(match[1]) / 100
    if not 0 < part <= 1:
        raise ValueError("is not a share above 0% and up to 100%; write '25%', or '0/day' to refuse everybody")
    return Share(part)


def rates(prefix: str) -> Parser[tuple[Rate, ...]]:
    """Requests per window: `10/minute, 200/day`, `20/30s`; () for `unlimited`. Named `prefix-1`, `prefix-2`, …"""

    def parse(value: object) -> tuple[Rate, ...]:
        if _is_unlimited(value):
            return ()
        pairs = [_rate(entry) for entry in entries(value, example="'10/minute' or '10/minute, 200/day'")]
        windows = [window_ns for _, window_ns in pairs]
        if len(set(windows)) < len(windows):
            raise ValueError("names the same window twice; write each window once, for example '10/minute, 200/day'")
        return tuple(
            Rate(f"{prefix}-{number}", quota, window_ns) for number, (quota, window_ns) in enumerate(pairs, start=1)
        )

    return parse


def count_or_unlimited(*, most: int) -> Parser[int | None]:
    """A whole number from 1, or None for `unlimited`."""
    bounded = count(least=1, most=most)

    def parse(value: object) -> int | None:
        if _is_unlimited(value):
            return None
        try:
            return bounded(value)
        except ValueError as error:
            raise ValueError(f"{error}, or '{UNLIMITED}'") from None

    return parse


def _cap(entry: str) -> Cap:
    amount, slash, window = (part.strip() for part in entry.partition("/"))
    if not slash:
        if _AMOUNT.fullmatch(amount) and not Decimal(amount.lstrip("$ ")):
            return Cap(0, "day")  # nothing is nothing in every window
        _refuse_bare(amount)
    unit = _UNIT_OF.get(window.lower())
    if unit is None:
        raise ValueError(
            f"has the window '{window}', which is not known{nearest(window, _UNIT_OF)} Known: {comma(_UNIT_OF)}"
        )
    try:
        return Cap(_amount_nanousd(amount), unit)
    except ValueError as error:
        raise ValueError(f"has an amount that {error}; write for example '5/{unit}' or '0.50/{unit}'") from None


def _refuse_bare(amount: str) -> NoReturn:
    if _is_unlimited(amount):
        raise ValueError(f"has '{amount}' beside other amounts; write '{UNLIMITED}' alone, or leave it out")
    if _AMOUNT.fullmatch(amount) is None:
        raise ValueError(f"has the entry '{amount}', which is not an amount; write for example '5/day'")
    raise ValueError(f"does not say per which window '{amount}' is; write '{amount}/day' or '{amount}/month'")


def _rate(entry: str) -> tuple[int, int]:
    quota, slash, window = (part.strip() for part in entry.partition("/"))
    number = whole(quota)
    if not slash or number is None:
        raise ValueError(f"has the entry '{entry}'; write requests per window: '10/minute', '200/day' or '20/30s'")
    if number < 1:
        raise ValueError(f"allows {quota} requests; write at least 1 (PAUSED=true is what stops everything)")
    if number > _QUOTA_MAX:
        raise ValueError(f"allows {quota} requests; write at most {_QUOTA_MAX}, or '{UNLIMITED}'")
    window_ns = duration_text_ns(_RATE_UNITS.get(window.lower(), window))
    if window_ns is None:
        raise ValueError(
            f"has the window '{window}', which is not known{nearest(window, _RATE_UNITS)} "
            f"Known: {comma(_RATE_UNITS)}, or a duration such as '30s'"
        )
    # The RateLimit headers count windows in whole seconds.
    if window_ns % NANOSECONDS or not NANOSECONDS <= window_ns <= _RATE_WINDOW_NS_MAX:
        raise ValueError(f"has the window '{window}'; write whole seconds from '1s' to '31d'")
    return number, window_ns


def _amount_nanousd(amount: str) -> int:
    match = _AMOUNT.fullmatch(amount)
    if match is None:
        raise ValueError("is not an amount in USD")
    if len(match[1].partition(".")[2]) > 9:
        raise ValueError("has more than nine decimals")
    try:
        return parse_usd(match[1])
    except ValueError:
        raise ValueError("is above 9,000,000 USD, the largest amount that stays exact") from None


def _is_unlimited(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() == UNLIMITED
