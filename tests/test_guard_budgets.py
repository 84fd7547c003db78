"""What a budget admits and what stays in it: the stampede, midnight, prices and budgets of nothing, slots."""

import random
from typing import Any

import anyio
import pytest

from routeguard.testing import FakeClock
from tests.driver import Client, stream_app
from tests.guarding import Counting, ending, guarded, in_flight


@pytest.mark.parametrize("seed", range(100))
async def test_exactly_ten_of_two_hundred_simultaneous_requests_are_admitted(seed: int) -> None:
    """Real clients, a real body, an application that waits: ten ceilings fit, whatever the interleaving."""
    rng = random.Random(seed)
    release = anyio.Event()
    app = Counting()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        scope["routeguard"].report(cost_usd="0.04")
        await stream_app([b"data: x\n\n"])(scope, receive, send)

    app._app = waiting
    guard = guarded(app, rate="unlimited", global_rate="unlimited", max_parallel=500, max_parallel_per_client=500)
    clients = [Client(peer=(f"198.51.{number // 100}.{number % 100}", 1)) for number in range(200)]
    delays = [rng.randrange(4) for _ in clients]

    async def one(client: Client, delay: int) -> None:
        for _ in range(delay):
            await anyio.lowlevel.checkpoint()
        await client.call(guard)

    async with anyio.create_task_group() as tasks:
        for number in rng.sample(range(200), 200):
            tasks.start_soon(one, clients[number], delays[number])
        await anyio.wait_all_tasks_blocked()
        assert await ending(guard) == {"open": "1"}
        release.set()

    assert app.calls == 10
    assert sorted(client.status or 0 for client in clients) == [200] * 10 + [429] * 190
    assert {client.reason for client in clients if client.status == 429} == {"busy"}
    assert await ending(guard) == {"settled": "0.4"}
    assert await in_flight(guard) == 0


async def test_a_stream_across_midnight_is_settled_in_the_day_it_began() -> None:
    clock = FakeClock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clock.advance(13 * 3600)
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)

    guard = guarded(app, clock=clock, budget="1/day, 5/month", max_stream="24h")

    await Client().call(guard)

    assert guard._guard is not None
    day, month = await guard._guard.ledger.balances(guard._guard.rules.budgets)
    assert (day.charged_nanousd, month.charged_nanousd) == (0, 0)


async def test_the_price_of_nothing_passes_a_spent_budget() -> None:
    guard = guarded(Counting(), price_out=0, budget="0/day")

    client = await Client().call(guard)

    assert client.status == 200


async def test_a_budget_of_nothing_is_exhausted() -> None:
    client = await Client().call(guarded(Counting(), budget="0/day"))

    assert (client.status, client.reason) == (503, "budget_exhausted")


async def test_parallel_slots_are_busy_and_come_back() -> None:
    release = anyio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await stream_app([b"data: x\n\n"])(scope, receive, send)

    guard = guarded(waiting, budget="100/day", max_parallel_per_client=2)
    clients = [Client() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(client.call, guard)
        await anyio.wait_all_tasks_blocked()
        assert await in_flight(guard) == 2
        release.set()
    after = await Client().call(guard)

    assert sorted(client.status or 0 for client in clients) == [200, 200, 429]
    refused = next(client for client in clients if client.status == 429)
    assert refused.reason == "busy"
    assert 1 <= int(refused.response_headers["retry-after"]) <= 5
    assert after.status == 200
