"""The application's `send`, observed: forwards, looks, and ends the admission at the last body message.

Rules that live here:

- Forward first, look second. Nothing is delayed, buffered or changed but the headers of the start.
- What was forwarded is looked at in groups: between two awaits of the application each look would begin with cold
  caches. Nobody asks before the end what has been read.
- The ending is decided when the last body message *enters*, before it is forwarded: some servers tell the
  application of a disconnect while it still waits for that last `send`, and background tasks run after it.
- A last body message is no evidence of success. Several stacks send it after a failure.
- An application that is cancelled because its client has left ends like one that was told so.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable

from routeguard.admitted import TRUNCATED, Admission
from routeguard.attempt import Attempt
from routeguard.ending import Failure
from routeguard.formats import UsageReader, answer_reader
from routeguard.guard import Guard
from routeguard.replay import Message, Replay, Send

#: A JSON answer larger than this is not read for usage.
READ_BYTES_MAX = 1_048_576
#: Messages that send a file instead of bytes, of ASGI's two extensions for that.
FILES = ("http.response.pathsend", "http.response.zerocopysend")
#: Chunks that wait to be looked at, and the bytes of the largest that does.
HELD_MAX = 127
HELD_BYTES_MAX = 512


class Tap:
    """One response on its way out."""

    __slots__ = (
        "_admission",
        "_attempt",
        "_extra_headers",
        "_guard",
        "_held",
        "_is_preflight",
        "_read_response",
        "_reader",
        "_receive",
        "_send",
        "_time_limit",
        "body_sent",
        "status",
    )

    def __init__(
        self,
        send: Send,
        receive: Replay,
        guard: Guard,
        attempt: Attempt,
        admission: Admission,
        *,
        extra_headers: list[tuple[bytes, bytes]],
        read_response: str,
        is_preflight: bool,
    ) -> None:
        self._send = send
        self._receive = receive
        self._guard = guard
        self._admission = admission
        self._extra_headers = extra_headers
        self._read_response = read_response
        self._is_preflight = is_preflight
        self._reader: UsageReader | None = None
        #: Forwarded, and not looked at yet.
        self._held: list[bytes] = []
        #: Status of the answer once it has started.
        self.status: int | None = None
        self.body_sent = False
        self._attempt = attempt
        self._time_limit = attempt.time_limit

    def sender(self) -> Send:
        """What the application has for its `send`. The usual chunk of a stream takes no coroutine of its own."""
        forward, send, held, time_limit = self._forward, self._send, self._held, self._time_limit
        if self._is_preflight:
            return forward

        # A function of its own: what each chunk needs is at hand in it.
        def pass_on(message: Message) -> Awaitable[None]:
            try:
                # Only the body of an answer has both.
                body, more_body = message["body"], message["more_body"]
            except KeyError:
                return forward(message)
            # Other types than the specification's may change after they were sent.
            if not more_body or type(body) is not bytes or time_limit.passed:
                return forward(message)
            if len(held) == HELD_MAX or len(body) > HELD_BYTES_MAX:
                return forward(message)
            held.append(body)
            return send(message)

        return _marked(pass_on)

    async def _forward(self, message: Message) -> None:
        if self._time_limit.passed:
            # The application's time is over; what it still sends while it unwinds would end the stream well.
            return
        kind = message["type"]
        if kind == "http.response.body":
            # Taken out before it is forwarded: Starlette's GZipMiddleware puts its own into the same message.
            body, more_body = message.get("body", b""), message.get("more_body", False)
            if more_body:
                await self._send(message)
            if body:
                self.body_sent = True
                self._look(body)
            if more_body:
                return
            await self._last()
        elif kind == "http.response.start":
            message = self._start(message)
        elif kind in FILES:
            self.body_sent = True
            if not message.get("more_body", False):
                await self._last()
        await self._send(message)

    async def end(self, failure: Failure | None, *, complete: bool) -> None:
        """Decide the ending; once, later calls do nothing."""
        admission = self._admission
        if admission.ended:
            return
        disconnected = self._receive.disconnected
        if failure == "cancelled" and await self._receive.is_disconnected():
            failure, disconnected = None, True
        if failure is None and self.status is not None and self.status >= 500:
            failure = "status_5xx"
        reader, read, seen, terminal = self._reader, None, False, False
        self._look()
        if reader is not None:
            read = reader.result(failed=failure is not None or disconnected or not complete)
            seen, terminal = reader.seen, reader.terminal
            if reader.finish in TRUNCATED:
                admission.truncated = True
        if failure is None and disconnected and not terminal and admission.has_unreported_calls():
            failure = "disconnect"
        await self._guard.end(
            admission,
            failure=failure,
            status=self.status,
            read=read,
            provider_seen=seen,
            preflight_is_free=not self.body_sent if self._is_preflight else None,
        )

    def _look(self, chunk: bytes = b"") -> None:
        """Look at what is held, and then at this one."""
        held = self._held
        if chunk:
            held.append(chunk)
        if held:
            if self._reader is not None:
                self._reader.feed_all(held)
            held.clear()

    async def _last(self) -> None:
        # Work after the last message is never cancelled.
        self._time_limit.lift()
        await self.end(None, complete=True)

    def _start(self, message: Message) -> Message:
        self.status = message["status"]
        self._attempt.response_started = True
        self._held.clear()  # no server takes a body before the start
        headers = list(message.get("headers", ()))
        if self._read_response != "none":
            self._reader = answer_reader(
                headers, read_bodies=self._read_response == "all", body_bytes_max=READ_BYTES_MAX
            )
        # As a list also where nothing is added: it may have been an iterator, which has been read.
        return {**message, "headers": [*headers, *self._extra_headers]}


def _marked(function: Send) -> Send:
    """Marked as a coroutine function, for `asgiref` warns of what is none. What it returns is the server's own."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined] # noqa: SLF001
    return function
