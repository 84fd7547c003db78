"""Rates that all processes of a host share: at most L in any window of that length, whoever asks."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.ledgers.sqlite.book import SqliteBook
from routeguard.policy import Claim, Parallel, Rate, Refused, Reservation
from routeguard.sqlite_file.file import connect
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, budget, slot_claim
from tests.sqlite.files import ledger_at, number, rows

SECOND = 10**9
MINUTE = Rate("client-1", 10, 60 * SECOND)
LARGE = Rate("client-2", 600, 60 * SECOND)
SHARED = Rate("global-1", 20, 60 * SECOND)


async def claim(ledger: SqliteLedger, name: str, *rates: Claim[Rate], force: bool = False) -> Reservation | Refused:
    """Claim these rates and nothing else."""
    try:
        return await ledger.reserve(name, money=[], slots=[], rates=rates, force=force)
    except Refused as refused:
        return refused


async def admitted_of(ledger: SqliteLedger, prefix: str, count: int, *rates: Claim[Rate]) -> int:
    """How many of so many are admitted."""
    answers = [await claim(ledger, f"{prefix}-{index}", *rates) for index in range(count)]
    return sum(isinstance(answer, Reservation) for answer in answers)


async def test_two_processes_share_one_rate(path: Path, clock: FakeClock) -> None:
    here, there = ledger_at(path, clock), ledger_at(path, clock)

    first = await admitted_of(here, "here", 7, Claim(MINUTE, "a", 1))
    second = await admitted_of(there, "there", 7, Claim(MINUTE, "a", 1))

    assert (first, second) == (7, 3)


async def test_a_slot_is_back_when_its_claim_is_a_window_old_and_not_before(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await claim(ledger, "first", Claim(MINUTE, "a", 1))
    clock.advance(20)
    await admitted_of(ledger, "rest", 9, Claim(MINUTE, "a", 1))
    clock.advance(40 - 1e-9)
    refused = await claim(ledger, "early", Claim(MINUTE, "a", 1))
    clock.advance(1e-9)

    admitted = await admitted_of(ledger, "due", 3, Claim(MINUTE, "a", 1))

    assert isinstance(refused, Refused)
    assert (refused.cause, refused.per_client, refused.resets_at, refused.retry_ns) == ("rate_limited", True, None, 1)
    assert admitted == 1


async def test_a_large_rate_gives_slots_back_at_most_a_sixtieth_late(path: Path, clock: FakeClock) -> None:
    ledger, rate = ledger_at(path, clock), Rate("client-2", 101, 60 * SECOND)
    for index in range(101):
        await claim(ledger, f"{index}", Claim(rate, "a", 1))
        clock.advance(0.01)

    clock.advance(60 - 1.01 - 1e-9)
    early = await admitted_of(ledger, "early", 1, Claim(rate, "a", 1))
    clock.advance(1e-9 + 1)

    assert early == 0
    assert await admitted_of(ledger, "due", 1, Claim(rate, "a", 1)) == 1


async def test_rates_are_claimed_all_or_none(path: Path, clock: FakeClock) -> None:
    ledger, tight = ledger_at(path, clock), Rate("client-2", 1, 3600 * SECOND)
    await claim(ledger, "1", Claim(tight, "a", 1))

    for index in range(30):
        await claim(ledger, f"x{index}", Claim(SHARED, "", 1), Claim(MINUTE, "a", 1), Claim(tight, "a", 1))

    assert await admitted_of(ledger, "b", 30, Claim(SHARED, "", 1)) == 20
    assert await admitted_of(ledger, "a", 30, Claim(MINUTE, "a", 1)) == 10


async def test_a_shared_rate_in_the_way_is_nobodys_own(path: Path, clock: FakeClock) -> None:
    ledger, one = ledger_at(path, clock), Rate("client-1", 1, SECOND)
    await admitted_of(ledger, "all", 20, Claim(SHARED, "", 1))
    await claim(ledger, "mine", Claim(one, "a", 1))

    refused = await claim(ledger, "1", Claim(SHARED, "", 1), Claim(one, "a", 1))

    assert isinstance(refused, Refused)
    assert (refused.per_client, refused.retry_ns) == (False, 60 * SECOND)


async def test_a_refusal_for_money_or_slots_claims_no_rate(path: Path, clock: FakeClock) -> None:
    ledger, day = ledger_at(path, clock), budget(CALL)
    rate = [Claim(Rate("client-1", 2, 60 * SECOND), "a", 1)]
    await ledger.reserve("1", money=[Claim(day, "", CALL)], slots=[slot_claim(1)], rates=rate)

    for money, slots in (([Claim(day, "", CALL)], []), ([], [slot_claim(1)])):
        with pytest.raises(Refused, match="busy"):
            await ledger.reserve("2", money=money, slots=slots, rates=rate)

    assert await admitted_of(ledger, "3", 2, *rate) == 1


async def test_a_rate_is_more_final_than_busy_and_less_than_a_spent_budget(path: Path, clock: FakeClock) -> None:
    ledger, day = ledger_at(path, clock), budget(2 * CALL)
    rate, slots = [Claim(Rate("client-1", 1, 60 * SECOND), "a", 1)], [Claim(Parallel(1, 330 * SECOND), "", 1)]
    first = await ledger.reserve("1", money=[Claim(day, "", 2 * CALL)], slots=slots, rates=rate)

    with pytest.raises(Refused, match="rate_limited"):
        await ledger.reserve("2", money=[Claim(day, "", CALL)], slots=slots, rates=rate)
    await ledger.settle(first, state="settled", settled_nanousd=2 * CALL, kept_nanousd=0)
    with pytest.raises(Refused, match="budget_exhausted"):
        await ledger.reserve("3", money=[Claim(day, "", CALL)], slots=slots, rates=rate)


async def test_what_observing_lets_through_takes_no_slot_that_is_not_there(path: Path, clock: FakeClock) -> None:
    """Or a crowd that is only observed would make the row of a client as long as it likes."""
    ledger = ledger_at(path, clock)

    answers = [await claim(ledger, f"{index}", Claim(MINUTE, "a", 1), force=True) for index in range(200)]

    reasons = [answer.refused for answer in answers if isinstance(answer, Reservation)]
    assert sum(reason is None for reason in reasons) == 10
    assert {reason.cause for reason in reasons if reason is not None} == {"rate_limited"}
    assert number(path, "SELECT length(windows) FROM rates") < 300


async def test_rates_of_a_host_started_again_go_on_where_they_stood(path: Path) -> None:
    before = FakeClock()
    before.advance(90_000)
    ledger = ledger_at(path, before)
    await admitted_of(ledger, "before", 10, Claim(MINUTE, "a", 1))
    await ledger.aclose()
    after = FakeClock()
    started = ledger_at(path, after)

    at_once = await admitted_of(started, "at once", 1, Claim(MINUTE, "a", 1))
    after.advance(60)

    assert at_once == 0
    assert await admitted_of(started, "later", 11, Claim(MINUTE, "a", 1)) == 10


async def test_what_everybody_shares_is_not_given_up_for_a_newcomer(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock, clients_max=2)
    assert await admitted_of(ledger, "all", 20, Claim(SHARED, "", 1)) == 20

    for client in ("a", "b", "c", "d"):
        clock.advance(1)
        assert await admitted_of(ledger, client, 1, Claim(MINUTE, client, 1)) == 1

    assert await admitted_of(ledger, "one more", 1, Claim(SHARED, "", 1)) == 0
    assert rows(path, "SELECT partition FROM rates ORDER BY partition") == [("",), ("c",), ("d",)]


async def test_a_changed_rate_keeps_what_was_claimed(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    await admitted_of(ledger, "before", 6, Claim(MINUTE, "a", 1))

    assert await admitted_of(ledger, "after", 10, Claim(Rate("client-1", 8, 60 * SECOND), "a", 1)) == 2


async def test_of_too_many_clients_the_one_untouched_for_longest_is_forgotten(path: Path, clock: FakeClock) -> None:
    ledger, one = ledger_at(path, clock, clients_max=3), Rate("client-1", 1, 3600 * SECOND)
    for client in ("a", "b", "c", "d"):
        await claim(ledger, client, Claim(one, client, 1), Claim(SHARED, "", 1))
        clock.advance(1)

    known = rows(path, "SELECT partition FROM rates ORDER BY touched_ns")
    fresh = await admitted_of(ledger, "again", 1, Claim(one, "a", 1))
    kept = await admitted_of(ledger, "again-d", 1, Claim(one, "d", 1))

    assert ("a",) not in known
    assert ("",) in known, "what everybody shares is not given up for a newcomer"
    assert (fresh, kept) == (1, 0)
    assert number(path, "SELECT rated_clients FROM namespaces") == 3


async def test_clients_whose_windows_are_over_are_forgotten(path: Path, clock: FakeClock) -> None:
    ledger = ledger_at(path, clock)
    for index in range(50):
        await claim(ledger, f"{index}", Claim(MINUTE, f"{index}", 1))
    clock.advance(60)

    for index in range(40):
        await claim(ledger, f"next-{index}", Claim(LARGE, "a", 1))

    assert number(path, "SELECT count(*) FROM rates") == 1
    assert number(path, "SELECT rated_clients FROM namespaces") == 1


def test_sixty_thousand_strangers_leave_no_more_rows_than_there_are_places(path: Path, clock: FakeClock) -> None:
    db = connect(str(path), "normal")
    book = SqliteBook("default", clock=clock, clients_max=500, on_orphans=lambda _: None, on_records=lambda _: None)
    book.attach(db)

    db.execute("BEGIN IMMEDIATE")
    for index in range(60_000):
        rates = [Claim(MINUTE, f"{index}", 1)]
        book.reserve(db, f"{index}", money=[], slots=[], rates=rates, force=False)
    db.execute("COMMIT")

    assert db.execute("SELECT count(*) FROM rates").fetchone() == (500,)
    db.close()


@given(
    quota=st.sampled_from([1, 2, 5, 100, 101, 130]),
    pauses_ms=st.lists(st.sampled_from([0, 1, 3, 70, 400, 1000, 1001, 2000]), min_size=1, max_size=300),
)
@settings(max_examples=40)
def test_no_window_of_any_length_holds_more_than_its_quota(
    tmp_path_factory: pytest.TempPathFactory, quota: int, pauses_ms: list[int]
) -> None:
    clock, rate = FakeClock(), Rate("client-1", quota, SECOND)
    db = connect(str(tmp_path_factory.mktemp("rates") / "ledger.db"), "normal")
    book = SqliteBook("default", clock=clock, clients_max=9, on_orphans=lambda _: None, on_records=lambda _: None)
    book.attach(db)
    times: list[int] = []

    db.execute("BEGIN")
    for index, pause_ms in enumerate(pauses_ms * (1 + quota // 50)):
        clock.advance(pause_ms / 1000)
        answer = book.reserve(db, f"{index}", money=[], slots=[], rates=[Claim(rate, "a", 1)], force=False)
        if answer.entry is not None:
            times.append(clock.monotonic_ns())
    db.close()

    assert all(later - first >= SECOND for first, later in zip(times, times[quota:], strict=False))
    assert times == sorted(times)
    assert len(times) >= min(quota, len(pauses_ms))
