"""Plays every row, one after the other, and cleans up behind them."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from routeguard.cli.prove.findings import Findings, NotRun, Outcome, Verdict
from routeguard.cli.prove.rows import ROWS, Row
from routeguard.cli.prove.stage import Stage, prepared
from routeguard.config import Settings
from routeguard.ledgers import ledger_kind, sqlite_file
from routeguard.policy import LedgerUnavailable

ROW_SECONDS: Final = 20.0
#: All of it; what has not begun by then is not run.
TOTAL_SECONDS: Final = 50.0

Progress = Callable[[int, int, str], None]


class CannotRun(Exception):
    """Nothing can be proved with these settings; the text says why."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What came out."""

    ledger: str
    namespace: str
    seed: int
    outcomes: tuple[Outcome, ...]

    @property
    def breaches(self) -> int:
        """Rows in which something was seen that must not be."""
        return sum(outcome.verdict == "breach" for outcome in self.outcomes)

    @property
    def is_complete(self) -> bool:
        """No row was cut off or left out for lack of a ledger or of time."""
        return not any(outcome.seen.startswith(CUT_OFF) for outcome in self.outcomes)


#: What the reason begins with where a row could not be played although it applies.
CUT_OFF: Final = "could not be played: "


def proof(settings: Settings, *, seed: int, progress: Progress, rows: Sequence[Row] = ROWS) -> Proof:
    """Play the rows against these settings.

    Args:
        settings: The operator's.
        seed: Of every order and forged address.
        progress: Told before each row: how many are done, how many there are, the name of the next.
        rows: What to play.

    Raises:
        CannotRun: With these settings nothing can be played.
        ConfigError: The settings cannot be used, or their ledger cannot.
    """
    namespace = f"prove-{os.urandom(4).hex()}"
    with _file_of_its_own(settings, namespace) as usable:
        stage = Stage(prepared(usable, namespace), random.Random(seed))  # noqa: S311 - an order that can be played again
        outcomes = anyio.run(_play_all, stage, rows, progress)
    return Proof(ledger_kind(settings.ledger), namespace, seed, outcomes)


async def _play_all(stage: Stage, rows: Sequence[Row], progress: Progress) -> tuple[Outcome, ...]:
    try:
        await _require_ledger(stage)
        outcomes = []
        until = anyio.current_time() + TOTAL_SECONDS
        for number, row in enumerate(rows):
            progress(number, len(rows), row.name)
            outcomes.append(await _play(row, stage, until=until))
        progress(len(rows), len(rows), "")
    finally:
        await stage.aclose()
    return tuple(outcomes)


@contextmanager
def _file_of_its_own(settings: Settings, namespace: str) -> Iterator[Settings]:
    """A ledger file that is not there yet is not made: its owner and its place are the server's to choose.

    Another one beside it is used, on the same disk, and removed.
    """
    if ledger_kind(settings.ledger) != "sqlite":
        yield settings
        return
    path, synchronous = sqlite_file(settings.ledger)
    if path.exists():
        yield settings
        return
    own = path.with_name(f"{path.name}.{namespace}")
    slashes = "////" if own.is_absolute() else "///"
    try:
        yield settings.changed(ledger=f"sqlite:{slashes}{str(own).lstrip('/')}?synchronous={synchronous}")
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{own}{suffix}").unlink(missing_ok=True)


async def _require_ledger(stage: Stage) -> None:
    try:
        await stage.look_around()
    except LedgerUnavailable as problem:
        raise CannotRun(f"the ledger cannot be used: {problem}") from problem
    except NotRun as problem:
        raise CannotRun(str(problem)) from problem


async def _play(row: Row, stage: Stage, *, until: float) -> Outcome:
    began = anyio.current_time()

    def outcome(verdict: Verdict, seen: str, findings: Findings | None = None) -> Outcome:
        expected = " · ".join(findings.expected) if findings is not None else ""
        return Outcome(row.name, row.proves, verdict, expected, seen, round(anyio.current_time() - began, 3))

    if row.needs_money and stage.ceiling == 0:
        return outcome("not run", "at a price of 0 no money is claimed")
    if began > until:
        return outcome("not run", f"{CUT_OFF}the time of the whole proof is up")
    findings = Findings()
    try:
        with anyio.fail_after(ROW_SECONDS):
            try:
                await row.run(stage, findings)
            except LedgerUnavailable:
                # A decision has a second. A busy machine may need two, and that breaks no promise.
                findings = Findings()
                await row.run(stage, findings)
    except NotRun as reason:
        return outcome("not run", str(reason))
    except LedgerUnavailable as problem:
        return outcome("not run", f"{CUT_OFF}the ledger does not answer ({problem})")
    except TimeoutError:
        return outcome("breach", f"no end within {ROW_SECONDS:.0f} s", findings)
    except Exception as problem:  # noqa: BLE001 - whatever the guard raises is what the row has seen
        return outcome("breach", f"raised {type(problem).__name__}: {problem}", findings)
    return outcome("held" if findings.hold else "breach", " · ".join(findings.seen), findings)
