"""An in-process ASGI driver: a scripted client and server around an application.

It plays what a test client cannot: a client that leaves at a chosen message, a cancel at the k-th await, a `send`
that fails, and it keeps every message in the order it came.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from routeguard.replay import Message

# The ASGI interface is untyped by specification, and frameworks type it each in their own way.
App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class Client:
    """One request, and everything the application sent back."""

    method: str = "POST"
    path: str = "/chat"
    query: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    #: Chunks in which the body arrives.
    body: Sequence[bytes] = (b'{"messages":[{"role":"user","content":"hi"}]}',)
    peer: tuple[str, int] | None = ("203.0.113.9", 50000)
    root_path: str = ""
    http_version: str = "1.1"
    extra_scope: dict[str, Any] = field(default_factory=dict)
    #: The client leaves once the application has sent this many body messages; None: it stays.
    leaves_after: int | None = None
    #: The client leaves before its body is complete.
    leaves_in_body: bool = False
    #: Raised by `send` at the n-th message the application sends.
    send_raises: tuple[int, BaseException] | None = None
    #: Give content-length and content-type headers that fit the body.
    plain_headers: bool = True

    sent: list[Message] = field(default_factory=list, init=False)
    received: int = field(default=0, init=False)
    error: BaseException | None = field(default=None, init=False)
    left: anyio.Event = field(default_factory=anyio.Event, init=False)

    @property
    def status(self) -> int | None:
        starts = [message for message in self.sent if message["type"] == "http.response.start"]
        assert len(starts) <= 1, "more than one response start"
        return starts[0]["status"] if starts else None

    @property
    def response_headers(self) -> dict[str, str]:
        start = next(message for message in self.sent if message["type"] == "http.response.start")
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start.get("headers", ())}

    @property
    def chunks(self) -> list[bytes]:
        return [message.get("body", b"") for message in self.sent if message["type"] == "http.response.body"]

    @property
    def complete(self) -> bool:
        """The last body message was sent."""
        return any(m["type"] == "http.response.body" and not m.get("more_body", False) for m in self.sent)

    @property
    def json(self) -> Any:
        return json.loads(b"".join(self.chunks))

    @property
    def reason(self) -> str | None:
        """Reason of a refusal in the default format, or None."""
        body = b"".join(self.chunks)
        if self.status is None or self.status < 400 or not body.startswith(b'{"type":"error"'):
            return None
        reason: str = json.loads(body)["error"]["reason"]
        return reason

    def scope(self) -> dict[str, Any]:
        headers = list(self.headers)
        names = {name for name, _ in headers}
        if self.plain_headers and self.body and any(self.body):
            if b"content-length" not in names and b"transfer-encoding" not in names:
                headers.append((b"content-length", str(sum(map(len, self.body))).encode()))
            if b"content-type" not in names:
                headers.append((b"content-type", b"application/json"))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.http_version,
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query,
            "root_path": self.root_path,
            "headers": headers,
            "client": self.peer,
            "server": ("127.0.0.1", 8000),
            "state": {},
            **self.extra_scope,
        }

    async def receive(self) -> Message:
        number = self.received
        self.received += 1
        chunks = list(self.body) or [b""]
        if self.leaves_in_body and number >= len(chunks) - 1:
            return {"type": "http.disconnect"}
        if number < len(chunks):
            return {"type": "http.request", "body": chunks[number], "more_body": number < len(chunks) - 1}
        if self.leaves_after == 0:
            self.left.set()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.send_raises is not None and len(self.sent) == self.send_raises[0]:
            raise self.send_raises[1]
        self.sent.append(dict(message))
        bodies = sum(message["type"] == "http.response.body" for message in self.sent)
        if self.leaves_after is not None and bodies >= self.leaves_after:
            self.left.set()
        await anyio.lowlevel.checkpoint()
        if self.complete:
            self.left.set()

    async def call(self, app: App) -> Client:
        """Run the request; an exception of the application is kept in `error`, as a server would log it."""
        try:
            await app(self.scope(), self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - kept for the test to look at
            self.error = error
        return self


class CancelAt:
    """Drives a coroutine and throws at its k-th suspension, as a native cancel would."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, error: BaseException) -> None:
        self._coroutine = coroutine
        self._number = number
        self._error = error
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        to_throw: BaseException | None = None
        while True:
            try:
                if to_throw is not None:
                    thrown, to_throw = to_throw, None
                    yielded = self._coroutine.throw(thrown)
                else:
                    yielded = self._coroutine.send(value)
            except StopIteration as stop:
                return stop.value
            if self.suspensions == self._number:
                to_throw = self._error
                self.suspensions += 1
                continue
            self.suspensions += 1
            try:
                value = yield yielded
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine it belongs to
                to_throw = error
