"""Every step of a request, in its order: what is refused, with what, and what it counts."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, guarded, in_flight, parts

JSON = (b"content-type", b"application/json")
TWO_LENGTHS = [(b"content-length", b"5"), (b"content-length", b"6"), JSON]
UTF_16 = (b"content-type", b"application/json; charset=utf-16")
IMAGE = {"messages": [{"type": "image_url", "image_url": "x"}]}


def body(value: Any) -> list[bytes]:
    return [json.dumps(value).encode()]


CHAT = {"messages": [{"role": "user", "content": "hi"}]}

#: Request, status, reason, and whether a slot of the rate is used.
REFUSALS: list[tuple[str, dict[str, Any], int, str, bool]] = [
    ("length not digits", {"headers": [(b"content-length", b"+5"), JSON]}, 400, "bad_request", False),
    ("length negative", {"headers": [(b"content-length", b"-1"), JSON]}, 400, "bad_request", False),
    (
        "two lengths",
        {"headers": TWO_LENGTHS},
        400,
        "bad_request",
        False,
    ),
    (
        "length and chunked",
        {"headers": [(b"content-length", b"44"), (b"transfer-encoding", b"chunked"), JSON]},
        400,
        "bad_request",
        False,
    ),
    ("compressed", {"headers": [(b"content-encoding", b"gzip"), JSON]}, 415, "unsupported_encoding", False),
    ("binary type", {"headers": [(b"content-type", b"image/png")]}, 415, "unsupported_type", False),
    ("multipart", {"headers": [(b"content-type", b"multipart/form-data; boundary=x")]}, 415, "unsupported_type", False),
    (
        "other charset",
        {"headers": [UTF_16]},
        415,
        "unsupported_type",
        False,
    ),
    ("two types", {"headers": [JSON, JSON]}, 415, "unsupported_type", False),
    ("declared too large", {"headers": [(b"content-length", b"70000"), JSON]}, 413, "request_too_large", False),
    ("declared absurdly large", {"headers": [(b"content-length", b"9" * 25), JSON]}, 413, "request_too_large", False),
    (
        "received too large",
        {"headers": [(b"transfer-encoding", b"chunked"), JSON], "body": [b" " * 40_000, b" " * 40_000]},
        413,
        "request_too_large",
        True,
    ),
    (
        "more than declared",
        {"headers": [(b"content-length", b"5"), JSON], "body": [b" " * 40_000, b" " * 40_000]},
        413,
        "request_too_large",
        True,
    ),
    ("not UTF-8", {"body": [b'{"messages":"\xff"}']}, 400, "bad_request", True),
    ("NUL", {"body": [b'{"messages":"\x00"}']}, 400, "bad_request", True),
    ("not JSON", {"body": [b"{"]}, 400, "bad_request", True),
    ("duplicate keys", {"body": [b'{"a":1,"a":2}']}, 400, "bad_request", True),
    ("NaN", {"body": [b'{"a":NaN}']}, 400, "bad_request", True),
    ("too deep", {"body": [b"[" * 5000 + b"]" * 5000]}, 400, "bad_request", True),
    ("UTF-16", {"body": ['{"messages":[]}'.encode("utf-16")]}, 400, "bad_request", True),
    ("a model of its own", {"body": body({**CHAT, "model": "gpt-9"})}, 400, "model_not_allowed", True),
    ("a paid tool", {"body": body({**CHAT, "tools": [{"type": "web_search"}]})}, 400, "unsupported_field", True),
    ("a service tier", {"body": body({**CHAT, "service_tier": "priority"})}, 400, "unsupported_field", True),
    (
        "an image",
        {"body": body(IMAGE)},
        400,
        "media_not_allowed",
        True,
    ),
    ("100,000 tokens", {"body": body({**CHAT, "max_tokens": 100_000})}, 400, "output_too_large", True),
    ("no tokens", {"body": body({**CHAT, "max_tokens": 0})}, 400, "output_too_large", True),
    ("two choices", {"body": body({**CHAT, "n": 2})}, 400, "output_too_large", True),
    ("too many characters", {"body": body({"messages": "x" * 20_001})}, 413, "input_too_long", True),
    (
        "JSON sent as text",
        {"headers": [(b"content-type", b"text/plain")], "body": body({**CHAT, "max_tokens": 5000})},
        400,
        "output_too_large",
        True,
    ),
    (
        "a prompt in the query of a GET",
        {"method": "GET", "body": [], "query": b"prompt=" + b"x" * 20_001},
        413,
        "input_too_long",
        True,
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_a_bad_request_is_refused_before_the_application_is_called(
    refusal: tuple[str, dict[str, Any], int, str, bool],
) -> None:
    _, request_, status, reason, uses_slot = refusal
    app = Counting()
    guard = guarded(app, rate="2/minute")

    client = await Client(**request_).call(guard)
    after = [await Client().call(guard) for _ in range(2)]

    assert (client.status, client.reason) == (status, reason)
    assert client.complete
    assert app.calls == (1 if uses_slot else 2)
    assert [one.status for one in after] == ([200, 429] if uses_slot else [200, 200])
    assert client.response_headers["cache-control"] == "no-store"
    assert client.response_headers["x-request-id"]


@pytest.mark.parametrize(("chunks", "asked"), [(2, 2), (3, 3)], ids=["complete", "one more to come"])
async def test_a_refused_body_is_read_to_its_end_and_no_further(chunks: int, asked: int) -> None:
    """Nothing comes behind the last message: whoever asks for more waits out the whole drain."""
    app = Counting()
    headers = [(b"transfer-encoding", b"chunked"), JSON]
    client = Client(body=[b" " * 40_000] * chunks, headers=headers, plain_headers=False)

    await client.call(guarded(app))

    assert (client.status, client.received, app.calls) == (413, asked, 0)


async def test_the_edge_secret_is_checked_first() -> None:
    app = Counting()
    guard = guarded(app, edge_secret="X-Edge:s3cret-value", paused=True)

    without = await Client(headers=[(b"content-length", b"x")]).call(guard)
    wrong = await Client(headers=[(b"x-edge", b"s3cret-valu")]).call(guard)
    twice = await Client(headers=[(b"x-edge", b"s3cret-value"), (b"x-edge", b"other")]).call(guard)
    right = await Client(headers=[(b"x-edge", b"s3cret-value")]).call(guard)

    assert [client.reason for client in (without, wrong, twice)] == ["edge_secret"] * 3
    assert (without.status, right.status, right.reason) == (403, 503, "service_paused")
    assert app.calls == 0


async def test_a_pause_refuses_and_names_how_long_to_wait() -> None:
    guard = guarded(Counting(), paused=True, message_resting="Closed today.")

    client = await Client().call(guard)

    assert (client.status, client.reason) == (503, "service_paused")
    assert client.response_headers["retry-after"] == "61"
    assert client.response_headers["x-should-retry"] == "false"
    assert client.json["error"]["message"] == "Closed today."


async def test_a_spent_budget_is_known_before_the_body_is_read() -> None:
    app = Counting()
    guard = guarded(app, budget="0.15/day", rate="5/minute")
    await Client().call(guard)

    unread = Client(headers=[(b"content-length", b"9")], leaves_in_body=True, body=[b"never", b"sent"])
    client = await unread.call(guard)

    assert (client.status, client.reason) == (503, "budget_exhausted")
    assert app.calls == 1


async def test_the_admit_hook_refuses_after_the_rate_and_before_the_body() -> None:
    app = Counting()
    seen: list[Any] = []

    async def admit(scope: Any) -> bool:
        seen.append(scope["path"])
        return len(seen) == 2

    guard = guarded(app, admit=admit, rate="3/minute")

    refused = await Client(leaves_in_body=True, body=[b"never", b"sent"]).call(guard)
    admitted = await Client().call(guard)
    rate_used = [(await Client().call(guard)).status for _ in range(2)]

    assert (refused.status, refused.reason) == (403, "not_admitted")
    assert admitted.status == 200
    assert rate_used == [403, 429]
    assert len(seen) == 3


async def test_an_admit_hook_that_raises_refuses() -> None:
    async def admit(scope: Any) -> bool:
        raise RuntimeError("broken check")

    client = await Client().call(guarded(Counting(), admit=admit))

    assert (client.status, client.reason) == (403, "not_admitted")


async def test_a_body_that_does_not_arrive_in_time_is_408() -> None:
    app = Counting()
    guard = guarded(app, body_timeout="20ms")
    client = Client(headers=[(b"content-length", b"90")])

    async def slow_receive() -> Any:
        if client.received == 0:
            client.received += 1
            return {"type": "http.request", "body": b'{"mess', "more_body": True}
        await client.left.wait()
        return {"type": "http.disconnect"}

    await guard(client.scope(), slow_receive, client.send)

    assert (client.status, client.reason, app.calls) == (408, "body_timeout", 0)


async def test_the_time_is_for_the_whole_body_and_not_for_each_message() -> None:
    """A client that drips a byte now and then is as slow as one that stops."""
    client = Client(headers=[(b"content-length", b"90")])

    async def drip() -> Any:
        client.received += 1
        await anyio.lowlevel.checkpoint()
        return {"type": "http.request", "body": b"", "more_body": True}

    await guarded(Counting(), body_timeout="20ms")(client.scope(), drip, client.send)

    assert client.reason == "body_timeout"
    assert client.received > 1


async def test_nothing_is_reserved_for_a_client_that_leaves_in_its_body() -> None:
    app = Counting()
    guard = guarded(app)

    client = await Client(leaves_in_body=True, body=[b'{"mess', b"ages"]).call(guard)

    assert (client.status, app.calls) == (None, 0)
    assert (await parts(guard))["open"] == "0"
    assert await in_flight(guard) == 0


async def test_a_ceiling_above_a_whole_budget_is_too_expensive() -> None:
    guard = guarded(Counting(), price_in=100, budget="0.5/day", max_body="64kB", rate="9/minute")

    client = await Client(body=body({"messages": "x" * 9000})).call(guard)

    assert (client.status, client.reason) == (413, "too_expensive")


@pytest.mark.parametrize("status", [503, 429, 402])
async def test_the_budget_refusal_has_the_configured_status_and_the_reset(status: int) -> None:
    guard = guarded(Counting(), budget="0.1/day", budget_status=status)
    await Client().call(guard)

    client = await Client().call(guard)

    assert (client.status, client.reason) == (status, "budget_exhausted")
    assert client.json["error"]["resets_at"] == "2026-12-01T00:00:00Z"
    assert client.json["error"]["retry_after"] == 12 * 3600
    assert client.response_headers["retry-after"] == "3600"
    assert client.response_headers["x-should-retry"] == "false"


async def test_cheap_invalid_requests_a_minute_apart_are_held_by_the_client_budget() -> None:
    """An application that answers 422 without calling a provider, and tells nobody."""
    clock = FakeClock()
    app = Counting()

    async def unprocessable(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 422, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    app._app = unprocessable
    guard = guarded(app, clock=clock, budget="1/day", client_budget="25%")
    statuses: list[int | None] = []
    for _ in range(59):
        statuses.append((await Client().call(guard)).status)
        clock.advance(60)

    assert statuses.count(422) == 2
    assert (await parts(guard))["kept"] == "0.2"


@pytest.mark.parametrize("path", ["/chat\n", "//chat", "/chat/", "/Chat", "/api/chat", "/x/../chat", "/\\chat"])
async def test_paths_over_match(path: str) -> None:
    guard = guarded(Counting(), paused=True)

    client = await Client(path=path, root_path="/api").call(guard)

    assert client.reason == "service_paused"


async def test_other_paths_and_methods_are_not_guarded() -> None:
    app = Counting()
    guard = guarded(app, paused=True, methods="POST")

    statuses = [
        (await Client(path="/other").call(guard)).status,
        (await Client(path="/chatter").call(guard)).status,
        (await Client(method="GET", body=[]).call(guard)).status,
    ]

    assert statuses == [200, 200, 200]
    assert app.admissions == [None, None, None]


@pytest.mark.parametrize("method", ["post", "Post"])
async def test_a_method_is_guarded_in_any_case_it_is_sent_in(method: str) -> None:
    app = Counting()
    guard = guarded(app, paused=True, methods="POST")

    client = await Client(method=method).call(guard)

    assert (client.reason, app.calls) == ("service_paused", 0)


async def test_the_body_reaches_the_application_byte_for_byte() -> None:
    got: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            got.append(message["body"])
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    chunks: Sequence[bytes] = [b'{"messages":[{"role":"user",', b'"content":"gr\xc3', b'\xbc\xc3\x9fe"}]}']

    await Client(body=chunks).call(guarded(app))

    assert b"".join(got) == b"".join(chunks)
