"""The matrix's servers: how each is started, on a free port of the loopback, and stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.matrix.edge import EDGE_PATH, GO_PATH, TOKEN
from tests.ports import KeptPort
from tests.sockets.wire import HOST, WAIT_SECONDS, Wire

ROOT = Path(__file__).resolve().parent.parent.parent
APPLICATION = "tests.matrix.served:application"
#: Between two looks at a server that is to become ready, or to be done with a request.
POLL_SECONDS = 0.01
#: How long a server may wait for its streams when it is told to stop.
GRACE_SECONDS = 1


def _python(module: str, *options: str) -> list[str]:
    return [sys.executable, "-m", module, APPLICATION, *options]


def _uvicorn(port: int, http: str, loop: str) -> list[str]:
    options = ["--host", HOST, "--port", str(port), "--http", http, "--loop", loop, "--no-proxy-headers"]
    return _python("uvicorn", *options, "--no-access-log", "--timeout-graceful-shutdown", str(GRACE_SECONDS))


def _hypercorn(port: int, worker: str) -> list[str]:
    options = ["--bind", f"{HOST}:{port}", "--worker-class", worker, "--graceful-timeout", str(GRACE_SECONDS)]
    return _python("hypercorn", *options)


def _granian(port: int) -> list[str]:
    options = ["--interface", "asgi", "--host", HOST, "--port", str(port), "--no-access-log"]
    return _python("granian", *options, "--workers-kill-timeout", f"{GRACE_SECONDS}s")


def _daphne(port: int) -> list[str]:
    return [sys.executable, "-m", "daphne", "-b", HOST, "-p", str(port), "-v", "0", APPLICATION]


def _gunicorn(port: int) -> list[str]:
    options = ["--bind", f"{HOST}:{port}", "--worker-class", "asgi", "--workers", "1", "--no-control-socket"]
    return _python("gunicorn", *options, "--graceful-timeout", str(GRACE_SECONDS))


#: Command of each server for a port.
SERVERS: dict[str, Callable[[int], list[str]]] = {
    "uvicorn": lambda port: _uvicorn(port, "httptools", "uvloop"),
    "uvicorn-h11": lambda port: _uvicorn(port, "h11", "asyncio"),
    "hypercorn": lambda port: _hypercorn(port, "asyncio"),
    "hypercorn-trio": lambda port: _hypercorn(port, "trio"),
    "granian": _granian,
    "daphne": _daphne,
    "gunicorn": _gunicorn,
}


class Site:
    """A running server, its guard's status, and what its edge has counted."""

    def __init__(self, framework: str, server: str, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.framework = framework
        self.server = server
        self.port = port
        self.process = process
        self._log = log

    def connect(self) -> Wire:
        return Wire(self.port)

    def status(self) -> Any:
        return self._get("/_routeguard/status")

    def edge(self) -> Any:
        return self._get(EDGE_PATH)

    def wait_at_the_door(self) -> None:
        """Wait until the play has come to the door."""
        self.wait("the play waits at the door", lambda: self.edge()["waiting"] == 1)

    def go(self) -> None:
        """Open the door for the play that waits there."""
        self._get(GO_PATH)

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Look until something is so."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, f"not in time: {what}; the log ends with {self.log_tail()}"
            self.pause()

    def pause(self, seconds: float = POLL_SECONDS) -> None:
        """Wait a moment, or fail if the server ends meanwhile."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"{self.server} ended with {code}: {self.log_tail()}")

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _get(self, path: str) -> Any:
        connection = HTTPConnection(HOST, self.port, timeout=WAIT_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", "Connection": "close"})
            answer = connection.getresponse()
            assert answer.status == 200, (path, answer.status, self.log_tail())
            return json.load(answer)
        finally:
            connection.close()


@contextmanager
def running(framework: str, server: str, directory: Path, *, ledger: str = "memory://") -> Iterator[Site]:
    """A server of this kind with this framework, ready for its first request."""
    kept = KeptPort()
    port = kept.port
    log = directory / f"{framework}-{server}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            SERVERS[server](port),
            cwd=ROOT,
            env=_environment(framework, ledger),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    site = Site(framework, server, port, process, log)
    try:
        site.wait(f"{server} is ready", lambda: _listens(port))
        site.edge()
        yield site
    finally:
        # Its workers too: they are of its session.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kept.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=WAIT_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def _environment(framework: str, ledger: str) -> dict[str, str]:
    """Ours without anything that would configure a guard, a server or Django."""
    prefixes = ("ROUTEGUARD_", "GRANIAN_", "GUNICORN_", "UVICORN_", "DJANGO_", "WEB_CONCURRENCY")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return {**kept, "MATRIX_FRAMEWORK": framework, "MATRIX_LEDGER": ledger, "PYTHONPATH": path}
