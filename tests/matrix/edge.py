"""A framework's application, guarded, with an edge outside of the guard that counts requests and response starts."""

import json
from typing import Any

from routeguard import RouteGuard
from tests.driver import App, Message
from tests.guarding import TEN_CENTS
from tests.matrix.apps import FRAMEWORKS
from tests.matrix.plays import door

TOKEN = "a-token-only-these-tests-know"
EDGE_PATH = "/edge"
GO_PATH = "/go"
MAX_BODY_BYTES = 400_000
BODY_TIMEOUT_SECONDS = 0.5


class Edge:
    """Counts the requests and the response starts between the server and the guard, and opens the door."""

    def __init__(self, app: App, inside: "Inside") -> None:
        self._app = app
        self._inside = inside
        self.begun = 0
        self.done = 0
        #: Most response starts of one request.
        self.starts_max = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["path"].startswith("/_routeguard"):
            await self._app(scope, receive, send)
        elif scope["path"] in {EDGE_PATH, GO_PATH}:
            if scope["path"] == GO_PATH:
                door.open()
            await self._tell(send)
        else:
            await self._count(scope, receive, send)

    async def _count(self, scope: Any, receive: Any, send: Any) -> None:
        starts = 0

        async def watched_send(message: Message) -> None:
            nonlocal starts
            if message["type"] == "http.response.start":
                starts += 1
                self.starts_max = max(self.starts_max, starts)
            await send(message)

        self.begun += 1
        try:
            await self._app(scope, receive, watched_send)
        finally:
            self.done += 1

    async def _tell(self, send: Any) -> None:
        facts = {
            "begun": self.begun,
            "done": self.done,
            "starts_max": self.starts_max,
            "calls": self._inside.calls,
            "waiting": door.waiting,
        }
        body = json.dumps(facts).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Inside:
    """Counts how often the guard calls the application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += scope["type"] == "http"
        await self._app(scope, receive, send)


def settings(ledger: str) -> dict[str, Any]:
    """What the matrix's guard is told: ten cents a call, and only what a scenario is about can refuse."""
    return {
        "paths": ["/chat/*"],
        "budget": "1000/day",
        "client_budget": "unlimited",
        "rate": "unlimited",
        "global_rate": "unlimited",
        "max_body": MAX_BODY_BYTES,
        "max_input_chars": 1_000_000,
        "body_timeout": f"{int(1000 * BODY_TIMEOUT_SECONDS)}ms",
        "admin_token": TOKEN,
        "ledger": ledger,
        "environ": {},
        **TEN_CENTS,
    }


def build(framework: str, ledger: str) -> Edge:
    inside = Inside(FRAMEWORKS[framework]())
    return Edge(RouteGuard(inside, **settings(ledger)), inside)
