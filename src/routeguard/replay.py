"""Reading a request's body before the application does, and giving it back.

Rules that live here (each measured on six servers):

- A pending `receive` is never cancelled and then used again: gunicorn answers the next call with a false
  disconnect. A body that is too slow ends the request.
- After the replayed body `receive` is the server's own: an empty message repeated sends frameworks into a loop,
  and a disconnect cuts the stream. Nobody polls it beside the application.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import anyio

# The ASGI interface is untyped by specification: a message is a mapping of strings to values of many types.
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: How long a server may take to say that the client has left, which it knows: one turn of its loop, and a margin.
GONE_SECONDS = 0.1


class ClientGone(Exception):
    """The client left before its body was complete. Nothing was reserved and nobody is there to answer."""


class BodyTooLarge(Exception):
    """More bytes arrived than are allowed, whatever was declared."""

    def __init__(self, read: list[Message]) -> None:
        super().__init__()
        #: What had been read until then.
        self.read = read
        #: The last of the body is in it, so that nothing more will come.
        self.is_complete = not read[-1]["more_body"]


class Replay:
    """The application's `receive`: first the messages already read, then the server's own.

    Remembers a disconnect that the application was told of.
    """

    __slots__ = ("_pending", "_receive", "disconnected")

    def __init__(self, receive: Receive, pending: list[Message]) -> None:
        self._receive = receive
        self._pending = pending
        self.disconnected = False

    async def __call__(self) -> Message:
        if self._pending:
            return self._pending.pop(0)
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.disconnected = True
        return message

    async def is_disconnected(self) -> bool:
        """Whether the client has left, also if nobody told the application. For the end: `receive` is of no use after.

        A server that cancels the application of a client that has left (gunicorn, daphne) cancels it at a shutdown as
        well, and says which of the two it was here alone.
        """
        if not self.disconnected and not self._pending:
            # A server that fails here knows of no client that left. A second cancel must not keep the ending from being
            # decided; the first is on its way already.
            with suppress(Exception, asyncio.CancelledError), anyio.move_on_after(GONE_SECONDS, shield=True):
                await self()
        return self.disconnected


async def read_body(receive: Receive, *, bytes_max: int) -> tuple[bytes, list[Message]]:
    """The whole body, and the messages to replay. Takes as long as the client does: the caller bounds the time.

    Args:
        receive: The server's `receive`; once this is cancelled, it must not be used again.
        bytes_max: More bytes than this are an error.

    Raises:
        BodyTooLarge: More than `bytes_max` bytes arrived; it holds what was read.
        ClientGone: The client disconnected.
    """
    # The messages are not kept: one for each byte of 64 kB would take 20 MB.
    body = bytearray()
    while True:
        # Not every server's `receive` returns a coroutine (granian's does not); awaiting is all that is portable.
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        body += message.get("body", b"")
        more_body = message.get("more_body", False)
        if more_body and len(body) <= bytes_max:
            continue
        messages: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": more_body}]
        if len(body) > bytes_max:
            raise BodyTooLarge(messages)
        return messages[0]["body"], messages
