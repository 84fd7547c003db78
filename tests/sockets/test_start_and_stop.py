"""A server's life around the guard: a start that must fail, a server without lifespan, and SIGTERM."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from routeguard import ConfigError, Settings
from tests.sockets import broken_app
from tests.sockets.server import STACKS, Ledger, Stack, read_ledger
from tests.sockets.wire import HOST, WAIT_SECONDS, Wire, request

ROOT = Path(__file__).resolve().parent.parent.parent
#: What uvicorn exits with when the start fails.
STARTUP_FAILURE = 3
UVICORN = [sys.executable, "-m", "uvicorn", "tests.sockets.broken_app:app"]


def test_a_broken_configuration_stops_the_server_and_is_printed_whole() -> None:
    command = [*UVICORN, "--port", "0"]
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)

    assert run.returncode == STARTUP_FAILURE
    assert broken_text() in run.stderr


def test_a_ledger_that_cannot_be_used_stops_a_server_that_stops_by_raising() -> None:
    command = [sys.executable, "-m", "hypercorn", "--worker-class", "trio", "--bind", f"{HOST}:0"]
    command.append("tests.sockets.broken_app:on_trio")
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)

    assert "ROUTEGUARD_LEDGER: redis:// needs asyncio" in run.stderr


def test_without_lifespan_a_broken_configuration_refuses_guarded_requests_and_is_logged() -> None:
    with socket.create_server((HOST, 0)) as listening:
        command = [*UVICORN, "--lifespan", "off", "--fd", str(listening.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), pass_fds=[listening.fileno()], stderr=subprocess.PIPE, text=True
        )
        with process:
            try:
                with Wire(listening.getsockname()[1]) as wire:
                    wire.send(request())
                    guarded = wire.answer()
                    wire.send(request("/free", method="GET", body=None))
                    free = wire.answer()
                process.terminate()
                _, log = process.communicate(timeout=WAIT_SECONDS)
            finally:
                process.kill()

    assert (guarded.status, guarded.reason, guarded.headers["retry-after"]) == (503, "guard_unavailable", "5")
    assert (free.status, free.json) == (200, "free")
    assert broken_text() in log
    assert "no-such-model" not in guarded.body.decode()


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_a_stream_that_is_cut_by_sigterm_is_kept(stack: Stack) -> None:
    command = [sys.executable, "-m", "tests.sockets.stopped_app", stack.http, stack.loop]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with Wire(int(process.stdout.readline())) as wire:
                wire.send(request())
                head = wire.head()
                first = wire.chunk()
                process.send_signal(signal.SIGTERM)
                rest = wire.rest(head)
            output, _ = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()

    status = json.loads(output.splitlines()[-1])
    assert (process.returncode, first, rest.complete) == (0, b"data: one\n\n", False)
    assert read_ledger(status) == Ledger(kept="0.1")
    assert status["requests"]["endings"] == {"kept": 1}


def broken_text() -> str:
    with pytest.raises(ConfigError) as problem:
        Settings(**broken_app.BROKEN)
    text = str(problem.value)
    assert all(wrong in text for wrong in ("no-such-model", "much/day", "10/eon"))
    return text


def environment() -> dict[str, str]:
    """Ours without anything that would configure a guard, and with the same packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROUTEGUARD_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
