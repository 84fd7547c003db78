"""A budget, a call, and waiting for what other processes do."""

import asyncio
from collections.abc import Awaitable, Callable
from zoneinfo import ZoneInfo

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.line import Timing
from routeguard.policy import Balance, Budget, Claim, LedgerUnavailable, Parallel, Reservation, Window

CALL = 2_400_000
EVER = Budget("total", Window("total", ZoneInfo("UTC")), 1000 * CALL)
SLOT = Parallel(1000, lease_ns=330 * 10**9)
#: The same bounds, and less waiting for what a test has broken on purpose.
QUICK = Timing(probe=0.02, look=0.1, look_age_max=0.15, grace=0.3)


async def reserve(ledger: RedisLedger, name: str, *, amount: int = CALL, budget: Budget = EVER) -> Reservation:
    return await ledger.reserve(name, money=[Claim(budget, "", amount)], slots=[Claim(SLOT, "", 1)])


async def try_reserve(ledger: RedisLedger, name: str, *, budget: Budget = EVER) -> Reservation | None:
    """None where nobody knows."""
    try:
        return await reserve(ledger, name, budget=budget)
    except LedgerUnavailable:
        return None


async def settle(ledger: RedisLedger, reservation: Reservation, nanousd: int) -> bool:
    return await ledger.settle(reservation, state="settled", settled_nanousd=nanousd, kept_nanousd=0)


async def balance(ledger: RedisLedger, budget: Budget = EVER) -> Balance:
    (found,) = await ledger.balances([budget])
    return found


async def until(holds: Callable[[], Awaitable[bool]], *, seconds: float = 10.0) -> None:
    """Wait for what a server or another process is about to do; a store that is away does not hold."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                if await holds():
                    return
            except LedgerUnavailable:
                pass
            await asyncio.sleep(0.005)
