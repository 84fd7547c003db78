"""What each ledger tells its journal: whatever happens, the rows add up to the counters."""

import random
from pathlib import Path

import anyio
import pytest

from routeguard.auditing import Adjustment, AdjustmentRefused, Statement
from routeguard.journal import SqliteJournal
from routeguard.journal.audit import Line, compare
from routeguard.journal.reading import reading
from routeguard.ledgers.memory import MemoryLedger
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.money import NANOUSD_MAX
from routeguard.policy import Claim, Ledger, Reservation, State
from routeguard.records import Note
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, admitted, budget, slot, slot_claim
from tests.journal.rows import doubles, journal_at, select, sums, until_idle
from tests.sqlite.files import close_all, ledger_at

DAY, MINE = budget(10_000 * CALL), budget(10_000 * CALL, per_client=True)
EVER = budget(10_000 * CALL, "total")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", range(4))
async def test_the_rows_of_any_day_add_up_to_its_counters(path: Path, clock: FakeClock, kind: str, seed: int) -> None:
    rng, journal = random.Random(seed), journal_at(path)
    ledger = _ledger(kind, path, clock, journal)
    held: list[Reservation] = []
    ended: list[Reservation] = []

    for step in range(150):
        await ledger.refresh()
        action = rng.randrange(5)
        if action < 2:
            client = rng.choice("abc")
            money = [Claim(EVER, "", CALL), Claim(DAY, "", CALL), Claim(MINE, client, CALL)]
            held.append(await ledger.reserve(f"{step}", money=money, slots=[slot_claim(999)]))
        elif action == 2 and held:
            one = held.pop(rng.randrange(len(held)))
            state: State = rng.choice(["settled", "kept", "released"])
            bill = 0 if state == "released" else rng.randrange(2 * CALL)
            await ledger.settle(
                one, state=state, settled_nanousd=bill, kept_nanousd=CALL if state == "kept" else 0, note=Note("/chat")
            )
            ended.append(one)
        elif action == 3 and ended:
            ledger.charge_late(rng.choice(ended), charge_id=f"late-{step}", extra_nanousd=rng.randrange(CALL))
        else:
            clock.advance(rng.choice([1, 30, 400]))
    await ledger.balances([EVER])
    await ledger.aclose()
    await until_idle(journal)

    (balance,) = await ledger.balances([EVER])
    (everybody,) = [parts for counter, parts in sums(path).items() if counter.startswith("total")]
    assert everybody == (
        balance.settled_nanousd,
        balance.kept_nanousd,
        balance.orphaned_nanousd,
        balance.overrun_nanousd,
    )
    assert doubles([str(row) for row in select(path, "SELECT id, event FROM journal")]) == []
    if kind == "sqlite":
        assert [line.problems for line in await _lines(ledger, path) if line.problems] == []


async def test_a_ledger_and_its_journal_live_in_one_file(path: Path, clock: FakeClock) -> None:
    journal = journal_at(path)
    ledger = _ledger("sqlite", path.with_name("journal.db"), clock, journal, own_file=False)

    await ledger.settle(
        await admitted(ledger, "1", [DAY]), state="settled", settled_nanousd=3, kept_nanousd=0, note=Note("/chat")
    )
    await until_idle(journal)
    await ledger.aclose()

    assert select(path, "SELECT id, event, path, settled_nanousd FROM journal") == [("1", "settle", "/chat", 3)]
    assert [line.problems for line in await _lines(ledger, path)] == [()]


async def test_a_journal_that_comes_first_leaves_room_for_the_ledger(path: Path, clock: FakeClock) -> None:
    journal = journal_at(path)
    await journal.check()
    await journal.aclose()

    await admitted(_ledger("sqlite", path, clock, journal, own_file=False), "1", [DAY])

    assert journal.healthy


async def test_an_orphan_has_a_row_and_its_ending_takes_it_back(path: Path, clock: FakeClock) -> None:
    journal = journal_at(path)
    ledger = _ledger("sqlite", path, clock, journal)
    held = await admitted(ledger, "1", [DAY], slots=[slot(1)])
    clock.advance(10_000)
    await ledger.refresh()
    await until_idle(journal)
    orphaned = sums(path)

    await ledger.settle(held, state="settled", settled_nanousd=4, kept_nanousd=0)
    await until_idle(journal)

    assert list(orphaned.values()) == [(0, 0, CALL, 0)]
    assert list(sums(path).values()) == [(4, 0, 0, 0)]
    assert [row[0] for row in select(path, "SELECT event FROM journal ORDER BY seq")] == ["orphan", "settle"]


async def test_what_a_dead_process_left_behind_is_handed_over_by_the_next(path: Path, clock: FakeClock) -> None:
    """It died between its commit and that of the journal."""
    stuck = journal_at(path, group_seconds=3_600)
    dead = _ledger("sqlite", path, clock, stuck)
    for number in range(5):
        held = await admitted(dead, f"{number}", [DAY])
        await dead.settle(held, state="settled", settled_nanousd=number, kept_nanousd=0, note=Note("/chat"))
    before = select(path, "SELECT id FROM journal")
    journal = journal_at(path)
    living = _ledger("sqlite", path, clock, journal)

    clock.advance(1.9)
    await living.refresh()
    too_early = journal.is_idle
    clock.advance(1.1)
    await living.refresh()
    await until_idle(journal)
    await living.aclose()

    assert (before, too_early) == ([], True)
    assert [row[0] for row in select(path, "SELECT id FROM journal")] == [f"{number}" for number in range(5)]
    assert (await living.statement()).unwritten == ()


async def test_a_journal_that_is_new_to_a_ledger_begins_with_what_is_charged(path: Path, clock: FakeClock) -> None:
    before = ledger_at(path.with_name("ledger.db"), clock)
    held = await admitted(before, "1", [DAY])
    await before.settle(held, state="kept", settled_nanousd=0, kept_nanousd=CALL)
    await before.aclose()
    close_all()
    journal = journal_at(path)
    ledger = _ledger("sqlite", path, clock, journal)

    for _ in range(3):
        clock.advance(3)
        await ledger.refresh()
        await until_idle(journal)
    again = _ledger("sqlite", path, clock, journal)
    await again.refresh()
    await until_idle(journal)

    assert [row[0] for row in select(path, "SELECT event FROM journal")] == ["opening"]
    assert [line.problems for line in await _lines(ledger, path)] == [()]


async def test_an_adjustment_after_midnight_does_not_change_the_day_that_is_over(path: Path, clock: FakeClock) -> None:
    """Nothing was charged in the new window yet, whatever the last one holds."""
    ledger = _ledger("sqlite", path, clock, journal_at(path))
    held = await admitted(ledger, "1", [DAY])
    await ledger.settle(held, state="settled", settled_nanousd=5, kept_nanousd=0)
    clock.advance(86_400)

    for amount in (7, -5):
        with pytest.raises(AdjustmentRefused, match="nothing was ever charged"):
            await ledger.adjust(Adjustment(f"adjust{amount}", "the invoice of today", amount, DAY))

    counted = (await ledger.statement()).counted
    await ledger.aclose()
    assert [found.settled for found in counted.values()] == [5]


async def test_an_adjustment_is_one_row_however_often_it_is_asked_for(path: Path, clock: FakeClock) -> None:
    journal = journal_at(path)
    ledger = _ledger("sqlite", path, clock, journal)
    held = await admitted(ledger, "1", [DAY])
    await ledger.settle(held, state="kept", settled_nanousd=0, kept_nanousd=CALL)
    lower = Adjustment("adjust-1", "the invoice says less", -CALL - 5, DAY, "")

    await ledger.adjust(Adjustment("adjust-0", "a call beside the guard", 9, DAY, ""))
    for _ in range(2):
        await ledger.adjust(lower)
    await until_idle(journal)

    (balance,) = await ledger.balances([DAY])
    assert (balance.settled_nanousd, balance.kept_nanousd) == (4, 0)
    assert select(path, "SELECT settled_nanousd, kept_nanousd, reason FROM journal WHERE event = 'adjust'") == [
        (9, 0, "a call beside the guard"),
        (-5, -CALL, "the invoice says less"),
    ]
    assert [line.problems for line in await _lines(ledger, path)] == [()]


@pytest.mark.parametrize(
    "adjustment",
    [
        Adjustment("a", "more than is there", -CALL - 1, DAY, ""),
        Adjustment("a", "nobody there", -1, MINE, "stranger"),
        Adjustment("a", "above the largest budget", NANOUSD_MAX - 2 * CALL + 1, DAY, ""),
        Adjustment("nobody", "no such reservation", 1, None),
        Adjustment("2", "still open", 1, None),
        Adjustment("1", "ended", 1, None),
    ],
    ids=lambda adjustment: adjustment.reason,
)
async def test_what_cannot_be_adjusted_changes_nothing(path: Path, clock: FakeClock, adjustment: Adjustment) -> None:
    journal = journal_at(path)
    ledger = _ledger("sqlite", path, clock, journal)
    held = await admitted(ledger, "1", [DAY])
    await ledger.settle(held, state="settled", settled_nanousd=CALL, kept_nanousd=0)
    await admitted(ledger, "2", [DAY])

    with pytest.raises(AdjustmentRefused):
        await ledger.adjust(adjustment)

    (balance,) = await ledger.balances([DAY])
    assert (balance.settled_nanousd, balance.open_nanousd) == (CALL, CALL)
    assert len((await ledger.statement()).unwritten) <= 1


async def test_an_orphan_ended_by_hand_is_settled_and_the_parts_add_up(path: Path, clock: FakeClock) -> None:
    journal = journal_at(path)
    ledger = _ledger("sqlite", path, clock, journal)
    await admitted(ledger, "1", [DAY], slots=[slot(1)])
    clock.advance(10_000)
    await ledger.refresh()

    await ledger.adjust(Adjustment("1", "provider invoice 17", 2 * CALL, None))
    await until_idle(journal)

    (balance,) = await ledger.balances([DAY])
    assert (balance.settled_nanousd, balance.orphaned_nanousd, balance.overrun_nanousd) == (2 * CALL, 0, CALL)
    assert [line.problems for line in await _lines(ledger, path)] == [()]
    assert select(path, "SELECT id, why, reason FROM journal WHERE event = 'adjust'") == [
        ("1", "adjusted", "provider invoice 17")
    ]


async def test_a_fork_leaves_the_rows_to_the_parent(path: Path) -> None:
    journal = journal_at(path, group_seconds=3_600)
    ledger = MemoryLedger(clock=FakeClock())
    ledger.journal = journal
    held = await admitted(ledger, "1", [DAY])
    await ledger.settle(held, state="settled", settled_nanousd=1, kept_nanousd=0)

    journal.forget()

    assert journal.is_idle


def _ledger(kind: str, path: Path, clock: FakeClock, journal: SqliteJournal, *, own_file: bool = True) -> SqliteLedger:
    file = path.with_name("ledger.db") if own_file else path
    ledger: Ledger = MemoryLedger(clock=clock) if kind == "memory" else ledger_at(file, clock)
    ledger.journal = journal
    return ledger  # type: ignore[return-value] # what only the one has is asked of it alone


async def _lines(ledger: SqliteLedger, path: Path) -> list[Line]:
    return await anyio.to_thread.run_sync(_compared, await ledger.statement(), path)


def _compared(statement: Statement, path: Path) -> list[Line]:
    with reading(str(path)) as journal:
        damaged = journal.damaged("default", statement.ledger)
        return compare(statement, journal.standing("default", statement.ledger, statement.unwritten), damaged)
