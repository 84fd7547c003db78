"""Real agent loops on a real model, stopped at the budget of their run.

Real are the loop (openai-agents, LangGraph), the model with every token it makes and every tool it calls, and the
bill. Scripted is only what the tools answer. A token made costs $0.0001 here, and one read nothing.
"""

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import agents
import anyio.to_thread
import openai
import pytest
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

from examples.fastapi_app import local_model
from routeguard import BudgetExceeded, metered
from tests.meter.small_model import WAIT_SECONDS, Counted, small_model
from tests.sockets.server import Edge
from tests.sockets.wire import HOST

pytestmark = pytest.mark.skipif(
    local_model.find_weights() is None or importlib.util.find_spec("xllamacpp") is None,
    reason="the local model is not installed (make .venv/model.installed)",
)

TOKEN_NANOUSD = 100_000
#: What one answer of the agent may have. Two calls of a tool take it 62 tokens.
AGENT_CAP = 70
#: Two such answers leave a few tokens less than a third needs.
RUN_TOKENS = 190
QUESTION = "Look up cat and dog."
NEXT = "Look up bird and fish."

# A script makes its client once, before it runs its loop; reading prices and time zones on the loop is an error here.
metered(sync=True, budget="1/day").close()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Both loops are of asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with small_model() as url:
        yield url


@pytest.fixture
def counted(
    model_url: str, provider_server: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Counted, str]]:
    """The counting provider, and its base URL."""
    monkeypatch.setenv("NO_PROXY", HOST)
    monkeypatch.setenv("no_proxy", HOST)
    agents.set_tracing_disabled(disabled=True)
    edge, port = provider_server
    edge.app = app = Counted(model_url)
    edge.exchanges = []
    yield app, f"http://{HOST}:{port}/v1"
    edge.wait_done()


def run_budget(*, tokens: int) -> dict[str, Any]:
    """The budget of one run, in tokens made."""
    return {"budget": f"{tokens * TOKEN_NANOUSD / Decimal(10**9):f}/total", "price_in": 0, "price_out": 100}


@asynccontextmanager
async def openai_client(base_url: str, *, tokens: int) -> AsyncIterator[openai.AsyncOpenAI]:
    http = metered(timeout=WAIT_SECONDS, **run_budget(tokens=tokens))
    async with openai.AsyncOpenAI(api_key="none", base_url=base_url, http_client=http) as client:
        yield client


async def charged(http: Any) -> tuple[int, int]:
    """What the run was charged: tokens that were reported, and tokens at the worst case."""
    allowance = http._transport._allowance
    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert found.open_nanousd == 0
    return found.settled_nanousd // TOKEN_NANOUSD, found.kept_nanousd // TOKEN_NANOUSD


async def run(agent: Any) -> None:
    await agents.Runner.run(agent, QUESTION, max_turns=1000)


async def run_streamed(agent: Any) -> None:
    async for _ in agents.Runner.run_streamed(agent, QUESTION, max_turns=1000).stream_events():
        pass


async def invoke(agent: Any) -> None:
    await agent.ainvoke({"messages": [("user", QUESTION)]}, {"recursion_limit": 1000})


async def for_ever(loop: Callable[[Any], Awaitable[None]], agent: Any) -> None:
    """Should the model come to an end, it is asked again."""
    while True:
        await loop(agent)


def assert_stopped_in_time(counted: Counted, *, tokens: int) -> int:
    """Not one call too many and not one too few reached the model, one after the other; how many tokens they made."""
    used = [call.used for call in counted.calls if call.used is not None]
    assert len(used) == len(counted.calls), counted.calls
    assert sum(used[:-1]) + AGENT_CAP <= tokens, "the last call could have exceeded the budget"
    assert sum(used) + AGENT_CAP > tokens, "another call would have fitted"
    return sum(used)


@pytest.mark.parametrize("streams", [False, True], ids=["whole answers", "streams"])
async def test_an_openai_agents_loop_stops_at_the_budget_of_its_run(
    counted: tuple[Counted, str], streams: bool
) -> None:
    app, base_url = counted
    looked_up: list[str] = []

    @agents.function_tool
    def look_up(word: str) -> str:
        """Looks a word up."""
        looked_up.append(word)
        return NEXT

    async with openai_client(base_url, tokens=RUN_TOKENS) as client:
        model = OpenAIChatCompletionsModel(model=local_model.MODEL_NAME, openai_client=client)
        settings = agents.ModelSettings(max_tokens=AGENT_CAP, temperature=0, parallel_tool_calls=True)
        agent = agents.Agent(name="Looker", tools=[look_up], model=model, model_settings=settings)
        with pytest.raises(BudgetExceeded) as stop:
            await for_ever(run_streamed if streams else run, agent)
        bill = await charged(client._client)

    assert stop.value.reason == "budget_exhausted"
    assert bill == (assert_stopped_in_time(app, tokens=RUN_TOKENS), 0)
    assert app.calls[0].tools == 2
    assert looked_up[:2] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("failure_error_function", "raised"),
    [(agents.default_tool_error_function, BudgetExceeded), (None, agents.exceptions.UserError)],
    ids=["told to the model", "raised"],
)
async def test_tools_that_call_the_model_at_once_get_no_call_more_than_the_run_can_pay(
    counted: tuple[Counted, str],
    provider_server: tuple[Edge, int],
    failure_error_function: Any,
    raised: type[Exception],
) -> None:
    """After the agent's call there is room for one tool's, and the model has called two.

    By default openai-agents tells the model that a tool has failed, and would go on: its next call does not fit.
    """
    (app, base_url), (edge, _) = counted, provider_server
    tool_cap = 40
    refused: dict[str, BudgetExceeded] = {}

    async with openai_client(base_url, tokens=AGENT_CAP + tool_cap) as client:

        @agents.function_tool(failure_error_function=failure_error_function)
        async def look_up(word: str) -> str:
            """Looks a word up, by asking the model."""
            try:
                answer = await client.chat.completions.create(
                    model=local_model.MODEL_NAME,
                    messages=[{"role": "user", "content": f"What is a {word}?"}],
                    max_tokens=tool_cap,
                )
            except BudgetExceeded as stop:
                refused[word] = stop
                await anyio.to_thread.run_sync(edge.wait_begun, 2)  # who raises cancels the other tool
                raise
            return str(answer.choices[0].message.content)

        model = OpenAIChatCompletionsModel(model=local_model.MODEL_NAME, openai_client=client)
        settings = agents.ModelSettings(max_tokens=AGENT_CAP, temperature=0, parallel_tool_calls=True)
        agent = agents.Agent(name="Looker", tools=[look_up], model=model, model_settings=settings)
        with pytest.raises(raised) as stop:
            await run(agent)
        settled, kept = await charged(client._client)

    assert app.calls[0].tools == 2
    assert [call.cap for call in app.calls] == [AGENT_CAP, tool_cap]
    assert [(word, refusal.reason) for word, refusal in refused.items()] == [("dog", "busy")]
    assert isinstance(stop.value, BudgetExceeded) or stop.value.__cause__ is refused["dog"]
    assert settled + kept <= AGENT_CAP + tool_cap
    assert kept in (0, tool_cap), "the other tool's call, where it was cancelled"


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_langgraph_loop_stops_at_the_budget_of_its_run(counted: tuple[Counted, str]) -> None:
    needed = "langchain-openai and langgraph are not installed"
    langchain_core = pytest.importorskip("langchain_core.tools", reason=needed)
    langchain_openai = pytest.importorskip("langchain_openai", reason=needed)
    langgraph = pytest.importorskip("langgraph.prebuilt", reason=needed)
    app, base_url = counted
    looked_up: list[str] = []

    async def look_up(word: str) -> str:
        """Looks a word up."""
        looked_up.append(word)
        return NEXT

    async with metered(timeout=WAIT_SECONDS, **run_budget(tokens=RUN_TOKENS)) as http:
        model: dict[str, Any] = {"model": local_model.MODEL_NAME, "temperature": 0, "max_tokens": AGENT_CAP}
        where: dict[str, Any] = {"base_url": base_url, "api_key": "none", "http_async_client": http}
        chat = langchain_openai.ChatOpenAI(**model, **where)
        agent = langgraph.create_react_agent(chat, [langchain_core.tool(look_up)])
        with pytest.raises(BudgetExceeded) as stop:
            await for_ever(invoke, agent)
        bill = await charged(http)

    assert stop.value.reason == "budget_exhausted"
    assert bill == (assert_stopped_in_time(app, tokens=RUN_TOKENS), 0)
    assert app.calls[0].tools == 2
    assert sorted(looked_up[:2]) == ["cat", "dog"]
