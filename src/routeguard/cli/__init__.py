"""The command line: `routeguard check`, and what steers a guard that shares its ledger."""

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from routeguard import bookkeeping
from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.money import format_usd

if TYPE_CHECKING:
    from routeguard.config import Settings
    from routeguard.policy import Balance

EXIT_FINE, EXIT_WARNINGS, EXIT_ERRORS = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0 is fine, 1 means warnings, 2 means errors."""
    parser = argparse.ArgumentParser(prog="routeguard", description="Caps what a public AI route can cost.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="say what is in force, where each setting comes from, and what is wrong")
    check.add_argument("app", nargs="?", metavar="module:app", help="the application to look into")
    check.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser("demo", help="serve the demo of a checkout")
    for name in ("status", "pause", "resume"):
        steer = commands.add_parser(name, help=f"{name} a running guard through its ledger")
        steer.add_argument("app", nargs="?", metavar="module:app", help="the application with the guard")
    bookkeeping.add_commands(commands.add_parser("ledger", help="verify, adjust and export what was charged"))
    chosen = parser.parse_args(arguments)
    if chosen.command == "ledger":
        return _keep_books(chosen)
    if chosen.command == "check":
        return _check(chosen.app, as_json=chosen.json)
    if chosen.command == "demo":
        return _demo()
    return _steer(chosen.command, chosen.app)


def _check(app: str | None, *, as_json: bool) -> int:
    try:
        settings = _settings(app)
    except (ConfigError, _NoGuard) as error:
        problems = list(error.problems) if isinstance(error, ConfigError) else [str(error)]
        if as_json:
            print(json.dumps({"ok": False, "problems": problems, "warnings": []}, indent=2))
        else:
            print(error, file=sys.stderr)
        return EXIT_ERRORS
    report = _report(settings)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _print(settings, report)
    return EXIT_WARNINGS if settings.warnings else EXIT_FINE


def _report(settings: "Settings") -> dict[str, object]:
    from routeguard.ledgers import ledger_kind

    wall_ns = SystemClock().wall_ns()
    smallest, largest = settings.tariff.smallest(wall_ns), settings.tariff.largest(wall_ns)
    budgets: list[dict[str, object]] = [
        {
            "name": budget.name,
            "limit_usd": format_usd(budget.limit_nanousd),
            # As many of the largest also fit at once: what is open beyond that is refused as busy.
            "calls_of_the_largest": budget.limit_nanousd // largest if largest else None,
            "calls_of_the_smallest": budget.limit_nanousd // smallest if smallest else None,
        }
        for budget in settings.budgets
    ]
    return {
        "ok": True,
        "mode": settings.mode,
        "settings": {
            name: {"value": settings.written[name], "source": settings.sources[name]} for name in settings.sources
        },
        "trust": {"source": settings.strategy.name, "says": settings.client_source, "platform": settings.platform},
        "ceiling_usd": {"smallest": format_usd(smallest), "largest": format_usd(largest)},
        "budgets": budgets,
        "max_parallel": settings.max_parallel,
        "ledger": ledger_kind(settings.ledger),
        "workers": settings.workers,
        "processes": settings.processes,
        "problems": [],
        "warnings": list(settings.warnings),
    }


def _print(settings: "Settings", report: dict[str, object]) -> None:
    from routeguard.config import start_line

    rows = [(name, settings.written[name], source) for name, source in settings.sources.items()]
    shown = [row for row in rows if row[1] is not None]
    width = max(len(name) for name, _, _ in shown)
    value_width = min(48, max(len(value or "") for _, value, _ in shown))
    for name, value, source in shown:
        print(f"{name:<{width}}  {value or '':<{value_width}}  {source}")
    print()
    print(start_line(settings))
    if settings.platform is not None:
        from routeguard.client_ip import PLATFORMS

        print(f"client address: {settings.strategy.name}, because {PLATFORMS[settings.platform].why}")
    else:
        print(f"client address: {settings.client_source}")
    budgets = report["budgets"]
    assert isinstance(budgets, list), "the report lists budgets"
    for budget in budgets:
        print(
            f"budget {budget['limit_usd']} USD per {budget['name']}: room for {budget['calls_of_the_largest']} of the "
            f"largest calls, or {budget['calls_of_the_smallest']} of the smallest; "
            f"MAX_PARALLEL is {settings.max_parallel or 'unlimited'}"
        )
    for warning in settings.warnings:
        print(f"warning: {warning}")


def _keep_books(chosen: argparse.Namespace) -> int:
    try:
        settings = _settings(chosen.app)
    except (ConfigError, _NoGuard) as error:
        print(error, file=sys.stderr)
        return EXIT_ERRORS
    # The rows of a process's memory are in the journal as well, and that can be read.
    problem = None if chosen.action == "export" else _unreachable(settings)
    if problem is not None:
        print(f"routeguard ledger {chosen.action}: {problem}", file=sys.stderr)
        return EXIT_ERRORS
    logging.getLogger("routeguard").addHandler(logging.NullHandler())
    return bookkeeping.run(chosen, settings)


def _steer(command: str, app: str | None) -> int:
    try:
        settings = _settings(app)
    except (ConfigError, _NoGuard) as error:
        print(error, file=sys.stderr)
        return EXIT_ERRORS
    problem = _unreachable(settings)
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


def _unreachable(settings: "Settings") -> str | None:
    """Why no other process can reach the ledger of these settings; None when one can."""
    from routeguard.ledgers import ledger_kind, sqlite_file

    kind = ledger_kind(settings.ledger)
    if kind == "memory":
        return (
            "a memory:// ledger belongs to the process that serves; no other can reach it. "
            f"Use POST {settings.status_path}/pause with ADMIN_TOKEN, or share the ledger with "
            "LEDGER=sqlite:///routeguard.db"
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

    ledger = open_ledger(
        settings.ledger, namespace=settings.namespace, clock=SystemClock(), clients_max=settings.max_clients
    )
    shared = f"everybody who shares this {ledger.kind} ledger and the namespace {settings.namespace}"
    try:
        if command != "status":
            await ledger.set_paused(paused=command == "pause")
            return [f"{'paused' if command == 'pause' else 'resumed'}: {shared}, within 2 s"]
        await ledger.refresh()
        in_flight = await ledger.in_flight()
        balances = await ledger.balances(settings.budgets)
    finally:
        await ledger.aclose()
    state = "paused" if ledger.paused else "not paused"
    return [f"{state}, {in_flight} in flight: {shared}", *map(_balance, balances)]


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


def _demo() -> int:
    sys.path.insert(0, os.getcwd())
    try:
        demo = importlib.import_module("examples.fastapi_app.__main__")
    except ModuleNotFoundError:
        print("routeguard demo: the demo lives in a checkout of the repository; run `make demo` there", file=sys.stderr)
        return EXIT_ERRORS
    demo.main()
    return EXIT_FINE


class _NoGuard(Exception):
    """The application cannot be looked into."""


def _settings(app: str | None) -> "Settings":
    """The settings of the guard in `module:app`, else those of the environment.

    Raises:
        ConfigError: They cannot be used.
        _NoGuard: There is no such application, or no guard in it.
    """
    from routeguard.config import Settings

    if app is None:
        return Settings()
    module_name, _, attribute = app.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module_name)
    except ImportError as error:
        raise _NoGuard(f"routeguard: {module_name!r} cannot be imported: {error}") from error
    for name in (attribute or "app").split("."):
        found = getattr(found, name, None)
    settings = _find(found)
    if settings is None:
        raise _NoGuard(f"routeguard: no RouteGuard in {app!r}; add it with app.add_middleware(RouteGuard)")
    return settings


def _find(app: object) -> "Settings | None":
    """The settings of the guard around or inside an application."""
    from routeguard.asgi import RouteGuard
    from routeguard.config import Settings

    while app is not None:
        if isinstance(app, RouteGuard):
            return app.settings
        for middleware in getattr(app, "user_middleware", ()):
            if middleware.cls is RouteGuard:
                return Settings(**middleware.kwargs)
        app = getattr(app, "app", None)
    return None
