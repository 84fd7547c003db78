"""Bodies that are too large, too slow or never finished: the client sees why, and the application is not called."""

from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import httpx
import httpx2
import pytest

from tests.driver import stream_app
from tests.guarding import Counting
from tests.sockets.server import Ledger, Serve
from tests.sockets.wire import CHAT, HOST, JSON, WAIT_SECONDS, Answer, Wire, head, request

BODY_MB = 50
HELLO = b"data: hello\n\n"
LEAVE = pytest.mark.parametrize(
    "leave", [Wire.close, Wire.reset, Wire.half_close], ids=["close", "reset", "half-close"]
)


@pytest.mark.parametrize("client", [httpx.Client, httpx2.Client], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_httpx_sees_why_an_upload_of_50_mb_is_refused(
    serve: Serve, client: type[httpx.Client] | type[httpx2.Client], declared: bool
) -> None:
    app = Counting()
    site = serve(app)

    with client(trust_env=False, timeout=WAIT_SECONDS) as caller:
        content = b"z" * (BODY_MB * 1_000_000) if declared else megabytes(BODY_MB)
        answer = caller.post(f"{site.url}/chat", content=content, headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["error"]["reason"]) == (413, "request_too_large")
    assert app.calls == 0
    assert site.ledger() == Ledger()


def test_a_client_that_reads_nothing_while_it_writes_6_mb_sees_why_it_is_refused(serve: Serve) -> None:
    app = Counting()
    site = serve(app)

    connection = HTTPConnection(HOST, site.port, timeout=WAIT_SECONDS)
    try:
        connection.request("POST", "/chat", b"z" * 6_000_000, {"content-type": "application/json"})
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
    finally:
        connection.close()

    assert (status, b"request_too_large" in body) == (413, True)
    assert app.calls == 0


def test_what_is_read_of_a_refused_body_is_bounded(serve: Serve) -> None:
    """The client writes on and on; after 8 MB the server stops reading and ends the connection."""
    site = serve(Counting())

    with site.connect() as wire:
        wire.send(head(JSON, "content-length: 100000000"))
        with pytest.raises(ConnectionError):
            wire.send(b"z" * 100_000_000)
    site.wait_done()

    assert 0 < site.exchanges[0].body_bytes < 9_000_000


def test_an_upload_without_a_length_is_counted_as_it_comes(serve: Serve) -> None:
    app = Counting()
    site = serve(app, rate="1/minute")

    with site.connect() as wire:
        wire.send(head(JSON, "transfer-encoding: chunked"))
        for chunk in megabytes(20, each=10_000):
            wire.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            if wire.has_answer():
                break
        refused = wire.answer()
    again = ask(site.connect())

    assert (refused.status, refused.reason) == (413, "request_too_large")
    assert again.reason == "rate_limited", "what was read past the headers has used a slot"
    assert app.calls == 0
    assert site.ledger() == Ledger()


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue"])
def test_a_client_that_asks_before_it_sends_is_told_no_and_sends_nothing(serve: Serve, expect: str) -> None:
    site = serve(Counting())

    with site.connect() as wire:
        wire.send(head(JSON, f"expect: {expect}", "content-length: 50000000"))
        answer = wire.answer()

        assert (answer.status, answer.reason, answer.complete) == (413, "request_too_large", True)
        assert wire.is_over()
    assert site.exchanges[0].reads == 0


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(serve: Serve) -> None:
    app = Counting(stream_app([HELLO]))
    site = serve(app)

    with site.connect() as wire:
        wire.send(head(JSON, "expect: 100-continue", f"content-length: {len(CHAT)}"))
        go_on = wire.head()
        wire.send(CHAT)
        answer = wire.answer()

    assert (go_on.status, answer.status, answer.body) == (100, 200, HELLO)
    assert app.calls == 1


@LEAVE
def test_an_upload_that_is_broken_off_reserves_nothing_and_holds_its_rate_slot(
    serve: Serve, leave: Callable[[Wire], None]
) -> None:
    app = Counting()
    site = serve(app, rate="1/minute")

    with site.connect() as wire:
        wire.send(request().removesuffix(b"}"))
        site.wait_begun()
        leave(wire)
        site.wait_done()
    again = ask(site.connect())

    assert (again.status, again.reason) == (429, "rate_limited")
    assert app.calls == 0
    assert site.ledger() == Ledger()


@pytest.mark.parametrize("framing", [f"content-length: {len(CHAT)}", "transfer-encoding: chunked"])
def test_a_body_that_is_too_slow_is_told_so_and_its_rest_is_not_waited_for(serve: Serve, framing: str) -> None:
    app = Counting()
    site = serve(app, body_timeout="20ms")

    with site.connect() as wire:
        wire.send(head(JSON, framing))
        answer = wire.answer()

        assert (answer.status, answer.reason, answer.complete) == (408, "body_timeout", True)
        assert answer.headers["connection"] == "close"
        assert wire.is_over()
    assert app.calls == 0
    assert site.ledger() == Ledger()


def ask(wire: Wire) -> Answer:
    with wire:
        wire.send(request())
        return wire.answer()


def megabytes(count: int, *, each: int = 100_000) -> Iterator[bytes]:
    for _ in range(count * 1_000_000 // each):
        yield b"z" * each
