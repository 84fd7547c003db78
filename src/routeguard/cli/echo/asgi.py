"""The page of `check --echo` as an ASGI application, for platforms that run no command of one's own.

It remembers nothing, because two requests may reach two instances: the forged request alone is judged.
"""

import json
import os

from routeguard.cli.echo.verdict import Arrived, judge_alone
from routeguard.client_ip.strategies import FORWARDING_HEADERS
from routeguard.replay import Receive, Scope, Send

VALUE_BYTES_MAX = 500
LINES_MAX = 50


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request with its address headers, and with nothing else of it."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["type"] != "http":
        return
    found = [(name, value[:VALUE_BYTES_MAX]) for name, value in scope["headers"] if name in FORWARDING_HEADERS]
    client = scope.get("client")
    arrived = Arrived(tuple(found[:LINES_MAX]), client[0] if client else "")
    says = "Ask again with ?forged and the forged headers that `routeguard check --echo` prints."
    if scope.get("query_string", b"") == b"forged":
        says = judge_alone(arrived, os.environ).says
    shown = {
        "peer": arrived.peer,
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in arrived.headers],
        "says": says,
    }
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(shown, indent=2).encode() + b"\n"})
