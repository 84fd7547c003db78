"""A process with a metered client of its own: `python -m tests.meter.worker LEDGER NAMESPACE BASE_URL BUDGET`.

It does what comes in as a line, and tells the result as a line of JSON:

- `open N` begins N streams at once: how many have begun, and why the others were refused.
- `finish` reads them to their ends.
- `spend` asks for whole answers, one after the other, until one is refused: how many it got, and why not another.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from routeguard import BudgetExceeded, metered
from tests.patience import PATIENT_SECONDS, be_patient
from tests.redis.calls import PATIENT

#: A call of a thousand tokens costs ten cents at most. What it is answered costs one.
PRICES: dict[str, Any] = {"price_in": 0, "price_out": 100}
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Caller:
    def __init__(self, client: httpx2.AsyncClient, base_url: str) -> None:
        self._client = client
        self._url = f"{base_url}/v1/chat/completions"
        self._open: list[httpx2.Response] = []

    async def open(self, count: int) -> dict[str, Any]:
        refused = [why for why in await asyncio.gather(*[self._open_one() for _ in range(count)]) if why is not None]
        return {"open": len(self._open), "refused": sorted(refused)}

    async def finish(self) -> dict[str, Any]:
        for response in self._open:
            await response.aread()
        return {"finished": len(self._open)}

    async def spend(self) -> dict[str, Any]:
        got = 0
        while True:
            try:
                (await self._client.post(self._url, json=QUESTION)).raise_for_status()
            except BudgetExceeded as refused:
                return {"got": got, "refused": refused.reason}
            got += 1

    async def _open_one(self) -> str | None:
        request = self._client.build_request("POST", self._url, json={**QUESTION, "stream": True})
        try:
            self._open.append(await self._client.send(request, stream=True))
        except BudgetExceeded as refused:
            return refused.reason
        return None


async def main() -> None:
    ledger, namespace, base_url, budget = sys.argv[1:]
    async with metered(budget=budget, ledger=ledger, namespace=namespace, trust_env=False, **PRICES) as client:
        caller = Caller(client, base_url)
        tell("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *counts = line.split()
            do: Callable[..., Awaitable[dict[str, Any]]] = getattr(caller, name)
            tell(await do(*map(int, counts)))


def tell(found: object) -> None:
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def take_time() -> None:
    """What is spent and refused is asked, and not how fast this machine is."""
    patch = pytest.MonkeyPatch()
    be_patient(patch)
    patch.setattr("routeguard.ledgers.redis.ledger.Timing", lambda: PATIENT)
    patch.setattr("routeguard.meter.transports.SETTLE_SECONDS", PATIENT_SECONDS)


if __name__ == "__main__":
    take_time()
    asyncio.run(main())
