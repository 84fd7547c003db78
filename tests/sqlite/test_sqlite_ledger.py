"""The SQLite ledger in one process: the suite of all ledgers, and what others on the same file see."""

import logging
import os
import sqlite3
import threading
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers import open_ledger
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.ledgers.sqlite.book import FORGET_ROWS, SqliteBook
from routeguard.policy import Budget, Claim, Ledger, LedgerUnavailable, Window
from routeguard.sqlite_file.file import INTEGER_MAX, Synchronous, connect
from routeguard.sqlite_file.operation import Operation
from routeguard.testing import FakeClock, LedgerContract
from routeguard.testing.ledger_contract.claims import CALL, DAY_SECONDS, admitted, attempt, budget, refusal, slot
from tests.patience import PATIENT_SECONDS
from tests.sqlite.files import check_sums, exists, ledger_at, number, rows

DAY = budget(10 * CALL)
MINE = budget(10 * CALL, per_client=True)


class TestSqliteLedger(LedgerContract):
    """The suite that the memory ledger passes too, unchanged; each ledger is a namespace of one file."""

    @pytest.fixture(autouse=True)
    def _file(self, path: Path) -> None:
        self.path = path
        self.number = 0

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        self.number += 1
        return SqliteLedger(str(self.path), namespace=f"n{self.number}", clock=clock, clients_max=clients_max)


async def test_building_a_ledger_opens_nothing(path: Path, clock: FakeClock) -> None:
    threads = threading.active_count()

    ledger = ledger_at(path, clock)
    ledger.exhausted_until([DAY], CALL)
    await ledger.aclose()

    assert not exists(path)
    assert threading.active_count() == threads


async def test_a_relative_url_is_a_file_in_the_working_directory(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    ledger = open_ledger("sqlite:///ledger.db", namespace="default", clock=clock, clients_max=9, shared=False)

    await admitted(ledger, "1", [DAY])

    assert exists(path)


async def test_guards_of_one_process_share_a_ledger_and_namespaces_share_nothing(path: Path, clock: FakeClock) -> None:
    open_one = partial(open_ledger, f"sqlite:///{path}", clock=clock, clients_max=9)

    one, same, other = open_one(namespace="one"), open_one(namespace="one"), open_one(namespace="other")
    await admitted(one, "1", [DAY], slots=[slot(9)])

    assert one is same
    assert (await other.balances([DAY]))[0].charged_nanousd == 0
    assert await other.in_flight() == 0


async def test_the_file_is_for_its_owner_alone(path: Path, clock: FakeClock) -> None:
    await admitted(ledger_at(path, clock), "1", [DAY])

    assert [os.stat(f"{path}{suffix}").st_mode & 0o777 for suffix in ("", "-wal", "-shm")] == [0o600] * 3


async def test_a_closed_ledger_keeps_everything_and_opens_again(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    reservation = await admitted(ledger, "1", [DAY], slots=[slot(5)])
    await ledger.aclose()
    without_log = not exists(Path(f"{path}-wal"))

    await ledger.settle(reservation, state="settled", settled_nanousd=7, kept_nanousd=0)

    assert without_log
    assert (await ledger.balances([DAY]))[0].charged_nanousd == 7
    check_sums(path)


async def test_money_that_was_open_when_the_process_died_counts_in_full(path: Path, clock: FakeClock) -> None:
    await admitted(ledger_at(path, clock), "1", [DAY], slots=[slot(1)])

    survivor = ledger_at(path, clock)

    assert (await survivor.balances([DAY]))[0].open_nanousd == CALL
    assert await refusal(survivor, "2", [DAY], slots=[slot(1)]) == ("busy", False)


async def test_any_process_ends_the_lease_of_one_that_died(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    dead, survivor = ledger_at(path, clock), ledger_at(path, clock)
    reservation = await admitted(dead, "1", [DAY], slots=[slot(1)])
    clock.advance(331)

    with caplog.at_level(logging.WARNING, "routeguard"):
        admitted_after = await attempt(survivor, "2", [DAY], slots=[slot(1)])
    late = await dead.settle(reservation, state="settled", settled_nanousd=3, kept_nanousd=0)
    again = await survivor.settle(reservation, state="settled", settled_nanousd=3, kept_nanousd=0)

    assert admitted_after is not None
    assert "orphaned: reservation 1 outlived its lease" in caplog.text
    assert (late, again) == (True, False)
    assert (await survivor.balances([DAY]))[0].charged_nanousd == CALL + 3
    check_sums(path)


async def test_a_question_asked_again_finds_an_orphan_whose_lease_another_process_saw_end(
    path: Path, clock: FakeClock
) -> None:
    owner, other = ledger_at(path, clock), ledger_at(path, clock)
    await admitted(owner, "same", [DAY], slots=[slot(1)])
    clock.advance(330)
    await other.in_flight()

    again = await admitted(owner, "same", [DAY], slots=[slot(1)])

    assert again.state == "orphaned"


async def test_a_question_asked_again_after_a_crash_finds_what_was_debited(path: Path, clock: FakeClock) -> None:
    await admitted(ledger_at(path, clock), "same", [DAY], slots=[slot(5)])

    again = await admitted(ledger_at(path, clock), "same", [DAY], slots=[slot(5)])

    assert (again.state, again.amount_nanousd) == ("open", CALL)
    assert number(path, "SELECT open FROM counters") == CALL


async def test_an_ended_reservation_never_passes_for_an_open_one(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    reservation = await admitted(ledger, "same", [DAY])
    await ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)

    with pytest.raises(LedgerUnavailable, match="has ended"):
        await admitted(ledger, "same", [DAY])

    assert number(path, "SELECT open FROM counters") == 0


async def test_a_settlement_across_midnight_leaves_both_days_exact_in_the_file(path: Path, clock: FakeClock) -> None:
    ledger, wide = ledger_at(path, clock), budget(1000 * CALL)
    streams = [await admitted(ledger, f"{index}", [wide]) for index in range(50)]
    clock.advance(DAY_SECONDS / 2)
    today = [await admitted(ledger, f"today-{index}", [wide]) for index in range(3)]

    for index, stream in enumerate(streams):
        await ledger.settle(stream, state="settled", settled_nanousd=index, kept_nanousd=0)
    await ledger.settle(today[0], state="kept", settled_nanousd=0, kept_nanousd=CALL)

    counters = rows(path, "SELECT settled, open, kept FROM counters ORDER BY starts")
    assert counters == [(sum(range(50)), 0, 0), (0, 2 * CALL, CALL)]
    check_sums(path)


async def test_a_day_of_25_hours_is_one_window(path: Path) -> None:
    zone = ZoneInfo("Europe/Berlin")
    clock = FakeClock(datetime(2026, 10, 25, 0, 0, tzinfo=zone))
    ledger, day = ledger_at(path, clock), Budget("day", Window("day", zone), 2 * CALL)
    await admitted(ledger, "first", [day])
    clock.advance(25 * 3600 - 1)
    await admitted(ledger, "last", [day])
    before = await refusal(ledger, "refused", [day])

    clock.advance(1)

    assert before == ("busy", False)
    assert await attempt(ledger, "next", [day]) is not None


@pytest.mark.parametrize("days", [1, -1])
async def test_a_clock_that_jumps_a_day_admits_no_more_than_each_day_has(
    path: Path, clock: FakeClock, days: int
) -> None:
    ledger = ledger_at(path, clock)

    async def count(prefix: str) -> int:
        return sum([await attempt(ledger, f"{prefix}{index}", [DAY]) is not None for index in range(15)])

    found = [await count("before")]
    clock.jump(days * DAY_SECONDS)
    found.append(await count("jumped"))
    clock.jump(-days * DAY_SECONDS)
    found.append(await count("back"))

    assert found == ([10, 10, 0] if days > 0 else [10, 0, 0])


@pytest.mark.parametrize("amount", [1, 10**8, 10**14 - 1, 2**53 - 1])
async def test_a_sum_that_no_integer_holds_is_refused_and_not_rounded(
    path: Path, clock: FakeClock, amount: int
) -> None:
    """SQLite would turn it into a float, and a float forgets cents."""
    ledger, ever = ledger_at(path, clock), budget(amount, "total")
    await ledger.reserve("1", money=[Claim(ever, "", amount)], slots=[], force=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE counters SET settled = ?", (INTEGER_MAX - amount,))

    with pytest.raises(sqlite3.IntegrityError):
        await ledger.reserve("2", money=[Claim(ever, "", INTEGER_MAX)], slots=[], force=True)

    assert rows(path, "SELECT open, typeof(open) FROM counters") == [(amount, "integer")]
    assert (await ledger.balances([ever]))[0].open_nanousd == amount


async def test_a_late_bill_that_is_written_twice_is_charged_once(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    reservation = await admitted(ledger, "1", [DAY])
    await ledger.settle(reservation, state="settled", settled_nanousd=5, kept_nanousd=0)

    for _ in range(2):
        ledger.charge_late(reservation, charge_id="late", extra_nanousd=11)

    balance = (await ledger.balances([DAY]))[0]
    assert (balance.settled_nanousd, balance.overrun_nanousd) == (16, 11)
    check_sums(path)


async def test_what_others_spent_is_known_a_second_later_without_asking_for_money(path: Path, clock: FakeClock) -> None:
    here, there = ledger_at(path, clock), ledger_at(path, clock)
    await admitted(here, "1", [DAY])
    await here.refresh()
    for index in range(9):
        reservation = await admitted(there, f"there-{index}", [DAY])
        await there.settle(reservation, state="kept", settled_nanousd=0, kept_nanousd=CALL)
    before = here.exhausted_until([DAY], CALL + 1)[0]

    clock.advance(1)
    await here.refresh()

    assert before is False
    assert here.exhausted_until([DAY], CALL + 1)[0] is True
    assert here.exhausted_until([DAY], CALL)[0] is False


async def test_what_is_exhausted_is_forgotten_when_an_orphan_elsewhere_cost_less(path: Path, clock: FakeClock) -> None:
    here, there = ledger_at(path, clock), ledger_at(path, clock)
    day = budget(CALL)
    reservation = await admitted(there, "1", [day], slots=[slot(5)])
    clock.advance(331)
    refused_as = await refusal(here, "2", [day])
    while_orphaned = here.exhausted_until([day], 1)[0]

    await there.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0)
    await here.refresh()

    assert refused_as == ("budget_exhausted", False)
    assert while_orphaned is True
    assert here.exhausted_until([day], CALL - 1)[0] is False


async def test_a_refusal_writes_nothing(path: Path, clock: FakeClock) -> None:
    ledger, tight = ledger_at(path, clock), budget(CALL - 1)
    await admitted(ledger, "1", [MINE], client="a")
    before = {table: rows(path, f"SELECT * FROM {table}") for table in ("budgets", "counters", "entries", "slots")}

    for index in range(20):
        assert await attempt(ledger, f"x{index}", [tight, MINE], client=f"b{index}", slots=[slot(5)]) is None

    assert before == {table: rows(path, f"SELECT * FROM {table}") for table in before}


def test_sixty_thousand_clients_leave_no_more_rows_than_there_are_places(path: Path, clock: FakeClock) -> None:
    db = connect(str(path), "normal")
    book = SqliteBook("default", clock=clock, clients_max=500, on_orphans=lambda _: None, on_records=lambda _: None)
    book.attach(db)
    mine = budget(10**9 * CALL, per_client=True)

    db.execute("BEGIN IMMEDIATE")
    for index in range(60_000):
        money = [Claim(mine, f"{index}", CALL)]
        book.reserve(db, f"{index}", money=money, slots=[], rates=[], force=False)
        book.settle(db, f"{index}", state="settled", settled_nanousd=1, kept_nanousd=0)
    db.execute("COMMIT")

    assert db.execute("SELECT count(*) FROM counters").fetchone() == (501,)
    assert db.execute("SELECT settled FROM counters WHERE partition = ''").fetchone() == (59_500,)
    db.close()


async def test_past_windows_of_clients_and_ended_entries_are_forgotten_a_few_at_a_time(
    path: Path, clock: FakeClock
) -> None:
    ledger = ledger_at(path, clock)
    for index in range(3 * FORGET_ROWS):
        reservation = await admitted(ledger, f"{index}", [DAY, MINE], client=f"{index}")
        await ledger.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0)
    clock.advance(DAY_SECONDS)

    left = []
    for index in range(100):
        reservation = await admitted(ledger, f"next-{index}", [DAY, MINE], client="a")
        await ledger.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0)
        left.append(number(path, "SELECT count(*) FROM counters WHERE partition <> ''"))

    steps = [before - after for before, after in pairwise(left)]
    assert left[-1] == 1
    assert max(steps) <= FORGET_ROWS
    assert number(path, "SELECT count(*) FROM entries WHERE id NOT LIKE 'next-%'") == 0
    assert number(path, "SELECT count(*) FROM counters WHERE partition = ''") == 2, "what each day cost stays"


async def test_a_client_that_is_charged_to_the_overflow_client_is_counted(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock, clients_max=1)

    for client in ("a", "b", "c"):
        await admitted(ledger, client, [MINE], client=client)

    assert ledger.overflowed == 2


async def test_the_kill_switch_of_one_process_stops_another_within_two_seconds(path: Path, clock: FakeClock) -> None:
    here, there = ledger_at(path, clock), ledger_at(path, clock)
    await there.refresh()

    await here.set_paused(paused=True)
    clock.advance(1)
    await there.refresh()
    while_paused = there.paused
    await here.set_paused(paused=False)
    clock.advance(0.5)
    await there.refresh()
    too_soon = there.paused
    clock.advance(0.5)
    await there.refresh()

    assert (while_paused, too_soon, there.paused) == (True, True, False)


async def test_starting_paused_pauses_everybody_until_somebody_resumes(path: Path, clock: FakeClock) -> None:
    running, starting, another = [ledger_at(path, clock) for _ in range(3)]
    await running.refresh()
    clock.advance(5)
    starting.paused = another.paused = True
    await starting.refresh()
    clock.advance(1)
    await running.refresh()
    while_paused = [ledger.paused for ledger in (running, starting, another)]

    await running.set_paused(paused=False)
    clock.advance(1)
    for ledger in (starting, another):
        await ledger.refresh()

    assert while_paused == [True, True, True]
    assert [ledger.paused for ledger in (running, starting, another)] == [False, False, False]


async def test_all_who_share_a_namespace_name_clients_alike(path: Path, clock: FakeClock) -> None:
    here, there, elsewhere = ledger_at(path, clock), ledger_at(path, clock), ledger_at(path, clock, namespace="other")
    at_first = here.client_salt

    for ledger in (here, there, elsewhere):
        await ledger.refresh()

    assert len(at_first) == 32, "nobody is named by an empty key, whoever forgets to ask"
    assert here.client_salt == there.client_salt != elsewhere.client_salt


async def test_a_host_started_again_has_no_open_streams_and_forgets_no_money(path: Path) -> None:
    """Its clock begins anew: nobody who held a lease is alive, whatever the lease says."""
    before = FakeClock()
    before.advance(90_000)
    ledger = ledger_at(path, before)
    reservation = await admitted(ledger, "1", [DAY], slots=[slot(1)])
    await ledger.aclose()

    after = FakeClock()
    after.jump(90_000)
    started = ledger_at(path, after)

    assert await started.in_flight() == 0
    assert (await started.balances([DAY]))[0].orphaned_nanousd == CALL
    assert await attempt(started, "2", [DAY], slots=[slot(1)]) is not None
    assert await started.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0) is True
    check_sums(path)


async def test_two_processes_of_a_host_started_again_count_by_one_clock(path: Path) -> None:
    before = FakeClock()
    before.advance(90_000)
    first = ledger_at(path, before)
    await admitted(first, "1", [DAY], slots=[slot(9)])
    await first.aclose()
    after = FakeClock()
    await admitted(ledger_at(path, after), "2", [DAY], slots=[slot(9)])
    after.advance(329)

    later = ledger_at(path, after)
    while_leased = await later.in_flight()
    after.advance(1)

    assert (while_leased, await later.in_flight()) == (1, 0)


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_the_file_is_written_as_carefully_as_asked_for(
    path: Path, clock: FakeClock, synchronous: Synchronous
) -> None:
    ledger = ledger_at(path, clock, synchronous=synchronous)

    def pragma(db: sqlite3.Connection) -> tuple[int, str]:
        return (
            db.execute("PRAGMA synchronous").fetchone()[0],
            db.execute("PRAGMA journal_mode").fetchone()[0],
        )

    operation = Operation(ledger._book, pragma, seconds=None)

    assert await ledger._ask(operation, PATIENT_SECONDS) == ({"normal": 1, "full": 2}[synchronous], "wal")
