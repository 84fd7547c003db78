"""A budget, a call, and waiting for what other processes do."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from zoneinfo import ZoneInfo

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.line import Timing
from routeguard.policy import Balance, Budget, Claim, LedgerUnavailable, Parallel, Reservation, Window

CALL = 2_400_000
EVER = Budget("total", Window("total", ZoneInfo("UTC")), 1000 * CALL)
SLOT = Parallel(1000, lease_ns=330 * 10**9)
#: Waits as long as a busy machine needs, where what happens is asked and not how fast.
PATIENT = Timing(connect=10.0, exchange=20.0, decision=30.0)
#: And is soon done with what a test has broken on purpose.
QUICK = replace(PATIENT, probe=0.02, look=0.1, look_age_max=0.15, grace=0.3)
#: Notices by its next request and not before, so that nothing in the background comes first.
LOOKS_AWAY = replace(QUICK, look=3_600.0, look_age_max=3_600.0)
#: The bounds that are promised, for stores that never answer. A busy machine may miss them where one does answer.
PROMPT = replace(Timing(), probe=0.02, look=3_600.0, look_age_max=3_600.0)


async def reserve(ledger: RedisLedger, name: str, *, amount: int = CALL, budget: Budget = EVER) -> Reservation:
    return await ledger.reserve(name, money=[Claim(budget, "", amount)], slots=[Claim(SLOT, "", 1)])


async def try_reserve(ledger: RedisLedger, name: str, *, budget: Budget = EVER) -> Reservation | None:
    """None where nobody knows."""
    try:
        return await reserve(ledger, name, budget=budget)
    except LedgerUnavailable:
        return None


async def reserved(ledger: RedisLedger) -> Reservation:
    """By a ledger with narrow bounds, as soon as the machine keeps them; what was lost before that is released."""
    made: Reservation | None = None
    for number in count():
        made = await try_reserve(ledger, f"made-{number}")
        if made is not None:
            break
        await asyncio.sleep(0.005)
    assert made is not None
    return made


async def settle(ledger: RedisLedger, reservation: Reservation, nanousd: int) -> bool:
    return await ledger.settle(reservation, state="settled", settled_nanousd=nanousd, kept_nanousd=0)


async def balance(ledger: RedisLedger, budget: Budget = EVER) -> Balance:
    (found,) = await ledger.balances([budget])
    return found


async def until(holds: Callable[[], Awaitable[bool]], *, seconds: float = 120.0) -> None:
    """Wait for what a server or another process is about to do; a store that is away does not hold.

    Where less is given, that is a promise.
    """
    async with asyncio.timeout(seconds):
        while True:
            try:
                if await holds():
                    return
            except LedgerUnavailable:
                pass
            await asyncio.sleep(0.005)
