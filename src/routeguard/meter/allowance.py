"""The options of a metered client, read: its own budget, where that is counted, and at what prices.

They follow the grammar of the settings of the same names.
"""

from decimal import Decimal
from typing import TypeVar

from routeguard.clock import Clock
from routeguard.errors import ConfigError
from routeguard.ledgers import open_ledger
from routeguard.meter.payer import Allowance
from routeguard.meter.tariffs import Tariffs, load_prices
from routeguard.policy import Budget, Window
from routeguard.settings import table
from routeguard.settings.names import zone
from routeguard.settings.table import Setting

T = TypeVar("T")
Money = str | int | float | Decimal

#: Cap of a call that has none, as `MAX_OUTPUT_TOKENS` is by default.
OUTPUT_TOKENS_DEFAULT = 1_000
#: Clients have no share here, but a guard may come to the same ledger later: `MAX_CLIENTS` by default.
_CLIENTS_MAX = 50_000


def read_allowance(
    *,
    budget: str | None,
    ledger: str | None,
    namespace: str | None,
    max_output_tokens: int | None,
    price_in: Money | None,
    price_out: Money | None,
    media_usd: Money | None,
    clock: Clock,
) -> Allowance | None:
    """The budget of a client's own; None when it has none.

    Raises:
        ConfigError: With every problem at once.
    """
    options = _Options()
    caps = options.read(table.BUDGET, budget)
    url = options.read(table.LEDGER, ledger)
    name = options.read(table.NAMESPACE, namespace)
    output_tokens_max = options.read(table.MAX_OUTPUT_TOKENS, max_output_tokens)
    usd_in, usd_out = options.read(table.PRICE_IN, price_in), options.read(table.PRICE_OUT, price_out)
    media_nanousd = options.read(table.MEDIA_USD, media_usd)
    if budget is None and options.given:
        options.problems.append(f"{', '.join(options.given)} means nothing without a budget; write budget='2/day'")
    if (price_in is None) != (price_out is None):
        options.problems.append("price_in and price_out go together")
    if options.problems:
        raise ConfigError(options.problems)
    if caps is None:
        return None
    stated = None
    if usd_in is not None and usd_out is not None:
        from routeguard.price_sources import priced

        stated = priced(input=usd_in, output=usd_out)
    else:
        load_prices()
    # A budget in memory is this client's alone, unless it has a name to share it by.
    is_shared = name is not None or url not in (None, "memory://")
    window_zone = zone("UTC")
    return Allowance(
        open_ledger(
            url or "memory://", namespace=name or "default", clock=clock, clients_max=_CLIENTS_MAX, shared=is_shared
        ),
        tuple(Budget(cap.unit, Window(cap.unit, window_zone), cap.limit_nanousd) for cap in caps),
        Tariffs(stated=stated),
        clock,
        OUTPUT_TOKENS_DEFAULT,
        output_tokens_max,
        media_nanousd,
    )


class _Options:
    """Keywords, and what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.given: list[str] = []

    def read(self, row: Setting[T], value: object) -> T | None:
        """The value in the grammar of the setting of that name; None when it was not given, or is no good."""
        keyword = row.keyword
        if value is None:
            return None
        self.given.append(keyword)
        try:
            return row.parse(value)
        except ValueError as problem:
            # Never with the value: the URL of a ledger may hold a password.
            self.problems.append(f"{keyword} {problem}")
            return None
