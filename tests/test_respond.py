"""Sending a refusal: the whole answer first, then a bounded part of the body, then the end of the response."""

from collections.abc import Iterator

import anyio
import pytest

from routeguard import respond as respond_module
from routeguard.replay import Message, Scope
from routeguard.respond import DRAIN_BYTES_MAX, KEEP_ALIVE_BYTES_MAX, respond

HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"4")]
CLOSE = (b"connection", b"close")
EXPECT = (b"expect", b"100-continue")
LONG = (b"content-length", str(KEEP_ALIVE_BYTES_MAX + 1).encode())
SHORT = (b"content-length", b"12")
CHUNKED = (b"transfer-encoding", b"chunked")


class Wire:
    """A client and the connection to it: sends chunks when asked, and writes down what happens in order."""

    def __init__(self, chunks: Iterator[Message]) -> None:
        self._chunks = chunks
        self.sent: list[Message] = []
        #: What was received after how many messages had been sent.
        self.received_after: list[int] = []

    async def receive(self) -> Message:
        await anyio.lowlevel.checkpoint()
        self.received_after.append(len(self.sent))
        message = next(self._chunks, None)
        if message is None:
            await anyio.sleep_forever()
        assert message is not None
        return message

    async def send(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        self.sent.append(message)

    @property
    def kinds(self) -> list[tuple[str, bytes, bool]]:
        return [(message["type"], message.get("body", b""), message.get("more_body", False)) for message in self.sent]


def chunks(*sizes: int, complete: bool = True) -> Iterator[Message]:
    for number, size in enumerate(sizes, start=1):
        yield {"type": "http.request", "body": bytes(size), "more_body": number < len(sizes) or not complete}


def endless(size: int) -> Iterator[Message]:
    while True:
        yield {"type": "http.request", "body": bytes(size), "more_body": True}


def http(*headers: tuple[bytes, bytes], method: str = "POST", version: str | None = "1.1") -> Scope:
    scope: Scope = {"type": "http", "method": method, "headers": list(headers)}
    if version is not None:
        scope["http_version"] = version
    return scope


async def refuse(scope: Scope, body: Iterator[Message], *, drain: bool = True) -> Wire:
    wire = Wire(body)
    await respond(scope, wire.receive, wire.send, status=429, headers=HEADERS, body=b"busy", drain=drain)
    assert [kind for kind, _, _ in wire.kinds].count("http.response.start") == 1
    assert wire.sent[0]["status"] == 429
    assert wire.kinds[-1][2] is False
    return wire


START = ("http.response.start", b"", False)
DRAINED = [START, ("http.response.body", b"busy", True), ("http.response.body", b"", False)]
AT_ONCE = [START, ("http.response.body", b"busy", False)]


@pytest.mark.parametrize("header", [SHORT, LONG, CHUNKED, (b"content-length", b"no number")], ids=repr)
async def test_the_answer_is_sent_whole_before_a_byte_of_the_body_is_read(header: tuple[bytes, bytes]) -> None:
    wire = await refuse(http(header, (b"x-expect", b"100-continue")), chunks(5, 0, 7))

    assert wire.kinds == DRAINED
    assert wire.received_after == [2, 2, 2]


@pytest.mark.parametrize(
    ("scope", "drain"),
    [
        (http(SHORT), False),
        (http(), True),
        (http((b"content-length", b"0")), True),
        (http(method="GET"), True),
        (http(method="GET", version="2"), True),
        (http(SHORT, EXPECT), True),
        (http(CHUNKED, (b"expect", b" 100-Continue ")), True),
    ],
    ids=["read already", "no body", "empty body", "get", "get over h2", "expect", "expect, chunked"],
)
async def test_nothing_is_read_where_nothing_comes_or_nothing_was_asked_for(scope: Scope, drain: bool) -> None:
    wire = await refuse(scope, endless(10), drain=drain)

    assert wire.kinds == AT_ONCE
    assert wire.received_after == []


@pytest.mark.parametrize(
    ("scope", "drain", "closes"),
    [
        (http(SHORT), True, False),
        (http((b"content-length", str(KEEP_ALIVE_BYTES_MAX).encode())), True, False),
        (http(LONG), True, True),
        (http(LONG), False, False),
        (http(CHUNKED), True, True),
        (http(SHORT, CHUNKED), True, True),
        (http((b"content-length", b"-5")), True, True),
        (http((b"content-length", b"9" * 400)), True, True),
        (http((b"content-length", b"\xb2")), True, True),
        (http(SHORT, EXPECT), True, True),
        (http(LONG, version="1.0"), True, True),
        (http(LONG, version=None), True, True),
        (http(LONG, version="2"), True, False),
        (http(CHUNKED, EXPECT, version="3"), True, False),
        (http(), True, False),
    ],
    ids=str,
)
async def test_the_connection_closes_unless_its_body_is_sure_to_be_read(
    scope: Scope, drain: bool, closes: bool
) -> None:
    wire = await refuse(scope, chunks(3), drain=drain)

    assert (CLOSE in wire.sent[0]["headers"]) is closes


async def test_the_given_headers_are_sent_and_not_changed() -> None:
    wire = await refuse(http(LONG), chunks(3))

    assert wire.sent[0]["headers"] == [*HEADERS, CLOSE]
    assert len(HEADERS) == 2


async def test_a_body_over_http_2_needs_no_header() -> None:
    wire = await refuse(http(version="2"), chunks(5, 5))

    assert wire.kinds == DRAINED
    assert len(wire.received_after) == 2


async def test_a_length_that_is_repeated_counts_when_one_of_them_announces_a_body() -> None:
    wire = await refuse(http(SHORT, (b"content-length", b"0")), chunks(12))

    assert wire.kinds == DRAINED


async def test_a_body_that_never_ends_is_read_up_to_eight_megabytes() -> None:
    wire = await refuse(http(CHUNKED), endless(1_000_000))

    assert wire.kinds == DRAINED
    assert len(wire.received_after) == DRAIN_BYTES_MAX // 1_000_000


async def test_a_client_that_stops_writing_is_waited_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respond_module, "DRAIN_SECONDS_MAX", 0)

    wire = await refuse(http(LONG), chunks(5, complete=False))

    assert wire.kinds == DRAINED


def test_the_bounds_are_two_seconds_eight_megabytes_and_64_kib() -> None:
    assert (respond_module.DRAIN_SECONDS_MAX, DRAIN_BYTES_MAX, KEEP_ALIVE_BYTES_MAX) == (2.0, 8_000_000, 65_536)


async def test_a_client_that_leaves_ends_the_reading() -> None:
    wire = await refuse(http(LONG), iter([*chunks(5, complete=False), {"type": "http.disconnect"}]))

    assert wire.kinds == DRAINED
    assert len(wire.received_after) == 2


async def test_a_message_without_any_key_but_its_type_is_the_last_one() -> None:
    """The defaults of the ASGI specification: no body, and no more of it."""
    wire = await refuse(http(LONG), iter([{"type": "http.request"}]))

    assert wire.kinds == DRAINED
    assert len(wire.received_after) == 1


@pytest.mark.parametrize("headers", [(), (LONG,)], ids=["no body", "body"])
async def test_a_head_request_gets_headers_only(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    wire = await refuse(http(*headers, method="HEAD"), chunks(3))

    assert b"".join(body for _, body, _ in wire.kinds) == b""
    assert (b"content-length", b"4") in wire.sent[0]["headers"]
