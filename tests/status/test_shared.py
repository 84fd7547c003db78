"""Several processes on one ledger: any of them shows what all have spent."""

import os
import sys
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from routeguard import RouteGuard
from tests.guarding import TEN_CENTS, reporting
from tests.redis.calls import PATIENT
from tests.redis.server import RedisServer, needed_server
from tests.status.asking import TOKEN, get_json
from tests.status.test_metrics import scraped, values

ROOT = Path(__file__).resolve().parents[2]
PROCESSES, REQUESTS = 3, 2


@pytest.fixture(params=["sqlite", "redis"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    with RedisServer(needed_server("nobody looked at the status of a redis ledger")) as server:
        yield server.url


@pytest.fixture
def anyio_backend() -> str:
    """redis-py knows asyncio alone."""
    return "asyncio"


@pytest.fixture
def guard(ledger: str, monkeypatch: pytest.MonkeyPatch) -> RouteGuard:
    """A guard of this process on the ledger of the others; built outside of the loop, because it imports redis-py."""
    # What the numbers are is asked, and not how fast a busy machine has them.
    monkeypatch.setattr("routeguard.ledgers.redis.ledger.Timing", lambda: PATIENT)
    monkeypatch.setattr("routeguard.status.live.LOOK_SECONDS", PATIENT.decision)
    settings: Any = {**TEN_CENTS, "budget": "1/total", "rate": "unlimited", "environ": {}}
    return RouteGuard(reporting(cost_usd="0.05"), paths=["/chat"], admin_token=TOKEN, ledger=ledger, **settings)


async def test_the_status_of_one_process_adds_up_to_the_counter_of_all(ledger: str, guard: RouteGuard) -> None:
    worker = [sys.executable, "-m", "tests.status.spender", ledger, "http://127.0.0.1:9/", str(REQUESTS)]
    environ = {**os.environ, "SPEND_USD": "0.05"}
    async with anyio.create_task_group() as workers:
        for _ in range(PROCESSES):
            workers.start_soon(partial(anyio.run_process, worker, cwd=ROOT, env=environ))

    shown = [await get_json(guard, route) for route in ("/status", "/live")]
    samples = await scraped(guard)
    assert guard._guard is not None
    await guard._guard.aclose()

    spent = Decimal("0.05") * PROCESSES * REQUESTS
    for numbers in shown:
        (budget,) = numbers["budgets"]
        parts = {part: Decimal(budget[f"{part}_usd"]) for part in ("settled", "open", "kept", "orphaned", "remaining")}
        assert parts == {"settled": spent, "open": 0, "kept": 0, "orphaned": 0, "remaining": 1 - spent}
        assert numbers["ledger"]["healthy"] is True
    assert values(samples, "routeguard_budget_remaining_usd") == {("total",): float(1 - spent)}
    assert values(samples, "routeguard_requests_total") == {}, "those are each process's own"


async def test_a_pause_of_another_process_is_seen_on_the_page(ledger: str, guard: RouteGuard) -> None:
    await get_json(guard, "/live")
    steer = [sys.executable, "-m", "routeguard", "pause"]
    settings = {"ROUTEGUARD_PATHS": "/chat", "ROUTEGUARD_PRICE_IN": "1", "ROUTEGUARD_PRICE_OUT": "1"}
    environ = {**os.environ, **settings, "ROUTEGUARD_LEDGER": ledger}
    await anyio.run_process(steer, cwd=ROOT, env=environ)
    assert guard._guard is not None

    # Within two seconds of the ledger's own clock; the answer is polled for, as the page does.
    for _ in range(1200):
        if (await get_json(guard, "/live"))["paused"]:
            break
        await anyio.sleep(0.05)

    paused = (await get_json(guard, "/status"))["paused"]
    await guard._guard.aclose()
    assert paused is True
