"""A demo in a process of its own, as people start it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from tests.ports import KeptPort
from tests.sockets.wire import HOST, WAIT_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
TOKEN = "a-token-only-this-test-knows"


@contextmanager
def demonstrating(*command: str, log: Path) -> Iterator[httpx2.Client]:
    """`python -m …` with scripted answers, on a free port, and a client of it."""
    reserved = KeptPort()
    port = reserved.port
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROUTEGUARD_", "DJANGO_"))}
    own = {"PORT": str(port), "MODEL": "scripted", "ROUTEGUARD_ADMIN_TOKEN": TOKEN}
    environment = {**kept, **own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    try:
        _wait_for(process, port, log)
        with httpx2.Client(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=60) as client:
            yield client
    finally:
        process.kill()
        process.wait()
        reserved.close()


def _wait_for(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not _listens(port):
        assert time.monotonic() < deadline, "the demo did not start"
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the demo ended with {process.wait(0.02)}: {log.read_text()}")


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except ConnectionRefusedError:
        return False
    return True
