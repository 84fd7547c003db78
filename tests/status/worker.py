"""One of several processes that count into `PROMETHEUS_MULTIPROC_DIR`: two guards, some requests to each.

`shutdown` ends as a server does, `timer` is killed once it has shared what it counted, `scrape` prints the metrics.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.values import ValueClass

from routeguard import RouteGuard
from tests.driver import Client
from tests.guarding import TEN_CENTS, reporting

TOKEN = "a-token-only-these-tests-know"
WAIT_SECONDS = 60


def build(path: str) -> RouteGuard:
    settings: dict[str, Any] = {"budget": "1/total", "admin_token": TOKEN, "namespace": path[1:], "environ": {}}
    return RouteGuard(reporting(cost_usd="0.01"), paths=[path], status_path="/status", **settings, **TEN_CENTS)


async def main(how: str, number: int) -> None:
    assert ValueClass._multiprocess
    guards = {path: build(path) for path in ("/a", "/b")}
    await spend(guards, number)
    if how == "scrape":
        # Twice, because what was told once is not told again.
        for guard in guards.values():
            await scrape(guard)
        await spend(guards, number)
        # Guards of one process share what they counted, so the page of one shows all of it.
        for guard in guards.values():
            text = await scrape(guard)
        sys.stdout.write(text)
    elif how == "shutdown":
        for guard in guards.values():
            assert guard._guard is not None
            await guard._guard.aclose()
    else:
        wait_for_requests(2 * number)
        await spend(guards, number)
        wait_for_requests(4 * number)
        os._exit(0)


async def spend(guards: dict[str, RouteGuard], number: int) -> None:
    for path, guard in guards.items():
        for _ in range(number):
            client = await Client(path=path).call(guard)
            assert client.status == 200


async def scrape(guard: RouteGuard) -> str:
    bearer = [(b"authorization", f"Bearer {TOKEN}".encode())]
    client = await Client(method="GET", path="/status/metrics", headers=bearer, body=[]).call(guard)
    return b"".join(client.chunks).decode()


def wait_for_requests(number: int) -> None:
    """Until the timer of each guard has written so many."""
    ends = time.monotonic() + WAIT_SECONDS
    file = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"], f"counter_{os.getpid()}.db")
    while True:
        # The library has no types for its files.
        rows = list(MmapedDict.read_all_values_from_file(str(file))) if file.exists() else []  # type: ignore[no-untyped-call]
        if sum(value for key, value, *_ in rows if "routeguard_requests_total" in key) == number:
            return
        assert time.monotonic() < ends, "the timer did not write"
        time.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
