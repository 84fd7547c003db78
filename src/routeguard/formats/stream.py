"""Reading what an event stream used while it passes.

Rules that live here:

- One foreign event anywhere, and nothing is read: a model whose text an application relays in its own way can be talked
  into printing a usage object. Only where that text alone is the whole stream could a model fake all of it.
- An error in the stream spoils what was reported before it. What comes with or after it counts if the stream still
  reaches its end.
- An event that was recognised by its shape would have told nothing (see `shape.py`); all others are parsed.
"""

import logging
from collections.abc import Sequence

from routeguard.formats.dialects import Dialect, is_error, opened_by
from routeguard.formats.reader import UsageReader
from routeguard.formats.shape import NO_SHAPE, shape_of
from routeguard.formats.sse import data_of, end_of_event, parse_event
from routeguard.formats.strict_json import Json, parse_json
from routeguard.usage import Tally, Usage

#: Largest event that is held and parsed, in 3 ms at worst; a larger one ends the reading. Unless said otherwise.
EVENT_BYTES_MAX = 64 * 1024
#: Shapes learnt per stream. One that changes more often is parsed event by event.
SHAPES_MAX = 32
#: Events of a stream that cannot be read in which a provider is still looked for.
FOREIGN_EVENTS_MAX = 16

_DONE = "[DONE]"
_logger = logging.getLogger("routeguard")


def stream_reader(event_bytes_max: int = EVENT_BYTES_MAX) -> UsageReader:
    """A reader of one `text/event-stream`."""
    return StreamReader(event_bytes_max)


class StreamReader:
    """Knows at any time what the stream has reported so far."""

    __slots__ = (
        "_billed",
        "_carry",
        "_dialect",
        "_event_bytes_max",
        "_events",
        "_readable",
        "_shape",
        "_shapes",
        "_spoiled",
        "_tally",
        "terminal",
    )

    def __init__(self, event_bytes_max: int) -> None:
        self.terminal = False
        self._event_bytes_max = event_bytes_max
        self._tally = Tally()
        self._dialect: Dialect | None = None
        self._readable = True
        #: The provider reported an error.
        self._spoiled = False
        #: Usage that may be taken for the bill has passed, and no error since.
        self._billed = False
        #: The beginning of an event whose end has not come.
        self._carry = bytearray()
        #: Events looked into, and shapes learnt.
        self._events = 0
        self._shapes = 0
        self._shape = NO_SHAPE

    @property
    def seen(self) -> bool:
        return self._dialect is not None

    @property
    def finish(self) -> str | None:
        return self._tally.finish

    def feed(self, chunk: bytes) -> None:
        try:
            # The usual chunk is one event of the shape seen last.
            if self._carry or not self._shape.is_of(chunk):
                self._take(chunk)
        except Exception as error:  # noqa: BLE001  a bug here must not break the answer that passes by
            self._give_up(error)

    def feed_all(self, chunks: Sequence[bytes]) -> None:
        try:
            start = 0
            while start < len(chunks):
                if self._carry or not chunks[start].startswith(self._shape.before):
                    self._take(chunks[start])
                    start += 1
                else:
                    start = self._take_alike(chunks, start)
        except Exception as error:  # noqa: BLE001  as above
            self._give_up(error)

    def result(self, *, failed: bool) -> Usage | None:
        if self._carry:
            self.feed(b"\n\n")  # an event that the end of the stream cut off is looked at like any other
        if not self._readable or self._dialect is None or not self._billed:
            return None
        if not self.terminal and (failed or self._spoiled):
            return None
        return self._tally.usage_of_answer()

    def _take_alike(self, chunks: Sequence[bytes], start: int) -> int:
        """Those from `start` to the last that begins like the shape seen last. Returns where the others begin."""
        before, end = self._shape.before, len(chunks)
        while not chunks[end - 1].startswith(before):
            end -= 1
        alike = chunks[start:end]
        if not self._shape.is_of_all(alike):
            for chunk in alike:
                self.feed(chunk)
        return end

    def _take(self, chunk: bytes) -> None:
        if not self._readable and self._is_over():
            return
        carry = self._carry
        if not carry:
            # The usual chunk is one whole event, needs no copy, and is not of the shape seen last.
            if (data := data_of(chunk)) is not None:
                self._look(chunk, data)
                return
            if chunk.find(b"\n\n") == len(chunk) - 2 > 0 and b"\r" not in chunk:
                self._look(chunk)
                return
        searched = max(len(carry) - 1, 0)  # of an end that lies across the seam, at least one byte has come
        carry += chunk
        with_cr = b"\r" in chunk  # an end without a CR in this chunk has come before, or shows as LF LF
        start = 0
        while (end := end_of_event(carry, searched, with_cr=with_cr)) >= 0:
            self._pass(bytes(carry[start:end]))
            start = searched = end
        del carry[:start]
        if len(carry) > self._event_bytes_max:
            self._stop()

    def _is_over(self) -> bool:
        """Of a stream that cannot be read: whether a provider was seen is decided as well, so nothing matters now."""
        return self._dialect is not None or self._events >= FOREIGN_EVENTS_MAX

    def _pass(self, raw: bytes) -> None:
        """One whole event, with the empty line that ends it."""
        if not self._shape.is_of(raw) and (self._readable or not self._is_over()):
            self._look(raw)

    def _look(self, raw: bytes, data: str | None = None) -> None:
        """One event that its shape does not tell, with its data where that is known."""
        self._events += 1
        if len(raw) > self._event_bytes_max:
            self._stop()
            return
        try:
            name = ""
            if data is None:
                name, data = parse_event(raw, first=self._events == 1)
            if data is not None:
                self._read(raw, name, data)
        except ValueError:
            self._readable = False
            self._shape = NO_SHAPE

    def _read(self, raw: bytes, name: str, data: str) -> None:
        """Raises ValueError for what no provider sends, and for usage that cannot be right."""
        if data.strip() == _DONE:
            self.terminal = self.terminal or (self._dialect is not None and self._dialect.ends_with_done)
            return
        event = parse_json(data)
        if not isinstance(event, dict):
            raise ValueError("not an object")
        failed = is_error(name, event)
        if failed:
            self._spoiled = True
            self._billed = False
            self._shape = NO_SHAPE
        dialect = self._dialect or opened_by(event)
        if self.terminal and dialect is not None and self._is_another_answer(dialect):
            raise ValueError("a second answer in the same stream")
        if dialect is not None and dialect.continues(event):
            self._dialect = dialect
            if self._count(dialect, event) and not failed:
                self._learn(raw)
        elif not failed:
            raise ValueError("not an event of this dialect")

    def _is_another_answer(self, dialect: Dialect) -> bool:
        """Whether what comes after the end could be one that has no name to tell it by."""
        return dialect.ends_once or (self._tally.is_nameless and not dialect.repeats_its_end)

    def _count(self, dialect: Dialect, event: Json) -> bool:
        """True for an event that told nothing new."""
        known = self._tally.changes
        answer = event if dialect.answer_in is None else dialect.answer_in(event)
        if answer is not None and self._tally.read_answer(answer):
            self._billed = self._billed or dialect.bills is None or dialect.bills(event)
        if dialect.ends is not None and self._readable and dialect.ends(event):
            self.terminal = True
        if self._tally.changes == known:
            return True
        self._shape = NO_SHAPE  # it may hold what has just been replaced, and would have to be read again
        return False

    def _learn(self, raw: bytes) -> None:
        """Remember the shape of an event that told nothing.

        Never of the first event, which alone may begin with a byte order mark. Never of an error, which undoes what
        was told before it: a second one undoes what came between them.
        """
        if self._events > 1 and self._shapes < SHAPES_MAX and (shape := shape_of(raw)) is not None:
            self._shapes += 1
            self._shape = shape

    def _give_up(self, error: Exception) -> None:
        self._stop()
        _logger.warning("a stream could not be read: %s", type(error).__name__)

    def _stop(self) -> None:
        """Look no further."""
        self._readable = False
        self._events = FOREIGN_EVENTS_MAX
        self._carry.clear()
        self._shape = NO_SHAPE
