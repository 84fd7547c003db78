"""An asyncio event loop in which waiting takes no time: when nothing is ready, the clock jumps to the next timer.

Every task, timeout and stream of asyncio runs on it unchanged. Nothing real is waited for, so a run depends on its
seed alone.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


#: Not 0, so that a time that was forgotten does not look like one.
STARTS_AT = 1_000.0

Connects = Callable[[Callable[[], asyncio.Protocol], str], asyncio.Transport]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Connections are made by `connects`, which gets the protocol of the caller and the name of the host."""

    def __init__(self, connects: Connects | None = None) -> None:
        self._now = STARTS_AT
        super().__init__(_NothingReal(self))
        self._connects = connects

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        """Time passes."""
        self._now += seconds

    async def create_connection(  # type: ignore[override] # of its many shapes, the one that streams use
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """What `asyncio.open_connection` calls."""
        assert self._connects is not None, "this loop has no network"
        protocol: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            protocol.append(protocol_factory())
            return protocol[0]

        transport = self._connects(make, host)
        # A round trip, as the handshake of TCP is one.
        await asyncio.sleep(0.0002)
        return transport, protocol[0]


class _NothingReal(selectors.BaseSelector):
    """Is asked by the loop how long to wait, and lets that time pass at once."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        if timeout > 0:
            self._loop.jump(timeout)
        return []

    # The loop's own pipe, over which threads would wake it. There are none.
    def register(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        return self._keys.setdefault(number, selectors.SelectorKey(fileobj, number, events, data))

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> "Mapping[FileDescriptorLike, selectors.SelectorKey]":
        return {key.fileobj: key for key in self._keys.values()}
