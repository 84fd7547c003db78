"""Sending a refusal so that the client sees it.

A client that is still writing its body may never read an answer on a connection that closes (Node's fetch and
Python's http.client see a reset). So the whole answer goes out first, then a bounded part of the body is read
and thrown away, then the response is finished. With `Expect: 100-continue` nothing is read: the client has not
begun to send.
"""

from collections.abc import Sequence

import anyio

from routeguard.replay import Receive, Scope, Send

#: How much of a refused body is read and thrown away, in bytes and seconds.
DRAIN_BYTES_MAX = 8_000_000
DRAIN_SECONDS_MAX = 2.0
#: A declared body up to this size is sure to be drained, and the connection can be kept.
KEEP_ALIVE_BYTES_MAX = 65_536

Headers = Sequence[tuple[bytes, bytes]]


async def respond(
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    status: int,
    headers: Headers,
    body: bytes,
    drain: bool,
    begun: bool = False,
    close: bool = False,
) -> None:
    """Answer a request that the application never sees: exactly one response start.

    Args:
        scope: The request.
        receive: The server's `receive`.
        send: The server's `send`.
        status: HTTP status.
        headers: Headers, content-length included.
        body: The whole answer.
        drain: The body was not read to its end, and `receive` may still be used.
        begun: Reading the body has begun, so that a client that asked was told to go on.
        close: End the connection after the answer, because nothing reads what is left of the body.
    """
    incoming = _incoming(scope)
    unread = drain and incoming.has_body
    all_headers = list(headers)
    is_large = incoming.declared is None or incoming.declared > KEEP_ALIVE_BYTES_MAX
    is_coming = begun or not incoming.expects_continue
    close = close or (unread and (is_large or not is_coming))
    if close and scope.get("http_version", "1.1").startswith("1"):
        all_headers.append((b"connection", b"close"))
    if scope["method"] == "HEAD":
        body = b""
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    if unread and is_coming:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await _drain(receive)
        body = b""
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse_websocket(
    scope: Scope, receive: Receive, send: Send, *, status: int, reason: str, headers: Headers, body: bytes
) -> None:
    """Refuse a handshake: with an answer where the server can give one, else with a close code.

    Args:
        scope: The handshake.
        receive: The server's `receive`.
        send: The server's `send`.
        status: HTTP status of the answer.
        reason: What the close says.
        headers: Headers of the answer, content-length included.
        body: The whole answer.
    """
    message = await receive()
    if message["type"] != "websocket.connect":
        return
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def _drain(receive: Receive) -> None:
    drained = 0
    with anyio.move_on_after(DRAIN_SECONDS_MAX):
        while drained < DRAIN_BYTES_MAX:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body", False):
                return
            drained += len(message.get("body", b""))


class _Incoming:
    """What the headers say about the body that is on its way."""

    __slots__ = ("declared", "expects_continue", "has_body")

    def __init__(self) -> None:
        self.declared: int | None = None
        self.has_body = False
        self.expects_continue = False


def _incoming(scope: Scope) -> _Incoming:
    incoming = _Incoming()
    chunked = False
    for name, value in scope["headers"]:
        if name == b"content-length":
            # Whatever is not plain digits was refused, and is drained as if its length were unknown.
            incoming.declared = int(value) if value.isdigit() and len(value) < 20 else None
            incoming.has_body = incoming.has_body or incoming.declared != 0
        elif name == b"transfer-encoding":
            chunked = True
        elif name == b"expect":
            incoming.expects_continue = value.strip().lower() == b"100-continue"
    if chunked:
        incoming.declared, incoming.has_body = None, True
    elif not incoming.has_body and not scope.get("http_version", "1.1").startswith("1"):
        # HTTP/2 needs neither header for a body.
        incoming.has_body = scope["method"] not in {"GET", "HEAD", "OPTIONS", "DELETE"}
    return incoming
