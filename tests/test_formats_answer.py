"""Which answers are read, by their headers, and what a guard then charges."""

import json
from decimal import Decimal
from typing import Any

import genai_prices.data  # noqa: F401 - read now, because reading files inside an event loop is trapped
import pytest

from routeguard.formats import UsageReader, answer_reader
from routeguard.formats.body import BodyReader
from routeguard.formats.reframed import ReframedReader
from routeguard.formats.stream import StreamReader
from tests.answers import CHAT_USAGE, REFRAMED, STREAMS, Json
from tests.driver import Client, stream_app
from tests.guarding import guarded, parts

CHAT: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-5-mini",
    "choices": [],
    "usage": CHAT_USAGE,
}


def _reader(media_type: str, *, read_bodies: bool = True, **headers: str) -> UsageReader | None:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return answer_reader(
        [(b"Content-Type", media_type.encode()), *raw], read_bodies=read_bodies, body_bytes_max=100_000
    )


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("text/event-stream", StreamReader),
        ("text/event-stream; charset=utf-8", StreamReader),
        ("Text/Event-Stream", StreamReader),
        ("application/x-ndjson", ReframedReader),
        ("application/ndjson", ReframedReader),
        ("application/jsonl", ReframedReader),
        ("application/x-jsonlines", ReframedReader),
        ("application/vnd.amazon.eventstream", ReframedReader),
        ("application/json", BodyReader),
        ("application/vnd.api+json; charset=utf-8", BodyReader),
    ],
)
def test_the_media_type_chooses_the_reader(media_type: str, kind: type) -> None:
    assert isinstance(_reader(media_type), kind)


@pytest.mark.parametrize("media_type", ["text/plain", "text/html", "application/octet-stream", "", "json"])
def test_any_other_type_is_not_read(media_type: str) -> None:
    assert _reader(media_type) is None


@pytest.mark.parametrize("media_type", ["text/event-stream", "application/vnd.amazon.eventstream"])
def test_streams_are_read_where_bodies_are_not(media_type: str) -> None:
    assert _reader(media_type, read_bodies=False) is not None


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson", "application/jsonl"])
def test_what_a_model_could_write_as_a_whole_is_read_only_where_bodies_are(media_type: str) -> None:
    assert _reader(media_type, read_bodies=False) is None
    assert _reader(media_type, read_bodies=True) is not None


@pytest.mark.parametrize("media_type", ["text/event-stream", "application/x-ndjson", "application/json"])
def test_a_compressed_answer_is_not_read(media_type: str) -> None:
    assert _reader(media_type, content_encoding="gzip") is None
    assert _reader(media_type, content_encoding="Identity") is not None


def _cost_with_header(value: str, *, body: Json = CHAT) -> Decimal | None:
    reader = _reader("application/json", X_LiteLLM_Response_Cost=value)
    assert reader is not None
    reader.feed(json.dumps(body).encode())
    used = reader.result(failed=False)
    assert used is not None
    return used.cost_usd


@pytest.mark.parametrize(
    ("value", "cost_usd"),
    [("0.00341475", "0.00341475"), ("3.4e-05", "0.000034"), (" 2 ", "2"), ("1.5E-9", "0.0000000015")],
)
def test_the_cost_that_a_proxy_puts_into_a_header_is_read(value: str, cost_usd: str) -> None:
    assert _cost_with_header(value) == Decimal(cost_usd)


@pytest.mark.parametrize("value", ["", "None", "0", "0.0", "-1", "nan", "inf", "1e999", "1_0", "٣", "0x1", "1,5", "$1"])
def test_a_header_without_a_cost_leaves_the_body_to_decide(value: str) -> None:
    assert _cost_with_header(value) is None
    assert _cost_with_header(value, body={**CHAT, "usage": {**CHAT_USAGE, "cost": 0.25}}) == Decimal("0.25")


def test_of_a_cost_in_the_header_and_one_in_the_body_the_larger_counts() -> None:
    body: Json = {**CHAT, "usage": {**CHAT_USAGE, "cost": 0.25}}

    assert _cost_with_header("0.5", body=body) == Decimal("0.5")
    assert _cost_with_header("0.1", body=body) == Decimal("0.25")


def test_a_cost_in_a_header_alone_is_no_answer() -> None:
    reader = _reader("application/json", x_litellm_response_cost="0.5")
    assert reader is not None
    reader.feed(b'{"detail":"Not found"}')

    assert reader.result(failed=False) is None


@pytest.mark.parametrize("stream", REFRAMED, ids="/".join)
async def test_a_guard_settles_what_a_stream_in_another_framing_used(stream: tuple[str, str]) -> None:
    items, _ = REFRAMED[stream]
    guard = guarded(stream_app(items, content_type=stream[0].encode()), read_response="all")

    client = await Client().call(guard)
    found = await parts(guard)

    assert client.chunks == [*items, b""]
    assert (found["settled"], found["kept"]) == ("0.0009", "0")


async def test_a_guard_charges_the_cost_that_a_proxy_put_into_a_header() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"x-litellm-response-cost", b"0.02")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(CHAT).encode()})

    guard = guarded(app, read_response="all")

    await Client().call(guard)
    found = await parts(guard)

    assert (found["settled"], found["kept"]) == ("0.02", "0")


async def test_a_stream_for_a_user_interface_keeps_the_ceiling_and_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts_of_it: list[Json] = [
        {"type": "start", "messageId": "msg-1"},
        {"type": "text-delta", "id": "1", "delta": "Hello"},
        {"type": "finish", "finishReason": "stop", "messageMetadata": {"usage": CHAT_USAGE}},
    ]
    events = [f"data: {json.dumps(part)}\n\n".encode() for part in parts_of_it]
    guard = guarded(stream_app([*events, b"data: [DONE]\n\n"]))

    await Client().call(guard)
    found = await parts(guard)

    assert (found["settled"], found["kept"]) == ("0", "0.1")
    assert "call admission(request).report(usage)" in caplog.text


async def test_an_event_of_a_user_interface_in_a_provider_s_stream_keeps_the_ceiling() -> None:
    events, _ = STREAMS["messages"]
    guard = guarded(stream_app([*events, b'data: {"type":"finish"}\n\n']))

    await Client().call(guard)

    assert (await parts(guard))["kept"] == "0.1"
