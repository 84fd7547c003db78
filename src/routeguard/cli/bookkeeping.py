"""`routeguard ledger`: whether the books agree, changing them by hand, and taking the journal elsewhere."""

import argparse
import csv
import json
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from anyio import run as run_async
from anyio import to_thread

from routeguard.auditing import Adjustment, AdjustmentRefused, AuditedLedger, Statement
from routeguard.cli.settings_of import NoGuard, target
from routeguard.cli.steer import unreachable
from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.journal import Books, open_journal
from routeguard.journal.audit import Line, compare
from routeguard.journal.reading import JournalReader, reading
from routeguard.ledgers import open_ledger, sqlite_file
from routeguard.money import format_usd, parse_usd
from routeguard.policy import NANOSECONDS, Ledger, LedgerUnavailable
from routeguard.records import Record
from routeguard.sqlite_file.file import INTEGER_MAX

if TYPE_CHECKING:
    from routeguard.config import Settings

EXIT_EQUAL, EXIT_DIFFERENT, EXIT_FAILED = 0, 1, 2
#: Times the journal and the counters are read again because something was written in between.
LOOKS_MAX: Final = 20
REASON_CHARS_MAX: Final = 500
ID_CHARS_MAX: Final = 100
PARTS: Final = ("settled", "kept", "orphaned", "overrun", "open")
#: What makes a spreadsheet take a text for a formula (https://owasp.org/www-community/attacks/CSV_Injection).
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
TEXTS: Final = frozenset({"id", "path", "client", "model", "why", "reason"})


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The commands below `routeguard ledger`."""
    commands = parser.add_subparsers(dest="action", required=True)
    verify = commands.add_parser(
        "verify",
        help="compare counters, reservations and journal",
        epilog="Exit codes: 0 all are equal, 1 something differs, 2 it could not look. Changes nothing.",
    )
    verify.add_argument("--json", action="store_true", help="print JSON")
    adjust = commands.add_parser(
        "adjust",
        help="change by hand what is charged, with a reason",
        epilog="Either --budget with --usd, or --reservation with --settled-usd. Exit codes: 0 done, 2 not done.",
    )
    adjust.add_argument("--budget", help="day, month, …: the budget whose current window is changed")
    adjust.add_argument("--client", default="", metavar="HASH", help="the share of one client, by its keyed hash")
    adjust.add_argument("--usd", help="what is added; negative takes away")
    adjust.add_argument("--reservation", metavar="ID", help="an orphaned reservation, which this ends")
    adjust.add_argument("--settled-usd", metavar="USD", help="what the orphaned reservation cost")
    adjust.add_argument("--reason", required=True, help="why; it stands in the journal")
    adjust.add_argument("--id", default="", help="to repeat an adjustment of which nobody knows whether it was done")
    export = commands.add_parser(
        "export", help="print the rows of the journal", epilog="Exit codes: 0 printed, 2 it could not be read."
    )
    export.add_argument("--format", choices=("csv", "json"), default="csv", help="csv unless told otherwise")
    export.add_argument(
        "--since",
        type=_moment_ns,
        default=0,
        metavar="TIME",
        help="the first moment, in UTC: 2026-11-30 or 2026-11-30T12:00:00Z",
    )
    for command in (verify, adjust, export):
        command.add_argument("app", nargs="?", metavar="module:app", help="the application with the guard")


def keep_books(chosen: argparse.Namespace) -> int:
    """Run the chosen command. 0 is equal or done, 1 different, 2 could not run."""
    try:
        settings = target(chosen.app).settings
    except (ConfigError, NoGuard) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    # What goes wrong is said once, below, and not also by a log that nobody configured.
    logging.getLogger("routeguard").addHandler(logging.NullHandler())
    try:
        # The rows of a process's memory are in the journal as well, and that can be read.
        problem = None if chosen.action == "export" else unreachable(settings, chosen.action)
        if problem is not None:
            raise _Unusable(problem)
        if chosen.action == "export":
            return _export(settings, as_json=chosen.format == "json", since_ns=chosen.since)
        if chosen.action == "verify":
            with _journal(settings) as journal:
                statement, lines = run_async(_verify, settings, journal)
            return _verified(statement, lines, as_json=chosen.json)
        return run_async(_adjust, settings, _adjustment(chosen, settings))
    except (AdjustmentRefused, LedgerUnavailable, _Unusable) as problem:
        print(f"routeguard ledger {chosen.action}: {problem}", file=sys.stderr)
        return EXIT_FAILED


class _Unusable(Exception):
    """What was asked cannot be done, as a sentence."""


@contextmanager
def _journal(settings: "Settings") -> Iterator[JournalReader | None]:
    if settings.journal is None:
        yield None
    else:
        with reading(str(sqlite_file(settings.journal)[0])) as journal:
            yield journal


async def _verify(settings: "Settings", journal: JournalReader | None) -> tuple[Statement, list[Line]]:
    """The journal first: what it has a row of, the ledger has counted.

    What was written and left the ledger between the two looks is in neither; the next look finds it in both.
    """
    ledger, audited = _audited(settings)
    try:
        if journal is None:
            statement = await audited.statement()
            return statement, compare(statement, None)
        damaged: frozenset[str] | None = None
        gaps: dict[str, list[int]] | None = None
        for _ in range(LOOKS_MAX):
            # Beside the event loop, for a store whose connection wants to be heard.
            await to_thread.run_sync(journal.begin)
            statement = await audited.statement()
            place = (settings.namespace, statement.ledger)
            found = await to_thread.run_sync(journal.standing, *place, statement.unwritten)
            if damaged is None:
                damaged = await to_thread.run_sync(journal.damaged, *place)
            lines = compare(statement, found, damaged)
            before, gaps = gaps, _gaps(lines)
            if not gaps or gaps == before:
                return statement, lines
    finally:
        await ledger.aclose()
    raise LedgerUnavailable("too much ends while the books are compared: pause the guard, or try again later")


def _gaps(lines: list[Line]) -> dict[str, list[int]]:
    """By how much each counter differs, whatever else is charged meanwhile."""
    return {
        line.counter: [
            *[mine - its for mine, its in zip(line.counted[:4], (line.journaled or line.counted)[:4], strict=True)],
            line.counted.orphaned - line.recorded.orphaned,
            line.counted.open - line.recorded.open,
        ]
        for line in lines
        if line.problems
    }


def _verified(statement: Statement, lines: list[Line], *, as_json: bool) -> int:
    is_equal = not any(line.problems for line in lines)
    if as_json:
        counters = [_as_json(line) for line in lines]
        print(json.dumps({"ok": is_equal, "unwritten": len(statement.unwritten), "counters": counters}, indent=2))
    else:
        for text in _table(lines):
            print(text)
        waiting = f", {len(statement.unwritten)} records wait for the journal" if statement.unwritten else ""
        print(f"{'equal' if is_equal else 'DIFFERENT'}: {len(lines)} counters{waiting}")
    return EXIT_EQUAL if is_equal else EXIT_DIFFERENT


async def _adjust(settings: "Settings", adjustment: Adjustment) -> int:
    ledger, audited = _audited(settings)
    journal = None
    if settings.journal is not None:
        ledger.journal = journal = open_journal(settings.journal, namespace=settings.namespace)
        try:
            await journal.check()
        except ConfigError as error:
            raise _Unusable(error.problems[0]) from error
    try:
        record = await audited.adjust(adjustment)
    except LedgerUnavailable as problem:
        again = "" if adjustment.budget is None else f"; repeat it with --id {adjustment.id}, it is done only once"
        raise LedgerUnavailable(f"{problem}: nobody knows whether it was done{again}") from problem
    finally:
        await Books(ledger, journal).aclose()
    if not _is_what_was_asked(record, adjustment):
        option, remedy = "--id", "another adjustment has another id"
        if adjustment.budget is None:
            option, remedy = "--reservation", "it has one ending, and a budget is corrected with --budget and --usd"
        raise _Unusable(
            f"{option} {adjustment.id} was used before, for {'; '.join(_changes(record))}. "
            f"Nothing was changed now: {remedy}"
        )
    for text in _changes(record):
        print(text)
    if settings.journal is None:
        print("no JOURNAL is set: the ledger keeps the reason, and no journal has a row of it")
    return EXIT_EQUAL


def _is_what_was_asked(record: Record, adjustment: Adjustment) -> bool:
    """Whether a record is that of this adjustment; one done before with the same id may be another."""
    if adjustment.budget is None:
        return record.settled_nanousd == adjustment.nanousd
    changed = record.settled_nanousd + record.kept_nanousd + record.orphaned_nanousd
    places = [(counter.split("|")[0], counter.split("|", 4)[4]) for counter in record.counters]
    share = f"c|{adjustment.client}" if adjustment.client else "a"
    return changed == adjustment.nanousd and places == [(adjustment.budget.name, share)]


def _adjustment(chosen: argparse.Namespace, settings: "Settings") -> Adjustment:
    reason = chosen.reason.strip()
    if not reason or not reason.isprintable() or len(reason) > REASON_CHARS_MAX:
        raise _Unusable(f"--reason is a line of 1 to {REASON_CHARS_MAX} characters that can be printed")
    if chosen.id and (len(chosen.id) > ID_CHARS_MAX or not re.fullmatch(r"[!-~]+", chosen.id)):
        raise _Unusable(f"--id is a word of 1 to {ID_CHARS_MAX} ASCII characters, without spaces")
    if chosen.reservation is not None:
        if chosen.settled_usd is None or chosen.budget is not None or chosen.usd is not None:
            raise _Unusable("--reservation goes with --settled-usd, and not with --budget or --usd")
        return Adjustment(chosen.reservation, reason, _nanousd(chosen.settled_usd, "--settled-usd"), None)
    if chosen.budget is None or chosen.usd is None or chosen.settled_usd is not None:
        raise _Unusable("name --budget and --usd, or --reservation and --settled-usd")
    budgets = settings.client_budgets if chosen.client else settings.budgets
    found = next((budget for budget in budgets if budget.name == chosen.budget), None)
    if found is None:
        known = ", ".join(budget.name for budget in budgets) or "none"
        raise _Unusable(f"{'CLIENT_BUDGET' if chosen.client else 'BUDGET'} has no window {chosen.budget!r}: {known}")
    sign = -1 if chosen.usd.startswith("-") else 1
    nanousd = sign * _nanousd(chosen.usd.removeprefix("-").removeprefix("+"), "--usd")
    if not nanousd:
        raise _Unusable("--usd is 0, which changes nothing")
    adjustment_id = chosen.id or f"adjust-{time.time_ns():016x}{secrets.token_hex(8)}"
    return Adjustment(adjustment_id, reason, nanousd, found, chosen.client)


def _nanousd(text: str, option: str) -> int:
    try:
        return parse_usd(text)
    except ValueError as error:
        raise _Unusable(f"{option}: {error}") from None


def _export(settings: "Settings", *, as_json: bool, since_ns: int) -> int:
    if settings.journal is None:
        raise _Unusable("no JOURNAL is set, so there is nothing to export; set JOURNAL=sqlite:///routeguard-journal.db")
    with reading(str(sqlite_file(settings.journal)[0])) as journal:
        rows = map(_exported, journal.rows(settings.namespace, since_ns=since_ns))
        try:
            if as_json:
                _write_json(rows)
            else:
                _write_csv(rows)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read has seen enough; the interpreter must not try to write the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_EQUAL


#: Columns of an export.
EXPORTED: Final[tuple[str, ...]] = (
    "at",
    "namespace",
    "ledger",
    "id",
    "event",
    "path",
    "client",
    "model",
    "input_tokens",
    "output_tokens",
    "ceiling_usd",
    "settled_usd",
    "kept_usd",
    "orphaned_usd",
    "overrun_usd",
    "counters",
    "why",
    "reason",
)


def _exported(row: dict[str, str | int | None]) -> dict[str, str | int | None]:
    shown: dict[str, str | int | None] = {}
    for name, value in row.items():
        if name == "at_ns":
            shown["at"] = _moment(int(value or 0))
        elif name.endswith("_nanousd"):
            shown[name.removesuffix("_nanousd") + "_usd"] = format_usd(int(value or 0))
        else:
            shown[name] = value
    return shown


def _write_csv(rows: Iterator[dict[str, str | int | None]]) -> None:
    writer: csv.DictWriter[str] = csv.DictWriter(sys.stdout, EXPORTED, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        counters = " ".join(json.loads(str(row["counters"])))
        writer.writerow({name: _harmless(name, value) for name, value in row.items()} | {"counters": counters})


def _harmless(name: str, value: str | int | None) -> str | int | None:
    is_formula = name in TEXTS and isinstance(value, str) and value.startswith(FORMULA)
    return f"'{value}" if is_formula else value


def _write_json(rows: Iterator[dict[str, str | int | None]]) -> None:
    separator = "[\n"
    for row in rows:
        ordered: dict[str, object] = {name: row[name] for name in EXPORTED}
        ordered["counters"] = json.loads(str(row["counters"]))
        sys.stdout.write(separator + json.dumps(ordered))
        separator = ",\n"
    sys.stdout.write("\n]\n" if separator == ",\n" else "[]\n")


def _audited(settings: "Settings") -> tuple[Ledger, AuditedLedger]:
    ledger = open_ledger(
        settings.ledger, namespace=settings.namespace, clock=SystemClock(), clients_max=settings.max_clients
    )
    if not isinstance(ledger, AuditedLedger):
        raise _Unusable(f"a {ledger.kind} ledger cannot be looked into from outside; use sqlite:// or redis://")
    return ledger, ledger


def _table(lines: list[Line]) -> list[str]:
    rows = [("budget", "window", "share", "part", "counter", "reservations", "journal", "")]
    for line in lines:
        budget, window, share = _place(line.counter)
        for part in PARTS:
            recorded = getattr(line.recorded, part) if part in {"orphaned", "open"} else None
            journaled = None if line.journaled is None or part == "open" else getattr(line.journaled, part)
            values = [getattr(line.counted, part), recorded, journaled]
            known = [value for value in values if value is not None]
            if any(known) or part == "settled":
                shown = ["-" if value is None else format_usd(value) for value in values]
                rows.append((budget, window, share, part, *shown, "DIFFERENT" if len(set(known)) > 1 else ""))  # type: ignore[arg-type] # three of them
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    found = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return found + [f"{' '.join(_place(line.counter))}: {problem}" for line in lines for problem in line.problems]


def _as_json(line: Line) -> dict[str, object]:
    budget, window, share = _place(line.counter)
    journaled = line.journaled
    return {
        "counter": line.counter,
        "budget": budget,
        "window": window,
        "share": share,
        "counted": {f"{part}_usd": format_usd(getattr(line.counted, part)) for part in PARTS},
        "reservations": {f"{part}_usd": format_usd(getattr(line.recorded, part)) for part in ("orphaned", "open")},
        "journal": journaled and {f"{part}_usd": format_usd(getattr(journaled, part)) for part in PARTS[:4]},
        "problems": list(line.problems),
    }


def _place(counter: str) -> tuple[str, str, str]:
    """The budget, the window and the share of a counter, for people."""
    unit, _, _, start, share = counter.split("|", 4)
    window = "ever" if unit == "total" else datetime.fromtimestamp(int(start), UTC).strftime("%Y-%m-%dT%H:%MZ")
    return unit, window, {"a": "everybody", "o": "newcomers"}.get(share, share.removeprefix("c|"))


def _changes(record: Record) -> list[str]:
    parts = {"settled": record.settled_nanousd, "kept": record.kept_nanousd, "orphaned": record.orphaned_nanousd}
    changed = ", ".join(
        f"{name} {'+' if value > 0 else ''}{format_usd(value)} USD" for name, value in parts.items() if value
    )
    return [f"{' '.join(_place(counter))}: {changed or 'unchanged'} ({record.id})" for counter in record.counters]


def _moment(wall_ns: int) -> str:
    seconds, nanoseconds = divmod(wall_ns, NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def _moment_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; write 2026-11-30 or 2026-11-30T12:00:00Z") from None
    seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return min(seconds * NANOSECONDS, INTEGER_MAX)
