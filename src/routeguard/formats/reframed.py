"""Reading what a stream used that is framed in another way than an event stream.

Each line, and each binary frame, is handed on as one event to the reader of event streams: every rule of `stream.py`
holds for them as well.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from routeguard.formats.reader import UsageReader
from routeguard.formats.stream import EVENT_BYTES_MAX, stream_reader
from routeguard.usage import Usage

_logger = logging.getLogger("routeguard")


@dataclass(frozen=True, slots=True)
class Framing:
    """How a stream is cut into items, and what each of them is as an event. Both raise ValueError for anything else."""

    #: `end_of(buffer, start, searched)`: where the item that begins at `start` ends, or -1. No end lies before
    #: `searched`, unless that is `start`.
    end_of: Callable[[bytearray, int, int], int]
    #: An item as one event of an event stream; empty for one that says nothing.
    event_of: Callable[[bytes], bytes]
    #: What ends an item where the stream ends; empty where an item must end by itself.
    last: bytes


class ReframedReader:
    """A `UsageReader` of items. It holds at most one of them, of at most `item_bytes_max`."""

    __slots__ = ("_carry", "_events", "_framing", "_item_bytes_max", "_lost")

    def __init__(self, framing: Framing, item_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._framing = framing
        self._item_bytes_max = item_bytes_max
        self._events: UsageReader = stream_reader(item_bytes_max)
        #: The beginning of an item whose end has not come.
        self._carry = bytearray()
        #: Nobody can tell any more where an item begins.
        self._lost = False

    @property
    def seen(self) -> bool:
        return self._events.seen

    @property
    def terminal(self) -> bool:
        return self._events.terminal

    @property
    def finish(self) -> str | None:
        return self._events.finish

    def feed(self, chunk: bytes) -> None:
        if self._lost:
            return
        try:
            self._take(chunk)
        except ValueError:
            self._lose()
        except Exception as error:  # noqa: BLE001  a bug here must not break the answer that passes by
            self._lose()
            _logger.warning("a stream could not be read: %s", type(error).__name__)

    def feed_all(self, chunks: Sequence[bytes]) -> None:
        for chunk in chunks:
            self.feed(chunk)

    def result(self, *, failed: bool) -> Usage | None:
        if self._carry:
            self.feed(self._framing.last)
        if self._lost or self._carry:
            return None
        return self._events.result(failed=failed)

    def _take(self, chunk: bytes) -> None:
        carry, framing = self._carry, self._framing
        searched = len(carry)
        carry += chunk
        start = 0
        while (end := framing.end_of(carry, start, searched)) >= 0:
            if event := framing.event_of(bytes(carry[start:end])):
                self._events.feed(event)
            start = searched = end
        del carry[:start]
        if len(carry) > self._item_bytes_max:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        self._carry.clear()
