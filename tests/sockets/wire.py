"""HTTP/1.1 by hand over a socket: a client that can do what a well-behaved one never does."""

import json
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
#: Bound of every wait. Far above what anything here takes, so that a busy machine is no failure.
WAIT_SECONDS = 60.0
CHAT = b'{"messages":[{"role":"user","content":"hi"}]}'
JSON = "content-type: application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """One response."""

    status: int
    headers: dict[str, str]
    #: The HTTP chunks; a body with a length is one.
    chunks: Sequence[bytes]
    #: The body came to its declared end.
    complete: bool

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def reason(self) -> str:
        reason: str = self.json["error"]["reason"]
        return reason

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    path: str = "/chat", *, method: str = "POST", headers: Sequence[str] = (JSON,), body: bytes | None = CHAT
) -> bytes:
    """The bytes of a request; with a body it declares its length. Without a body it has neither length nor type."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    if body is not None:
        lines += [*headers, f"content-length: {len(body)}"]
    else:
        lines += [header for header in headers if header != JSON]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def head(*headers: str) -> bytes:
    """The head of a `POST /chat` whose body is sent by hand."""
    return "\r\n".join(["POST /chat HTTP/1.1", "host: localhost", *headers, "", ""]).encode()


class Wire:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=WAIT_SECONDS)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def head(self) -> Answer:
        """Status and headers of the next response; its body is still to be read."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = [line.partition(":") for line in lines[1:] if line]
        return Answer(
            int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in headers}, (), complete=False
        )

    def chunk(self) -> bytes:
        """The next HTTP chunk; an empty one is the last.

        Raises:
            ConnectionError: The connection ended first.
        """
        size = int(self._until(b"\r\n"), 16)
        data = self._exactly(size)
        assert self._exactly(2) == b"\r\n"
        return data

    def answer(self, *, to: str = "POST") -> Answer:
        """The whole next response to a request of method `to`, or as much of it as came."""
        head = self.head()
        return self.rest(head, to=to)

    def rest(self, head: Answer, *, to: str = "POST") -> Answer:
        """The body of a response whose head has been read."""
        chunks: list[bytes] = []
        complete = True
        try:
            if to == "HEAD" or head.status in {204, 304}:
                pass
            elif head.headers.get("transfer-encoding") == "chunked":
                while chunk := self.chunk():
                    chunks.append(chunk)
            elif "content-length" not in head.headers:
                # Neither chunks nor a length: the body ends with the connection (RFC 9112, section 6.3).
                chunks.append(self._until_the_end())
            else:
                chunks.append(self._exactly(int(head.headers["content-length"])))
        except ConnectionError:
            complete = False
        return Answer(head.status, head.headers, chunks, complete)

    def has_answer(self) -> bool:
        """Whether something has arrived that was not read yet. Does not wait."""
        return self.is_readable_within(0)

    def wait_at_most(self, seconds: float) -> None:
        """Bound each later wait by less than usual; what takes longer raises TimeoutError."""
        self._socket.settimeout(seconds)

    def is_readable_within(self, seconds: float) -> bool:
        """Whether something arrives in time, or the connection ends."""
        return bool(self._buffer or select.select([self._socket], [], [], seconds)[0])

    def is_over(self) -> bool:
        """Whether the server ends the connection here; waits for it."""
        assert not self._buffer, "something unread came before"
        try:
            self._buffer += self._socket.recv(65_536)
        except ConnectionError:
            return True
        return not self._buffer

    def close(self) -> None:
        self._socket.close()

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Leave without a word: the peer gets a RST instead of an orderly end."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _until(self, mark: bytes) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            self._fill()
        taken = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return taken

    def _until_the_end(self) -> bytes:
        with suppress(ConnectionError):
            while True:
                self._fill()
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._fill()
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _fill(self) -> None:
        data = self._socket.recv(65_536)
        if not data:
            raise ConnectionError("the server ended the connection")
        self._buffer += data
