"""What goes wrong with a ledger file: locks, cancels, bugs, and files that are none. Money is never half-written."""

import asyncio
import random
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest

from routeguard.errors import ConfigError
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.policy import LedgerUnavailable
from routeguard.sqlite_file.file import connect, is_locked
from routeguard.sqlite_file.operation import Operation
from routeguard.sqlite_file.writer import QUEUE_MAX
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, admitted, attempt, budget, slot
from tests.patience import PATIENT_SECONDS, as_promised
from tests.sqlite.files import (
    check_sums,
    close_all,
    exists,
    ledger_at,
    locked,
    make_folder,
    move_away,
    number,
    read,
    rows,
    write,
)
from tests.stopwatch import seconds

DAY = budget(10 * CALL)


async def test_a_locked_file_is_refused_within_a_second_and_loses_nothing(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await ledger.refresh()
    streams = [await admitted(ledger, f"{index}", [DAY]) for index in range(3)]
    await ledger.settle(streams[0], state="settled", settled_nanousd=1, kept_nanousd=0)

    took = []
    with as_promised(), locked(path):
        clock.advance(3)
        for question in (
            ledger.refresh,
            partial(admitted, ledger, "refused", [DAY]),
            partial(ledger.settle, streams[1], state="settled", settled_nanousd=5, kept_nanousd=0),
        ):
            began = seconds()
            with pytest.raises(LedgerUnavailable):
                await question()
            took.append(seconds() - began)
        ledger.charge_late(streams[0], charge_id="late", extra_nanousd=2)
        while_locked = ledger.healthy

    balance = (await ledger.balances([DAY]))[0]
    assert sum(took[:2]) < 1, "one request asks for the switch and then for money"
    assert took[2] < 0.5
    assert (while_locked, ledger.healthy) == (False, True)
    assert (balance.settled_nanousd, balance.open_nanousd) == (1 + 5 + 2, CALL)
    assert streams[1].state == "settled"
    assert number(path, "SELECT count(*) FROM entries WHERE id = 'refused'") == 0
    check_sums(path)


async def test_a_moment_of_lock_is_waited_for(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await ledger.refresh()
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await attempt(ledger, "1", [DAY]))

    async with anyio.create_task_group() as tasks:
        with locked(path):
            tasks.start_soon(ask)
            await _all_held_up(ledger)

    assert answers != [None]
    assert ledger.healthy


async def test_the_pause_is_trusted_for_two_seconds_without_an_answer(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await ledger.refresh()

    with as_promised(), locked(path):
        clock.advance(2)
        await ledger.refresh()
        clock.advance(0.001)
        with pytest.raises(LedgerUnavailable):
            await ledger.refresh()


async def test_a_ledger_that_never_answered_admits_nobody(path: Path, clock: FakeClock) -> None:
    await ledger_at(path, clock, namespace="makes the file").refresh()
    ledger = ledger_at(path, clock)

    with as_promised(), locked(path), pytest.raises(LedgerUnavailable):
        await ledger.refresh()


async def test_a_reservation_whose_caller_was_cancelled_is_released(path: Path, clock: FakeClock) -> None:
    """At whichever moment: before the thread has begun, while it writes, and with the answer on its way."""
    ledger, wide, rng = ledger_at(path, clock), budget(1000 * CALL), random.Random(7)
    kept: list[str] = []

    async def one(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await admitted(ledger, name, [wide], slots=[slot(1000)])
            kept.append(name)

    for index in range(100):
        scopes = [anyio.CancelScope() for _ in range(3)]
        async with anyio.create_task_group() as tasks:
            for place, scope in enumerate(scopes):
                tasks.start_soon(one, f"{index}-{place}", scope)
            for _ in range(rng.randrange(12)):
                await anyio.lowlevel.checkpoint()
            scopes[rng.randrange(3)].cancel()

    assert (await ledger.balances([wide]))[0].open_nanousd == len(kept) * CALL
    assert await ledger.in_flight() == len(kept)
    assert 200 <= len(kept) < 300
    check_sums(path)


def test_a_reservation_whose_event_loop_is_gone_is_released(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ledger.refresh())
    with locked(path):
        task = loop.create_task(admitted(ledger, "1", [DAY], slots=[slot(5)]))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    while number(path, "SELECT count(*) FROM entries WHERE state = 'released'") == 0:
        time.sleep(0)

    assert not task.done()
    assert rows(path, "SELECT open FROM counters") == [(0,)]
    assert number(path, "SELECT used FROM slots") == 0


async def test_a_settlement_whose_caller_was_cancelled_is_written(path: Path, clock: FakeClock) -> None:
    ledger, wide = ledger_at(path, clock), budget(1000 * CALL)

    for index in range(30):
        reservation = await admitted(ledger, f"{index}", [wide])
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ledger.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0)

    balance = (await ledger.balances([wide]))[0]
    assert (balance.settled_nanousd, balance.open_nanousd) == (30, 0)


async def test_an_operation_that_fails_disturbs_no_neighbour(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_at(path, clock)
    await ledger.refresh()

    def breaks(db: sqlite3.Connection) -> None:
        db.execute("UPDATE counters SET open = open + 1")
        raise ZeroDivisionError

    errors: list[str] = []

    async def broken() -> None:
        try:
            await ledger._ask(Operation(ledger._book, breaks, seconds=None), PATIENT_SECONDS)
        except ZeroDivisionError as error:
            errors.append(type(error).__name__)

    async with anyio.create_task_group() as tasks:
        with locked(path):
            for index in range(4):
                tasks.start_soon(admitted, ledger, f"{index}", [DAY])
                tasks.start_soon(broken)
            await _all_held_up(ledger)

    assert errors == ["ZeroDivisionError"] * 4
    assert "an operation failed and was taken back" in caplog.text
    assert (await ledger.balances([DAY]))[0].open_nanousd == 4 * CALL


async def test_too_many_questions_are_refused_at_once(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await ledger.refresh()

    refused = 0
    with locked(path):
        writer = ledger._writer()
        for _ in range(QUEUE_MAX + 1000):
            operation = Operation(ledger._book, lambda _: None, seconds=0.3)
            writer.submit(operation)
            refused += operation.done and operation.error is not None

    await ledger._ask(Operation(ledger._book, lambda _: None, seconds=None), PATIENT_SECONDS)

    assert refused > 0
    assert await attempt(ledger, "1", [DAY]) is not None


def test_processes_that_make_the_file_at_the_same_moment_agree_that_it_is_theirs(tmp_path: Path) -> None:
    """Between two looks at a file another process may have made it."""
    problems: list[Exception] = []

    def open_one(path: Path, barrier: threading.Barrier) -> None:
        barrier.wait()
        while True:
            try:
                connect(str(path), "normal").close()
            except sqlite3.OperationalError as error:
                if is_locked(error):
                    continue
                problems.append(error)
            except LedgerUnavailable as error:
                problems.append(error)
            return

    for index in range(30):
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=open_one, args=(tmp_path / f"{index}.db", barrier)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert problems == []


async def test_a_file_that_can_never_be_the_ledger_fails_the_start(path: Path, clock: FakeClock) -> None:
    write(path, b"notes")

    with pytest.raises(ConfigError, match=r"ROUTEGUARD_LEDGER: .* is not a database"):
        await ledger_at(path, clock).check()


async def test_a_file_that_does_not_answer_yet_is_a_warning_at_the_start(path: Path, clock: FakeClock) -> None:
    await ledger_at(path, clock).refresh()

    with as_promised(), locked(path):
        locked_says = await ledger_at(path, clock, namespace="other").check()
    missing_says = await ledger_at(path.parent / "missing" / "ledger.db", clock).check()

    assert [len(locked_says), len(missing_says)] == [1, 1]
    assert "503 until it answers" in locked_says[0]
    assert "a folder that this process may write" in missing_says[0]
    assert await ledger_at(path, clock).check() == ()


@pytest.mark.parametrize("content", [b"notes\n" * 1000, b"x"])
async def test_a_file_that_is_no_database_is_left_alone_and_the_remedy_named(
    path: Path, clock: FakeClock, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, bytes(content))

    with pytest.raises(LedgerUnavailable, match="name another file"):
        await ledger_at(path, clock).refresh()

    assert read(path) == content
    assert "name another file" in caplog.text


async def test_the_database_of_something_else_is_left_alone(path: Path, clock: FakeClock) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE django_session (id)")
    content = read(path)

    with pytest.raises(LedgerUnavailable, match="is the database of something else"):
        await ledger_at(path, clock).refresh()

    assert read(path) == content


async def test_the_ledger_of_another_version_is_left_alone(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await ledger.refresh()
    await ledger.aclose()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")

    with pytest.raises(LedgerUnavailable, match="another version of routeguard"):
        await ledger_at(path, clock).refresh()


@pytest.mark.parametrize("folder", ["missing", "file"])
async def test_a_folder_that_is_none_is_named(path: Path, clock: FakeClock, folder: str) -> None:
    write(path.parent / "file", b"")

    with pytest.raises(LedgerUnavailable, match=f"is .*/{folder} a folder that this process may write"):
        await ledger_at(path.parent / folder / "ledger.db", clock).refresh()


async def test_a_file_that_cannot_be_used_is_tried_again(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path.parent / "later" / "ledger.db", clock)
    with pytest.raises(LedgerUnavailable):
        await ledger.refresh()

    make_folder(path.parent / "later")

    await ledger.refresh()
    assert await attempt(ledger, "1", [DAY]) is not None


async def test_a_damaged_file_is_refused(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await admitted(ledger, "1", [DAY])
    await ledger.aclose()
    content = bytearray(read(path))
    content[1024:] = bytes(len(content) - 1024)
    write(path, bytes(content))

    with pytest.raises(LedgerUnavailable, match="is damaged"):
        await attempt(ledger_at(path, clock), "2", [DAY])


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_removed_while_in_use_is_refused_until_a_restart(
    path: Path, clock: FakeClock, *, replaced: bool
) -> None:
    """A process that goes on in the removed file and one that begins a new file would spend two budgets."""
    ledger = ledger_at(path, clock)
    await admitted(ledger, "1", [DAY])
    move_away(path)
    if replaced:
        write(path, b"")

    for number_ in range(2):
        with pytest.raises(LedgerUnavailable, match="was removed or replaced while it was in use"):
            await attempt(ledger, f"{number_}", [DAY])
    existed = exists(path)
    close_all()

    assert existed is replaced, "it is not made anew behind the operator's back"
    assert (await ledger_at(path, clock).balances([DAY]))[0].charged_nanousd == 0


async def test_a_complaint_is_not_repeated_with_every_request(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, b"notes")
    ledger = ledger_at(path, clock)

    for index in range(20):
        with pytest.raises(LedgerUnavailable):
            await attempt(ledger, f"{index}", [DAY])

    (record,) = caplog.records
    assert record.__dict__["event"] == "ledger_error"


async def _all_held_up(ledger: SqliteLedger) -> None:
    """Everything that was asked waits for the lock of the file, in one batch."""
    writer = ledger._writer()
    while writer._locked_since is None or not writer._queue.empty():
        await anyio.lowlevel.checkpoint()
