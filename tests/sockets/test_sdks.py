"""The OpenAI and Anthropic SDKs at their default settings, pointed at a guarded route."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest

from routeguard.testing import FakeClock
from tests.driver import App, Message, chat_chunks
from tests.sockets.apps import ONE_CENT
from tests.sockets.server import Ledger, Serve, Site

MODEL = "test-model"
RESTING = "Closed until tomorrow."
LIMITED = "One question at a time, please."
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": ONE_CENT,
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 100},
}


def relaying(answer: dict[str, Any]) -> App:
    """An application that passes a provider's whole answer on."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    return app


def guarding(serve: Serve, app: App, **settings: Any) -> Site:
    return serve(
        app,
        paths=["/v1/**"],
        allow_fields=["model"],
        read_response="all",
        message_resting=RESTING,
        message_limited=LIMITED,
        **settings,
    )


@contextmanager
def openai_client(site: Site) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="none", base_url=f"{site.url}/v1") as client:
        yield client


@contextmanager
def anthropic_client(site: Site) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="none", base_url=site.url) as client:
        yield client


def ask_openai(client: openai.OpenAI) -> str | None:
    messages: Any = [{"role": "user", "content": "hi"}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1000)
    return answer.choices[0].message.content


def ask_anthropic(client: anthropic.Anthropic) -> str:
    answer = client.messages.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=1000)
    (block,) = answer.content
    assert block.type == "text"
    return block.text


def test_openai_reads_a_stream_and_the_ledger_its_usage(serve: Serve) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in chat_chunks(usage=ONE_CENT):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    site = guarding(serve, app)

    with openai_client(site) as client:
        messages: Any = [{"role": "user", "content": "hi"}]
        stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        words = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]

    assert words == ["word0 ", "word1 ", "word2 ", None]
    assert site.ledger() == Ledger(settled="0.01")


@pytest.mark.parametrize("budget_status", [503, 429, 402])
def test_openai_asks_once_when_the_budget_is_spent_and_shows_why(serve: Serve, budget_status: int) -> None:
    site = guarding(serve, relaying({}), budget="0.1/day", budget_status=budget_status)

    with openai_client(site) as client:
        client.post("/chat/completions", cast_to=object, body={"messages": []})
        with pytest.raises(openai.APIStatusError) as refused:
            ask_openai(client)

    assert [exchange.status for exchange in site.exchanges] == [200, budget_status]
    assert RESTING in str(refused.value)
    assert (refused.value.status_code, refused.value.code) == (budget_status, "insufficient_quota")
    assert isinstance(refused.value, openai.RateLimitError) == (budget_status == 429)
    assert site.ledger() == Ledger(kept="0.1")


@pytest.mark.parametrize("error_format", ["openai", "anthropic"])
def test_anthropic_asks_once_when_the_budget_is_spent_and_shows_why(serve: Serve, error_format: str) -> None:
    site = guarding(serve, relaying({}), budget="0.1/day", error_format=error_format)

    with anthropic_client(site) as client:
        client.post("/v1/messages", cast_to=object, body={"messages": []})
        with pytest.raises(anthropic.APIStatusError) as refused:
            ask_anthropic(client)

    assert [exchange.status for exchange in site.exchanges] == [200, 503]
    assert RESTING in str(refused.value)
    assert site.ledger() == Ledger(kept="0.1")


def test_anthropic_finds_the_type_and_the_request_id_of_a_refusal_in_its_own_format(serve: Serve) -> None:
    site = guarding(serve, relaying({}), paused=True, error_format="anthropic")

    with anthropic_client(site) as client, pytest.raises(anthropic.APIStatusError) as refused:
        ask_anthropic(client)

    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "overloaded_error")
    assert body["error"]["message"] == RESTING
    assert body["request_id"] == refused.value.response.headers["x-request-id"]
    assert len(site.exchanges) == 1


def test_openai_waits_out_a_rate_and_gets_its_answer(serve: Serve) -> None:
    clock = FakeClock()
    site = guarding(serve, relaying(COMPLETION), rate="1/1s", clock=clock)
    let_time_pass_with_each_refusal(site, clock)

    with openai_client(site) as client:
        answers = [ask_openai(client), ask_openai(client)]

    assert answers == ["hello", "hello"]
    assert [exchange.status for exchange in site.exchanges] == [200, 429, 200]
    assert site.ledger() == Ledger(settled="0.02")


def test_anthropic_waits_out_a_rate_and_gets_its_answer(serve: Serve) -> None:
    clock = FakeClock()
    site = guarding(serve, relaying(MESSAGE), rate="1/1s", clock=clock, error_format="anthropic")
    let_time_pass_with_each_refusal(site, clock)

    with anthropic_client(site) as client:
        answers = [ask_anthropic(client), ask_anthropic(client)]

    assert answers == ["hello", "hello"]
    assert [exchange.status for exchange in site.exchanges] == [200, 429, 200]
    assert site.ledger() == Ledger(settled="0.02")


def test_both_raise_their_rate_limit_error_when_they_may_not_wait(serve: Serve) -> None:
    site = guarding(serve, relaying(COMPLETION), rate="1/minute")

    with openai_client(site) as client, anthropic_client(site) as other:
        ask_openai(client)
        with pytest.raises(openai.RateLimitError, match=LIMITED) as refused:
            ask_openai(client.with_options(max_retries=0))
        with pytest.raises(anthropic.RateLimitError, match=LIMITED):
            ask_anthropic(other.with_options(max_retries=0))

    assert refused.value.code == "rate_limit_exceeded"
    assert 0 < int(refused.value.response.headers["retry-after"]) <= 60


def let_time_pass_with_each_refusal(site: Site, clock: FakeClock) -> None:
    """The client then waits for its second on its own clock, and the guard's has gone on as well."""
    guard = site.app

    async def passing(scope: Any, receive: Any, send: Any) -> None:
        async def watched_send(message: Message) -> None:
            if message.get("status") == 429:
                clock.advance(1)
            await send(message)

        await guard(scope, receive, watched_send)

    site.mount(passing)
