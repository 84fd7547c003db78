"""Places in the rates that a reservation took by which nobody was admitted, and whose they are else."""

import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from routeguard.ledgers.sqlite.book import Debited, SqliteBook
from routeguard.policy import NANOSECONDS, Claim, LedgerUnavailable, Parallel, Rate, State
from routeguard.sqlite_file.operation import Operation
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, budget
from tests.sqlite.files import check_sums, ledger_at, number, rows

DAY = budget(1000 * CALL)
MINUTE = 60 * NANOSECONDS
FEW, MANY = Claim(Rate("client-1", 10, MINUTE), "a", 1), Claim(Rate("client-2", 600, 60 * MINUTE), "a", 1)
SHARED = Claim(Rate("global-1", 600, MINUTE), "", 1)
RATES = (SHARED, FEW, MANY)
LEASE = Claim(Parallel(1000, lease_ns=330 * NANOSECONDS), "", 1)


@pytest.fixture
def book(db: sqlite3.Connection, clock: FakeClock) -> SqliteBook:
    book = SqliteBook("default", clock=clock, clients_max=9, on_orphans=lambda _: None, on_records=lambda _: None)
    book.attach(db)
    return book


def reserve(
    db: sqlite3.Connection, book: SqliteBook, name: str, rates: Sequence[Claim[Rate]] = RATES, *, force: bool = False
) -> Debited:
    return book.reserve(db, name, money=[Claim(DAY, "", CALL)], slots=[LEASE], rates=rates, force=force)


def in_the_rates(db: sqlite3.Connection) -> tuple[dict[tuple[str, int], int], object]:
    """Places taken, by partition and window; and how many clients have a row."""
    taken = {}
    for partition, windows in db.execute("SELECT partition, windows FROM rates").fetchall():
        for window_ns, content in json.loads(windows):
            taken[partition, window_ns] = sum(1 if isinstance(one, int) else one[2] for one in content)
    return taken, db.execute("SELECT rated_clients FROM namespaces").fetchone()


def test_a_reservation_taken_back_leaves_the_rates_as_they_were(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    before, after = [], []

    for count in range(4):
        before.append(in_the_rates(db))
        clock.advance(count)
        answer = reserve(db, book, f"back-{count}")
        book.take_back(db, answer, entry_id=f"back-{count}", rates=RATES)
        after.append(in_the_rates(db))
        reserve(db, book, f"stays-{count}")

    assert before[0] == ({}, (0,)), "a client without a place has no row"
    assert before[3] == ({("", MINUTE): 3, ("a", MINUTE): 3, ("a", 60 * MINUTE): 3}, (1,))
    assert after == before


def test_a_reservation_taken_back_costs_nothing(db: sqlite3.Connection, book: SqliteBook) -> None:
    answer = reserve(db, book, "1")

    book.take_back(db, answer, entry_id="1", rates=RATES)

    assert db.execute("SELECT settled, open, kept FROM counters").fetchone() == (0, 0, 0)
    assert db.execute("SELECT state, settled, kept FROM entries").fetchone() == ("released", 0, 0)


@pytest.mark.parametrize(("rate", "clients"), [(FEW, 0), (SHARED, 1)])
def test_only_a_client_whose_row_goes_is_no_longer_counted(
    db: sqlite3.Connection, book: SqliteBook, rate: Claim[Rate], clients: int
) -> None:
    if rate is SHARED:
        reserve(db, book, "another", [FEW])
    answer = reserve(db, book, "1", [rate])

    book.take_back(db, answer, entry_id="1", rates=[rate])

    assert in_the_rates(db)[1] == (clients,)


def test_a_place_is_given_back_once_however_often_that_is_asked(db: sqlite3.Connection, book: SqliteBook) -> None:
    """All claims have the same nanosecond: whoever looks for one finds another."""
    answers = [reserve(db, book, f"{index}") for index in range(3)]

    for _ in range(3):
        book.take_back(db, answers[1], entry_id="1", rates=RATES)

    assert [_left(db, book, rate) for rate in RATES] == [598, 8, 598]


@pytest.mark.parametrize("state", ["settled", "kept", "released"])
def test_whoever_was_admitted_keeps_its_place_however_it_ends(
    db: sqlite3.Connection, book: SqliteBook, state: State
) -> None:
    answer = reserve(db, book, "1")

    book.settle(db, "1", state=state, settled_nanousd=0, kept_nanousd=0)
    book.take_back(db, answer, entry_id="1", rates=RATES)

    assert [_left(db, book, rate) for rate in RATES] == [599, 9, 599]


def test_an_orphan_that_nobody_was_admitted_by_gives_its_place_back(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    """The file was locked for longer than a stream may take."""
    answer = reserve(db, book, "1")
    clock.advance(331)
    book.tidy(db, 1)
    (state,) = db.execute("SELECT state FROM entries").fetchone()

    book.take_back(db, answer, entry_id="1", rates=RATES)

    assert state == "orphaned"
    assert db.execute("SELECT open, orphaned FROM counters").fetchone() == (0, 0)
    assert _left(db, book, MANY) == 600


@pytest.mark.parametrize("quota", [2, 101])
def test_what_took_no_place_gives_none_back(db: sqlite3.Connection, book: SqliteBook, quota: int) -> None:
    """Observed beyond its rate, at the very moment of those that have a place."""
    rate = Claim(Rate("client-1", quota, MINUTE), "a", 1)
    for index in range(quota):
        reserve(db, book, f"{index}", [rate])
    observed = reserve(db, book, "observed", [rate], force=True)

    book.take_back(db, observed, entry_id="observed", rates=[rate])

    assert observed.refused is not None
    assert _left(db, book, rate) == 0


def test_what_is_observed_beyond_its_budget_says_so_and_takes_its_places(
    db: sqlite3.Connection, book: SqliteBook
) -> None:
    money = [Claim(budget(CALL), "", CALL)]
    book.reserve(db, "first", money=money, slots=[], rates=[FEW], force=False)

    observed = book.reserve(db, "observed", money=money, slots=[], rates=[FEW], force=True)

    assert (observed.refused is not None, len(observed.shares)) == (True, 1)
    assert _left(db, book, FEW) == 8


def test_a_question_that_found_the_reservation_of_another_takes_nothing_back(
    db: sqlite3.Connection, book: SqliteBook
) -> None:
    reserve(db, book, "same")
    again = reserve(db, book, "same")

    book.take_back(db, again, entry_id="same", rates=RATES)

    assert db.execute("SELECT state FROM entries").fetchone() == ("open",)
    assert _left(db, book, FEW) == 9


async def test_a_reserve_that_is_written_after_its_caller_gave_up_leaves_the_rates_as_they_were(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough for the thread to have begun when the caller gives up, whatever else this machine does.
    monkeypatch.setattr("routeguard.ledgers.sqlite.ledger.RESERVE_SECONDS", 3.0)
    ledger = ledger_at(path, clock)
    await ledger.reserve("before", money=[Claim(DAY, "", CALL)], slots=[LEASE], rates=RATES)
    before = rows(path, "SELECT partition, windows FROM rates ORDER BY partition")
    began, go_on, commit = threading.Event(), threading.Event(), threading.Event()

    def keep_busy(_: sqlite3.Connection) -> None:
        began.set()
        go_on.wait()

    async def is_too_late() -> None:
        with pytest.raises(LedgerUnavailable):
            await ledger.reserve("late", money=[Claim(DAY, "", CALL)], slots=[LEASE], rates=RATES)

    # While the thread is busy, the question and what holds up its commit are queued: one transaction does both.
    writer = ledger._writer()
    writer.submit(Operation(ledger._book, keep_busy, seconds=None))
    await anyio.to_thread.run_sync(began.wait)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(is_too_late)
        await anyio.wait_all_tasks_blocked()
        writer.submit(Operation(ledger._book, lambda _: commit.wait(), seconds=None))
        go_on.set()
    commit.set()

    assert await ledger.in_flight() == 1
    assert number(path, "SELECT count(*) FROM entries WHERE id = 'late' AND state = 'released'") == 1
    assert rows(path, "SELECT partition, windows FROM rates ORDER BY partition") == before
    check_sums(path)


def _left(db: sqlite3.Connection, book: SqliteBook, rate: Claim[Rate]) -> int:
    """Takes them all."""
    taken = 0
    while book.reserve(db, f"{rate.policy.name}-{taken}", money=[], slots=[], rates=[rate], force=False).entry:
        taken += 1
    return taken
