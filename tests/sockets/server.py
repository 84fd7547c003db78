"""A real uvicorn in a thread. It runs for the whole session; the application behind it changes with every test.

Starting and stopping uvicorn takes a third of a second, so one server serves all tests of a parser. It runs without
lifespan, which changes nothing that a request sees; `test_start_and_stop.py` starts servers of its own.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from http.client import HTTPConnection
from typing import Any

import uvicorn

from tests.driver import App, Message
from tests.guarding import guarded
from tests.sockets.wire import HOST, WAIT_SECONDS, Wire

TOKEN = "a-token-only-these-tests-know"
STATUS_PATH = "/_routeguard"


class Signal:
    """Given once, from a thread or from the event loop, and waited for in either."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def give(self) -> None:
        with self._lock:
            self._given.set()
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def wait(self) -> None:
        assert self._given.wait(WAIT_SECONDS), "the signal was not given in time"

    async def arrives(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._given.is_set():
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        async with asyncio.timeout(WAIT_SECONDS):
            await event.wait()


@dataclass(slots=True)
class Exchange:
    """One request as the server's edge saw it, outside of every middleware."""

    method: str
    path: str
    #: How often the guard asked for something of the body, and how many bytes it got.
    reads: int = 0
    body_bytes: int = 0
    status: int | None = None
    error: BaseException | None = None
    done: bool = False


class Edge:
    """The outermost application: passes everything on to `app`, and remembers each request but the status reads."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.exchanges: list[Exchange] = []
        self._changed = threading.Condition()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app = self.app
        assert app is not None, "no test is running"
        if scope["path"].startswith(STATUS_PATH):
            await app(scope, receive, send)
            return
        exchange = Exchange(scope.get("method", scope["type"]), scope["path"])
        with self._changed:
            self.exchanges.append(exchange)
            self._changed.notify_all()

        async def counted_receive() -> Message:
            exchange.reads += 1
            message: Message = await receive()
            exchange.body_bytes += len(message.get("body", b""))
            return message

        async def watched_send(message: Message) -> None:
            exchange.status = message.get("status", exchange.status)
            await send(message)

        try:
            await app(scope, counted_receive, watched_send)
        except BaseException as error:
            exchange.error = error
            raise
        finally:
            with self._changed:
                exchange.done = True
                self._changed.notify_all()

    def wait_begun(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        with self._changed:
            begun = self._changed.wait_for(lambda: len(self.exchanges) >= count, WAIT_SECONDS)
        assert begun, f"a request has not arrived: {self.exchanges}"

    def wait_done(self, count: int | None = None) -> None:
        """Wait until so many requests have returned; by default all that were begun."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_done(count), WAIT_SECONDS)
        assert done, f"a request has not returned: {self.exchanges}"

    def _is_done(self, count: int | None) -> bool:
        done = sum(exchange.done for exchange in self.exchanges)
        return done >= (len(self.exchanges) if count is None else count)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Money in USD and open slots, as the status route tells them."""

    settled: str = "0"
    kept: str = "0"
    open: str = "0"
    orphaned: str = "0"
    overrun: str = "0"
    in_flight: int = 0


class Site:
    """One test's guarded application on the running server."""

    def __init__(self, edge: Edge, port: int, app: App, **settings: Any) -> None:
        self._edge = edge
        self.port = port
        edge.exchanges = []
        self.mount(guarded(app, admin_token=TOKEN, **settings))

    def mount(self, app: App) -> None:
        """Answer with this application, which passes on to a guard."""
        self._edge.app = app

    @property
    def app(self) -> App:
        """What answers now."""
        assert self._edge.app is not None
        return self._edge.app

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def exchanges(self) -> list[Exchange]:
        return self._edge.exchanges

    def connect(self) -> Wire:
        return Wire(self.port)

    def wait_begun(self, count: int = 1) -> None:
        """Wait until so many requests have reached the guard."""
        self._edge.wait_begun(count)

    def wait_done(self, count: int = 1) -> None:
        """Wait until the guard has returned from so many requests."""
        self._edge.wait_done(count)

    def status(self) -> dict[str, Any]:
        connection = HTTPConnection(HOST, self.port, timeout=WAIT_SECONDS)
        try:
            connection.request("GET", f"{STATUS_PATH}/status", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            assert answer.status == 200
            found: dict[str, Any] = json.load(answer)
            return found
        finally:
            connection.close()

    def ledger(self) -> Ledger:
        """The first budget, whose parts are checked to add up."""
        return read_ledger(self.status())


def read_ledger(status: dict[str, Any]) -> Ledger:
    budget = status["budgets"][0]
    usd = {name.removesuffix("_usd"): Decimal(value) for name, value in budget.items() if name.endswith("_usd")}
    assert usd["settled"] + usd["open"] + usd["kept"] + usd["orphaned"] + usd["remaining"] == usd["limit"], budget
    return Ledger(
        settled=budget["settled_usd"],
        kept=budget["kept_usd"],
        open=budget["open_usd"],
        orphaned=budget["orphaned_usd"],
        overrun=budget["overrun_usd"],
        in_flight=status["in_flight"],
    )


#: `serve(app, **settings)` puts a guard of these settings around the application and serves it.
Serve = Callable[..., Site]


class _Uvicorn(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@dataclass(frozen=True, slots=True)
class Stack:
    """A choice of uvicorn's parts."""

    http: Any
    loop: Any
    ws: Any

    def __str__(self) -> str:
        return str(self.http)


STACKS = [Stack("httptools", "uvloop", "websockets-sansio"), Stack("h11", "asyncio", "wsproto")]


@contextmanager
def running(stack: Stack) -> Iterator[tuple[Edge, int]]:
    """A server of these parts on a free port of the loopback."""
    edge = Edge()
    config = uvicorn.Config(
        edge,
        http=stack.http,
        loop=stack.loop,
        ws=stack.ws,
        lifespan="off",
        proxy_headers=False,
        access_log=False,
        log_config=None,
        log_level="critical",
        timeout_graceful_shutdown=1,
    )
    server = _Uvicorn(config)
    with socket.create_server((HOST, 0), backlog=512) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert server.listens.wait(WAIT_SECONDS), "uvicorn did not start"
            yield edge, listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "uvicorn did not stop"
