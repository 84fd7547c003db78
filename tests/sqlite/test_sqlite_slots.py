"""Slots as they are counted in a file: by partition, with every lease that ends."""

import random
import sqlite3
from pathlib import Path

import pytest

from routeguard.ledgers.sqlite import book as book_module
from routeguard.ledgers.sqlite.book import SqliteBook
from routeguard.policy import NANOSECONDS, Claim, Parallel
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, budget
from tests.sqlite.files import check_slots

DAY, LEASE_SECONDS = budget(1_000 * CALL), 330
ORPHANS_MAX = 3


@pytest.fixture
def book(db: sqlite3.Connection, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> SqliteBook:
    monkeypatch.setattr(book_module, "ORPHANS_MAX", ORPHANS_MAX)
    book = SqliteBook("default", clock=clock, clients_max=9, on_orphans=lambda _: None, on_records=lambda _: None)
    book.attach(db)
    return book


def slots(quota: int, client: str) -> list[Claim[Parallel]]:
    """One of everybody, and one of as many of the client's own."""
    lease_ns = LEASE_SECONDS * NANOSECONDS
    return [
        Claim(Parallel(quota, lease_ns), "", 1),
        Claim(Parallel(quota, lease_ns, per_client=True), client, 1),
    ]


def admits(db: sqlite3.Connection, book: SqliteBook, name: str, *, quota: int = 1_000, client: str = "a") -> bool:
    answer = book.reserve(db, name, money=[Claim(DAY, "", CALL)], slots=slots(quota, client), rates=[], force=False)
    return answer.entry is not None


def end(db: sqlite3.Connection, book: SqliteBook, name: str) -> None:
    assert book.settle(db, name, state="settled", settled_nanousd=1, kept_nanousd=0) is not None


def in_use(db: sqlite3.Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT partition, used FROM slots ORDER BY partition").fetchall()


def test_every_partition_of_a_reservation_holds_a_slot_until_it_ends(db: sqlite3.Connection, book: SqliteBook) -> None:
    for name, client in (("1", "a"), ("2", "a"), ("3", "b")):
        assert admits(db, book, name, client=client)
    before = in_use(db)

    for name in ("3", "1", "2"):
        end(db, book, name)

    assert before == [("", 3), ("a", 2), ("b", 1)]
    assert in_use(db) == [("", 0)], "a client without a slot has no row"


def test_an_id_that_is_known_takes_no_second_slot_and_no_second_money(db: sqlite3.Connection, book: SqliteBook) -> None:
    assert admits(db, book, "1")
    before = db.execute("SELECT * FROM counters").fetchall()

    again = [admits(db, book, "1", quota=quota) for quota in (1_000, 1)]

    assert again == [True, True], "with room for another and without"
    assert in_use(db) == [("", 1), ("a", 1)]
    assert db.execute("SELECT * FROM counters").fetchall() == before


def test_an_id_that_is_known_opens_no_window(db: sqlite3.Connection, book: SqliteBook, clock: FakeClock) -> None:
    assert admits(db, book, "1")
    before = db.execute("SELECT * FROM budgets").fetchall()
    clock.advance(2 * 86_400)

    assert admits(db, book, "1")

    assert db.execute("SELECT * FROM budgets").fetchall() == before


def test_a_slot_is_free_with_the_end_of_its_lease_although_more_have_ended_than_one_transaction_ends(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    for number in range(3 * ORPHANS_MAX):
        assert admits(db, book, f"{number}", client=f"client {number % 2}")
    clock.advance(LEASE_SECONDS)
    assert admits(db, book, "alive")

    book.tidy(db, 1)

    # Of the nine, three are orphans by now and six only over; the one that is alive holds the one slot.
    assert len(db.execute("SELECT 1 FROM entries WHERE state = 'orphaned'").fetchall()) == ORPHANS_MAX
    assert book.in_flight(db) == 1
    assert not admits(db, book, "one too many", quota=1, client="b")
    assert admits(db, book, "fits", quota=2, client="client 0"), "its four slots are over"
    # What is over may end as well, in the same transaction.
    for number in range(ORPHANS_MAX, 3 * ORPHANS_MAX):
        end(db, book, f"{number}")
        assert book.in_flight(db) == 2
    assert not admits(db, book, "one too many", quota=2, client="b")
    end(db, book, "alive")
    assert book.in_flight(db) == 1
    assert in_use(db) == [("", 1), ("client 0", 1)]


def test_the_next_transaction_counts_anew(db: sqlite3.Connection, book: SqliteBook, clock: FakeClock) -> None:
    for number in range(2 * ORPHANS_MAX + 1):
        assert admits(db, book, f"{number}")
    clock.advance(LEASE_SECONDS)
    flights = []

    for _ in range(3):
        book.tidy(db, 1)
        flights.append((book.in_flight(db), in_use(db)[0][1]))

    assert flights == [(0, ORPHANS_MAX + 1), (0, 1), (0, 0)]


def test_slots_add_up_whatever_begins_ends_and_outlives_its_lease(
    path: Path, db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    rng, quota, now = random.Random(20_261_130), 8, 0
    begun: dict[str, int] = {}

    def alive() -> int:
        return sum(now - began < LEASE_SECONDS for began in begun.values())

    refused = outlived = overdue = 0
    for number in range(2_000):
        if rng.random() < 0.2:
            seconds = rng.choice([1, 40, 200])
            clock.advance(seconds)
            now += seconds
        book.tidy(db, 1)
        for name in (f"{number}", f"{number}-too"):
            if rng.random() < 0.6:
                may = alive() < quota
                assert admits(db, book, name, quota=quota, client=rng.choice("abc")) == may, name
                if may:
                    begun[name] = now
                refused += not may
            elif begun:
                ended = rng.choice(sorted(begun))
                was = book.settle(db, ended, state="settled", settled_nanousd=1, kept_nanousd=0)
                assert was is not None
                outlived += was.state == "orphaned"
                overdue += was.state == "open" and now - begun[ended] >= LEASE_SECONDS
                del begun[ended]
            assert book.in_flight(db) == alive(), name
        check_slots(path)

    assert min(refused, outlived, overdue) > 5, "each of them happened"
