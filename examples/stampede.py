"""Twenty requests at once against a budget for one call: `python examples/stampede.py`.

Real sockets, one server and no provider's key: the chat route asks a scripted provider for its answer, and what is
printed as spent is that provider's own bill. No call is answered before all twenty requests have reached the provider
or were refused, so that "at once" is not a matter of luck.

Exits with 1 when more was spent than the budget allows, when not exactly one request got through, or when the guard's
books differ from the provider's bill by a single nano-dollar.
"""

import argparse
import logging
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import anyio
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route

from routeguard import RouteGuard
from routeguard.testing.scripted import Script, ScriptedProvider

REQUESTS = 20
#: Pretend prices, USD per million tokens: they make a call of three hundred words cost three cents.
PRICE_IN, PRICE_OUT = 1, 100
WORDS = 300
#: Room for one call at its worst, and not for two.
BUDGET_USD = Decimal("0.05")
QUESTION = {"messages": [{"role": "user", "content": "Which lamp would you put beside a bed?"}]}
STAMPEDE_SECONDS_MAX = 60
ADMIN = {"Authorization": "Bearer stampede"}

GUARD: dict[str, Any] = {
    "paths": ["/api/chat"],
    "price_in": PRICE_IN,
    "price_out": PRICE_OUT,
    "max_output_tokens": WORDS,
    "system_prompt_bytes": 0,
    "budget": f"{BUDGET_USD}/day",
    # Only the budget stands between the crowd and the provider.
    "client_budget": "unlimited",
    "rate": "unlimited",
    "max_parallel_per_client": "unlimited",
    "admin_token": "stampede",
    "environ": {},
}


@dataclass(slots=True)
class Stampede:
    """One run: who was answered what, and what the provider put on its bill."""

    provider: ScriptedProvider = field(default_factory=lambda: ScriptedProvider(Script(words=WORDS)))
    answers: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    everybody_decided: anyio.Event = field(default_factory=anyio.Event)
    #: The guard's first budget, as its status shows it.
    books: dict[str, str] = field(default_factory=dict)

    @property
    def bill_usd(self) -> Decimal:
        micro_usd = self.provider.input_tokens_billed * PRICE_IN + self.provider.output_tokens_billed * PRICE_OUT
        return Decimal(micro_usd) / 1_000_000

    async def hold(self, _: float) -> None:
        """What the provider does before each word."""
        self.note()
        await self.everybody_decided.wait()

    def note(self) -> None:
        if self.provider.calls + self.refused == REQUESTS:
            self.everybody_decided.set()


async def main(mode: str) -> int:
    without = await stampede(guard=None)
    with_guard = await stampede(guard={**GUARD, "mode": mode, "namespace": f"stampede-{mode}"})
    call_usd = without.bill_usd / REQUESTS
    print(f"{REQUESTS} requests at once, {usd(call_usd)} each, against a budget of {usd(BUDGET_USD)} a day")
    print(f"  without routeguard   {answered(without):20}  spent {usd(without.bill_usd)}")
    print(f"  with routeguard      {answered(with_guard):20}  spent {usd(with_guard.bill_usd)}")
    found = breaches(with_guard)
    print(f"  {'BREACH: ' + '; '.join(found) if found else 'the ledger and the bill of the provider agree'}")
    return 1 if found else 0


async def stampede(*, guard: dict[str, Any] | None) -> Stampede:
    run = Stampede()
    run.provider.sleep = run.hold
    with anyio.fail_after(STAMPEDE_SECONDS_MAX):
        async with serving(run.provider, guard) as client:
            async with anyio.create_task_group() as crowd:
                for _ in range(REQUESTS):
                    crowd.start_soon(ask, client, run)
            if guard is not None:
                status = await client.get("/_routeguard/status", headers=ADMIN)
                run.books = status.json()["budgets"][0]
    return run


async def ask(client: httpx2.AsyncClient, run: Stampede) -> None:
    answer = await client.post("/api/chat", json=QUESTION)
    run.answers[answer.status_code] += 1
    if not answer.is_success:
        run.refused += 1
        run.note()


def breaches(run: Stampede) -> list[str]:
    """What the guard promised and did not keep."""
    settled, open_usd, kept = (Decimal(run.books[name]) for name in ("settled_usd", "open_usd", "kept_usd"))
    found = []
    if run.bill_usd > BUDGET_USD:
        found.append(f"spent {usd(run.bill_usd)} of {usd(BUDGET_USD)}")
    if run.answers != Counter({200: 1, 429: REQUESTS - 1}):
        found.append(f"answered {answered(run)}")
    if settled != run.bill_usd or open_usd or kept:
        found.append(f"the ledger says {settled} settled, {open_usd} open, {kept} kept, the bill says {run.bill_usd}")
    return found


@asynccontextmanager
async def serving(provider: ScriptedProvider, guard: dict[str, Any] | None) -> AsyncIterator[httpx2.AsyncClient]:
    """The shop's chat and its provider on a real socket, and a client of it."""
    with socket.create_server(("127.0.0.1", 0), backlog=2 * REQUESTS) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            httpx2.AsyncClient(base_url=url, timeout=STAMPEDE_SECONDS_MAX, trust_env=False) as upstream,
            httpx2.AsyncClient(base_url=url, timeout=STAMPEDE_SECONDS_MAX, trust_env=False) as client,
        ):
            app = Starlette(routes=[Route("/api/chat", chat(upstream), methods=["POST"]), Mount("/provider", provider)])
            if guard is not None:
                app.add_middleware(RouteGuard, **guard)
            # Without proxy_headers=False uvicorn believes X-Forwarded-For of every caller on this machine.
            server = uvicorn.Server(uvicorn.Config(app, proxy_headers=False, log_level="warning"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listening])
                yield client
                server.should_exit = True


def chat(upstream: httpx2.AsyncClient) -> Callable[[Request], Awaitable[StreamingResponse]]:
    """An ordinary chat route: it passes the provider's event stream on. The guard reads the usage from it."""

    async def relay(request: Request) -> StreamingResponse:
        question = await request.json()
        call = {**question, "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": WORDS}

        async def events() -> AsyncIterator[bytes]:
            async with upstream.stream("POST", "/provider/v1/chat/completions", json=call) as answer:
                async for chunk in answer.aiter_bytes():
                    yield chunk

        return StreamingResponse(events(), media_type="text/event-stream")

    return relay


def answered(run: Stampede) -> str:
    return ", ".join(f"{count:2} x {status}" for status, count in sorted(run.answers.items()))


def usd(amount: Decimal) -> str:
    return f"${amount:.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["enforce", "observe"], default="enforce", help="observe shows a breach")
    logging.getLogger("routeguard").addHandler(logging.NullHandler())
    logging.getLogger("routeguard").setLevel(logging.INFO)  # somebody listens: the start line is not for stderr
    sys.exit(anyio.run(main, parser.parse_args().mode))
