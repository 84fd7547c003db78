"""Why a price from the table may not be the one that is billed. Said at start, because afterwards nobody looks."""

import re
from collections.abc import Iterator
from fractions import Fraction

from routeguard.price_sources import find_model, served_as
from routeguard.prices import NANOUSD_PER_TOKEN, ModelPrice, PriceError

#: How much dearer somebody else must be to be named. Clouds take a tenth more in some of their regions, and those who
#: call a vendor by itself, as a bare name says, need not be told so at every start.
DEARER_MIN = Fraction(5, 4)

_LATEST = re.compile(r"(?:.*[-_./@:])?latest", re.ASCII | re.IGNORECASE)
_REMEDY = "its price with PRICE_IN and PRICE_OUT or in a PRICES file"


def doubts_about(model: ModelPrice, *, wall_ns: int) -> Iterator[str]:
    """Sentences for the operator; none for a model at the operator's own price.

    Args:
        model: As it was found by its configured name.
        wall_ns: The moment whose prices are compared, in nanoseconds since the Unix epoch.
    """
    if model.source is None:
        return
    usd_in, usd_out = _usd(model, wall_ns)
    if _LATEST.fullmatch(model.name):
        yield (
            f"{model.name} moves from model to model, and its price may move with it: it is priced as {model.source}, "
            f"${_shown(usd_in)} and ${_shown(usd_out)} per million tokens. Write the model that it means, or {_REMEDY}."
        )
    dearest, factor = "", DEARER_MIN
    for spelling in served_as(model.name):
        other = _found(spelling)
        if other is not None and other.source != model.source:
            rates = zip(_usd(other, wall_ns), (usd_in, usd_out), strict=True)
            times = max((its / ours for its, ours in rates if ours), default=Fraction(0))
            if times > factor:
                dearest, factor = spelling, times
    if dearest:
        yield (
            f"{model.name} is priced as {model.source}, and others of that name cost up to {_times(factor)} times as "
            f"much. Write who serves it, for example {dearest}, or {_REMEDY}."
        )


def _found(spelling: str) -> ModelPrice | None:
    try:
        return find_model(spelling)
    except PriceError:
        return None


def _usd(model: ModelPrice, wall_ns: int) -> tuple[Fraction, Fraction]:
    """USD per million tokens in and out, of a small call without a service tier."""
    price, _ = model.standard.at(wall_ns)
    rates = price.at(0)
    per = rates.per * NANOUSD_PER_TOKEN
    return Fraction(rates.input, per), Fraction(rates.output, per)


def _shown(usd: Fraction) -> str:
    return f"{float(usd):g}"


def _times(factor: Fraction) -> str:
    return f"{float(factor):.1f}"
