"""The page that shows which address headers arrive, on a server of the standard library.

Rules that live here:

- Only address headers are shown or kept: no cookie, no authorization, no body is read.
- A request counts only where its address asks for it (`?plain`, `?forged`): platforms send health checks of their own.
- Everything has a bound: requests at once, seconds for each, minutes for all.
- The peer is the connection's. A server that believes forwarding headers would show the result instead of the cause.
"""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from routeguard.cli.echo.verdict import Arrived, forged_headers
from routeguard.client_ip.strategies import FORWARDING_HEADERS

#: Seconds for one request to arrive and be answered.
REQUEST_SECONDS: Final = 10
REQUESTS_AT_ONCE: Final = 32
#: Longest value shown; the longest address header that an edge makes is far shorter.
VALUE_CHARS_MAX: Final = 500
LINES_MAX: Final = 50
#: Bytes of a Host that are put into the commands of the answer.
HOST_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]")

Told = Callable[[str, Arrived], str]


class EchoServer(ThreadingHTTPServer):
    """Answers each request with what arrived, and tells `on_request` of it."""

    daemon_threads = True
    request_queue_size = REQUESTS_AT_ONCE

    def __init__(self, port: int, on_request: Told, on_answered: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            port: Where to listen; 0 for any.
            on_request: Told of what was asked and what arrived; gives what the visitor is told.
            on_answered: Called when a visitor has been told.
        """
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.socket.close()
        # On both families where there are two: some platforms reach an application by IPv6 alone.
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self.socket = socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=REQUESTS_AT_ONCE)
        self.server_address = self.socket.getsockname()[:2]
        self.server_name, self.server_port = "", self.server_address[1]
        self.on_request, self.on_answered = on_request, on_answered
        self._slots = threading.BoundedSemaphore(REQUESTS_AT_ONCE)

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", client_address: object) -> None:
        """Serve it in a thread, where one is free."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: "socket.socket | tuple[bytes, socket.socket]", client_address: object
    ) -> None:
        """One request, from its first byte to its last."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A visitor that leaves is no news."""


class _Handler(BaseHTTPRequestHandler):
    """Answers any path and any method."""

    server_version, sys_version = "routeguard-echo", ""
    timeout = REQUEST_SECONDS

    def __getattr__(self, name: str) -> Callable[[], None]:
        # Whatever the method is called: the standard library looks for `do_<METHOD>`.
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the requests that count are printed."""

    def _answer(self) -> None:
        wanted = {name.decode() for name in FORWARDING_HEADERS}
        lines = [(name.lower(), value) for name, value in self.headers.items() if name.lower() in wanted]
        headers = tuple((name.encode(), value.encode("latin-1", "replace")) for name, value in lines[:LINES_MAX])
        arrived = Arrived(headers, str(self.client_address[0]).removeprefix("::ffff:"))
        assert isinstance(self.server, EchoServer), "whoever made this handler"
        says = self.server.on_request(self.path.partition("?")[2], arrived)
        shown = {
            "peer": arrived.peer,
            "headers": [[name, value[:VALUE_CHARS_MAX]] for name, value in lines[:LINES_MAX]],
            "says": says,
        }
        body = json.dumps(shown, indent=2).encode() + b"\n"
        try:
            self._send(body)
        finally:
            self.server.on_answered()

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def commands(url: str) -> tuple[str, str]:
    """What the visitor runs: as it is, and with everything forged."""
    forged = " ".join(f"-H '{name}: {value}'" for name, value in forged_headers().items())
    return f"curl -s '{url}/?plain'", f"curl -s '{url}/?forged' {forged}"
