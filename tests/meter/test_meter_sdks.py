"""The real SDKs on metered clients, against a provider on a real socket.

Every call reports ten input and a hundred output tokens; at $100 per million output tokens that is one cent, and a call
of a thousand tokens at most may cost ten.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agents
import anthropic
import httpx
import openai
import pytest
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from google import genai
from google.genai import types as genai_types
from google.genai.client import AsyncClient

from routeguard import BudgetExceeded, metered
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.played import COMPLETION, HI, calling
from tests.meter.served import Served
from tests.sockets.server import Signal

PRICES: dict[str, Any] = {"price_in": 0, "price_out": 100}
MESSAGES: Any = HI


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The agents SDK needs asyncio, and so does google-genai."""
    return "asyncio"


# A script makes its client once, before it serves; reading prices and time zones on the loop is an error here.
metered(sync=True, budget="1/day").close()


def asking_openai(provider: Served, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=f"{provider.url}/v1", http_client=metered(**options))


def asking_anthropic(provider: Served, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="none", base_url=provider.url, http_client=metered(**options))


@asynccontextmanager
async def asking_gemini(provider: Served) -> AsyncIterator[AsyncClient]:
    async with metered() as http:  # google-genai leaves open what it did not open
        options = genai_types.HttpOptions(base_url=provider.url, httpx_async_client=http)
        yield genai.Client(api_key="none", http_options=options).aio


async def openai_chat(provider: Served) -> None:
    async with asking_openai(provider) as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "hello"


async def openai_chat_stream(provider: Served) -> None:
    async with asking_openai(provider) as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["word0 ", "word1 ", "word2 ", None]


async def openai_responses(provider: Served) -> None:
    async with asking_openai(provider) as client:
        answer = await client.responses.create(model="m", input="hi")
    assert answer.output_text == "hello"
    assert provider.calls[0]["max_output_tokens"] == 1000


async def openai_responses_stream(provider: Served) -> None:
    async with asking_openai(provider) as client:
        stream = await client.responses.create(model="m", input="hi", stream=True)
        events = [event.type async for event in stream]
    assert events == ["response.created", "response.output_text.delta", "response.completed"]


async def anthropic_messages(provider: Served) -> None:
    async with asking_anthropic(provider) as client:
        answer = await client.messages.create(model="m", messages=MESSAGES, max_tokens=5000)
    assert answer.usage.output_tokens == 100
    assert provider.calls[0]["max_tokens"] == 1000


async def anthropic_messages_stream(provider: Served) -> None:
    async with (
        asking_anthropic(provider) as client,
        client.messages.stream(model="m", messages=MESSAGES, max_tokens=1000) as stream,
    ):
        assert "".join([text async for text in stream.text_stream]) == "hello"


async def gemini(provider: Served) -> None:
    async with asking_gemini(provider) as client:
        answer = await client.models.generate_content(model="gemini-2.5-flash", contents="hi")
    assert answer.text == "hello"
    assert provider.calls[0]["generationConfig"]["maxOutputTokens"] == 1000


async def gemini_stream(provider: Served) -> None:
    async with asking_gemini(provider) as client:
        stream = await client.models.generate_content_stream(model="gemini-2.5-flash", contents="hi")
        assert [chunk.text async for chunk in stream] == ["hello", "hello"]


@pytest.mark.parametrize(
    "ask",
    [
        openai_chat,
        openai_chat_stream,
        openai_responses,
        openai_responses_stream,
        anthropic_messages,
        anthropic_messages_stream,
        gemini,
        gemini_stream,
    ],
)
async def test_in_a_guarded_request_every_sdk_is_capped_and_charged_what_its_answer_reports(
    provider: Served, ask: Any
) -> None:
    guard = guarded(calling(lambda: ask(provider)))

    client = await Client().call(guard)

    assert client.error is None
    charged = await parts(guard)
    assert (charged["settled"], charged["kept"], charged["open"]) == ("0.01", "0", "0")
    assert len(provider.calls) == 1


def test_the_sync_sdks_stop_at_their_budget(provider: Served) -> None:
    options: dict[str, Any] = {**PRICES, "budget": "0.11/day"}
    chat = openai.OpenAI(api_key="x", base_url=f"{provider.url}/v1", http_client=metered(sync=True, **options))
    claude = anthropic.Anthropic(api_key="x", base_url=provider.url, http_client=metered(sync=True, **options))
    google_http = metered(sync=True, **options)
    google_options = genai_types.HttpOptions(base_url=provider.url, httpx_client=google_http)
    google = genai.Client(api_key="none", http_options=google_options)

    def ask_each() -> None:
        chat.chat.completions.create(model="m", messages=MESSAGES)
        claude.messages.create(model="m", messages=MESSAGES, max_tokens=1000)
        google.models.generate_content(model="gemini-2.5-flash", contents="hi")

    ask_each()
    ask_each()

    with chat, pytest.raises(BudgetExceeded):
        chat.chat.completions.create(model="m", messages=MESSAGES)
    with claude, pytest.raises(anthropic.RateLimitError):
        claude.messages.create(model="m", messages=MESSAGES, max_tokens=1000)
    with pytest.raises(BudgetExceeded):
        google.models.generate_content(model="gemini-2.5-flash", contents="hi")
    google_http.close()
    assert len(provider.calls) == 6


async def test_embeddings_have_no_output_to_pay_for(provider: Served) -> None:
    async with asking_openai(provider, budget="0.002/day", price_in=1, price_out=1_000) as client:
        await client.embeddings.create(model="m", input=["hi", "there"])
        allowance = client._client._transport._allowance  # type: ignore[attr-defined]

    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert "max_tokens" not in provider.calls[0]
    assert (found.settled_nanousd, found.kept_nanousd) == (10_000, 0)


async def test_openai_lets_the_refusal_through_at_once(provider: Served) -> None:
    async with asking_openai(provider, budget="0.05/day", **PRICES) as client:
        with pytest.raises(BudgetExceeded) as refused:
            await client.chat.completions.create(model="m", messages=MESSAGES)

    assert (refused.value.reason, str(refused.value.ceiling_usd)) == ("too_expensive", "0.1")
    assert provider.calls == []


async def test_anthropic_raises_its_rate_limit_error_after_one_attempt(
    provider: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking_anthropic(provider, budget="0.05/day", **PRICES) as client:
        attempts = _count_sends(client._client, monkeypatch)
        with pytest.raises(anthropic.RateLimitError, match="more than the whole budget") as refused:
            await client.messages.create(model="m", messages=MESSAGES, max_tokens=1000)

    body: Any = refused.value.body
    assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "insufficient_quota")
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert (len(attempts), provider.calls) == (1, [])


async def test_an_openai_sdk_that_wraps_exceptions_gets_the_answer_as_well(provider: Served) -> None:
    headers = {"x-stainless-lang": "python", "x-stainless-package-version": "2.54.0"}
    async with metered(budget="0.05/day", **PRICES) as client:
        answer = await client.post(f"{provider.url}/v1/chat/completions", json={"messages": HI}, headers=headers)

    assert (answer.status_code, answer.headers["x-should-retry"]) == (429, "false")


def _count_sends(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    attempts: list[object] = []
    send = client.send

    async def counted(*arguments: Any, **options: Any) -> Any:
        attempts.append(arguments)
        return await send(*arguments, **options)

    monkeypatch.setattr(client, "send", counted)
    return attempts


async def test_the_retries_of_an_sdk_are_calls_of_their_own(provider: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai.AsyncOpenAI, "_calculate_retry_timeout", lambda *_, **__: 0)
    provider.statuses = [500, 500, 500]

    async def ask() -> None:
        async with asking_openai(provider) as client:
            await client.chat.completions.create(model="m", messages=MESSAGES)

    guard = guarded(calling(ask), calls_per_request=2)
    client = await Client().call(guard)

    assert isinstance(client.error, BudgetExceeded)
    assert (client.error.reason, len(provider.calls)) == ("calls_per_request", 2)
    assert (await parts(guard))["kept"] == "0.2"


async def test_a_retry_after_a_refusal_of_the_provider_is_not_counted(
    provider: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai.AsyncOpenAI, "_calculate_retry_timeout", lambda *_, **__: 0)
    provider.statuses = [429, 429]

    guard = guarded(calling(lambda: openai_chat(provider)))
    client = await Client().call(guard)

    assert client.error is None
    assert len(provider.calls) == 3
    assert (await parts(guard))["settled"] == "0.01"


async def test_the_first_chunk_does_not_wait_for_the_second(provider: Served) -> None:
    go_on = provider.go_on = Signal()
    async with asking_openai(provider, budget="1/day", **PRICES) as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        chunks = aiter(stream)

        first = await anext(chunks)
        go_on.give()
        rest = [chunk async for chunk in chunks]

    assert (first.choices[0].delta.content, len(rest)) == ("word0 ", 3)


async def test_an_httpx_client_serves_the_openai_sdk_too(provider: Served) -> None:
    http: Any = metered(httpx.AsyncClient(), budget="0.11/day", **PRICES)
    async with openai.AsyncOpenAI(api_key="x", base_url=f"{provider.url}/v1", http_client=http) as client:
        await client.chat.completions.create(model="m", messages=MESSAGES)
        await client.chat.completions.create(model="m", messages=MESSAGES)
        with pytest.raises(BudgetExceeded):
            await client.chat.completions.create(model="m", messages=MESSAGES)

    assert len(provider.calls) == 2


def tool_calls(number: int) -> dict[str, Any]:
    """An answer that asks for tools, for ever."""
    calls = [
        {"id": f"call_{index}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        for index in range(number)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {**COMPLETION, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


@pytest.mark.parametrize("budget_cents", [10, 14, 25])
async def test_an_agent_that_would_go_on_for_ever_stops_at_its_run_budget(provider: Served, budget_cents: int) -> None:
    """A cent a call and ten cents reserved: the last call is the last that could not exceed the budget."""
    agents.set_tracing_disabled(disabled=True)
    provider.completion = tool_calls(1)

    @agents.function_tool
    def look_up() -> str:
        """Looks something up."""
        return "nothing found"

    async with asking_openai(provider, budget=f"0.{budget_cents:02d}/total", **PRICES) as client:
        model = OpenAIChatCompletionsModel(model="m", openai_client=client)
        agent = agents.Agent(name="Looker", instructions="Look it up.", tools=[look_up], model=model)
        with pytest.raises(BudgetExceeded):
            await agents.Runner.run(agent, "hi", max_turns=1000)

    assert len(provider.calls) == budget_cents - 10 + 1


async def test_agents_that_call_each_other_as_tools_at_once_never_exceed_the_run_budget(provider: Served) -> None:
    agents.set_tracing_disabled(disabled=True)
    provider.completion = tool_calls(4)

    async with asking_openai(provider, budget="0.55/total", **PRICES) as client:
        model = OpenAIChatCompletionsModel(model="m", openai_client=client)

        @agents.function_tool(failure_error_function=None)
        async def look_up() -> str:
            """Asks the model itself, as agents do that are tools of others."""
            answer = await client.chat.completions.create(model="m", messages=MESSAGES)
            return str(answer.id)

        agent = agents.Agent(name="Looker", tools=[look_up], model=model)
        with pytest.raises(BudgetExceeded):
            await agents.Runner.run(agent, "hi", max_turns=1000)
        allowance = client._client._transport._allowance  # type: ignore[attr-defined]

    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert found.charged_nanousd <= 550_000_000
    assert found.open_nanousd == 0
    assert len(provider.calls) <= 55


async def test_a_stream_that_its_caller_breaks_off_is_charged_in_full(provider: Served) -> None:
    go_on = provider.go_on = Signal()
    async with asking_openai(provider, budget="0.1/day", **PRICES) as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        await anext(aiter(stream))
        await stream.close()
        go_on.give()
        with pytest.raises(BudgetExceeded, match="spent"):
            await client.chat.completions.create(model="m", messages=MESSAGES)


async def test_raw_events_reach_the_caller_as_the_provider_framed_them(provider: Served) -> None:
    async with metered(budget="1/day", **PRICES) as client:
        request = {"model": "m", "messages": HI, "stream": True}
        async with client.stream("POST", f"{provider.url}/v1/chat/completions", json=request) as answer:
            lines = [line async for line in _data(answer)]

    assert lines[-1] == "[DONE]"
    assert all(json.loads(line)["choices"] for line in lines[:-1])


async def _data(answer: Any) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        if line:
            yield line.removeprefix("data: ")
