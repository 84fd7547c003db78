"""What is in the way of a claim, and what is written for a late bill, for the switch and for the host's clock."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from routeguard.ledgers.sqlite.book import SqliteBook
from routeguard.ledgers.sqlite.counters import Debit, Parts, Share, verdict
from routeguard.ledgers.sqlite.entries import Entry
from routeguard.policy import NANOSECONDS, Budget, Claim, Parallel, Rate, Span
from routeguard.sqlite_file.file import connect
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, DAY_SECONDS, budget

DAY = budget(10 * CALL)
MINE = budget(10 * CALL, per_client=True)


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(str(path), "normal")
    yield connection
    connection.close()


@pytest.fixture
def book(db: sqlite3.Connection, clock: FakeClock) -> SqliteBook:
    return attached(db, clock)


def attached(db: sqlite3.Connection, clock: FakeClock, *, namespace: str = "default") -> SqliteBook:
    """A book with place for two clients."""
    book = SqliteBook(namespace, clock=clock, clients_max=2, on_orphans=lambda _: None, on_records=lambda _: None)
    book.attach(db)
    return book


def released(db: sqlite3.Connection, book: SqliteBook, name: str, *budgets: Budget, client: str = "a") -> Entry:
    """A reservation that cost nothing, so that its client holds no place."""
    money = [Claim(one, client if one.per_client else "", CALL) for one in budgets]
    entry = book.reserve(db, name, money=money, slots=[], rates=[], force=False).entry
    assert entry is not None
    book.settle(db, name, state="released", settled_nanousd=0, kept_nanousd=0)
    return entry


def spend(db: sqlite3.Connection, book: SqliteBook, client: str) -> None:
    """A client that holds a place."""
    book.reserve(db, client, money=[Claim(MINE, client, CALL)], slots=[], rates=[], force=False)


def clients(db: sqlite3.Connection) -> int:
    (number,) = db.execute("SELECT clients FROM budgets WHERE per_client = 1").fetchone()
    assert isinstance(number, int)
    return number


SLOT, MY_SLOT = Claim(Parallel(1, 1), "", 1), Claim(Parallel(1, 1, per_client=True), "a", 1)
RATE, MY_RATE = Claim(Rate("all-1", 1, 1), "", 1), Claim(Rate("client-1", 1, 1), "a", 1)


def share(limit: int, *, amount: int = 10, mine: bool = False, end: int | None = 5, **parts: int) -> Share:
    """A claim of 10 nano-USD beside its counter."""
    one = budget(limit, per_client=mine)
    partition = "a" if mine else ""
    return Share(Claim(one, partition, amount), 1, Span(0, end), partition, parts=Parts(**parts) if parts else None)


@pytest.mark.parametrize(
    ("shares", "slots", "rates", "found"),
    [
        ([share(9)], [], [], ("too_expensive", False, None, 0)),
        ([share(9, mine=True)], [], [], ("too_expensive", True, None, 0)),
        ([share(9, mine=True), share(9)], [], [], ("too_expensive", False, None, 0)),
        ([share(9, mine=True), share(10, settled=9)], [SLOT], [RATE], ("too_expensive", True, None, 0)),
        ([share(1, amount=2)], [], [], ("too_expensive", False, None, 0)),
        ([share(0)], [], [], ("budget_exhausted", False, 5, 0)),
        ([share(10, settled=1)], [], [], ("budget_exhausted", False, 5, 0)),
        ([share(10, kept=1)], [], [], ("budget_exhausted", False, 5, 0)),
        ([share(10, orphaned=1)], [], [], ("budget_exhausted", False, 5, 0)),
        ([share(10, mine=True, kept=1)], [SLOT], [RATE], ("budget_exhausted", True, 5, 0)),
        ([share(10, mine=True, kept=1, end=7), share(10, kept=1)], [], [], ("budget_exhausted", False, 7, 0)),
        ([share(10, kept=1), share(10, kept=1, end=None)], [], [], ("budget_exhausted", False, None, 0)),
        ([share(10, open=1), share(10, mine=True, kept=1, end=7)], [], [], ("budget_exhausted", True, 7, 0)),
        ([share(10, open=1)], [SLOT], [RATE], ("rate_limited", False, None, 3)),
        ([], [], [MY_RATE], ("rate_limited", True, None, 3)),
        ([], [SLOT], [MY_RATE, RATE], ("rate_limited", False, None, 3)),
        ([share(10, open=1)], [], [], ("busy", False, None, 0)),
        ([share(20, open=6, kept=5)], [], [], ("busy", False, None, 0)),
        ([share(10, mine=True, open=1)], [], [], ("busy", True, None, 0)),
        ([share(10, mine=True, open=1)], [MY_SLOT], [], ("busy", True, None, 0)),
        ([share(10, mine=True, open=1)], [SLOT], [], ("busy", False, None, 0)),
        ([share(10, open=1)], [MY_SLOT], [], ("busy", False, None, 0)),
        ([share(10, mine=True, open=1), share(10, open=1)], [], [], ("busy", False, None, 0)),
    ],
)
def test_the_most_final_thing_in_the_way_is_the_verdict(
    shares: list[Share],
    slots: list[Claim[Parallel]],
    rates: list[Claim[Rate]],
    found: tuple[str, bool, int | None, int],
) -> None:
    refused = verdict(shares, slots, rates, 3)

    assert refused is not None
    assert (refused.cause, refused.per_client, refused.resets_at, refused.retry_ns) == found


def test_what_fits_to_the_last_nano_dollar_has_nothing_in_the_way() -> None:
    assert verdict([], [], [], 0) is None
    assert verdict([share(10)], [], [], 0) is None
    assert verdict([share(10), share(30, settled=1, open=2, kept=3, orphaned=14, overrun=99)], [], [], 0) is None


def test_a_late_bill_of_a_client_without_money_takes_a_place_again(db: sqlite3.Connection, book: SqliteBook) -> None:
    entry = released(db, book, "1", MINE)
    before = clients(db)

    charged = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    assert before == 0
    assert clients(db) == 1
    assert charged == [(entry.debits[0], Parts(settled=7, overrun=7))]


def test_a_late_bill_of_a_client_with_money_takes_no_second_place(db: sqlite3.Connection, book: SqliteBook) -> None:
    entry = released(db, book, "1", MINE)
    spend(db, book, "a")

    charged = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    assert clients(db) == 1
    assert charged == [(entry.debits[0], Parts(settled=7, open=CALL, overrun=7))]


def test_a_late_bill_of_a_client_whose_place_is_taken_is_the_overflow_clients(
    db: sqlite3.Connection, book: SqliteBook
) -> None:
    entry = released(db, book, "1", MINE)
    spend(db, book, "b")
    spend(db, book, "c")

    charged = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    (debit,) = entry.debits
    assert clients(db) == 2
    assert charged == [(Debit(debit.budget_id, debit.starts, ""), Parts(settled=7, overrun=7))]


def test_a_late_bill_of_everybody_takes_no_place(db: sqlite3.Connection, book: SqliteBook) -> None:
    entry = released(db, book, "1", DAY)

    charged = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    assert charged == [(entry.debits[0], Parts(settled=7, overrun=7))]
    assert db.execute("SELECT clients FROM budgets").fetchall() == [(0,)]


def test_a_late_bill_of_a_past_window_stays_in_it_and_takes_no_place_in_the_next(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    entry = released(db, book, "1", MINE)
    clock.advance(DAY_SECONDS)
    spend(db, book, "b")
    spend(db, book, "c")

    charged = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    assert charged == [(entry.debits[0], Parts(settled=7, overrun=7))]
    assert clients(db) == 2


def test_a_late_bill_is_an_entry_of_its_own_and_is_charged_once(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    entry = released(db, book, "1", DAY, MINE)
    first = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    again = book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7)

    assert len(first) == 2
    assert again == []
    assert db.execute(
        "SELECT state, amount, settled, kept, slots, ended_ns FROM entries WHERE id = 'late'"
    ).fetchall() == [("late", 0, 7, 0, "[]", clock.monotonic_ns())]
    assert db.execute("SELECT settled, overrun FROM counters").fetchall() == [(7, 7), (7, 7)]


def test_a_counter_is_called_by_its_budget_its_window_and_whose_share_it_is(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    entry = released(db, book, "1", DAY, MINE)
    today = clock.wall_ns() // NANOSECONDS // DAY_SECONDS * DAY_SECONDS

    names = book.unwritten.names(db, entry.debits)

    assert names == (f"day|UTC|0|{today}|a", f"day|UTC|1|{today}|c|a")


def test_of_two_who_turn_the_switch_at_once_the_one_that_is_written_counts(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    book.set_paused(db, paused=False)

    at_once = book.paused(db, started_paused_ns=clock.monotonic_ns())
    later = book.paused(db, started_paused_ns=clock.monotonic_ns() + 1)

    assert (at_once, later) == (False, True)
    assert book.paused(db, started_paused_ns=None) is True


def test_a_start_in_pause_counts_on_the_clock_of_a_host_that_was_started_again(
    db: sqlite3.Connection, clock: FakeClock
) -> None:
    clock.advance(90_000)
    attached(db, clock).set_paused(db, paused=False)
    after = FakeClock()
    book = attached(db, after)
    book.set_paused(db, paused=False)
    after.advance(1)

    assert book.paused(db, started_paused_ns=after.monotonic_ns()) is True


def test_the_switch_of_one_namespace_turns_no_other(db: sqlite3.Connection, book: SqliteBook, clock: FakeClock) -> None:
    other = attached(db, clock, namespace="other")

    book.set_paused(db, paused=True)

    assert book.paused(db, started_paused_ns=None) is True
    assert other.paused(db, started_paused_ns=None) is False
