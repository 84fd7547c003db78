"""A wire to the store that can lose, cut and hold back answers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal

#: `skip_reply` loses an answer and keeps the connection, as no network does, but a broken proxy.
Fault = Literal["drop_request", "hold_request", "drop_reply", "half_reply", "skip_reply"]

#: What every command of ours carries and no handshake does: a key.
OURS = b"{rg:"


class FaultProxy:
    """Give it to `async with`; `port` is its near end, and `url` that of its database 0."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._host = host
        #: The port behind; a new one holds for new connections.
        self.upstream = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        #: What happens to the next exchanges, and to how many.
        self.fault: Fault = "drop_reply"
        self.left = 0
        #: Requests whose sender has given up, until `deliver` lets them arrive.
        self.held: list[bytes] = []
        #: Only requests that hold this are broken.
        self.holding = OURS
        #: Runs before each answer is passed on.
        self.delay: Callable[[], Awaitable[None]] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def break_next(self, number: int, fault: Fault) -> None:
        self.fault, self.left = fault, number

    async def deliver(self) -> None:
        """Let the requests that were held arrive, and wait until each is answered; nobody hears the answers."""
        held, self.held = self.held, []
        for request in held:
            far, far_out = await asyncio.open_connection(self._host, self.upstream)
            far_out.write(request)
            await far.readline()
            far_out.close()

    async def __aenter__(self) -> "FaultProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        far, far_out = await asyncio.open_connection(self._host, self.upstream)
        armed: list[Fault] = []
        ways = [
            asyncio.create_task(self._forward(near, far_out, armed)),
            asyncio.create_task(self._backward(far, near_out, armed)),
        ]
        try:
            # Cancelled when the proxy closes; asyncio's streams log a cancelled connection as a failure.
            with suppress(asyncio.CancelledError):
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            with suppress(OSError):
                near_out.transport.abort()
                far_out.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)
            self._connections.discard(task)

    async def _forward(self, near: asyncio.StreamReader, far: asyncio.StreamWriter, armed: list[Fault]) -> None:
        while data := await near.read(1_000_000):
            if self.holding in data and self.left > 0:
                self.left -= 1
                if self.fault == "hold_request":
                    self.held.append(data)
                if self.fault in {"drop_request", "hold_request"}:
                    return
                armed.append(self.fault)
            far.write(data)
            await far.drain()

    async def _backward(self, far: asyncio.StreamReader, near: asyncio.StreamWriter, armed: list[Fault]) -> None:
        while data := await far.read(1_000_000):
            fault = armed.pop(0) if armed else None
            if fault == "drop_reply":
                return
            if fault == "skip_reply":
                continue
            if fault == "half_reply":
                near.write(data[: len(data) // 2])
                await near.drain()
                return
            if self.delay is not None:
                await self.delay()
            near.write(data)
            await near.drain()
