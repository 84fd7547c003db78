"""What is in the way of a claim, and what is written for an ending, a late bill, the switch and the host's clock."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from routeguard.auditing import Adjustment, AdjustmentRefused
from routeguard.ledgers.sqlite.audit import path_of
from routeguard.ledgers.sqlite.book import FORGET_EVERY, KEEP_ENDED_NS, RESTART_SLACK_NS, SqliteBook
from routeguard.ledgers.sqlite.counters import Debit, Parts, Share, verdict
from routeguard.ledgers.sqlite.entries import Entry
from routeguard.policy import NANOSECONDS, Budget, Claim, Parallel, Rate, Span
from routeguard.records import Note, Record, late_record
from routeguard.sqlite_file.file import connect
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, DAY_SECONDS, budget
from tests.sqlite.files import locked

DAY = budget(10 * CALL)
MINE = budget(10 * CALL, per_client=True)


@pytest.fixture
def book(db: sqlite3.Connection, clock: FakeClock) -> SqliteBook:
    return attached(db, clock)


def attached(db: sqlite3.Connection, clock: FakeClock, *, namespace: str = "default", journal: str = "") -> SqliteBook:
    """A book with place for two clients, as another process has it."""
    book = SqliteBook(namespace, clock=clock, clients_max=2, on_orphans=lambda _: None, on_records=lambda _: None)
    book.journal_name = lambda: journal
    book.attach(db)
    return book


def released(db: sqlite3.Connection, book: SqliteBook, name: str, *budgets: Budget, client: str = "a") -> Entry:
    """A reservation that cost nothing, so that its client holds no place."""
    money = [Claim(one, client if one.per_client else "", CALL) for one in budgets]
    entry = book.reserve(db, name, money=money, slots=[], rates=[], force=False).entry
    assert entry is not None
    book.settle(db, name, state="released", settled_nanousd=0, kept_nanousd=0)
    return entry


def leased(db: sqlite3.Connection, book: SqliteBook, name: str) -> Entry:
    """A reservation with a slot, whose lease has just begun."""
    entry = book.reserve(db, name, money=[Claim(DAY, "", CALL)], slots=[LEASE], rates=[], force=False).entry
    assert entry is not None
    return entry


def spend(db: sqlite3.Connection, book: SqliteBook, client: str) -> None:
    """A client that holds a place."""
    book.reserve(db, client, money=[Claim(MINE, client, CALL)], slots=[], rates=[], force=False)


def clients(db: sqlite3.Connection) -> int:
    (number,) = db.execute("SELECT clients FROM budgets WHERE per_client = 1").fetchone()
    assert isinstance(number, int)
    return number


def states(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """What became of each entry."""
    return db.execute("SELECT id, state FROM entries ORDER BY id").fetchall()


LEASE = Claim(Parallel(9, 330 * NANOSECONDS), "", 1)
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


def test_a_late_bill_waits_for_the_journal_with_what_it_changed(db: sqlite3.Connection, clock: FakeClock) -> None:
    book = attached(db, clock, journal="ours")
    entry = released(db, book, "1", DAY, MINE)
    note = Note(path="/chat", why="reported")
    before = set(book.unwritten.all(db))

    book.charge_late(db, "late", debits=entry.debits, extra_nanousd=7, note=note)

    counters = book.unwritten.names(db, entry.debits)
    assert len(counters) == 2
    assert set(book.unwritten.all(db)) - before == {
        late_record("late", 7, counters, wall_ns=clock.wall_ns(), note=note)
    }


def test_what_has_ended_is_ended_no_second_time_by_another_process(db: sqlite3.Connection, book: SqliteBook) -> None:
    book.reserve(db, "1", money=[Claim(DAY, "", CALL)], slots=[], rates=[], force=False)
    first = book.settle(db, "1", state="settled", settled_nanousd=7, kept_nanousd=0)

    again = book.settle(db, "1", state="kept", settled_nanousd=0, kept_nanousd=CALL)

    assert first is not None
    assert again is None
    assert states(db) == [("1", "settled")]
    assert db.execute("SELECT settled, open, kept, overrun FROM counters").fetchall() == [(7, 0, 0, 0)]


def test_what_never_was_or_is_forgotten_is_not_ended(db: sqlite3.Connection, book: SqliteBook) -> None:
    assert book.settle(db, "nobody", state="settled", settled_nanousd=7, kept_nanousd=0) is None


def test_a_budget_of_everybody_is_one_counter_whoever_claims_it(db: sqlite3.Connection, book: SqliteBook) -> None:
    for client in ("a", "b"):
        book.reserve(db, client, money=[Claim(DAY, client, CALL)], slots=[], rates=[], force=False)

    assert db.execute("SELECT partition, open FROM counters").fetchall() == [("", 2 * CALL)]


def test_a_reservation_of_a_slot_alone_holds_no_money(db: sqlite3.Connection, book: SqliteBook) -> None:
    entry = book.reserve(db, "1", money=[], slots=[LEASE], rates=[], force=False).entry

    assert entry is not None
    assert (entry.amount_nanousd, entry.debits) == (0, ())


def test_an_orphan_ended_by_hand_has_ended(db: sqlite3.Connection, book: SqliteBook, clock: FakeClock) -> None:
    leased(db, book, "1")
    clock.advance(330)
    book.tidy(db, 1)
    before = states(db)

    book.adjust(db, Adjustment("1", "provider invoice 17", 7, None))

    assert before == [("1", "orphaned")]
    assert states(db) == [("1", "settled")]


@pytest.mark.parametrize(
    ("reservation_id", "state"), [("nobody", "not known any more"), ("open", "open"), ("released", "released")]
)
def test_an_operator_is_told_why_a_reservation_cannot_be_ended_by_hand(
    db: sqlite3.Connection, book: SqliteBook, reservation_id: str, state: str
) -> None:
    leased(db, book, "open")
    released(db, book, "released", DAY)

    answer = book.adjust(db, Adjustment(reservation_id, "provider invoice 17", 7, None))

    assert isinstance(answer, AdjustmentRefused)
    assert str(answer) == f"the reservation is {state}, and only what is orphaned can be ended by hand"


def test_a_process_without_a_journal_leaves_what_was_adjusted_to_those_who_have_it(
    db: sqlite3.Connection, clock: FakeClock
) -> None:
    theirs, book = attached(db, clock, journal="theirs"), attached(db, clock)
    released(db, theirs, "1", DAY)
    afterwards = book.tidy(db, 1)

    record = book.adjust(db, Adjustment("by hand", "a call beside the guard", 7, DAY))

    assert afterwards is None
    assert isinstance(record, Record)
    assert record in theirs.unwritten.all(db)


def test_a_process_without_a_journal_leaves_the_orphans_it_finds_to_those_who_have_it(
    db: sqlite3.Connection, clock: FakeClock
) -> None:
    theirs = attached(db, clock, journal="theirs")
    leased(db, theirs, "1")
    book = attached(db, clock)
    clock.advance(330)

    book.tidy(db, 1)

    assert states(db) == [("1", "orphaned")]
    assert [(record.id, record.event) for record in theirs.unwritten.all(db)] == [("1", "orphan")]


def test_what_has_ended_is_forgotten_with_every_sixteenth_operation(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    released(db, book, "1", DAY)
    clock.advance(KEEP_ENDED_NS / NANOSECONDS)

    book.tidy(db, FORGET_EVERY - 1)
    before = states(db)
    book.tidy(db, 1)

    assert before == [("1", "released")]
    assert states(db) == []


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


def test_the_salt_of_a_namespace_is_of_256_bits_and_the_same_for_all_processes(
    db: sqlite3.Connection, book: SqliteBook, clock: FakeClock
) -> None:
    same, other = attached(db, clock), attached(db, clock, namespace="other")

    assert len(book.client_salt) == 32
    assert same.client_salt == book.client_salt
    assert other.client_salt != book.client_salt


@pytest.mark.parametrize(("behind_ns", "state"), [(RESTART_SLACK_NS, "open"), (RESTART_SLACK_NS + 1, "orphaned")])
def test_a_clock_more_than_a_second_behind_what_is_written_ends_every_lease(
    db: sqlite3.Connection, clock: FakeClock, behind_ns: int, state: str
) -> None:
    clock.advance(behind_ns / NANOSECONDS)
    before = attached(db, clock)
    for name in ("1", "2", "3"):
        leased(db, before, name)

    attached(db, FakeClock())

    assert states(db) == [("1", state), ("2", state), ("3", state)]


def test_a_host_started_again_twice_goes_on_from_where_it_stood_last(db: sqlite3.Connection) -> None:
    for _ in range(2):
        clock = FakeClock()
        book = attached(db, clock)
        clock.advance(500)
        book.set_paused(db, paused=False)
    clock = FakeClock()
    book = attached(db, clock)
    leased(db, book, "1")

    attached(db, clock)

    assert book.in_flight(db) == 1


def test_a_statement_is_read_while_somebody_else_writes(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger.db"
    with closing(connect(str(path), "normal")) as db:
        book = attached(db, clock)
        leased(db, book, "1")

        with locked(path):
            statement = book.statement(path_of(db))

    assert [sums.open for sums in statement.counted.values()] == [CALL]
    assert statement.counted == statement.recorded
