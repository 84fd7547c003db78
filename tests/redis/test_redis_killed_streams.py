"""A stream that is killed gives its slot back, by the end of its lease at the latest, and never its money."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from routeguard import RouteGuard
from routeguard.build import LEASE_GRACE_SECONDS, build_guard
from routeguard.ledgers.memory import MemoryLedger
from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import Ledger
from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import TEN_CENTS
from tests.redis.calls import PATIENT, until
from tests.redis.conftest import fresh_namespace
from tests.sqlite.files import ledger_at

MAX_STREAM = 60
CHUNK = {"type": "http.response.body", "body": b"data: x\n\n", "more_body": True}


async def _forever(scope: Any, receive: Any, send: Any) -> None:
    """A provider that sends one word and then nothing for as long as one waits."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send(CHUNK)
    await asyncio.Event().wait()


async def _waits_for_a_disconnect(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send(CHUNK)
    while (await receive())["type"] != "http.disconnect":
        pass


async def _raises(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send(CHUNK)
    raise RuntimeError("the provider broke off")


async def _leaves(guard: Callable[..., RouteGuard]) -> None:
    await Client(leaves_after=1).call(guard(_waits_for_a_disconnect))


async def _breaks(guard: Callable[..., RouteGuard]) -> None:
    await Client().call(guard(_raises))


async def _loses_the_connection(guard: Callable[..., RouteGuard]) -> None:
    await Client(send_raises=(1, OSError("reset"))).call(guard(_forever))


async def _takes_too_long(guard: Callable[..., RouteGuard]) -> None:
    await Client().call(guard(_forever, max_stream="50ms"))


async def _is_cancelled(guard: Callable[..., RouteGuard]) -> None:
    task = await _running(guard)
    task.cancel()
    await asyncio.wait({task})


async def _is_abandoned(guard: Callable[..., RouteGuard]) -> None:
    """As by `kill -9`: nothing of this request ever runs again."""
    _abandoned.append(await _running(guard))


async def _running(guard: Callable[..., RouteGuard]) -> asyncio.Future[Any]:
    """A stream that has sent its first word."""
    client = Client()
    task = asyncio.ensure_future(client.call(guard(_forever)))

    async def has_begun() -> bool:
        return bool(client.chunks)

    await until(has_begun)
    return task


_abandoned: list[asyncio.Future[Any]] = []
WAYS = [_leaves, _breaks, _loses_the_connection, _takes_too_long, _is_cancelled, _is_abandoned]


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def ledger(
    request: pytest.FixtureRequest, redis_url: str, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Any]:
    opened: Ledger
    if request.param == "memory":
        opened = MemoryLedger(clock=clock, clients_max=1000)
    elif request.param == "sqlite":
        opened = ledger_at(tmp_path / "rg.db", clock)
    else:
        opened = RedisLedger(redis_url, namespace=fresh_namespace(), timing=PATIENT, test_clock=clock)
    yield opened
    while _abandoned:
        _abandoned.pop().cancel()
    await asyncio.sleep(0)
    await opened.aclose()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_a_killed_stream_gives_back_its_slot_and_not_its_money(
    way: Callable[[Callable[..., RouteGuard]], Awaitable[None]], ledger: Ledger, clock: FakeClock
) -> None:
    def guard(app: Any, *, max_stream: str = f"{MAX_STREAM}s") -> RouteGuard:
        given: Any = {"paths": ["/chat"], "client_budget": "unlimited", "environ": {}, **TEN_CENTS}
        made = RouteGuard(app, budget="1/total", max_stream=max_stream, **given)
        made._guard = build_guard(made.settings, clock=clock, ledger=ledger)
        guards.append(made)
        return made

    guards: list[RouteGuard] = []
    await way(guard)
    clock.advance(MAX_STREAM + LEASE_GRACE_SECONDS + 1)

    assert guards[0]._guard is not None
    slots = await ledger.in_flight()
    (balance,) = await ledger.balances(guards[0]._guard.rules.budgets)

    assert slots == 0
    assert balance.charged_nanousd == 100_000_000
    assert balance.open_nanousd == 0
    assert (balance.orphaned_nanousd > 0) == (way is _is_abandoned)
