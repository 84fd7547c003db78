"""HTTP/2: a stream is reset while its connection goes on, and the guard hears of it like of any other goodbye."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events
import pytest

from tests.matrix.scenarios import SETTLED, Outcome, Scenario, observe
from tests.matrix.servers import Site, running
from tests.sockets.wire import CHAT, HOST, WAIT_SECONDS

#: The servers of the matrix that speak HTTP/2 without TLS.
COMBINATIONS = [
    (framework, server)
    for framework in ("starlette", "django")
    for server in ("hypercorn", "hypercorn-trio", "granian")
    if (framework, server) != ("django", "hypercorn-trio")
]


class Connection:
    """One HTTP/2 connection, begun with prior knowledge."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=WAIT_SECONDS)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, path: str) -> int:
        """Send a chat request; the number of its stream."""
        stream: int = self._h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        self._h2.send_headers(stream, [*headers, ("content-type", "application/json")])
        self._h2.send_data(stream, CHAT, end_stream=True)
        self._flush()
        return stream

    def reset(self, stream: int) -> None:
        self._h2.reset_stream(stream)
        self._flush()

    def wait_for(self, kind: type[h2.events.Event], stream: int) -> None:
        """Wait until an event of this kind has happened to the stream."""
        for event in self._events():
            if isinstance(event, kind) and getattr(event, "stream_id", None) == stream:
                return

    def _events(self) -> Iterator[h2.events.Event]:
        while True:
            data = self._socket.recv(65_536)
            assert data, "the server ended the connection"
            yield from self._h2.receive_data(data)
            self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())


def _reset(site: Site) -> str:
    with Connection(site.port) as connection:
        left = connection.ask("/chat/hangs")
        connection.wait_for(h2.events.DataReceived, left)
        connection.reset(left)
        site.wait("the stream was stopped", lambda: bool(site.edge()["done"]))
        read = connection.ask("/chat/whole")
        connection.wait_for(h2.events.StreamEnded, read)
    return "left, then read on the same connection"


@pytest.mark.parametrize("combination", COMBINATIONS, ids=" on ".join)
def test_a_stream_that_is_reset_is_kept_and_the_next_one_settled(combination: tuple[str, str], tmp_path: Path) -> None:
    usual = Outcome("left, then read on the same connection", f"kept, {SETTLED}")

    with running(*combination, tmp_path) as site:
        outcome = observe(site, Scenario("resets a stream", _reset, usual))

    assert outcome == usual
