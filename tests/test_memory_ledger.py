from collections.abc import Callable, Sequence

import pytest

from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import NANOSECONDS, Claim, Ledger, Reservation
from routeguard.records import Note, Record, Sums, counter_name
from routeguard.testing import FakeClock, LedgerContract
from routeguard.testing.ledger_contract.claims import CALL, admitted, budget, slot

#: Midnight before the clock's noon.
TODAY = FakeClock().wall_ns() // NANOSECONDS - 43_200
DAY, MINE = budget(9 * CALL), budget(9 * CALL, per_client=True)
EVERYBODY, CLIENT, OVERFLOW = (
    counter_name("day", "UTC", TODAY, per_client=per_client, partition=partition)
    for per_client, partition in ((False, ""), (True, "a"), (True, ""))
)


class Told:
    """A journal that has written what it takes at once."""

    name = "told"
    is_idle = True

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ledgers: set[str] = set()

    def take(self, records: Sequence[Record], *, ledger: str, written: Callable[[Sequence[Record]], None]) -> None:
        self.records.extend(records)
        self.ledgers.add(ledger)
        written(records)

    async def sums(self, ledger: str) -> dict[str, Sums]:
        raise AssertionError("a process's memory has nothing to restore")


class TestMemoryLedger(LedgerContract):
    """The reference passes the suite that every later ledger must pass unchanged."""

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        return MemoryLedger(clock=clock, clients_max=clients_max)


async def test_sixty_thousand_addresses_with_money_do_not_grow_the_map(caplog: pytest.LogCaptureFixture) -> None:
    """And nobody who was counted before is forgotten for them."""
    ledger = MemoryLedger(clock=FakeClock(), clients_max=1000)
    mine = budget(100, per_client=True)

    for number in range(60_000):
        one = await ledger.reserve(f"{number}", money=[Claim(mine, f"{number}", 100)], slots=[], force=True)
        await ledger.settle(one, state="kept", settled_nanousd=0, kept_nanousd=100)

    assert ledger.overflowed == 59_000
    assert ledger.client_exhausted_until([mine], "0", 1)[0]
    assert ledger.client_exhausted_until([mine], "never seen", 1)[0]
    assert sum("MAX_CLIENTS" in record.message for record in caplog.records) == 16


async def test_settled_kept_and_orphaned_money_is_spent_before_a_request_is_looked_at() -> None:
    clock, day = FakeClock(), budget(4 * CALL)
    ledger = MemoryLedger(clock=clock)
    settled, kept, _ = [await admitted(ledger, name, [day], slots=[slot(3)]) for name in ("1", "2", "3")]

    await ledger.settle(settled, state="settled", settled_nanousd=CALL, kept_nanousd=0)
    await ledger.settle(kept, state="kept", settled_nanousd=0, kept_nanousd=CALL)
    clock.advance(331)
    (balance,) = await ledger.balances([day])

    assert balance.orphaned_nanousd == CALL
    assert ledger.exhausted_until([day], CALL)[0] is False
    assert ledger.exhausted_until([day], CALL + 1)[0] is True


async def test_a_client_keeps_its_place_while_its_money_is_orphaned() -> None:
    clock = FakeClock()
    ledger = MemoryLedger(clock=clock)
    await admitted(ledger, "1", [MINE], client="a", slots=[slot(3)])
    clock.advance(331)
    released = await admitted(ledger, "2", [MINE], client="a")

    await ledger.settle(released, state="released", settled_nanousd=0, kept_nanousd=0)

    assert ledger.client_exhausted_until([MINE], "a", 8 * CALL)[0] is False
    assert ledger.client_exhausted_until([MINE], "a", 8 * CALL + 1)[0] is True


async def test_an_ending_is_told_to_the_journal_with_the_counters_it_changed() -> None:
    ledger, journal, clock = journaled()
    note = Note("/chat", why="reported")
    kept, settled = [await admitted(ledger, name, [DAY, MINE], client="a") for name in ("1", "2")]

    await ledger.settle(kept, state="kept", settled_nanousd=0, kept_nanousd=CALL)
    await ledger.settle(settled, state="settled", settled_nanousd=CALL, kept_nanousd=2, note=note)

    counters, now_ns = (EVERYBODY, CLIENT), clock.wall_ns()
    assert journal.records == [
        Record("1", "keep", now_ns, counters, CALL, 0, CALL),
        Record("2", "settle", now_ns, counters, CALL, CALL, 2, overrun_nanousd=2, note=note),
    ]
    assert len(journal.ledgers) == 1


async def test_an_orphan_is_told_and_its_ending_takes_it_back() -> None:
    ledger, journal, clock = journaled()
    held = await admitted(ledger, "1", [DAY, MINE], client="a", slots=[slot(1)])
    clock.advance(330)
    await ledger.in_flight()
    clock.advance(1)

    await ledger.settle(held, state="settled", settled_nanousd=3, kept_nanousd=0)

    counters, now_ns = (EVERYBODY, CLIENT), clock.wall_ns()
    assert journal.records == [
        Record("1", "orphan", now_ns - NANOSECONDS, counters, CALL, orphaned_nanousd=CALL),
        Record("1", "settle", now_ns, counters, CALL, 3, orphaned_nanousd=-CALL),
    ]


async def test_a_request_that_claims_no_money_has_a_ceiling_of_nothing() -> None:
    ledger, journal, _ = journaled()
    reservation = await ledger.reserve("1", money=[], slots=[Claim(slot(1), "", 1)])

    await ledger.settle(reservation, state="settled", settled_nanousd=5, kept_nanousd=0)

    assert reservation.amount_nanousd == 0
    assert [(record.ceiling_nanousd, record.overrun_nanousd) for record in journal.records] == [(0, 5)]


async def test_an_ending_of_the_overflow_client_is_told_as_its_own() -> None:
    ledger, journal, _ = journaled(clients_max=1)
    await admitted(ledger, "1", [MINE], client="a")
    held = await admitted(ledger, "2", [MINE], client="b")

    await ledger.settle(held, state="kept", settled_nanousd=0, kept_nanousd=CALL)

    assert [record.counters for record in journal.records] == [(OVERFLOW,)]


async def test_a_late_bill_is_told_with_the_counters_it_was_charged_to() -> None:
    """Those of its reservation, or the overflow client's where its place was taken in between."""
    ledger, journal, clock = journaled(clients_max=1)
    note = Note("/chat")
    first = await released(ledger, "1")
    ledger.charge_late(first, charge_id="late-1", extra_nanousd=4, note=note)
    with_place = journal.records[-1]
    ledger, journal, clock = journaled(clients_max=1)
    first = await released(ledger, "1")
    await admitted(ledger, "2", [DAY, MINE], client="b")

    ledger.charge_late(first, charge_id="late-2", extra_nanousd=5)

    now_ns = clock.wall_ns()
    assert with_place == Record("late-1", "late", now_ns, (EVERYBODY, CLIENT), 0, 4, overrun_nanousd=4, note=note)
    assert journal.records[-1] == Record("late-2", "late", now_ns, (EVERYBODY, OVERFLOW), 0, 5, overrun_nanousd=5)


def journaled(*, clients_max: int = 1000) -> tuple[MemoryLedger, Told, FakeClock]:
    clock, journal = FakeClock(), Told()
    ledger = MemoryLedger(clock=clock, clients_max=clients_max)
    ledger.journal = journal
    return ledger, journal, clock


async def released(ledger: MemoryLedger, name: str) -> Reservation:
    """A reservation that cost nothing, so that its client holds no place."""
    reservation = await admitted(ledger, name, [DAY, MINE], client="a")
    await ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)
    return reservation
