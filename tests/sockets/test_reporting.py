"""Where an application finds its admission, and from where it may report: threads, executors, generators."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

import routeguard
from routeguard import Admission
from tests.sockets.apps import ONE_CENT, admission_of
from tests.sockets.server import Ledger, Serve
from tests.sockets.wire import CHAT, Wire, request

ONE_CENT_SETTLED = Ledger(settled="0.01")


def by_request(request: Request) -> Admission | None:
    return routeguard.admission(request)


def by_scope(request: Request) -> Admission | None:
    return routeguard.admission(request.scope)


def by_context(request: Request) -> Admission | None:
    return routeguard.admission()


def by_state(request: Request) -> Admission | None:
    found: Admission | None = request.state.routeguard
    return found


FINDERS = [by_request, by_scope, by_context, by_state]


@pytest.mark.parametrize("find", FINDERS)
def test_an_async_view_finds_its_admission(serve: Serve, find: Callable[[Request], Admission | None]) -> None:
    app = FastAPI()

    @app.post("/chat")
    async def chat(request: Request) -> dict[str, str]:
        admission = find(request)
        assert admission is not None
        admission.report(ONE_CENT)
        return {"id": admission.id}

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        answer = wire.answer()

    assert (answer.status, len(answer.json["id"])) == (200, 32)
    assert site.ledger() == ONE_CENT_SETTLED


@pytest.mark.parametrize("find", FINDERS)
def test_a_sync_view_and_its_generator_report_from_a_worker_thread(
    serve: Serve, find: Callable[[Request], Admission | None]
) -> None:
    app = FastAPI()

    @app.post("/chat")
    def chat(request: Request) -> StreamingResponse:
        begun = admission_of(request).begin()

        def generate() -> Iterator[str]:
            yield "data: one\n\n"
            assert find(request) is admission_of(request)
            begun.report(ONE_CENT)
            yield "data: two\n\n"

        return StreamingResponse(generate(), media_type="text/event-stream")

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        answer = wire.answer()

    assert (answer.status, answer.complete) == (200, True)
    assert site.ledger() == ONE_CENT_SETTLED


def test_only_a_bound_function_finds_the_admission_in_an_executor(serve: Serve) -> None:
    found: dict[str, bool] = {}

    def work(name: str) -> None:
        admission = routeguard.admission()
        found[name] = admission is not None
        if admission is not None:
            admission.report(ONE_CENT)

    with ThreadPoolExecutor(1) as executor:
        app = FastAPI()

        @app.post("/chat")
        async def chat(request: Request) -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(executor, work, "bare")
            admission = admission_of(request)
            await loop.run_in_executor(executor, admission.bind(work), "bound")
            bound_elsewhere = Context().run(admission.bind, work)
            await loop.run_in_executor(executor, bound_elsewhere, "bound elsewhere")

        site = serve(app)
        with site.connect() as wire:
            wire.send(request())
            answer = wire.answer()

    assert answer.status == 200
    assert found == {"bare": False, "bound": True, "bound elsewhere": True}
    assert site.ledger() == Ledger(settled="0.02")


class Neighbour:
    """Answers guarded and unguarded paths alike, and tries to report a whole dollar on each of the unguarded."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bool, bool]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        path = scope["path"]
        admission = routeguard.admission()
        self.found.append((path, admission is not None, routeguard.admission(scope) is not None))
        if admission is not None:
            admission.report(cost_usd="0.01" if path == "/chat" else 1)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


EXPECTED = [("/chat", True, True), ("/free", False, False)] * 2


def test_a_pipelined_unguarded_request_sees_nothing_of_the_guarded_one_before_it(serve: Serve) -> None:
    app = Neighbour()
    site = serve(app)

    with site.connect() as wire:
        wire.send((request() + request("/free")) * 2)
        statuses = [wire.answer().status for _ in range(4)]

    assert statuses == [200] * 4
    assert app.found == EXPECTED
    assert site.ledger() == Ledger(settled="0.02")


@pytest.mark.parametrize("bytes_sent", [len(CHAT), 300_000], ids=["small", "300 kB"])
def test_a_kept_alive_unguarded_request_sees_nothing_of_the_guarded_one_before_it(
    serve: Serve, bytes_sent: int
) -> None:
    """300 kB: a server that had to pause reading resumes in the context of the request that was running."""
    app = Neighbour()
    site = serve(app, max_body="1MB", max_input_chars=1_000_000)
    body = CHAT.replace(b"hi", b"h" * (bytes_sent - len(CHAT)) + b"hi")

    with site.connect() as wire:
        statuses = [exchange(wire, path, body) for path in ("/chat", "/free") * 2]

    assert statuses == [200] * 4
    assert app.found == EXPECTED
    assert site.ledger() == Ledger(settled="0.02")


def exchange(wire: Wire, path: str, body: bytes) -> int:
    wire.send(request(path, body=body))
    return wire.answer().status
