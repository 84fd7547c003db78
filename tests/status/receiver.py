"""A webhook's receiver: a real HTTP server that answers as it is told."""

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal


class Receiver:
    """Keeps what it got. Answers with the statuses it was given in their order, then with 204.

    `late` and `never` wait for `released`.
    """

    def __init__(self, *answers: int | Literal["hang up", "late", "never"]) -> None:
        self.bodies: list[Any] = []
        self.requests: list[tuple[str, str, str | None]] = []
        self.arrived = threading.Semaphore(0)
        self.released = threading.Event()
        self._answers = deque(answers)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def do_GET(self) -> None:
                receiver._take(self)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook?key=hunter2"

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, number: int) -> None:
        """Until so many requests have arrived."""
        for _ in range(number):
            assert self.arrived.acquire(timeout=60), f"{len(self.bodies)} of {number} arrived"

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length", 0))
        self.requests.append((handler.command, handler.path, handler.headers.get("content-type")))
        self.bodies.append(json.loads(handler.rfile.read(length) or b"null"))
        answer = self._answers.popleft() if self._answers else 204
        self.arrived.release()
        if answer == "never":
            self.released.wait(20)
            return
        if answer == "hang up":
            return
        if answer == "late":
            self.released.wait(60)
            answer = 204
        handler.send_response(answer)
        if answer in {301, 302, 303, 307, 308}:
            handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
