"""A guarded application in a process of its own: `python -m tests.journal.worker LEDGER JOURNAL [REQUESTS]`.

Serves until it is killed; with a number of requests it ends after them as a script does, and closes nothing.
"""

import asyncio
import sys

import pytest

from routeguard import RouteGuard
from tests.driver import Client
from tests.guarding import TEN_CENTS, reporting
from tests.patience import be_patient


async def main(ledger: str, journal: str, requests: str = "") -> None:
    guard = RouteGuard(
        reporting(cost_usd="0.001"),
        paths=["/chat"],
        budget="9000000/day",
        client_budget="9000000/day",
        rate="unlimited",
        global_rate="unlimited",
        max_parallel="unlimited",  # the slots of the killed stay leased
        max_parallel_per_client="unlimited",
        ledger=ledger,
        journal=journal,
        environ={},
        **TEN_CENTS,
    )
    while (await Client().call(guard)).status != 200:
        pass  # a busy machine: the ledger did not answer within its second
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in range(int(requests or 1) - 1):
        await Client().call(guard)
    while not requests:
        await asyncio.gather(*[Client().call(guard) for _ in range(3)])


if __name__ == "__main__":
    be_patient(pytest.MonkeyPatch())
    asyncio.run(main(*sys.argv[1:]))
