"""How old the prices are that the ceiling is made of."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from routeguard.settings.grammar import comma

if TYPE_CHECKING:
    from routeguard.config import Settings

#: Prices of a table without a newer one are worth a look at the provider's page.
OLD_DAYS: Final = 180


@dataclass(frozen=True, slots=True)
class PriceAge:
    """Where the prices come from, and what is known of their age."""

    says: str
    #: Days since the newest dated price in the table; None where no table is used.
    newest_days: int | None
    warnings: tuple[str, ...] = ()


def price_age(settings: "Settings") -> PriceAge:
    """Where these prices come from; the package with the table does not say when it was made."""
    given = settings.written
    if given["PRICE_IN"] is not None:
        return PriceAge("your own, by PRICE_IN and PRICE_OUT", None)
    own = " and your own by PRICES" if given["PRICES"] is not None else ""
    today = datetime.now(UTC).date()
    newest = _newest(today)
    package = f"genai-prices {version('genai-prices')}"
    if newest is None:
        return PriceAge(f"{package}{own}, of unknown age", None)
    days = (today - newest).days
    warnings: tuple[str, ...] = ()
    if days > OLD_DAYS:
        warnings = (
            f"no price of {package} is newer than {newest:%Y-%m-%d}, {days} days ago: compare {comma(settings.models)} "
            "with the provider's page, or update the package",
        )
    return PriceAge(f"{package}{own}, whose newest dated price is of {newest:%Y-%m-%d}", days, warnings)


def _newest(today: date) -> date | None:
    """The latest day from which a price in the table holds."""
    from genai_prices.data import providers

    found: list[date] = []
    for provider in providers:
        for model in provider.models:
            prices = model.prices if isinstance(model.prices, list) else []
            starts = [getattr(price.constraint, "start_date", None) for price in prices]
            found += [start for start in starts if isinstance(start, date) and start <= today]
    return max(found, default=None)
