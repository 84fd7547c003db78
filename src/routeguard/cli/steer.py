"""`routeguard status`, `pause` and `resume`: a running guard, steered through the ledger it shares."""

import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from routeguard.cli.settings_of import NoGuard, target
from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.money import format_usd

if TYPE_CHECKING:
    from routeguard.config import Settings
    from routeguard.policy import Balance

EXIT_FINE, EXIT_ERRORS = 0, 2
UNUSED: Final = (
    "nothing is charged or open here: if the guard has had requests, its LEDGER or NAMESPACE is another; "
    "name the application as module:app to take them from there"
)


def steer(command: str, app: str | None) -> int:
    """Do what the command says, and say where the ledger stands."""
    try:
        settings = target(app).settings
    except (ConfigError, NoGuard) as error:
        print(error, file=sys.stderr)
        return EXIT_ERRORS
    problem = unreachable(settings, command)
    if problem is not None:
        print(f"routeguard {command}: {problem}", file=sys.stderr)
        return EXIT_ERRORS
    import anyio

    from routeguard.policy import LedgerUnavailable

    # What goes wrong is said once, below, and not also by a log that nobody configured.
    logging.getLogger("routeguard").addHandler(logging.NullHandler())
    try:
        for line in anyio.run(_steered, command, settings):
            print(line)
    except LedgerUnavailable as error:
        print(f"routeguard {command}: {error}", file=sys.stderr)
        return EXIT_ERRORS
    return EXIT_FINE


def unreachable(settings: "Settings", command: str) -> str | None:
    """Why no other process can reach the ledger of these settings, and what `command` can do; None when one can."""
    from routeguard.ledgers import ledger_kind, sqlite_file

    kind = ledger_kind(settings.ledger)
    if kind == "memory":
        asked = {"status": "GET", "pause": "POST", "resume": "POST"}.get(command)
        of_itself = f"Use {asked} {settings.status_path}/{command} with ADMIN_TOKEN, or share" if asked else "Share"
        return (
            "a memory:// ledger belongs to the process that serves; no other can reach it. "
            f"{of_itself} the ledger with LEDGER=sqlite:///routeguard.db"
        )
    if kind == "sqlite":
        path, _ = sqlite_file(settings.ledger)
        # A new file would be somebody else's ledger: paused, while the guard goes on.
        if not path.exists():
            return (
                f"there is no ledger at {path.absolute()}. The guard makes it with its first request; "
                "a relative path in LEDGER is looked up in the working directory"
            )
    return None


async def _steered(command: str, settings: "Settings") -> list[str]:
    """Do what the command says to the ledger, and say where it stands."""
    from routeguard.ledgers import open_ledger
    from routeguard.policy import LedgerUnavailable

    ledger = open_ledger(
        settings.ledger, namespace=settings.namespace, clock=SystemClock(), clients_max=settings.max_clients
    )
    shared = f"everybody who shares this {ledger.kind} ledger and the namespace {settings.namespace}"
    try:
        if command == "status":
            await ledger.refresh()
            in_flight = await ledger.in_flight()
            balances = await ledger.balances(settings.budgets)
            state = "paused" if ledger.paused else "not paused"
            said = [f"{state}, {in_flight} in flight: {shared}", *map(_balance, balances)]
        else:
            await ledger.set_paused(paused=command == "pause")
            said = [f"{'paused' if command == 'pause' else 'resumed'}: {shared}, within 2 s"]
        # A switch that no guard looks at turns as well as any other.
        with suppress(LedgerUnavailable):
            used = [_is_used(balance) for balance in await ledger.balances(settings.budgets)]
            if used and not any(used) and not await ledger.in_flight():
                said.append(UNUSED)
    finally:
        await ledger.aclose()
    return said


def _is_used(balance: "Balance") -> bool:
    return balance.remaining_nanousd != balance.budget.limit_nanousd


def _balance(balance: "Balance") -> str:
    resets = "never resets"
    if balance.resets_at is not None:
        resets = f"resets at {datetime.fromtimestamp(balance.resets_at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return (
        f"budget {format_usd(balance.budget.limit_nanousd)} USD per {balance.budget.name}: "
        f"{format_usd(balance.settled_nanousd)} settled, {format_usd(balance.open_nanousd)} open, "
        f"{format_usd(balance.kept_nanousd)} kept, {format_usd(balance.orphaned_nanousd)} orphaned, "
        f"{format_usd(balance.remaining_nanousd)} remaining; {resets}"
    )
