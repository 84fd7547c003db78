"""A shutdown waits for the guarded requests that are still on their way, and not for ever."""

from typing import Any

import anyio
import pytest

from routeguard import RouteGuard, lifespan
from tests.driver import Client
from tests.guarding import guarded


class Server:
    """Starts the guard, and stops it once a request is under way."""

    def __init__(self, guard: RouteGuard) -> None:
        self._guard = guard
        self.events: list[str] = []
        self.stopping = anyio.Event()
        self._asked = ["lifespan.startup"]

    async def run(self) -> None:
        await self._guard({"type": "lifespan", "asgi": {"version": "3.0"}}, self._receive, self._send)

    async def _receive(self) -> dict[str, str]:
        if self._asked:
            return {"type": self._asked.pop()}
        await self.stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Any) -> None:
        self.events.append(message["type"])


async def test_a_shutdown_waits_for_the_ending_of_a_request_on_its_way() -> None:
    may_end = anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "no lifespan"
        server.stopping.set()
        await may_end.wait()
        server.events.append("the request ended")

    server = Server(guarded(app))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(Client().call, server._guard)
        await anyio.wait_all_tasks_blocked()
        waited = list(server.events)
        may_end.set()

    assert waited == ["lifespan.startup.complete"]
    assert server.events == ["lifespan.startup.complete", "the request ended", "lifespan.shutdown.complete"]


async def test_a_shutdown_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifespan, "DRAIN_SECONDS", 0.01)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "no lifespan"
        server.stopping.set()
        await anyio.sleep_forever()

    server = Server(guarded(app))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Client().call, server._guard)
        await server.run()
        tasks.cancel_scope.cancel()

    assert server.events == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
