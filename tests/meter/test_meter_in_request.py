"""A metered client inside a guarded request: what it may send, and what the request is charged.

Any output token costs a hundredth of a cent, and a call may produce a thousand: ten cents at most.
"""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routeguard import BudgetExceeded
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.played import (
    ASYNC,
    COMPLETION,
    HI,
    URL,
    Caller,
    Kind,
    Played,
    calling,
    chat_stream,
    every_kind,
    whole,
)

OPENAI = "https://api.openai.com/v1/chat/completions"
AZURE = "https://a.openai.azure.com/openai/deployments/test-model/chat/completions?api-version=1"


async def run(call: Any, **settings: Any) -> dict[str, str]:
    """A guarded request that does this, and what it was charged."""
    guard = guarded(calling(call), **settings)
    client = await Client().call(guard)
    if client.error is not None:
        raise client.error
    return await parts(guard)


async def refused(call: Any, **settings: Any) -> BudgetExceeded:
    """The refusal of a call in a guarded request."""
    found: list[BudgetExceeded] = []

    async def catching() -> None:
        with pytest.raises(BudgetExceeded) as caught:
            await call()
        found.append(caught.value)

    await run(catching, **settings)
    return found[0]


@every_kind
async def test_a_whole_answer_is_charged_what_it_reports(kind: Kind) -> None:
    caller = Caller(kind, whole())

    charged = await run(caller.post)

    assert (charged["settled"], charged["kept"], charged["open"]) == ("0.01", "0", "0")


@every_kind
async def test_a_stream_is_charged_what_it_reports(kind: Kind) -> None:
    caller = Caller(kind, chat_stream())

    charged = await run(caller.stream)

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


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


async def test_several_answers_are_paid_for_each() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))

    charged = await run(lambda: caller.post({"model": "m", "messages": HI, "n": 3, "max_tokens": 100}))

    assert charged["kept"] == "0.03"


@every_kind
async def test_a_call_over_the_reservation_is_never_sent(kind: Kind) -> None:
    caller = Caller(kind)

    refusal = await refused(lambda: caller.post({"model": "m", "messages": HI, "n": 2}))

    assert (refusal.reason, caller.sent) == ("reservation", [])
    assert "ROUTEGUARD_SYSTEM_PROMPT" in str(refusal)


@every_kind
async def test_one_call_more_than_the_request_may_make_is_never_sent(kind: Kind) -> None:
    caller = Caller(kind)

    async def twice() -> None:
        await caller.post({"model": "m", "messages": HI, "max_tokens": 1})
        await caller.post({"model": "m", "messages": HI, "max_tokens": 1})

    refusal = await refused(twice)

    assert (refusal.reason, len(caller.sent)) == ("calls_per_request", 1)
    assert "ROUTEGUARD_CALLS_PER_REQUEST" in str(refusal)


@pytest.mark.parametrize("status", [401, 403, 404, 429])
@every_kind
async def test_a_call_the_provider_refused_is_released_and_not_counted(kind: Kind, status: int) -> None:
    caller = Caller(kind, whole({"error": {}}, status=status), whole())

    async def retrying() -> None:
        assert (await caller.post()).status_code == status
        assert (await caller.post()).status_code == 200

    charged = await run(retrying)

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


@pytest.mark.parametrize("error", ["ConnectError", "ConnectTimeout", "PoolTimeout"])
@every_kind
async def test_a_call_that_never_left_is_released_and_not_counted(kind: Kind, error: str) -> None:
    raised = getattr(kind.library, error)("no way")
    caller = Caller(kind, Played(raises=raised), whole())

    async def retrying() -> None:
        with pytest.raises(type(raised)):
            await caller.post()
        await caller.post()

    charged = await run(retrying)

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


@pytest.mark.parametrize("status", [307, 400, 408, 409, 413, 500, 503, 529])
async def test_any_other_failure_is_kept_at_the_worst_case_of_the_call(status: int) -> None:
    caller = Caller(ASYNC, whole({"error": {}}, status=status))

    charged = await run(
        lambda: caller.post({"model": "m", "messages": HI, "max_tokens": 400}), calls_per_request=2, budget="9/day"
    )

    assert (charged["settled"], charged["kept"]) == ("0", "0.04")


@pytest.mark.parametrize("error", ["ReadTimeout", "ReadError", "WriteError", "RemoteProtocolError", "CloseError"])
@every_kind
async def test_a_connection_that_broke_is_kept(kind: Kind, error: str) -> None:
    raised = getattr(kind.library, error)("gone")
    caller = Caller(kind, Played(raises=raised))

    async def call() -> None:
        with pytest.raises(type(raised)):
            await caller.post()

    charged = await run(call)

    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


@every_kind
async def test_a_stream_that_breaks_before_its_usage_is_kept(kind: Kind) -> None:
    played = chat_stream(usage=None, done=False, breaks=kind.library.ReadError("gone"))
    caller = Caller(kind, played)

    async def call() -> None:
        with pytest.raises(kind.library.ReadError):
            await caller.stream()

    charged = await run(call)

    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


# httpx leaves its own generator to the collector when a caller breaks off, and trio minds.
ignores_httpx = pytest.mark.filterwarnings("ignore:.*BoundAsyncStream:pytest.PytestUnraisableExceptionWarning")


@ignores_httpx
@every_kind
async def test_a_caller_who_leaves_before_the_usage_is_charged_the_worst_case(kind: Kind) -> None:
    caller = Caller(kind, chat_stream())

    charged = await run(lambda: caller.stream(chunks=2))

    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


@ignores_httpx
@every_kind
async def test_a_caller_who_leaves_at_the_usage_is_charged_what_it_says(kind: Kind) -> None:
    played = chat_stream()
    caller = Caller(kind, played)
    body = {"model": "m", "messages": HI, "stream": True, "stream_options": {"include_usage": True}}

    charged = await run(lambda: caller.stream(body, chunks=len(played.chunks) - 1))

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


@every_kind
async def test_a_compressed_answer_is_not_read_and_we_ask_for_a_plain_one(kind: Kind) -> None:
    caller = Caller(kind, whole(headers={"content-encoding": "br, identity"}))

    async def call() -> None:
        await caller.stream({"model": "m", "messages": HI})

    charged = await run(call)

    assert caller.sent[0].headers["accept-encoding"] == "identity"
    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


async def test_calls_at_once_share_the_reservation_and_not_one_too_many_is_sent() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    refusals: list[BudgetExceeded] = []

    async def one() -> None:
        try:
            await caller.post()
        except BudgetExceeded as refusal:
            refusals.append(refusal)

    async def many() -> None:
        async with anyio.create_task_group() as tools:
            for _ in range(7):
                tools.start_soon(one)

    charged = await run(many, calls_per_request=3)

    assert (len(caller.sent), len(refusals)) == (3, 4)
    assert charged["kept"] == "0.3"


@every_kind
async def test_a_call_after_the_ending_reserves_by_itself(kind: Kind) -> None:
    caller = Caller(kind, whole())
    late = calling_late(caller)
    guard = guarded(late, budget="0.25/day")

    await Client().call(guard)

    charged = await parts(guard)
    assert (charged["kept"], charged["settled"], charged["open"]) == ("0.1", "0.01", "0")


@every_kind
async def test_a_call_after_the_ending_is_refused_when_the_budget_is_spent(kind: Kind) -> None:
    caller = Caller(kind, whole())
    guard = guarded(calling_late(caller), budget="0.15/day")

    client = await Client().call(guard)

    assert isinstance(client.error, BudgetExceeded)
    assert (client.error.reason, caller.sent) == ("budget_exhausted", [])
    assert client.error.resets_at is not None


async def test_a_call_after_the_ending_is_debited_from_the_client_as_well() -> None:
    caller = Caller(ASYNC, whole())
    guard = guarded(calling_late(caller), client_budget="0.15/day")

    client = await Client().call(guard)

    assert isinstance(client.error, BudgetExceeded)
    assert client.error.reason == "client_budget_exhausted"


async def test_an_exempt_client_has_no_budget_that_late_calls_could_exceed() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    guard = guarded(calling_late(caller, calls=3), client_budget="0.15/day", exempt_clients="203.0.113.0/24")

    client = await Client().call(guard)

    assert (client.error, len(caller.sent)) == (None, 3)


def calling_late(caller: Caller, *, calls: int = 1) -> Any:
    """An application that calls the provider after its last body message, as a background task does."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await calling(anyio.lowlevel.checkpoint)(scope, receive, send)
        for _ in range(calls):
            await caller.post()

    return app


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


async def test_a_failed_request_keeps_the_whole_reservation_whatever_the_meter_knows() -> None:
    caller = Caller(ASYNC, whole())
    guard = guarded(calling(caller.post, status=502))

    await Client().call(guard)

    assert (await parts(guard))["kept"] == "0.1"
