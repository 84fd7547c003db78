"""A process of its own that reserves and settles: `python -m tests.redis.worker MODE URL NAMESPACE NAME LIMIT`.

`stampede` waits for a line on stdin, then reserves fifty at once and says how many it got. `load` reserves and
settles until a line comes on stdin, and says what its admitted calls cost and how many endings failed.
"""

import asyncio
import json
import sys
from dataclasses import replace

from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import Budget, LedgerUnavailable, Refused
from tests.redis.calls import CALL, EVER, PATIENT, reserve, settle

TASKS = 50
#: Says what happened only once everything it owes the store is written.
UNHURRIED = replace(PATIENT, drain=60.0)


async def stampede(ledger: RedisLedger, name: str, budget: Budget) -> dict[str, int]:
    await ledger.refresh()
    await _line()

    async def one(number: int) -> bool:
        try:
            await reserve(ledger, f"{name}-{number}", budget=budget)
        except Refused:
            return False
        return True

    return {"admitted": sum(await asyncio.gather(*[one(number) for number in range(TASKS)]))}


async def load(ledger: RedisLedger, name: str, budget: Budget) -> dict[str, int]:
    found = {"billed": 0, "admitted": 0, "unavailable": 0, "unwritten": 0, "refused": 0}
    stopping = asyncio.create_task(_line())

    async def one(task: int) -> None:
        number = 0
        while not stopping.done():
            number += 1
            try:
                reservation = await reserve(ledger, f"{name}-{task}-{number}", budget=budget)
            except LedgerUnavailable:
                found["unavailable"] += 1
                await asyncio.sleep(0.01)
                continue
            except Refused:
                found["refused"] += 1
                await asyncio.sleep(0.01)
                continue
            found["admitted"] += 1
            # The call: the provider bills a third of the ceiling.
            await asyncio.sleep(0.002)
            found["billed"] += CALL // 3
            try:
                await settle(ledger, reservation, CALL // 3)
            except LedgerUnavailable:
                found["unwritten"] += 1

    await asyncio.gather(*[one(task) for task in range(8)])
    return found


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _line() -> None:
    await asyncio.to_thread(sys.stdin.readline)


async def main() -> None:
    mode, url, namespace, name, limit = sys.argv[1:]
    ledger = RedisLedger(url, namespace=namespace, timing=UNHURRIED)
    budget = Budget(EVER.name, EVER.window, int(limit))
    await ledger.refresh()
    _say("ready")
    found = await (stampede if mode == "stampede" else load)(ledger, name, budget)
    await ledger.aclose()
    _say(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
