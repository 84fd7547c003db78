"""Every way a request can end over a real socket, and what the ledger says afterwards. A ceiling is ten cents."""

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse

from routeguard import Admission, RouteGuard
from tests.driver import chat_chunks, stream_app
from tests.guarding import TEN_CENTS
from tests.sockets.apps import ONE_CENT, admission_of, one_cent, streaming
from tests.sockets.server import TOKEN, Ledger, Serve, Signal, Site
from tests.sockets.wire import Wire, request

ONE_CENT_SETTLED = Ledger(settled="0.01")
CEILING_KEPT = Ledger(kept="0.1")
NUMBERS = itertools.count()


def ask(site: Site, path: str = "/chat") -> bool:
    """Send a chat request and read its whole answer; whether it came to its end."""
    with site.connect() as wire:
        wire.send(request(path))
        return wire.answer().complete


async def harmless(request: Request, call_next: Callable[[Request], Any]) -> Any:
    return await call_next(request)


def test_a_stream_that_reported_is_settled_when_its_last_byte_arrives(serve: Serve) -> None:
    site = serve(streaming(one_cent))

    complete = ask(site)

    assert complete
    assert site.ledger() == ONE_CENT_SETTLED
    assert site.status()["requests"]["endings"] == {"settled": 1}


def test_a_stream_without_usage_is_kept(serve: Serve) -> None:
    site = serve(stream_app([b"data: hello\n\n"]))

    complete = ask(site)

    assert complete
    assert site.ledger() == CEILING_KEPT


def test_usage_is_read_from_the_stream_where_nothing_was_reported(serve: Serve) -> None:
    site = serve(stream_app(chat_chunks(usage=ONE_CENT)))

    complete = ask(site)

    assert complete
    assert site.ledger() == ONE_CENT_SETTLED


def test_an_exception_before_the_start_is_kept(serve: Serve) -> None:
    app = FastAPI()

    @app.post("/chat")
    async def chat() -> None:
        raise ValueError("before the start")

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        answer = wire.answer()
    site.wait_done()

    assert answer.status == 500
    assert site.ledger() == CEILING_KEPT


@pytest.mark.parametrize(("on_failure", "charged"), [("keep", CEILING_KEPT), ("exact", ONE_CENT_SETTLED)])
def test_an_exception_in_mid_stream_is_kept_unless_exact_is_asked_for(
    serve: Serve, on_failure: str, charged: Ledger
) -> None:
    async def generate(admission: Admission) -> AsyncIterator[str]:
        yield "data: one\n\n"
        admission.report(ONE_CENT)
        raise ValueError("in mid-stream")

    site = serve(streaming(generate), on_failure=on_failure)

    complete = ask(site)
    site.wait_done()

    assert not complete
    assert site.ledger() == charged


def test_an_exception_after_the_last_message_changes_nothing(serve: Serve) -> None:
    def fail() -> None:
        raise ValueError("after the last message")

    site = serve(streaming(one_cent, after=fail))

    complete = ask(site)
    site.wait_done()

    assert complete
    assert isinstance(site.exchanges[0].error, ValueError)
    assert site.ledger() == ONE_CENT_SETTLED


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset, Wire.half_close], ids=["close", "reset", "half-close"])
def test_a_client_that_leaves_before_the_first_byte_pays_for_a_call_that_was_begun(
    serve: Serve, leave: Callable[[Wire], None]
) -> None:
    begun, never = Signal(), Signal()

    async def generate(admission: Admission) -> AsyncIterator[str]:
        admission.begin()
        begun.give()
        await never.arrives()
        yield "data: nobody is there\n\n"

    site = serve(streaming(generate))

    with site.connect() as wire:
        wire.send(request())
        begun.wait()
        leave(wire)
        site.wait_done()

    assert site.ledger() == CEILING_KEPT


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset, Wire.half_close], ids=["close", "reset", "half-close"])
def test_a_client_that_leaves_in_mid_stream_pays_for_a_call_that_was_begun(
    serve: Serve, leave: Callable[[Wire], None]
) -> None:
    never = Signal()

    async def generate(admission: Admission) -> AsyncIterator[str]:
        admission.begin()
        yield "data: one\n\n"
        await never.arrives()

    site = serve(streaming(generate))

    with site.connect() as wire:
        wire.send(request())
        wire.head()
        wire.chunk()
        assert site.ledger() == Ledger(open="0.1", in_flight=1)
        leave(wire)
        site.wait_done()

    assert site.ledger() == CEILING_KEPT


def test_a_handler_that_goes_on_after_the_client_left_settles_what_it_reports(serve: Serve) -> None:
    """Nobody tells a handler that returns its whole answer at once, so it runs to its end."""
    begun, left = Signal(), Signal()
    app = FastAPI()

    @app.post("/chat")
    async def chat(request: Request) -> dict[str, str]:
        call = admission_of(request).begin()
        begun.give()
        await left.arrives()
        call.report(ONE_CENT)
        return {"text": "nobody reads this"}

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        begun.wait()
        wire.reset()
    left.give()
    site.wait_done()

    assert site.ledger() == ONE_CENT_SETTLED


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset], ids=["close", "reset"])
def test_a_client_that_leaves_right_after_the_terminal_event_has_had_its_answer(
    serve: Serve, leave: Callable[[Wire], None]
) -> None:
    chunks = chat_chunks(usage=ONE_CENT)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        wire.head()
        received = [wire.chunk() for _ in chunks]
        leave(wire)
    site.wait_done()

    assert received == chunks
    assert site.ledger() == ONE_CENT_SETTLED


def test_a_client_that_leaves_right_after_the_last_byte_is_a_normal_end(serve: Serve) -> None:
    left = Signal()
    site = serve(streaming(one_cent, after=left.arrives))

    with site.connect() as wire:
        wire.send(request())
        wire.answer()
        wire.reset()
    left.give()
    site.wait_done()

    assert site.ledger() == ONE_CENT_SETTLED
    assert site.status()["requests"]["endings"] == {"settled": 1}


def test_a_background_task_holds_neither_money_nor_slot(serve: Serve) -> None:
    go_on = Signal()
    site = serve(streaming(one_cent, after=go_on.arrives), max_parallel=1)

    complete = ask(site)

    assert complete
    assert not site.exchanges[0].done
    assert site.ledger() == ONE_CENT_SETTLED
    go_on.give()
    site.wait_done()
    assert site.ledger() == ONE_CENT_SETTLED


def test_a_failed_stream_below_an_http_middleware_ends_well_on_the_wire_and_is_kept(serve: Serve) -> None:
    async def generate(admission: Admission) -> AsyncIterator[str]:
        admission.begin()
        yield "data: one\n\n"
        raise ValueError("in mid-stream")

    app = streaming(generate)
    app.middleware("http")(harmless)
    site = serve(app)

    complete = ask(site)
    site.wait_done()

    assert complete
    assert isinstance(site.exchanges[0].error, ValueError)
    assert site.ledger() == CEILING_KEPT


@pytest.mark.parametrize(
    ("fails", "charged"), [(False, ONE_CENT_SETTLED), (True, CEILING_KEPT)], ids=["whole", "failed"]
)
def test_a_stream_of_fastapis_own_events_is_charged_by_its_calls(serve: Serve, fails: bool, charged: Ledger) -> None:
    seen = Signal()
    app = FastAPI()

    @app.post("/chat", response_class=EventSourceResponse)
    async def chat(request: Request) -> AsyncIterator[dict[str, str]]:
        call = admission_of(request).begin()
        yield {"text": "one"}
        await seen.arrives()
        if fails:
            raise ValueError("in mid-stream")
        call.report(ONE_CENT)
        yield {"text": "two"}

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        head = wire.head()
        wire.chunk()
        seen.give()
        complete = wire.rest(head).complete
    site.wait_done()

    assert complete, "FastAPI ends a failed event stream well: the wire is no evidence"
    assert (site.exchanges[0].error is not None) == fails
    assert site.ledger() == charged


@pytest.mark.parametrize(
    ("path", "complete", "charged"),
    [
        ("/chat/whole", True, ONE_CENT_SETTLED),
        ("/chat/fails-at-once", True, CEILING_KEPT),
        ("/chat/fails-later", False, CEILING_KEPT),
        ("/chat/no-such-route", True, Ledger()),
    ],
)
def test_a_guard_added_as_middleware_sees_the_same_endings(
    serve: Serve, path: str, complete: bool, charged: Ledger
) -> None:
    app = FastAPI()

    @app.post("/chat/whole")
    async def whole(request: Request) -> StreamingResponse:
        return StreamingResponse(one_cent(admission_of(request)))

    @app.post("/chat/fails-at-once")
    async def fails_at_once() -> None:
        raise ValueError("before the start")

    @app.post("/chat/fails-later")
    async def fails_later(request: Request) -> StreamingResponse:
        async def generate() -> AsyncIterator[str]:
            yield "data: one\n\n"
            raise ValueError("in mid-stream")

        return StreamingResponse(generate())

    settings: dict[str, Any] = {**TEN_CENTS, "paths": ["/chat/*"], "budget": "1/total", "client_budget": "unlimited"}
    # Guards of one namespace share their money.
    namespace = f"endings-{next(NUMBERS)}"
    app.add_middleware(RouteGuard, **settings, admin_token=TOKEN, namespace=namespace, environ={})
    app.middleware_stack = app.build_middleware_stack()
    site = serve(app)
    site.mount(app)

    answered = ask(site, path)
    site.wait_done()

    assert answered == complete
    assert site.ledger() == charged


def test_of_two_calls_begun_the_one_not_reported_is_kept(serve: Serve) -> None:
    async def generate(admission: Admission) -> AsyncIterator[str]:
        first, _second = admission.begin(), admission.begin()
        yield "data: one\n\n"
        first.report(ONE_CENT)

    site = serve(streaming(generate), calls_per_request=2)

    complete = ask(site)

    assert complete
    assert site.ledger() == Ledger(settled="0.01", kept="0.1")


@pytest.mark.parametrize("tidies_up", [False, True], ids=["gives in", "ends its stream while it unwinds"])
def test_a_stream_past_its_time_closes_without_a_last_chunk_and_is_kept(serve: Serve, tidies_up: bool) -> None:
    never = Signal()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
            await never.arrives()
        finally:
            if tidies_up:
                with anyio.CancelScope(shield=True):
                    await send({"type": "http.response.body", "body": b""})

    site = serve(app, max_stream="100ms")

    complete = ask(site)
    site.wait_done()

    assert not complete
    assert site.ledger() == CEILING_KEPT


def test_an_answer_that_does_not_start_in_time_is_a_504_and_is_kept(serve: Serve) -> None:
    never = Signal()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await never.arrives()

    site = serve(app, max_stream="50ms")

    with site.connect() as wire:
        wire.send(request())
        answer = wire.answer()

    assert (answer.status, answer.reason, answer.complete) == (504, "stream_timeout", True)
    assert site.ledger() == CEILING_KEPT
