"""SIGTERM in mid-stream: what the client sees of its stream, and what the ledger's file says afterwards."""

import os
import signal
from pathlib import Path
from typing import Any

import anyio

from routeguard import Settings
from routeguard.build import build_guard
from routeguard.status import StatusRoutes
from tests.matrix.edge import settings
from tests.matrix.scenarios import Outcome
from tests.matrix.servers import GRACE_SECONDS, running
from tests.sockets.wire import WAIT_SECONDS, Answer, Wire, request

#: How long a server that was told to stop may take on a busy machine, beyond the grace that it gives its streams.
STOP_SECONDS = GRACE_SECONDS + WAIT_SECONDS
#: A stream that goes on for so much longer than the grace is not cut at all.
CUT_SECONDS = GRACE_SECONDS + 15
ATTEMPTS_MAX = 20


def stop_in_mid_stream(framework: str, server: str, directory: Path) -> Outcome:
    """Tell a server to stop while a stream goes on, and read the ledger once it is gone."""
    ledger = f"sqlite:///{directory / f'{framework}-{server}.db'}"
    with running(framework, server, directory, ledger=ledger) as site, site.connect() as wire:
        head = _begin(wire)
        wire.chunk()
        os.kill(site.process.pid, signal.SIGTERM)
        wire.wait_at_most(CUT_SECONDS)
        seen = _rest(wire, head)
        wire.close()  # whoever waits for this stream may go on
        site.process.wait(STOP_SECONDS)
    return Outcome(f"{head.status} {seen}", _ending(anyio.run(_read, ledger)))


def _rest(wire: Wire, head: Answer) -> str:
    try:
        return "whole" if wire.rest(head).complete else "cut"
    except TimeoutError:
        return "left open"


def _begin(wire: Wire) -> Answer:
    """The head of a stream that hangs. A machine too busy for the file is told 503 in time, and asks again."""
    for _ in range(ATTEMPTS_MAX):
        wire.send(request("/chat/hangs"))
        head = wire.head()
        if head.status == 200:
            return head
        assert head.status == 503, head
        wire.rest(head)
    raise AssertionError("the ledger's file never answered in time")


def _ending(budget: Any) -> str:
    """The one state that the stream's ten cents are in."""
    (state,) = [part for part in ("settled", "open", "kept", "orphaned") if float(budget[f"{part}_usd"])]
    assert (float(budget[f"{state}_usd"]), float(budget["remaining_usd"])) == (0.1, 999.9), budget
    return state


async def _read(ledger: str) -> Any:
    chosen = Settings(**settings(ledger))
    guard = build_guard(chosen)
    try:
        status: Any = await StatusRoutes(chosen, guard).status()
    finally:
        await guard.ledger.aclose()
    return status["budgets"][0]
