"""What a connection carries besides one plain POST: methods, preflights, websockets, and the request after."""

from typing import Any

import pytest

from tests.driver import stream_app
from tests.guarding import Counting
from tests.sockets.server import Ledger, Serve, Signal
from tests.sockets.wire import CHAT, JSON, head, request

HELLO = b"data: hello\n\n"
PREFLIGHT = ["origin: https://shop.example", "access-control-request-method: POST"]
UPGRADE = [
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
]


def test_a_head_request_is_charged_like_any_other_and_leaves_the_connection_usable(serve: Serve) -> None:
    app = Counting(stream_app([HELLO]))
    site = serve(app)

    with site.connect() as wire:
        wire.send(request(method="HEAD", body=None))
        answer = wire.answer(to="HEAD")
        wire.send(request())
        after = wire.answer()

    assert (answer.status, answer.body) == (200, b"")
    assert (after.status, after.body) == (200, HELLO)
    assert app.calls == 2
    assert site.ledger() == Ledger(kept="0.2")


def test_a_refused_head_request_has_no_body_and_leaves_the_connection_usable(serve: Serve) -> None:
    site = serve(Counting(), paused=True)

    with site.connect() as wire:
        wire.send(request(method="HEAD", body=None))
        answer = wire.answer(to="HEAD")
        wire.send(request())
        after = wire.answer()

    assert (answer.status, answer.body) == (503, b"")
    assert int(answer.headers["content-length"]) == len(after.body)
    assert (after.status, after.reason) == (503, "service_paused")


@pytest.mark.parametrize("headers", [[], ["origin: https://shop.example"]], ids=["bare", "with an origin"])
def test_options_that_are_no_preflight_are_charged(serve: Serve, headers: list[str]) -> None:
    app = Counting(stream_app([HELLO]))
    site = serve(app)

    with site.connect() as wire:
        wire.send(request(method="OPTIONS", headers=headers, body=None))
        answer = wire.answer()

    assert (answer.status, app.calls) == (200, 1)
    assert site.ledger() == Ledger(kept="0.1")


def test_a_preflight_reaches_the_application_and_costs_nothing_when_its_answer_is_empty(serve: Serve) -> None:
    app = Counting(stream_app([], status=204))
    site = serve(app)

    with site.connect() as wire:
        wire.send(request(method="OPTIONS", headers=PREFLIGHT, body=None))
        answer = wire.answer()

    assert (answer.status, app.calls) == (204, 1)
    assert site.ledger() == Ledger()


def test_a_preflight_that_is_answered_with_a_body_is_kept(serve: Serve) -> None:
    site = serve(Counting(stream_app([HELLO])))

    with site.connect() as wire:
        wire.send(request(method="OPTIONS", headers=PREFLIGHT, body=None))
        answer = wire.answer()

    assert answer.body == HELLO
    assert site.ledger() == Ledger(kept="0.1")


def test_a_preflight_is_answered_by_the_guard_where_there_is_no_money_for_it(serve: Serve) -> None:
    app = Counting()
    site = serve(app, budget="0.1/day", cors_origins=["https://shop.example"])

    with site.connect() as wire:
        wire.send(request())
        assert wire.answer().status == 200
        wire.send(request(method="OPTIONS", headers=PREFLIGHT, body=None))
        preflight = wire.answer()
        wire.send(request(headers=[JSON, "origin: https://shop.example"]))
        refused = wire.answer()

    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "https://shop.example")
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert (refused.status, refused.reason) == (503, "budget_exhausted")
    assert refused.headers["access-control-allow-origin"] == "https://shop.example"
    assert app.calls == 1


def test_a_websocket_is_refused_before_it_is_accepted(serve: Serve) -> None:
    app = Counting()
    site = serve(app)

    with site.connect() as wire:
        wire.send(request(method="GET", headers=UPGRADE, body=None))
        answer = wire.answer()

    assert (answer.status, answer.reason) == (403, "websocket_refused")
    assert app.calls == 0
    assert site.ledger() == Ledger()


def test_a_websocket_on_another_path_is_the_applications_own(serve: Serve) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "websocket"
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})

    site = serve(app)

    with site.connect() as wire:
        wire.send(request("/free", method="GET", headers=UPGRADE, body=None))
        answer = wire.head()

    assert answer.status == 101


@pytest.mark.parametrize(
    ("content_type", "status", "reason"),
    [("image/png", 415, "unsupported_type"), ("application/json", 400, "bad_request")],
    ids=["before the body", "after the body"],
)
def test_the_connection_lives_on_after_a_refused_small_body(
    serve: Serve, content_type: str, status: int, reason: str
) -> None:
    app = Counting(stream_app([HELLO]))
    site = serve(app)

    with site.connect() as wire:
        wire.send(request(headers=[f"content-type: {content_type}"], body=b"x" * 1_000))
        refused = wire.answer()
        wire.send(request())
        answer = wire.answer()

    assert (refused.status, refused.reason, refused.complete) == (status, reason, True)
    assert "connection" not in refused.headers
    assert (answer.status, answer.body) == (200, HELLO)
    assert [exchange.done for exchange in site.exchanges] == [True, True]


def test_a_refused_body_that_comes_later_is_not_taken_for_a_request(serve: Serve) -> None:
    """The answer does not wait for it; then it has the bytes of a request, which must not be answered, nor charged."""
    app = Counting(stream_app([HELLO]))
    site = serve(app)
    smuggled = request()

    with site.connect() as wire:
        wire.send(head("content-type: image/png", f"content-length: {len(smuggled)}"))
        refused = wire.answer()
        wire.send(smuggled)
        wire.send(request("/free"))
        answer = wire.answer()

    assert (refused.status, refused.complete) == (415, True)
    assert answer.status == 200
    assert [exchange.path for exchange in site.exchanges] == ["/chat", "/free"]
    assert app.admissions == [None]
    assert site.ledger() == Ledger()


def test_a_stream_on_a_pipelined_connection_that_is_reset_is_kept(serve: Serve) -> None:
    """One of uvicorn's parsers does not tell of this disconnect; its next `send` raises."""
    left = Signal()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["query_string"] != b"second":
            await stream_app([HELLO])(scope, receive, send)
            return
        scope["routeguard"].begin()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": HELLO, "more_body": True})
        await left.arrives()
        for _ in range(100):
            await send({"type": "http.response.body", "body": HELLO * 1_000, "more_body": True})

    site = serve(app)

    with site.connect() as wire:
        wire.send(request() + request("/chat?second"))
        assert wire.answer().complete
        wire.head()
        wire.chunk()
        wire.reset()
    left.give()
    site.wait_done(2)

    assert site.ledger() == Ledger(kept="0.2")


def test_requests_that_pile_up_on_one_connection_are_each_charged_once(serve: Serve) -> None:
    app = Counting(stream_app([HELLO]))
    site = serve(app, budget="1/day", rate="unlimited")

    with site.connect() as wire:
        wire.send(request(body=CHAT) * 12)
        answers = [wire.answer() for _ in range(12)]

    assert [answer.status for answer in answers] == [200] * 10 + [503] * 2
    assert app.calls == 10
    assert site.ledger() == Ledger(kept="1")
