"""One of several processes on one ledger, each with the same webhook: so many requests on a dollar."""

import asyncio
import os
import sys

import pytest

from routeguard import RouteGuard
from tests.driver import Client
from tests.guarding import TEN_CENTS, reporting
from tests.patience import be_patient


async def main(ledger: str, url: str, requests: int) -> None:
    guard = RouteGuard(
        reporting(cost_usd=os.environ.get("SPEND_USD", "0.1")),
        paths=["/chat"],
        budget="1/total",
        client_budget="unlimited",
        rate="unlimited",
        ledger=ledger,
        webhook_url=url,
        environ={},
        **TEN_CENTS,
    )
    for _ in range(requests):
        while (await Client().call(guard)).reason == "guard_unavailable":
            pass  # a busy machine: the ledger did not answer within its second
    assert guard._guard is not None
    await guard._guard.aclose()


if __name__ == "__main__":
    be_patient(pytest.MonkeyPatch())
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
