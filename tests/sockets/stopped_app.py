"""Serves a guarded stream without end until SIGTERM, and then prints what its ledger says.

    python -m tests.sockets.stopped_app httptools uvloop

The first line it prints is its port, the last one the status.
"""

import json
import signal
import socket
import sys
from typing import Any

import anyio
import uvicorn

from tests.guarding import guarded
from tests.sockets.apps import ONE_CENT
from tests.sockets.wire import HOST


async def endless(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    scope["routeguard"].report(ONE_CENT)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
    await anyio.sleep_forever()


def main(http: Any, loop: Any) -> None:
    guard = guarded(endless, admin_token="not-used-here")
    config = uvicorn.Config(
        guard, http=http, loop=loop, ws="none", lifespan="on", log_level="critical", timeout_graceful_shutdown=1
    )
    with socket.create_server((HOST, 0)) as listening:
        say(listening.getsockname()[1])
        # uvicorn raises the signal again once it has stopped, for whoever handled it before.
        signal.signal(signal.SIGTERM, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listening])
    assert guard._status is not None
    say(json.dumps(anyio.run(guard._status.status)))


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
