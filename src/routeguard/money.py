"""Money is `int` nano-USD, everywhere.

Rules that live here:

- 1 USD is 1,000,000,000 nano-USD; the largest amount a window may hold is 9.0 million USD, so that every
  amount stays exact in a double (2^53 nano-USD), which is what Lua has.
- Text becomes money without passing through binary floating point; a float is read by its shortest form.
- A division states its rounding; costs are rounded up, once, per call.
"""

from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation

NANOUSD_PER_USD = 1_000_000_000
#: Largest cap of one window: 9.0 million USD, below 2^53 nano-USD.
NANOUSD_MAX = 9_000_000 * NANOUSD_PER_USD

_NANOUSD = Decimal("1e-9")
#: Wide enough for every amount up to the largest, and never the application's own context, which may round.
_CONTEXT = Context(prec=40, rounding=ROUND_CEILING, traps=[])


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient rounded up; `denominator` must be positive."""
    return -(-numerator // denominator)


def parse_usd(value: str | int | float | Decimal) -> int:
    """Nano-USD of an amount in USD.

    Accepts at most nine decimals; `"5"`, `"$5"` and `"0.000000001"` are fine.

    Raises:
        ValueError: Not a finite number, negative, finer than a nano-USD, or above 9.0 million USD.
    """
    text = str(value).strip()
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount in USD") from None
    if not amount.is_finite():
        raise ValueError(f"{text!r} is not a finite amount in USD")
    if amount < 0:
        raise ValueError(f"{text!r} is negative")
    if amount > NANOUSD_MAX // NANOUSD_PER_USD:
        raise ValueError(f"{text!r} is above the largest amount, 9000000 USD")
    if amount != amount.quantize(_NANOUSD, context=_CONTEXT):
        raise ValueError(f"{text!r} has more than nine decimals")
    return _ceil_nanousd(amount)


def parse_cost_usd(value: str | int | float | Decimal) -> int:
    """Nano-USD of a reported cost, rounded up: a bill may be finer than a nano-USD.

    Raises:
        ValueError: Not a finite number, negative, or above 9.0 million USD.
    """
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError("the reported cost is not a number") from None
    if not amount.is_finite() or amount < 0 or amount > NANOUSD_MAX // NANOUSD_PER_USD:
        raise ValueError("the reported cost is negative, not finite, or above 9000000 USD")
    return _ceil_nanousd(amount)


def format_usd(nanousd: int) -> str:
    """A decimal string in USD without exponent or trailing zeros: `"0.0024"`, `"5"`, `"-0.5"`."""
    sign = "-" if nanousd < 0 else ""
    whole, rest = divmod(abs(nanousd), NANOUSD_PER_USD)
    return f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")


def _ceil_nanousd(usd: Decimal) -> int:
    # Not by way of a ratio: the denominator of `1e-999999999` fills the memory.
    rounded = usd.quantize(_NANOUSD, context=_CONTEXT)
    return int(rounded.scaleb(9, context=_CONTEXT))
