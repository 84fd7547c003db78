"""Days that are no 24 hours, and requests that run from one into the next, in the file and in the store alike."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.memory import MemoryLedger
from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import Budget, Claim, Ledger, Refused, Window
from routeguard.testing import FakeClock
from tests.redis.calls import CALL, PATIENT
from tests.redis.conftest import fresh_namespace
from tests.sqlite.files import ledger_at

HOUR = 3600
BERLIN = ZoneInfo("Europe/Berlin")
New = Callable[[FakeClock], Awaitable[Ledger]]


@pytest.fixture(params=["memory", "sqlite", "redis"])
def new_ledger(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> New:
    async def new(clock: FakeClock) -> Ledger:
        if request.param == "memory":
            return MemoryLedger(clock=clock, clients_max=1000)
        if request.param == "sqlite":
            return ledger_at(tmp_path / "rg.db", clock)
        return RedisLedger(redis_url, namespace=fresh_namespace(), timing=PATIENT, test_clock=clock)

    return new


async def test_fifty_endings_on_both_sides_of_midnight_leave_both_days_exact(new_ledger: New) -> None:
    clock = FakeClock(datetime(2026, 11, 30, 23, 59, 50, tzinfo=UTC))
    ledger, day = await new_ledger(clock), _day(50 * CALL, ZoneInfo("UTC"))
    held = [await ledger.reserve(f"{number}", money=[Claim(day, "", CALL)], slots=[]) for number in range(50)]
    for reservation in held[:25]:
        await ledger.settle(reservation, state="settled", settled_nanousd=CALL // 2, kept_nanousd=0)
    before = (await ledger.balances([day]))[0]

    clock.advance(20)
    today = [await ledger.reserve(f"n{number}", money=[Claim(day, "", CALL)], slots=[]) for number in range(50)]
    for reservation in held[25:]:
        await ledger.settle(reservation, state="settled", settled_nanousd=3 * CALL, kept_nanousd=0)
    with pytest.raises(Refused):
        await ledger.reserve("one-too-many", money=[Claim(day, "", CALL)], slots=[])

    found = (await ledger.balances([day]))[0]
    await ledger.aclose()
    assert (before.settled_nanousd, before.open_nanousd) == (25 * (CALL // 2), 25 * CALL)
    assert (found.open_nanousd, found.charged_nanousd, found.overrun_nanousd) == (50 * CALL, 50 * CALL, 0)
    assert len(today) == 50


@pytest.mark.parametrize(
    ("begins", "hours"), [(datetime(2026, 10, 24, 22, tzinfo=UTC), 25), (datetime(2027, 3, 27, 23, tzinfo=UTC), 23)]
)
async def test_a_day_on_which_clocks_change_is_one_window(new_ledger: New, begins: datetime, hours: int) -> None:
    """It begins at the moment given, and its budget is there once in all its hours."""
    clock = FakeClock(begins)
    ledger, day = await new_ledger(clock), _day(CALL, BERLIN)
    await ledger.reserve("first", money=[Claim(day, "", CALL)], slots=[])

    refused = 0
    for hour in range(1, hours):
        clock.advance(HOUR)
        try:
            await ledger.reserve(f"{hour}", money=[Claim(day, "", CALL)], slots=[])
        except Refused:
            refused += 1
    clock.advance(HOUR)
    await ledger.reserve("next-day", money=[Claim(day, "", CALL)], slots=[])

    await ledger.aclose()
    assert refused == hours - 1


def _day(limit_nanousd: int, zone: ZoneInfo) -> Budget:
    return Budget("day", Window("day", zone), limit_nanousd)
