"""What the suite asks a ledger for, in as few words as it takes."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from routeguard.policy import Budget, Claim, Ledger, Parallel, Refused, Reservation, Window, WindowUnit
from routeguard.testing.clock import FakeClock

UTC = ZoneInfo("UTC")
#: Nano-USD of one call in this suite.
CALL = 2_400_000
DAY_SECONDS = 86_400
#: A moment at which hour, day, week and month all end at different times.
MIDWEEK = datetime(2026, 11, 11, 12, 30, tzinfo=UTC)


class Contract:
    """What each part of the suite needs."""

    #: In how many orders two hundred callers come at once. What stands in for a store, and is slow, may have fewer.
    orders: int = 100

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        """An empty ledger on this clock."""
        raise NotImplementedError


def budget(limit_nanousd: int, unit: WindowUnit = "day", *, per_client: bool = False) -> Budget:
    """A budget in UTC."""
    return Budget(unit, Window(unit, UTC), limit_nanousd, per_client)


def slot(quota: int) -> Parallel:
    """A parallel policy with the default lease, 330 seconds."""
    return Parallel(quota, lease_ns=330 * 10**9)


def slot_claim(quota: int) -> Claim[Parallel]:
    """One slot for everybody."""
    return Claim(slot(quota), "", 1)


async def attempt(
    ledger: Ledger, reservation_id: str, budgets: Sequence[Budget], *, client: str = "", slots: Sequence[Parallel] = ()
) -> Reservation | None:
    """Reserve one call from every budget; None when refused."""
    try:
        return await admitted(ledger, reservation_id, budgets, client=client, slots=slots)
    except Refused:
        return None


async def admitted(
    ledger: Ledger, reservation_id: str, budgets: Sequence[Budget], *, client: str = "", slots: Sequence[Parallel] = ()
) -> Reservation:
    """Reserve one call from every budget."""
    money = [Claim(one, client if one.per_client else "", CALL) for one in budgets]
    return await ledger.reserve(reservation_id, money=money, slots=[Claim(one, "", 1) for one in slots])


async def refused(
    ledger: Ledger, reservation_id: str, budgets: Sequence[Budget], *, client: str = "", slots: Sequence[Parallel] = ()
) -> Refused:
    """The refusal of one call; it must be refused."""
    money = [Claim(one, client if one.per_client else "", CALL) for one in budgets]
    return await refused_claims(ledger, reservation_id, money, [Claim(one, "", 1) for one in slots])


async def refusal(
    ledger: Ledger, reservation_id: str, budgets: Sequence[Budget], *, client: str = "", slots: Sequence[Parallel] = ()
) -> tuple[str, bool]:
    """Cause of a refusal, and whether only per-client policies were in the way."""
    found = await refused(ledger, reservation_id, budgets, client=client, slots=slots)
    return found.cause, found.per_client


async def refused_claims(
    ledger: Ledger, reservation_id: str, money: Sequence[Claim[Budget]], slots: Sequence[Claim[Parallel]]
) -> Refused:
    """The refusal of exactly these claims; they must be refused."""
    try:
        await ledger.reserve(reservation_id, money=money, slots=slots)
    except Refused as found:
        return found
    raise AssertionError("this reservation had to be refused")
