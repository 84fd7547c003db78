"""Processes that are killed while they write: what the ledger says has ended has a row, and one only."""

import os
import random
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import anyio
import pytest

from routeguard.auditing import Statement
from routeguard.clock import SystemClock
from routeguard.journal import SqliteJournal
from routeguard.journal.audit import Line, compare
from routeguard.journal.reading import reading
from routeguard.ledgers.sqlite import SqliteLedger
from tests.journal.rows import doubles, select
from tests.sqlite.files import locked, rows

ROOT = Path(__file__).resolve().parents[2]
KILLS = 6


def start(ledger: str, journal: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process that has answered its first request."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.journal.worker", ledger, f"sqlite:///{journal}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("in_one_file", [False, True])
def test_killing_the_writing_process_loses_no_row_and_doubles_none(path: Path, *, in_one_file: bool) -> None:
    """Two at a time; every other kill finds the journal locked, so that whole groups are unwritten."""
    rng, ledger = random.Random(5), path if in_one_file else path.with_name("ledger.db")
    running = [start(f"sqlite:///{ledger}", path) for _ in range(2)]
    try:
        for kill in range(KILLS):
            with locked(path) if kill % 2 and not in_one_file else nullcontext():
                time.sleep(0.05 + 0.2 * rng.random())  # how far they get is what must not matter
                running[0].kill()
                running[0].communicate()
            running = [running[1], start(f"sqlite:///{ledger}", path)]
    finally:
        for process in running:
            process.kill()
            process.communicate()

    left_behind = len(select(ledger, "SELECT 1 FROM journal")) if in_one_file else None
    lines = anyio.run(_recovered, ledger, path)

    ended = {name for (name,) in rows(ledger, "SELECT id FROM entries WHERE state NOT IN ('open', 'orphaned')")}
    written = [str(name) for (name,) in select(path, "SELECT id FROM journal WHERE event <> 'opening'")]
    assert left_behind is None or left_behind <= len(written)
    assert len(ended) > KILLS
    assert doubles(written) == []
    assert ended <= set(written)
    assert [line.problems for line in lines if line.problems] == []


@pytest.mark.parametrize("ledger", ["memory", "sqlite"])
def test_a_process_that_ends_without_a_shutdown_writes_what_waits(path: Path, ledger: str) -> None:
    url = "memory://" if ledger == "memory" else f"sqlite:///{path.with_name('ledger.db')}"

    process = start(url, path, "7")
    process.communicate()

    assert process.returncode == 0
    assert len(select(path, "SELECT id FROM journal")) == 7


async def _recovered(file: Path, path: Path) -> list[Line]:
    """A process that begins after the last kill, until nothing waits any more."""
    journal = SqliteJournal(str(path), namespace="default")
    ledger = SqliteLedger(str(file), namespace="default", clock=SystemClock())
    ledger.journal = journal
    with anyio.fail_after(120):
        while (await ledger.statement()).unwritten:
            ledger._refreshed_ns = None
            await ledger.refresh()
            await anyio.sleep(0.05)
    statement = await ledger.statement()
    return await anyio.to_thread.run_sync(_compared, statement, path)


def _compared(statement: Statement, path: Path) -> list[Line]:
    with reading(str(path)) as journal:
        damaged = journal.damaged("default", statement.ledger)
        return compare(statement, journal.standing("default", statement.ledger, statement.unwritten), damaged)
