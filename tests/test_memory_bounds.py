"""What the memory ledger keeps, and that it keeps no more."""

import inspect
import logging
from itertools import pairwise

import pytest

from routeguard.ledgers.memory import RETIRED_PER_RESERVE, MemoryLedger
from routeguard.policy import Claim, Parallel
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, DAY_SECONDS, admitted, budget, slot

MINE = budget(10 * CALL, per_client=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def clients_in(ledger: MemoryLedger) -> int:
    return len(ledger._books[MINE.counter].clients)


async def test_ten_thousand_strangers_take_no_more_places_than_there_are(clock: FakeClock) -> None:
    ledger = MemoryLedger(clock=clock, clients_max=10)

    for number in range(10_000):
        reservation = await ledger.reserve(
            f"{number}", money=[Claim(MINE, f"stranger-{number}", CALL)], slots=[], force=True
        )
        await ledger.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0)

    assert clients_in(ledger) == 10
    assert ledger.overflowed == 9_990


async def test_a_late_bill_takes_no_place_that_is_not_there(clock: FakeClock) -> None:
    ledger = MemoryLedger(clock=clock, clients_max=1)
    released = [await admitted(ledger, f"{number}", [MINE], client=f"{number}") for number in range(1)]
    await ledger.settle(released[0], state="released", settled_nanousd=0, kept_nanousd=0)
    await admitted(ledger, "in the place", [MINE], client="other")

    ledger.charge_late(released[0], charge_id="late", extra_nanousd=5)

    assert clients_in(ledger) == 1
    assert ledger.client_exhausted_until([MINE], "newcomer", 10 * CALL - 4)[0] is True


async def test_an_ended_request_leaves_nothing_but_its_money(clock: FakeClock) -> None:
    ledger = MemoryLedger(clock=clock)
    day, mine = slot(5), Parallel(5, 330 * 10**9, per_client=True)
    claims = [Claim(day, "", 1), Claim(mine, "a", 1)]

    for number in range(50):
        reservation = await ledger.reserve(f"{number}", money=[Claim(MINE, "a", CALL)], slots=claims)
        await ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)

    assert (len(ledger._open), len(ledger._slots_in_use), clients_in(ledger)) == (0, 0, 0)
    assert [len(leases) for leases in ledger._leases.values()] == [0]


async def test_a_past_window_is_freed_a_few_accounts_with_each_request(clock: FakeClock) -> None:
    """Fifty thousand at once would stop the event loop."""
    ledger = MemoryLedger(clock=clock)
    for number in range(41):
        await admitted(ledger, f"{number}", [MINE], client=f"{number}")
    clock.advance(DAY_SECONDS)

    left = []
    for number in range(14):
        await admitted(ledger, f"next-{number}", [MINE], client=f"{number}")
        left.append(sum(map(len, ledger._retired)))

    assert left[0] == 41, "the turn itself frees nothing"
    assert all(before - after <= RETIRED_PER_RESERVE for before, after in pairwise(left))
    assert left[-1] == 0
    assert ledger._retired == []


async def test_a_reservation_may_end_when_its_window_was_freed(clock: FakeClock) -> None:
    ledger = MemoryLedger(clock=clock)
    held = await admitted(ledger, "held", [MINE], client="a")
    clock.advance(DAY_SECONDS)
    for number in range(3):
        await admitted(ledger, f"{number}", [MINE], client=f"{number}")

    freed = list(ledger._retired)

    assert freed == []
    assert await ledger.settle(held, state="released", settled_nanousd=0, kept_nanousd=0) is True


async def test_who_finds_no_place_is_counted_and_ever_more_rarely_logged(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = MemoryLedger(clock=clock, clients_max=1)
    await admitted(ledger, "1", [MINE], client="a")

    logged = []
    for number in range(8):
        await admitted(ledger, f"stranger-{number}", [MINE], client=f"stranger-{number}")
        logged.append(len(caplog.records))

    assert ledger.overflowed == 8
    assert logged == [1, 2, 2, 3, 3, 3, 3, 4]


def test_by_itself_a_ledger_counts_the_documented_number_of_clients() -> None:
    assert inspect.signature(MemoryLedger).parameters["clients_max"].default == 50_000


def test_each_ledger_keys_the_hashes_of_clients_with_its_own_256_bits(clock: FakeClock) -> None:
    salts = {MemoryLedger(clock=clock).client_salt for _ in range(3)}

    assert [len(salt) for salt in salts] == [32] * 3


async def test_second_settlements_are_counted(clock: FakeClock) -> None:
    ledger = MemoryLedger(clock=clock)
    reservation = await admitted(ledger, "1", [MINE], client="a")

    for _ in range(3):
        await ledger.settle(reservation, state="kept", settled_nanousd=0, kept_nanousd=CALL)

    assert ledger.double_settlements == 2
    assert ledger.overflowed == 0


async def test_an_orphan_is_logged_by_its_id(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger(clock=clock)
    await admitted(ledger, "the-one", [MINE], client="a", slots=[slot(1)])
    clock.advance(331)

    with caplog.at_level(logging.WARNING, logger="routeguard"):
        for _ in range(3):
            await ledger.in_flight()

    assert [(record.__dict__["event"], record.__dict__["admission_id"]) for record in caplog.records] == [
        ("orphaned", "the-one")
    ]


@pytest.mark.parametrize("amounts", [(1, 2), (0, 0), (-1, -1)], ids=repr)
async def test_amounts_that_would_not_settle_are_our_mistake(clock: FakeClock, amounts: tuple[int, int]) -> None:
    """A settlement takes one amount out of every counter, so they all have to hold it."""
    ledger, claims = MemoryLedger(clock=clock), [budget(CALL), budget(CALL, "month")]

    with pytest.raises(AssertionError):
        await ledger.reserve(
            "1", money=[Claim(one, "", amount) for one, amount in zip(claims, amounts, strict=True)], slots=[]
        )


@pytest.mark.parametrize("charge", [(-1, 0), (0, -1), (5, -1)], ids=repr)
async def test_a_negative_charge_is_our_mistake(clock: FakeClock, charge: tuple[int, int]) -> None:
    ledger = MemoryLedger(clock=clock)
    reservation = await admitted(ledger, "1", [MINE], client="a")

    with pytest.raises(AssertionError):
        await ledger.settle(reservation, state="kept", settled_nanousd=charge[0], kept_nanousd=charge[1])
    with pytest.raises(AssertionError):
        ledger.charge_late(reservation, charge_id="late", extra_nanousd=-1)

    assert reservation.state == "open"
