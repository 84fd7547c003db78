"""How a demo of this folder is served: which model answers, what is printed, and by which server."""

import asyncio
import logging
import os
import secrets
import socket
import sys
from contextlib import suppress
from typing import Any, Protocol

import uvicorn

from examples.fastapi_app.model import LOG, Model, open_model
from routeguard.testing.scripted import ScriptedProvider

#: Where the demo mounts its scripted provider.
SCRIPTED_PATH = "/demo/provider/v1"
#: Pace of scripted answers: fifty words a second, about what a hosted model does.
WORD_SECONDS = 0.02

INTRODUCTION = """
  Wick & Filament, a lamp shop with a guarded chat

  page    http://127.0.0.1:{port}/
  status  http://127.0.0.1:{port}/_routeguard/status   (Authorization: Bearer {token})
  model   {model}
  prices  pretend ones, so that the meter moves; budget $1.00 a day, forgotten when you stop it (Ctrl+C)
"""


class CreateApp(Protocol):
    """Builds a whole demo around a model."""

    def __call__(self, model: Model, *, stage: ScriptedProvider, port: int, admin_token: str) -> Any: ...


def run(create_app: CreateApp) -> None:
    """Serve a demo on http://127.0.0.1:8000/ (`PORT` chooses another) until it is interrupted."""
    # Before the model, which takes a while, and before the address is printed, which would be somebody else's page.
    with _listen(os.environ.get("PORT") or "8000") as listening, suppress(KeyboardInterrupt):
        _run(create_app, listening)


def _listen(port: str) -> socket.socket:
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        sys.exit(f"PORT is a number from 0 to 65535 and not {port!r}: make demo PORT=8001")
    try:
        return socket.create_server(("127.0.0.1", int(port)))
    except OSError as error:
        sys.exit(f"PORT {port} cannot be used ({os.strerror(error.errno or 0)}); choose another: make demo PORT=8001")


def _run(create_app: CreateApp, listening: socket.socket) -> None:
    port: int = listening.getsockname()[1]
    token = os.environ.get("ROUTEGUARD_ADMIN_TOKEN") or secrets.token_urlsafe(16)
    _log_what_is_in_force()
    # A proxy in the environment is for the provider, not for the servers that the demo starts on this machine.
    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"]))
    with open_model(os.environ, scripted_url=f"http://127.0.0.1:{port}{SCRIPTED_PATH}") as model:
        sys.stdout.write(f"{INTRODUCTION.format(port=port, token=token, model=model.label)}\n")
        sys.stdout.flush()
        app = create_app(model, stage=ScriptedProvider(pace_seconds=WORD_SECONDS), port=port, admin_token=token)
        asyncio.run(_serve(app, listening))


def _log_what_is_in_force() -> None:
    """The guard's start line and every warning, and what the provider did wrong; the page shows the rest."""
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(lambda record: record.levelno > logging.INFO or not hasattr(record, "event"))
    logger = logging.getLogger("routeguard")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    LOG.addHandler(handler)


async def _serve(app: Any, listening: socket.socket) -> None:
    # Without proxy_headers=False uvicorn believes X-Forwarded-For of every caller on this machine, and the guard
    # would see a new client for each value that an attacker makes up.
    settings = uvicorn.Config(app, proxy_headers=False, log_level="warning")
    await uvicorn.Server(settings).serve(sockets=[listening])
