"""A worker of `chaos`: `python -m tests.simulation.spender URL NAME` reserves and settles until it is killed.

It prints what the provider bills for each call, before it settles it.
"""

import asyncio
import os
import random
import sys
from zoneinfo import ZoneInfo

from routeguard.clock import SystemClock
from routeguard.ledgers import open_ledger
from routeguard.policy import Budget, Claim, Ledger, LedgerUnavailable, Parallel, Refused, Window

CALL = 2_400_000
CAP_NANOUSD = 20_000 * CALL
CAP = Budget("total", Window("total", ZoneInfo("UTC")), CAP_NANOUSD)
SLOT = Parallel(10_000, lease_ns=3600 * 10**9)


async def spend(ledger: Ledger, name: str) -> None:
    rng, number = random.Random(name), 0
    while True:
        number += 1
        try:
            reservation = await ledger.reserve(
                f"{name}-{number}", money=[Claim(CAP, "", CALL)], slots=[Claim(SLOT, "", 1)]
            )
        except (Refused, LedgerUnavailable):
            await asyncio.sleep(0.02)
            continue
        bill = rng.randrange(1, CALL + 1)
        os.write(1, f"{bill}\n".encode())
        await asyncio.sleep(rng.random() * 0.02)
        try:
            await ledger.settle(reservation, state="settled", settled_nanousd=bill, kept_nanousd=0)
        except LedgerUnavailable:
            continue


async def main() -> None:
    _, url, name = sys.argv
    ledger = open_ledger(url, namespace="chaos", clock=SystemClock(), clients_max=1000)
    await asyncio.gather(*[spend(ledger, f"{name}-{number}") for number in range(4)])


if __name__ == "__main__":
    asyncio.run(main())
