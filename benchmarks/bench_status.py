"""What watching costs: the counting behind the page and the metrics, and fifty people with the page open.

The first table is processor time in process, as in `bench_request.py`. The second is a real uvicorn on the loopback,
asked by eight connections; viewers poll as the page does, and rounds with and without them take turns.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from statistics import median
from typing import Any

import uvicorn
from bench_request import BODY, GUARD, Server, application, chat, timed
from measure import Contest, Row, Run, duration, machine, print_table, verdict
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from routeguard import Admission, RouteGuard
from routeguard.clock import SystemClock
from routeguard.ending import Charge
from routeguard.history import History
from routeguard.metrics import Tallies
from routeguard.policy import Reservation
from routeguard.telemetry import Listener

logger = logging.getLogger("routeguard")

TOKEN = "a-token-for-the-benchmark"
HOST = "127.0.0.1"
VIEWERS = 50
POLL_SECONDS = 2.0
CONNECTIONS = 8
ROUNDS = 10
ROUND_SECONDS = 4.0
COUNT_ROUNDS = 25
REQUESTS_PER_RUN = 150
EVENTS_PER_RUN = 5_000
POLLS_PER_RUN = 200
#: The port comes as an argument in the process that serves.
SERVE = "serve"


def watched(**settings: Any) -> Middleware:
    return Middleware(RouteGuard, admin_token=TOKEN, **{**GUARD, **settings})


def bench_counting(runner: asyncio.Runner) -> list[Row]:
    plain, counting = "routeguard without ADMIN_TOKEN", "routeguard that counts for the page and Prometheus"
    apps = {
        plain: application(Middleware(RouteGuard, namespace="plain", **GUARD)),
        counting: application(watched(namespace="counting")),
    }
    contest = Contest(
        {name: timed(runner, app, requests=REQUESTS_PER_RUN) for name, app in apps.items()}, rounds=COUNT_ROUNDS
    )
    events = Contest({"history": told(History(SystemClock())), "tallies": told(Tallies())}, rounds=COUNT_ROUNDS)
    tallies_ns = events.median_ns("tallies")
    return [
        contest.row(plain, baseline=plain),
        contest.row(counting, baseline=plain, target=1.05),
        Row("of this the page's history, by itself", duration(events.median_ns("history"))),
        Row("and the sums for Prometheus", duration(tallies_ns), "", verdict(tallies_ns, 2_000, "2 µs")),
    ]


def bench_poll(runner: asyncio.Runner) -> list[Row]:
    """Processor time of one poll, when the numbers are known and when the ledger is asked for them."""
    guard = RouteGuard(application(), admin_token=TOKEN, namespace="polled", **GUARD)
    bearer = (b"authorization", f"Bearer {TOKEN}".encode())

    async def poll(times: int) -> None:
        for _ in range(times):
            server = Server()
            scope = {**server.scope(), "method": "GET", "path": "/_routeguard/live", "headers": [bearer]}
            await guard(scope, server.receive(), server.send)

    def polls(times: int) -> float:
        start = time.process_time_ns()
        runner.run(poll(times))
        return (time.process_time_ns() - start) / times

    def fresh() -> float:
        time.sleep(1.01)
        return polls(1)

    known_ns = median(polls(POLLS_PER_RUN) for _ in range(COUNT_ROUNDS))
    asked_ns = median(fresh() for _ in range(5))
    share = (VIEWERS / POLL_SECONDS * known_ns + asked_ns) / 1e9
    return [
        Row("one poll of the page", duration(known_ns)),
        Row("one that asks the memory ledger, each second", duration(asked_ns)),
        Row(f"{VIEWERS} viewers, of one core", f"{100 * share:.2f} %", "", verdict(share, 0.01, "1 %")),
    ]


def told(listener: Listener) -> Run:
    """Nanoseconds to hear of one request: admitted, ended, and two questions to the ledger."""
    admission = Admission(
        Reservation("1", 100_000_000),
        client="a",
        path="/api/chat",
        request_id="1",
        namespace="default",
        calls_per_request=1,
        price=lambda usage, admission, *, model: None,
        watcher=Nobody(),
        input_bytes=0,
        wall_ns=0,
    )
    admission.end(Charge("settled", 3_000_000, 0, "reported"))

    def run() -> float:
        start = time.process_time_ns()
        for _ in range(EVENTS_PER_RUN):
            listener.admitted(admission)
            listener.ended(admission)
            if isinstance(listener, Tallies):
                listener.took(90_000)
                listener.took(70_000)
        return (time.process_time_ns() - start) / EVENTS_PER_RUN

    return run


class Nobody:
    """Watches an admission to which nothing more happens."""

    def charge_late(self, admission: Admission, *, extra_nanousd: int) -> None:
        raise AssertionError

    def unusable_report(self, admission: Admission, problem: str) -> None:
        raise AssertionError


def serve(port: int) -> None:
    """The guarded route, as every client may use it as often as it likes."""
    logger.setLevel(logging.WARNING)
    guard = watched(namespace="served", rate="unlimited", client_budget="unlimited", max_parallel_per_client=64)

    async def spent(_: Request) -> PlainTextResponse:
        return PlainTextResponse(str(time.process_time_ns()))

    routes = [Route("/api/chat", chat, methods=["POST"]), Route("/spent", spent)]
    app = Starlette(routes=routes, middleware=[guard])
    uvicorn.run(app, host=HOST, port=port, log_level="error", access_log=False)


class Connection:
    """HTTP/1.1 kept alive, and no more of it than this needs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send a request and read its whole answer, which must be 200."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        if b"content-length" in fields:
            return await reader.readexactly(int(fields[b"content-length"]))
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


CHAT = b"POST /api/chat HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
SPENT = b"GET /spent HTTP/1.1\r\nhost: x\r\n\r\n"
LOOK = b"GET /_routeguard/live HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n" % TOKEN.encode()


@contextlib.asynccontextmanager
async def viewers(port: int, number: int) -> AsyncIterator[asyncio.Event]:
    """So many open pages, each polling at its own moment while the event is set."""
    seeded, watching = random.Random(0), asyncio.Event()

    async def view(connection: Connection, waits: float) -> None:
        while True:
            await watching.wait()
            await asyncio.sleep(waits)
            if watching.is_set():
                await connection.ask(LOOK)
            await asyncio.sleep(POLL_SECONDS - waits)

    connections = [Connection(port) for _ in range(number)]
    for connection in connections:
        await connection.ask(LOOK)
    tasks = [asyncio.create_task(view(one, seeded.uniform(0, POLL_SECONDS))) for one in connections]
    try:
        yield watching
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            connection.close()


async def load(port: int, seconds: float) -> tuple[list[float], float]:
    """Seconds that each request took, and the server's processor time for each of them."""
    took: list[float] = []
    ends = time.perf_counter() + seconds
    asker = Connection(port)

    async def client() -> None:
        connection = Connection(port)
        while (began := time.perf_counter()) < ends:
            await connection.ask(CHAT)
            took.append(time.perf_counter() - began)
        connection.close()

    before = int(await asker.ask(SPENT))
    await asyncio.gather(*[client() for _ in range(CONNECTIONS)])
    spent = int(await asker.ask(SPENT)) - before
    asker.close()
    return sorted(took), spent / 1e9 / len(took)


async def compare(port: int) -> list[Row]:
    await load(port, 1)
    rounds: dict[bool, list[tuple[float, float, float, float]]] = {False: [], True: []}
    async with viewers(port, VIEWERS) as watching:
        for order in itertools.islice(itertools.cycle([(False, True), (True, False)]), ROUNDS):
            for watched in order:
                watching.set() if watched else watching.clear()
                took, spent = await load(port, ROUND_SECONDS)
                rounds[watched].append((len(took) / ROUND_SECONDS, median(took), took[int(len(took) * 0.99)], spent))
    alone, seen = rounds[False], rounds[True]

    def row(what: str, at: int, shown: Callable[[float], str], target: float | None = None) -> Row:
        ratio = median(mine[at] / its[at] for mine, its in zip(seen, alone, strict=True))
        value = f"{shown(median(one[at] for one in alone))} -> {shown(median(one[at] for one in seen))}"
        return Row(what, value, f"{ratio:.2f} x", "" if target is None else verdict(ratio, target, f"{target:g} x"))

    return [
        row("the server's processor time a request, polls included", 3, lambda seconds: duration(seconds * 1e9), 1.1),
        row("p50 of a request", 1, lambda seconds: duration(seconds * 1e9), 1.1),
        row("p99 of a request", 2, lambda seconds: duration(seconds * 1e9)),
        row("requests a second", 0, lambda number: f"{number:,.0f}"),
    ]


def bench_viewers() -> list[Row]:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
    # In a process of its own, so that asking does not slow the answer down.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, __file__, SERVE, str(port)], env=environ, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _wait(port)
            return asyncio.run(compare(port))
        finally:
            server.terminate()


def _wait(port: int) -> None:
    ends = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        assert time.monotonic() < ends, "the server did not start"
        time.sleep(0.1)


def main() -> None:
    if SERVE in sys.argv:
        serve(int(sys.argv[-1]))
        return
    logger.addHandler(logging.NullHandler())
    print(machine())
    with asyncio.Runner() as runner:
        print_table("What counting adds to a request", bench_counting(runner))
        print_table("What a viewer costs", bench_poll(runner))
    print_table(f"A guarded route, without and with {VIEWERS} viewers of the page", bench_viewers())


if __name__ == "__main__":
    main()
