"""The scripted provider: what it answers, how it fails, and that its bill holds what it generated."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from routeguard.testing.scripted import BODY_BYTES_MAX, Script, ScriptedProvider
from tests.driver import Client

USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


def asked(content: str = "hi", /, **fields: Any) -> Client:
    return sent(json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **fields}).encode())


def sent(body: bytes, **options: Any) -> Client:
    return Client(path="/v1/chat/completions", body=(body,), **options)


def events(client: Client) -> list[Any]:
    lines = b"".join(client.chunks).decode().split("\n\n")
    data = [line.removeprefix("data: ") for line in lines if line]
    return [line if line == "[DONE]" else json.loads(line) for line in data]


def text(client: Client) -> str:
    choices = [choice for event in events(client) if event != "[DONE]" for choice in event["choices"]]
    return "".join(choice["delta"].get("content", "") for choice in choices)


async def test_a_stream_ends_with_its_finish_its_usage_and_done() -> None:
    client = await asked(stream=True, **USAGE).call(ScriptedProvider(Script(words=3)))

    *_, finish, usage, done = events(client)
    assert (client.status, client.complete) == (200, True)
    assert len(text(client).split()) == 3
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]) == (
        [],
        {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    )
    assert done == "[DONE]"


@pytest.mark.parametrize(
    ("options", "script"),
    [({}, Script()), ({"stream_options": {"include_usage": False}}, Script()), (USAGE, Script(usage=False))],
)
async def test_usage_stays_unsaid_unless_asked_for_and_scripted(options: dict[str, Any], script: Script) -> None:
    client = await asked(stream=True, **options).call(ScriptedProvider(script))

    assert not any(event["usage"] for event in events(client) if event != "[DONE]" and "usage" in event)
    assert events(client)[-1] == "[DONE]"


async def test_without_stream_the_answer_is_one_json_object() -> None:
    client = await asked().call(ScriptedProvider(Script(words=4)))

    assert client.response_headers["content-type"] == "application/json"
    assert len(client.json["choices"][0]["message"]["content"].split()) == 4
    assert client.json["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("over_cap", "words"), [(0, 5), (7, 12)])
async def test_the_cap_cuts_the_answer_and_a_script_may_ignore_it(field: str, over_cap: int, words: int) -> None:
    provider = ScriptedProvider(Script(words=40, over_cap=over_cap))

    client = await asked("hi", **{field: 5}).call(provider)

    assert client.json["choices"][0]["finish_reason"] == "length"
    assert client.json["usage"]["completion_tokens"] == words == provider.output_tokens_billed


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_in_mid_answer_bills_what_was_generated_and_sends_no_last_chunk(stream: bool) -> None:
    provider = ScriptedProvider(Script(words=40, fail_after=6))

    client = await asked(stream=stream, **USAGE).call(provider)

    assert (client.status, client.complete, client.error) == (200, False, None)
    assert (provider.input_tokens_billed, provider.output_tokens_billed) == (5, 6)


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_a_failure_before_the_start_is_an_error_object_and_bills_nothing(status: int) -> None:
    provider = ScriptedProvider(Script(status=status))

    client = await asked(stream=True).call(provider)

    assert client.status == status
    assert client.json["error"]["type"] == "scripted_error"
    assert (provider.calls, provider.input_tokens_billed, provider.output_tokens_billed) == (1, 0, 0)


async def test_a_caller_who_leaves_ends_the_call_and_pays_for_what_was_generated() -> None:
    provider = ScriptedProvider(Script(words=40, hang_after=3))
    client = asked(stream=True)
    client.leaves_after = 4  # the role and three words

    with anyio.fail_after(60):
        await client.call(provider)

    assert (client.complete, provider.abandoned) == (False, 1)
    assert (provider.input_tokens_billed, provider.output_tokens_billed) == (5, 3)


async def test_a_call_that_hangs_before_its_start_sends_nothing_until_the_caller_leaves() -> None:
    provider = ScriptedProvider(Script(hang_after=0))
    client = asked(stream=True)
    client.leaves_after = 0

    with anyio.fail_after(60):
        await client.call(provider)

    assert (client.sent, provider.abandoned, provider.output_tokens_billed) == ([], 1, 0)


async def test_an_answer_read_to_its_end_is_not_abandoned() -> None:
    provider = ScriptedProvider()

    await asked(stream=True).call(provider)

    assert provider.abandoned == 0


async def test_each_word_waits_for_the_pace() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    await asked(stream=True).call(ScriptedProvider(Script(words=3), pace_seconds=0.25, sleep=sleep))

    assert waited == [0.25, 0.25, 0.25]


async def test_a_message_of_the_user_may_choose_the_script() -> None:
    provider = ScriptedProvider(Script(words=40))

    client = await asked("script: words=9 usage=false").call(provider)

    assert "usage" not in client.json
    assert provider.output_tokens_billed == 9


@pytest.mark.parametrize(
    "directive",
    [
        "words",
        "words=",
        "words=-1",
        "words=1e3",
        "words=100001",
        "words=٣",
        "status=200",
        "status=600",
        "usage=no",
        "x=1",
    ],
)
async def test_a_directive_that_makes_no_sense_is_refused_and_bills_nothing(directive: str) -> None:
    provider = ScriptedProvider()

    client = await asked(f"script: {directive}").call(provider)

    assert client.status == 400
    assert provider.input_tokens_billed == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"messages": "hi"}',
        b'{"messages": ["hi"]}',
        b'{"messages": [], "max_tokens": 0}',
        b'{"messages": [], "max_tokens": true}',
        b'{"messages": [], "max_tokens": 1.5}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
    ],
    ids=range(13),
)
async def test_a_body_that_is_no_chat_request_is_answered_400(body: bytes) -> None:
    client = await sent(body).call(ScriptedProvider())

    assert (client.status, client.error) == (400, None)


async def test_a_body_above_the_limit_is_answered_413() -> None:
    client = await sent(b" " * (BODY_BYTES_MAX + 1)).call(ScriptedProvider())

    assert client.status == 413


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/chat/completions"), ("POST", "/v1/embeddings")])
async def test_anything_but_a_chat_call_is_not_found_and_not_counted(method: str, path: str) -> None:
    provider = ScriptedProvider()

    client = await Client(method=method, path=path).call(provider)

    assert (client.status, provider.calls) == (404, 0)


async def test_the_same_request_to_a_new_provider_gets_the_same_bytes() -> None:
    first = await asked(stream=True, **USAGE).call(ScriptedProvider())
    second = await asked(stream=True, **USAGE).call(ScriptedProvider())

    assert first.sent == second.sent


@hypothesis_settings(max_examples=100)
@given(contents=st.lists(st.text(), min_size=1, max_size=5), cap=st.integers(1, 60), words=st.integers(0, 80))
def test_a_bill_stays_below_the_bytes_sent_and_the_cap(contents: list[str], cap: int, words: int) -> None:
    """Every ceiling made of bytes must therefore hold for it."""
    provider = ScriptedProvider(Script(words=words))
    messages = [{"role": "user", "content": f".{content}"} for content in contents]
    client = sent(json.dumps({"messages": messages, "max_tokens": cap}, ensure_ascii=False).encode())

    anyio.run(client.call, provider)

    assert client.status == 200
    assert 0 < provider.input_tokens_billed <= len(client.body[0])
    assert provider.output_tokens_billed == min(words, cap)
