"""`routeguard check`: what is in force, where it comes from, and what is wrong with it."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from routeguard.caveats import Caveat
from routeguard.cli.check.guarded import idle_paths, unguarded_chats
from routeguard.cli.check.ledger import Ping, ask_journal, ping
from routeguard.cli.check.limits import limits_of
from routeguard.cli.check.prices import PriceAge, price_age
from routeguard.cli.check.server import ServerOptions, server_options, trust_warnings, worker_warnings
from routeguard.cli.check.shape import Shape, order_warnings, shape_of
from routeguard.cli.paper import Paper, err, out
from routeguard.cli.settings_of import NoGuard, Target, target
from routeguard.client_ip import PLATFORMS, suggest_platform
from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.ledgers import ledger_kind
from routeguard.money import format_usd

if TYPE_CHECKING:
    from routeguard.config import Settings

EXIT_FINE, EXIT_WARNINGS, EXIT_ERRORS = 0, 1, 2
MESSAGE_BYTES = 1_000
#: A longer value is cut in the list of settings.
VALUE_CHARS_MAX = 48


def check(app: str | None, *, as_json: bool, server: Sequence[str] | None) -> int:
    """Say it. 0 is fine, 1 means warnings, 2 means errors."""
    try:
        found = target(app)
    except (ConfigError, NoGuard) as error:
        problems = list(error.problems) if isinstance(error, ConfigError) else [str(error)]
        if as_json:
            print(json.dumps({"ok": False, "problems": problems, "warnings": []}, indent=2))
        else:
            print(error, file=sys.stderr)
        return EXIT_ERRORS
    report = look(found, server=server)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report, out())
        for problem in report.problems:
            err().print(f"error: {problem}", colour="red")
    if report.problems:
        return EXIT_ERRORS
    return EXIT_WARNINGS if report.warnings else EXIT_FINE


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found out."""

    settings: "Settings"
    ping: Ping
    prices: PriceAge | None
    server: ServerOptions
    #: None where the settings are the environment's alone.
    shape: Shape | None
    warnings: tuple[str, ...]
    #: What this command cannot see.
    unknown: tuple[str, ...]
    #: What the server and the framework cannot give.
    limits: tuple[Caveat, ...] = ()
    journal_problems: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What stops the server, or every request."""
        return (*self.ping.problems, *self.journal_problems)

    def as_dict(self) -> dict[str, object]:
        """For JSON; secrets are masked."""
        settings, wall_ns = self.settings, SystemClock().wall_ns()
        return {
            "ok": not self.problems,
            "mode": settings.mode,
            "settings": {
                name: {"value": settings.written[name], "source": source} for name, source in settings.sources.items()
            },
            "trust": {
                "source": settings.strategy.name,
                "says": settings.client_source,
                "platform": settings.platform,
                "why": _why(settings),
            },
            "ceiling_usd": {
                "smallest": format_usd(settings.tariff.smallest(wall_ns)),
                "1kB": format_usd(settings.tariff.ceiling(input_bytes=MESSAGE_BYTES, wall_ns=wall_ns)),
                "largest": format_usd(settings.tariff.largest(wall_ns)),
            },
            "budgets": _budgets(settings, wall_ns),
            "max_parallel": settings.max_parallel,
            "prices": None
            if self.prices is None
            else {"says": self.prices.says, "newest_days": self.prices.newest_days},
            "ledger": ledger_kind(settings.ledger),
            "ledger_ping": {
                "answers": self.ping.answers,
                "says": self.ping.says,
                "milliseconds": self.ping.milliseconds,
            },
            "workers": settings.workers,
            "processes": settings.processes,
            "server": {
                "trusts": {told.where: told.value for told in self.server.trusts},
                "workers": {told.where: told.value for told in self.server.workers},
            },
            "middleware": None if self.shape is None else [layer.name for layer in self.shape.layers],
            "unguarded": None
            if self.shape is None
            else [route.path for route in unguarded_chats(self.shape, settings)],
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "unknown": list(self.unknown),
            "limits": [{"about": one.about, "limit": one.limit, "remedy": one.remedy} for one in self.limits],
        }


def look(found: Target, *, server: Sequence[str] | None) -> Report:
    """Find everything out; asks the ledger and nobody else."""
    settings = found.settings
    if settings.mode == "off":
        options = server_options(os.environ, server)
        return Report(settings, Ping("not asked", answers=True), None, options, None, settings.warnings, ())
    options = server_options(os.environ, server)
    shape = None if found.app is None else shape_of(found.app)
    answered, prices = ping(settings), price_age(settings)
    journal_problems, journal_warnings = ask_journal(settings)
    warnings = [
        *settings.warnings,
        *trust_warnings(options, settings.strategy),
        *worker_warnings(options, processes=settings.processes, is_memory=settings.ledger.startswith("memory:")),
        *_platform_warnings(settings),
        *_parallel_warnings(settings),
        *answered.warnings,
        *journal_warnings,
        *prices.warnings,
    ]
    if shape is not None:
        warnings += order_warnings(shape, settings)
        warnings += [
            f"{route.path} looks as if it called a model, and is not in PATHS: what it spends is not counted"
            for route in unguarded_chats(shape, settings)
        ]
        warnings += [
            f"PATHS holds '{pattern}', which matches no route that the application lists: it guards nothing. "
            "A route's whole path counts, with the prefix of its router or mount"
            for pattern in idle_paths(shape, settings)
        ]
    unknown, limits = _unknown(settings, options, shape), limits_of(found.app, server)
    return Report(settings, answered, prices, options, shape, tuple(warnings), unknown, limits, journal_problems)


def _platform_warnings(settings: "Settings") -> list[str]:
    """A platform whose variables are set, while nobody said whose header to trust."""
    suggested = suggest_platform(os.environ)
    if suggested is None or {settings.sources["PLATFORM"], settings.sources["CLIENT_IP"]} != {"default"}:
        return []
    return [
        f"this environment is that of {suggested}, and neither PLATFORM nor CLIENT_IP is set: behind its proxy "
        f"everybody is one client. Set ROUTEGUARD_PLATFORM={suggested}"
    ]


def _parallel_warnings(settings: "Settings") -> list[str]:
    """A budget that fewer open calls fill than there are parallel slots."""
    message = settings.tariff.ceiling(input_bytes=MESSAGE_BYTES, wall_ns=SystemClock().wall_ns())
    found = []
    for budget in settings.budgets:
        room = budget.limit_nanousd // message if message else None
        if room is not None and settings.max_parallel is not None and 0 < room < settings.max_parallel:
            found.append(
                f"BUDGET ${format_usd(budget.limit_nanousd)} per {budget.name} is full with {room} calls of 1 kB at "
                f"once, and MAX_PARALLEL is {settings.max_parallel}: what comes beyond is answered 429 busy. Lower "
                "MAX_OUTPUT_TOKENS or MAX_PARALLEL, or raise it"
            )
    return found


def _unknown(settings: "Settings", options: ServerOptions, shape: Shape | None) -> tuple[str, ...]:
    said = []
    if not options.is_known:
        said.append("how the server is started: append its command after --, with its options")
    if shape is None:
        said.append("the application: name it as module:app to have middleware and routes looked at")
    elif not shape.routes:
        said.append("the routes: this application does not list them")
    if settings.strategy.headers or settings.platform is not None:
        said.append(f"what the edge really sends: routeguard check --echo, run there, shows {settings.strategy.name}")
    return tuple(said)


def _why(settings: "Settings") -> str | None:
    return None if settings.platform is None else PLATFORMS[settings.platform].why


def _budgets(settings: "Settings", wall_ns: int) -> list[dict[str, object]]:
    smallest, largest = settings.tariff.smallest(wall_ns), settings.tariff.largest(wall_ns)
    message = settings.tariff.ceiling(input_bytes=MESSAGE_BYTES, wall_ns=wall_ns)
    return [
        {
            "name": budget.name,
            "limit_usd": format_usd(budget.limit_nanousd),
            # As many of the largest also fit at once: what is open beyond that is refused as busy.
            "calls_of_the_largest": budget.limit_nanousd // largest if largest else None,
            "calls_of_1kB": budget.limit_nanousd // message if message else None,
            "calls_of_the_smallest": budget.limit_nanousd // smallest if smallest else None,
        }
        for budget in settings.budgets
    ]


def _print(report: Report, paper: Paper) -> None:
    from routeguard.config import start_line

    settings = report.settings
    rows = [(name, settings.written[name], source) for name, source in settings.sources.items()]
    shown = [(name, value, source) for name, value, source in rows if value is not None]
    width = max(len(name) for name, _, _ in shown)
    value_width = min(VALUE_CHARS_MAX, max(len(value) for _, value, _ in shown))
    for name, value, source in shown:
        paper.print(f"{name:<{width}}  {value:<{value_width}}  {source}", colour="dim" if source == "default" else None)
    paper.print()
    paper.print(start_line(settings), colour="bold")
    why = _why(settings)
    paper.print(
        f"client address: {settings.client_source}"
        if why is None
        else f"client address: {settings.strategy.name}, because {why}"
    )
    for budget in _budgets(settings, SystemClock().wall_ns()):
        paper.print(
            f"budget {budget['limit_usd']} USD per {budget['name']}: room for {budget['calls_of_the_largest']} of the "
            f"largest calls, {budget['calls_of_1kB']} of 1 kB, or {budget['calls_of_the_smallest']} of the smallest; "
            f"MAX_PARALLEL is {settings.max_parallel or 'unlimited'}"
        )
    if report.prices is not None:
        paper.print(f"prices: {report.prices.says}")
    paper.print(f"ledger {ledger_kind(settings.ledger)}: {report.ping.says}")
    if report.shape is not None and report.shape.layers:
        paper.print(f"middleware, outermost first: {' → '.join(layer.name for layer in report.shape.layers)}")
    for limit in report.limits:
        paper.print(f"limit of {limit.about}: {limit.limit} {limit.remedy}", colour="dim")
    for unknown in report.unknown:
        paper.print(f"not seen from here: {unknown}", colour="dim")
    for warning in report.warnings:
        paper.print(f"warning: {warning}", colour="yellow")
