"""A lamp shop whose chat anybody may use, and whose bill nobody can run up.

`create_chat` is an ordinary FastAPI chat route; the two `add_middleware` calls below it are all that routeguard
adds. `create_app` puts the page, the panel and the attack buttons around it, which your application does not need.
"""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
from fastapi import FastAPI, Header, HTTPException, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from examples.fastapi_app.attacks import ATTACKS, Target, run_attack
from examples.fastapi_app.model import Model, log_failure, scripted
from examples.serving import SCRIPTED_PATH
from routeguard import RouteGuard
from routeguard.testing.scripted import DIRECTIVE, ScriptedProvider

SYSTEM_PROMPT = (
    "You are the assistant of Wick & Filament, a small lamp shop. Answer in two or three short, friendly sentences. "
    "The shop sells three lamps: Dawn, a bedside lamp, 59 dollars; Harbour, a brass desk lamp, 89 dollars; "
    "Mill, a pendant for over the table, 129 dollars. Delivery is free and takes three days."
)
#: The guard reserves for this many, and the provider is told the same number.
MAX_OUTPUT_TOKENS = 200
#: Pretend prices, USD per million tokens: a hundred times those of a small model, so that the meter moves.
PRICE_IN, PRICE_OUT = 20, 200

OBSERVED_STATUS_PATH = "/demo/observed"
STATIC = Path(__file__).with_name("static")


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str


class Chat(BaseModel):
    messages: Annotated[list[Message], Field(min_length=1)]


def create_chat(model: Model, *, rehearsal: Model, admin_token: str, namespace: str) -> FastAPI:
    """The guarded chat. Questions that begin with `script:` go to the scripted provider, so that it can fail on cue."""
    provider, scripted_provider = _client(model), _client(rehearsal)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with provider, scripted_provider:
            yield

    app = FastAPI(title="Wick & Filament", lifespan=lifespan)

    @app.post("/api/chat")
    @app.post("/observed/chat")
    async def chat(chat: Chat) -> StreamingResponse:
        if chat.messages[-1].content.startswith(DIRECTIVE):
            return StreamingResponse(_answer(scripted_provider, rehearsal, chat), media_type="text/event-stream")
        return StreamingResponse(_answer(provider, model, chat), media_type="text/event-stream")

    limits: dict[str, Any] = {
        "price_in": PRICE_IN,
        "price_out": PRICE_OUT,
        "max_output_tokens": MAX_OUTPUT_TOKENS,
        "max_body": "16kB",
        "max_input_chars": 4000,
        "system_prompt": SYSTEM_PROMPT,
        "budget": "1/day",
        "client_budget": "75%",  # one visitor of a demo on loopback is everybody
        "release_statuses": "404,405,422",  # FastAPI refuses a malformed body with 422, before the provider is called
        "admin_token": admin_token,
    }
    app.add_middleware(RouteGuard, paths=["/api/chat"], namespace=namespace, **limits)
    # For contrast: the same route and limits, but nothing is refused.
    app.add_middleware(
        RouteGuard,
        paths=["/observed/chat"],
        mode="observe",
        namespace=f"{namespace}-observed",
        status_path=OBSERVED_STATUS_PATH,
        **limits,
    )
    return app


def _client(model: Model) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {model.api_key}"}
    return httpx2.AsyncClient(base_url=model.base_url, headers=headers, timeout=httpx2.Timeout(60, connect=5))


async def _answer(provider: httpx2.AsyncClient, model: Model, chat: Chat) -> AsyncIterator[bytes]:
    """The provider's own event stream, passed on. The guard reads the usage from it."""
    question = {
        "model": model.name,
        "messages": [{"role": "system", "content": SYSTEM_PROMPT}, *chat.model_dump()["messages"]],
        model.cap_field: MAX_OUTPUT_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        # When the visitor leaves, the block closes the connection, and the provider stops.
        async with provider.stream("POST", "chat/completions", json=question) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_bytes():
                yield part
    except httpx2.HTTPError as failure:
        log_failure(model, failure)
        # A stream that just stops looks like success to most clients.
        error = {"message": "The answer broke off. Please ask again.", "type": "upstream_error", "code": None}
        yield f"\n\ndata: {json.dumps({'error': error})}\n\n".encode()


def create_app(
    model: Model, *, stage: ScriptedProvider, port: int, admin_token: str, namespace: str = "demo"
) -> FastAPI:
    """The whole demo: the chat, the page with the live panel, the attacks on it, and a provider that fails on cue."""
    rehearsal = scripted(f"http://127.0.0.1:{port}{SCRIPTED_PATH}", why="a question that begins with script:")
    app = create_chat(model, rehearsal=rehearsal, admin_token=admin_token, namespace=namespace)
    # The page hands out the admin token. No other site may have it by pointing its own name at this address.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])

    @app.get("/demo/config.json")
    async def config() -> JSONResponse:
        answer = {
            "token": admin_token,
            "model": model.label,
            "price_in": PRICE_IN,
            "price_out": PRICE_OUT,
            "attacks": [{"name": name, "title": attack.title, "plan": attack.plan} for name, attack in ATTACKS.items()],
        }
        return JSONResponse(answer, headers={"Cache-Control": "no-store"})

    @app.post("/demo/attack/{name}")
    async def attack(
        name: str, authorization: Annotated[str, Header()] = "", target: Literal["guarded", "observed"] = "guarded"
    ) -> JSONResponse:
        if not secrets.compare_digest(authorization.encode(), f"Bearer {admin_token}".encode()):
            raise HTTPException(401)
        if name not in ATTACKS:
            raise HTTPException(404)
        path, status_path = {
            "guarded": ("/api/chat", "/_routeguard/status"),
            "observed": ("/observed/chat", f"{OBSERVED_STATUS_PATH}/status"),
        }[target]
        aim = Target(port=port, path=path, status_path=status_path, admin_token=admin_token)
        report = await run_attack(name, aim, price_in=PRICE_IN, price_out=PRICE_OUT, output_tokens=MAX_OUTPUT_TOKENS)
        return JSONResponse(report)

    app.mount(SCRIPTED_PATH, stage)
    app.mount("/", _Page(directory=STATIC, html=True))
    return app


class _Page(StaticFiles):
    """Static files under a policy that lets no inline script, inline style or foreign host in."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Content-Security-Policy"] = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-cache"
        return response
