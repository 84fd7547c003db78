"""The one line a guard says at start: what is in force.

Numbers are rounded so that they never promise too much: costs up; caps and calls down.
"""

from typing import TYPE_CHECKING, Final

from routeguard.clock import SystemClock
from routeguard.ledgers import ledger_kind
from routeguard.money import NANOUSD_PER_USD, ceil_div, format_usd
from routeguard.policy import NANOSECONDS, Budget, Rate
from routeguard.settings.grammar import comma

if TYPE_CHECKING:
    from routeguard.config import Settings

#: The message whose ceiling the start line names.
MESSAGE_BYTES: Final = 1_000
#: Digits shown of a cost, and of a cap (which always has its cents).
COST_DIGITS: Final = 2
CAP_DIGITS: Final = 4
NANOUSD_PER_CENT: Final = NANOUSD_PER_USD // 100
_RATE_WINDOWS = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day"}


def start_line(settings: "Settings", *, paths_note: str = "", wall_ns: int | None = None) -> str:
    """What is in force, in one line.

    Args:
        settings: What the guard enforces.
        paths_note: What to say beside the paths, for example where the application is mounted.
        wall_ns: The moment for which prices are told; now by default.
    """
    if settings.mode == "off":
        return "routeguard: off"
    wall_ns = SystemClock().wall_ns() if wall_ns is None else wall_ns
    pieces = [
        _routes(settings) + (f" ({paths_note})" if paths_note else ""),
        _money(settings),
        _prices(settings, wall_ns),
        _calls(settings, wall_ns),
        _clients(settings),
        f"ledger {ledger_kind(settings.ledger)}" + (", journal sqlite" if settings.journal else ""),
    ]
    if settings.mode == "observe":
        pieces.insert(0, "observing: NOTHING IS REFUSED")
    if settings.paused:
        pieces.insert(0, "PAUSED")
    return "routeguard: " + " · ".join(piece for piece in pieces if piece)


def _routes(settings: "Settings") -> str:
    methods = settings.methods
    shown = sorted(methods - {"HEAD"} if "GET" in methods else methods) if methods else []
    return " ".join(filter(None, (comma(shown), comma(settings.paths))))


def _money(settings: "Settings") -> str:
    if not settings.budgets:
        return "no budget: unlimited spend"
    caps = comma(map(_cap, settings.budgets))
    kind = ledger_kind(settings.ledger)
    if kind == "sqlite":
        return f"{caps} per host"
    if kind != "memory":
        return f"{caps} over all processes"
    processes = max(settings.processes, settings.workers or 1)
    scope = f"{caps} per process, forgotten at restart"
    if processes == 1:
        return scope
    total = comma(_usd(budget.limit_nanousd * processes, up=True) for budget in settings.budgets)
    return f"{scope} ({processes} workers: up to {total})"


def _prices(settings: "Settings", wall_ns: int) -> str:
    tariff = settings.tariff
    names = comma(settings.models) or "own prices"
    if not tariff.largest(wall_ns):
        return f"{names}, free: no money is claimed"
    message = _cost(tariff.ceiling(input_bytes=MESSAGE_BYTES, wall_ns=wall_ns))
    return f"{names}, ceiling {message} for a 1 kB message, at most {_cost(tariff.largest(wall_ns))}"


def _calls(settings: "Settings", wall_ns: int) -> str:
    # From the rounded cost, so that whoever divides the numbers of the line gets the same.
    largest = _rounded_cost(settings.tariff.largest(wall_ns))
    if not largest or not settings.budgets:
        return ""
    return "at least " + comma(f"{b.limit_nanousd // largest:,} calls{_per(b)}" for b in settings.budgets)


def _clients(settings: "Settings") -> str:
    limits = [*map(_rate, settings.rates), *map(_cap, settings.client_budgets)]
    shown = comma(limits) or "unlimited"
    source = f"client=, else {settings.client_source}" if settings.client else settings.client_source
    return f"per client {shown} by {source}"


def _cap(budget: Budget) -> str:
    return f"{_usd(budget.limit_nanousd)}{_per(budget)}"


def _per(budget: Budget) -> str:
    return " in total" if budget.name == "total" else f"/{budget.name}"


def _rate(rate: Rate) -> str:
    seconds = rate.window_ns // NANOSECONDS
    return f"{rate.quota}/{_RATE_WINDOWS.get(seconds, f'{seconds}s')}"


def _usd(nanousd: int, *, up: bool = False) -> str:
    """A cap with its cents, and as many decimals more as make four digits: `$5.00`, `$0.0125`."""
    step = min(_step(nanousd, CAP_DIGITS), NANOUSD_PER_CENT)
    rounded = (ceil_div(nanousd, step) if up else nanousd // step) * step
    whole, _, decimals = format_usd(rounded).partition(".")
    return f"${int(whole):,}.{decimals:0<2}"


def _cost(nanousd: int) -> str:
    """A cost of two digits, rounded up: `$0.0024`, `$0.10`, `$67`."""
    whole, point, decimals = format_usd(_rounded_cost(nanousd)).partition(".")
    return f"${int(whole):,}.{decimals:0<2}" if point else f"${int(whole):,}"


def _rounded_cost(nanousd: int) -> int:
    step = _step(nanousd, COST_DIGITS)
    return ceil_div(nanousd, step) * step


def _step(nanousd: int, digits: int) -> int:
    """What to round to so that this many digits stay."""
    return int(10 ** max(len(str(nanousd)) - digits, 0))
