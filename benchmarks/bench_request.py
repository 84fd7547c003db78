"""What a guard adds to a request: the whole middleware, and each chunk of a stream.

One request is a 1 kB JSON body, answered by a Starlette application with an OpenAI event stream of twenty chunks, in
process and without a server: whatever a real server, network or provider takes makes every ratio smaller.
A thousand clients take turns.
"""

import asyncio
import itertools
import json
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import ExitStack
from typing import Any

from limits import RateLimitItemPerDay, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from measure import Contest, Row, Run, duration, machine, print_table, verdict
from slowapi import Limiter
from slowapi.middleware import SlowAPIASGIMiddleware, SlowAPIMiddleware
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from routeguard import RouteGuard

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

logger = logging.getLogger("routeguard")

CLIENTS = 1_000
ROUNDS = 25
REQUESTS_PER_RUN = 150
CHUNK_ROUNDS = 15
STREAMS_PER_RUN = 10
CHUNKS_MANY = 1_020
CHUNKS_FEW = 20

#: Wide enough that nothing is refused, and of the two kinds there are: counted exactly, and above 100 in buckets.
RATES = (100, 2_000)
GUARD: dict[str, Any] = {
    "paths": ["/api/chat"],
    "model": "gpt-5-mini",
    "system_prompt_bytes": 0,
    "max_output_tokens": 2_000,
    "budget": "1000000/day",
    "rate": f"{RATES[0]}/minute, {RATES[1]}/day",
    "global_rate": "1000000/minute",
    "environ": {},
}
#: The same without reading answers. Released, because a request that is kept in full also writes a line to the log.
UNREAD: dict[str, Any] = {**GUARD, "read_response": "none", "no_call": "release"}

PROMPT = "Which lamp would you put beside a bed? " * 24
BODY = json.dumps({"messages": [{"role": "user", "content": PROMPT}], "stream": True}).encode()


def chunks_of(number: int) -> list[bytes]:
    """An OpenAI chat stream as it comes with `stream_options.include_usage`."""
    head = {"id": "chatcmpl-9xQ2", "object": "chat.completion.chunk", "created": 1_796_000_000, "model": "gpt-5-mini"}
    tail: dict[str, Any] = {"service_tier": "default", "system_fingerprint": None}
    texts = [
        {**head, **tail, "choices": [{"index": 0, "delta": {"content": f" word{n}"}, "finish_reason": None}]}
        for n in range(number - 3)
    ]
    stop = {**head, **tail, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}
    usage = {"prompt_tokens": 250, "completion_tokens": number, "total_tokens": 250 + number}
    last = {**head, **tail, "choices": [], "usage": usage}
    events = [json.dumps(event, separators=(",", ":")) for event in (*texts, stop, last)]
    return [f"data: {event}\n\n".encode() for event in (*events, "[DONE]")]


CHUNKS = chunks_of(CHUNKS_FEW)


async def chat(request: Request) -> StreamingResponse:
    await request.json()

    async def answer() -> AsyncIterator[bytes]:
        for chunk in CHUNKS:
            yield chunk

    return StreamingResponse(answer(), media_type="text/event-stream")


class LimitsOnly:
    """The limits library by itself, counting the same three rates, in the thinnest middleware that can hold it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.limiter = MovingWindowRateLimiter(MemoryStorage())
        self.rates = (RateLimitItemPerMinute(RATES[0]), RateLimitItemPerDay(RATES[1]))
        self.everybody = RateLimitItemPerMinute(1_000_000)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            client = scope["client"][0]
            for rate in self.rates:
                assert await self.limiter.hit(rate, client)
            assert await self.limiter.hit(self.everybody)
        await self.app(scope, receive, send)


class Least:
    """The least that could hold a budget: nothing is checked, nobody is told apart, and nothing may go wrong.

    A time limit, both channels wrapped, the body parsed, a debit in two dictionaries, and the one event parsed that
    says the usage. What a guard takes beyond this is what its checks take, and its ways to end.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.spent: dict[str, int] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        spent, client = self.spent, scope["client"][0]
        waiting = [await receive()]
        ceiling = len(json.loads(waiting[0]["body"])["messages"][0]["content"]) + 2_000
        spent[""] = spent.get("", 0) + ceiling
        spent[client] = spent.get(client, 0) + ceiling
        usage_event = b""

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        async def tap(message: Message) -> None:
            nonlocal usage_event
            if message["type"] == "http.response.body":
                if message.get("more_body", False):
                    await send(message)
                    if b'"usage":{' in message["body"]:
                        usage_event = message["body"]
                    return
                unused = ceiling - json.loads(usage_event[6:])["usage"]["total_tokens"]
                spent[""] -= unused
                spent[client] -= unused
            await send(message)

        async with asyncio.timeout(300):
            await self.app(scope, replay, tap)


class PassThrough(BaseHTTPMiddleware):
    """Starlette's convenience class doing nothing."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


def application(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])], middleware=list(middleware))


def limited_by_slowapi(middleware: Any) -> Starlette:
    app = application(Middleware(middleware))
    app.state.limiter = Limiter(
        key_func=get_remote_address,
        default_limits=[f"{RATES[0]}/minute", f"{RATES[1]}/day"],
        application_limits=["1000000/minute"],
        strategy="moving-window",
    )
    return app


class Server:
    """The least a server does: a scope, a body in one message, and a `send` that only counts."""

    def __init__(self) -> None:
        self.addresses: Iterator[int] = itertools.cycle(range(CLIENTS))
        self.starts = 0
        self.ends = 0

    def scope(self) -> Message:
        number = next(self.addresses)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},  # as uvicorn says
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/api/chat",
            "raw_path": b"/api/chat",
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"shop.example"),
                (b"user-agent", b"Mozilla/5.0"),
                (b"accept", b"text/event-stream"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(BODY)).encode()),
            ],
            "client": (f"198.51.{number // 250}.{number % 250}", 40_000),
            "server": ("127.0.0.1", 8_000),
            "state": {},
        }

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            self.starts += 1
        elif not message.get("more_body", False):
            self.ends += 1

    def receive(self) -> Receive:
        messages: Iterator[Message] = iter([{"type": "http.request", "body": BODY, "more_body": False}])

        async def receive() -> Message:
            message = next(messages, None)
            if message is None:
                await asyncio.get_running_loop().create_future()  # the client stays until the answer is complete
                raise AssertionError("nobody leaves")
            return message

        return receive


def timed(runner: asyncio.Runner, app: App, *, requests: int) -> Run:
    """Nanoseconds of processor time for one request to `app`."""
    server = Server()

    async def serve(requests: int) -> None:
        for _ in range(requests):
            await app(server.scope(), server.receive(), server.send)

    # The start line is for people, and the first request writes it. Nobody listens to what the others have to say.
    logger.setLevel(logging.INFO)
    runner.run(serve(1))
    logger.setLevel(logging.WARNING)

    def run() -> float:
        before = server.ends
        start = time.process_time_ns()
        runner.run(serve(requests))
        took = time.process_time_ns() - start
        assert server.ends - before == requests, "every request is answered to its end"
        return took / requests

    return run


def streaming(chunks: list[bytes]) -> App:
    """An application with no framework around it: what is left is the cost of a chunk."""
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send(start)
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def bench_request() -> list[Row]:
    bare, slowapi = "bare Starlette application", "slowapi, ASGI middleware: the same rates (*)"
    apps: dict[str, App] = {
        bare: application(),
        "routeguard: money, rates, body, address, usage": application(Middleware(RouteGuard, namespace="all", **GUARD)),
        "routeguard, reading no usage": application(Middleware(RouteGuard, namespace="unread", **UNREAD)),
        "the least that could hold a budget, unchecked": application(Middleware(Least)),
        "limits alone: the same rates": application(Middleware(LimitsOnly)),
        slowapi: limited_by_slowapi(SlowAPIASGIMiddleware),
        "slowapi, BaseHTTP middleware: the same rates": limited_by_slowapi(SlowAPIMiddleware),
        "an empty BaseHTTPMiddleware": application(Middleware(PassThrough)),
    }
    with ExitStack() as stack:
        # An event loop each: `limits` goes on forgetting in its own, which the others would have to pay for.
        runs = {
            name: timed(stack.enter_context(asyncio.Runner()), app, requests=REQUESTS_PER_RUN)
            for name, app in apps.items()
        }
        contest = Contest(runs, rounds=ROUNDS)
    guarded = "routeguard: money, rates, body, address, usage"
    targets = {guarded: 1.6}
    beside = contest.ratio(guarded, slowapi)
    return [
        *(contest.row(name, baseline=bare, target=targets.get(name)) for name in apps),
        Row("routeguard beside slowapi's ASGI middleware", "", f"{beside:.2f} x", verdict(beside, 1, "1 x")),
    ]


def bench_journal(runner: asyncio.Runner) -> list[Row]:
    """What a row for every ending adds, with everything its thread does for it."""
    with tempfile.TemporaryDirectory() as folder:

        def guarded(name: str, **settings: str) -> App:
            return application(Middleware(RouteGuard, namespace=name, **{**GUARD, **settings}))

        ledger = {"ledger": f"sqlite:///{folder}/ledger.db"}
        journal = {"journal": f"sqlite:///{folder}/journal.db"}
        in_one = {"journal": f"sqlite:///{folder}/ledger.db"}
        apps: dict[str, App] = {
            "memory ledger": guarded("plain"),
            "memory ledger, journal": guarded("rows", **journal),
            "sqlite ledger": guarded("file", **ledger),
            "sqlite ledger, journal": guarded("file-rows", **ledger, **journal),
            "sqlite ledger, journal in the same file": guarded("one-file", **ledger, **in_one),
        }
        contest = Contest(
            {name: timed(runner, app, requests=REQUESTS_PER_RUN) for name, app in apps.items()}, rounds=ROUNDS
        )
        return [
            contest.row(name, baseline=name.partition(",")[0], target=1.15 if "journal" in name else None)
            for name in apps
        ]


def bench_chunk(runner: asyncio.Runner) -> list[Row]:
    runs: dict[str, Run] = {}
    for chunks in (CHUNKS_FEW, CHUNKS_MANY):
        app = streaming(chunks_of(chunks))
        apps: dict[str, App] = {
            "bare": app,
            "read": RouteGuard(app, namespace=f"read-{chunks}", **GUARD),
            "unread": RouteGuard(app, namespace=f"unread-{chunks}", **UNREAD),
        }
        runs |= {f"{name} {chunks}": timed(runner, app, requests=STREAMS_PER_RUN) for name, app in apps.items()}
    contest = Contest(runs, rounds=CHUNK_ROUNDS)

    def per_chunk(name: str) -> float:
        return contest.difference_ns(f"{name} {CHUNKS_MANY}", f"{name} {CHUNKS_FEW}") / (CHUNKS_MANY - CHUNKS_FEW)

    bare, read, unread = per_chunk("bare"), per_chunk("read"), per_chunk("unread")
    return [
        Row("a bare application sends a chunk", duration(bare)),
        Row("routeguard adds, forwarding it", duration(unread - bare)),
        Row("routeguard adds, reading usage too", duration(read - bare), "", verdict(read - bare, 300, "300 ns")),
    ]


def main() -> None:
    logger.addHandler(logging.NullHandler())
    print(machine())
    print_table("One request, 1 kB in, 20 chunks out", bench_request())
    print("  (*) sends the response start again with every chunk, which a server refuses")
    with asyncio.Runner() as runner:
        print_table("One more chunk of a stream", bench_chunk(runner))
        print_table("The same request with a journal", bench_journal(runner))


if __name__ == "__main__":
    main()
