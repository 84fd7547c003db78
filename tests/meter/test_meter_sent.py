"""What a metered client may send inside a guarded request, and what is changed in it."""

from typing import Any

import pytest

from tests.meter.in_request import refused, run
from tests.meter.played import ASYNC, COMPLETION, HI, URL, Caller, Kind, chat_stream, every_kind, whole

OPENAI = "https://api.openai.com/v1/chat/completions"
AZURE = "https://a.openai.azure.com/openai/deployments/test-model/chat/completions?api-version=1"


@every_kind
async def test_usage_is_asked_for_and_the_caller_sees_no_chunk_that_it_did_not_ask_for(kind: Kind) -> None:
    played = chat_stream()
    caller = Caller(kind, played)
    got: list[list[bytes]] = []

    async def call() -> None:
        got.append(await caller.stream())

    await run(call)

    assert caller.sent[0].json["stream_options"] == {"include_usage": True}
    assert got[0] == [chunk for chunk in played.chunks if b'"usage": {' not in chunk]
    assert len(got[0]) == len(played.chunks) - 1


@every_kind
async def test_a_caller_who_asked_for_usage_gets_every_chunk(kind: Kind) -> None:
    played = chat_stream()
    caller = Caller(kind, played)
    got: list[list[bytes]] = []
    body = {"model": "m", "messages": HI, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 9}

    async def call() -> None:
        got.append(await caller.stream(body))

    await run(call)

    assert got[0] == list(played.chunks)
    assert caller.sent[0].json == body


@every_kind
async def test_a_call_that_needs_no_change_is_sent_byte_for_byte(kind: Kind) -> None:
    caller = Caller(kind)
    content = (
        b'{ "messages":[{"role":"user","content":"h\\u0069"}],\n "max_tokens": 7, "temperature": 1.0, "model":"m" }'
    )

    await run(lambda: caller.post(content=content, headers={"content-type": "application/json"}))

    assert caller.sent[0].content == content
    assert caller.sent[0].headers["content-length"] == str(len(content))


@pytest.mark.parametrize(
    ("url", "given", "sent"),
    [
        (URL, {}, {"max_tokens": 1000}),
        (OPENAI, {}, {"max_completion_tokens": 1000}),
        (AZURE, {}, {"max_completion_tokens": 1000}),
        ("https://eu.api.openai.com/v1/chat/completions", {}, {"max_completion_tokens": 1000}),
        ("https://openai.com.evil.test/v1/chat/completions", {}, {"max_tokens": 1000}),
        (URL, {"max_tokens": 50}, {"max_tokens": 50}),
        (URL, {"max_tokens": 1000}, {"max_tokens": 1000}),
        (URL, {"max_tokens": 1001}, {"max_tokens": 1000}),
        (OPENAI, {"max_tokens": 9999}, {"max_tokens": 1000}),
        (URL, {"max_completion_tokens": 9999}, {"max_completion_tokens": 1000}),
        (URL, {"max_tokens": None}, {"max_tokens": 1000}),
        (URL, {"max_tokens": 20, "max_completion_tokens": 20}, {"max_tokens": 20, "max_completion_tokens": 20}),
    ],
)
async def test_the_cap_that_is_reserved_for_is_the_cap_that_is_sent(
    url: str, given: dict[str, Any], sent: dict[str, int]
) -> None:
    caller = Caller(ASYNC)

    await run(lambda: caller.post({"model": "m", "messages": HI, **given}, url=url))

    body = caller.sent[0].json
    assert {name: cap for name, cap in body.items() if name.startswith("max_")} == sent
    assert caller.sent[0].headers["content-length"] == str(len(caller.sent[0].content))


@every_kind
@pytest.mark.parametrize(
    "given",
    [
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": 1.5},
        {"max_tokens": 1e3},
        {"max_tokens": True},
        {"max_tokens": "100"},
        {"max_tokens": [100]},
        {"max_tokens": 10, "max_completion_tokens": 20},
        {"n": 0},
        {"n": "2"},
    ],
    ids=str,
)
async def test_a_cap_that_is_none_is_refused_and_nothing_is_sent(kind: Kind, given: dict[str, Any]) -> None:
    caller = Caller(kind)

    refusal = await refused(lambda: caller.post({"model": "m", "messages": HI, **given}))

    assert (refusal.reason, caller.sent) == ("output_cap", [])


@every_kind
async def test_while_observing_nothing_is_clamped_or_refused(kind: Kind) -> None:
    caller = Caller(kind, whole())
    bodies: list[Any] = [
        {"model": "m", "messages": HI, "max_tokens": 99_999},
        {"model": "m", "messages": HI, "max_tokens": -5},
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"model": "m", "messages": HI},
    ]

    async def call() -> None:
        for body in bodies:
            await caller.post(body)
        await caller.post(content=b"not JSON")

    charged = await run(call, mode="observe")

    assert [sent.json for sent in caller.sent[:-1]] == bodies
    assert caller.sent[-1].content == b"not JSON"
    assert (charged["settled"], charged["kept"]) == ("0.04", "0.1")


@pytest.mark.parametrize("content", [b"\xff", b'{"messages":[],"messages":[]}', b'{"messages":NaN}', b"no"], ids=repr)
async def test_a_call_that_cannot_be_read_is_refused(content: bytes) -> None:
    caller = Caller(ASYNC)

    refusal = await refused(lambda: caller.post(content=content))

    assert (refusal.reason, caller.sent) == ("unreadable", [])


async def test_a_compressed_request_is_refused() -> None:
    caller = Caller(ASYNC)

    refusal = await refused(lambda: caller.post(content=b"{}", headers={"content-encoding": "gzip"}))

    assert (refusal.reason, caller.sent) == ("unreadable", [])


@every_kind
async def test_a_body_that_comes_as_a_stream_is_read_and_sent_with_its_length(kind: Kind) -> None:
    caller = Caller(kind)
    halves = [b'{"model":"m","messages":[{"role":"user",', b'"content":"hi"}]}']

    async def in_parts() -> Any:
        for half in halves:
            yield half

    await run(lambda: caller.post(content=in_parts() if kind.is_async else iter(halves)))

    sent = caller.sent[0]
    assert sent.json == {"model": "m", "messages": HI, "max_tokens": 1000}
    assert "transfer-encoding" not in sent.headers
    assert sent.headers["content-length"] == str(len(sent.content))


async def test_media_is_refused_where_it_has_no_price_and_paid_where_it_has() -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    body = {"model": "m", "messages": picture, "max_tokens": 100}

    refusal = await refused(lambda: caller.post(body))
    charged = await run(lambda: caller.post(body), media_usd="0.05", calls_per_request=2)

    assert (refusal.reason, "ROUTEGUARD_MEDIA_USD" in str(refusal)) == ("media", True)
    assert charged["kept"] == "0.06"


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("GET", "http://model.test/v1/models", b""),
        ("POST", "http://model.test/v1/files", b"anything"),
        ("POST", "http://model.test/v1/threads/t/messages", b'{"role":"user","content":"hi"}'),
        ("POST", "http://model.test/v1/messages/count_tokens", b'{"messages":[]}'),
        ("POST", "http://model.test/v1/responses/resp_1/cancel", b"{}"),
    ],
)
async def test_other_traffic_passes_untouched_and_uncounted(method: str, url: str, body: bytes) -> None:
    caller = Caller(ASYNC)

    charged = await run(lambda: caller.client.request(method, url, content=body), no_call="release")

    assert (caller.sent[0].content, caller.sent[0].headers["accept-encoding"] == "identity") == (body, False)
    assert (charged["settled"], charged["kept"]) == ("0", "0")
