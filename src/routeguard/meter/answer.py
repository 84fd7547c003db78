"""Reading what a provider's answer says it used while the answer passes to the caller.

The caller gets every byte as it came and when it came, with one exception: the usage chunk that only we asked for.
"""

from collections.abc import Callable, Iterable

from routeguard.formats import UsageReader, answer_reader
from routeguard.formats.sse import end_of_event, parse_event
from routeguard.formats.strict_json import parse_json
from routeguard.meter.endpoints import Endpoint
from routeguard.usage import Usage

#: Largest answer that is read though it is no stream; a larger one counts at its worst case.
BODY_BYTES_MAX = 16 * 1024 * 1024
#: Largest event, or line, of a stream that is read. The last of Responses holds the whole answer again, and the last of
#: Ollama the context as a list of numbers.
EVENT_BYTES_MAX = 4 * 1024 * 1024
#: Largest event that is held to see whether it is the usage chunk.
HELD_BYTES_MAX = 64 * 1024

#: Takes what the call used, as soon as that is known.
Report = Callable[[Usage], None]


def answer_of(
    endpoint: Endpoint,
    headers: Iterable[tuple[bytes, bytes]],
    *,
    report: Report,
    hides_usage: bool,
    has_one_choice: bool = True,
) -> "Answer":
    """How to read an answer of this endpoint with these headers. A compressed one passes unread."""
    headers = list(headers)
    reader = answer_reader(
        headers, read_bodies=True, body_bytes_max=BODY_BYTES_MAX, event_bytes_max=EVENT_BYTES_MAX, from_provider=True
    )
    # Gemini's usage may still grow in what follows its finish reason.
    is_final_at_end = endpoint.name == "generate_content"
    hides_usage = hides_usage and reader is not None and _is_event_stream(headers)
    return Answer(
        reader, report, hides_usage=hides_usage, is_final_at_end=is_final_at_end, has_one_choice=has_one_choice
    )


class Answer:
    """An answer on its way to the caller."""

    __slots__ = ("_filter", "_has_one_choice", "_is_final_at_end", "_reader", "_report", "_told")

    def __init__(
        self,
        reader: UsageReader | None,
        report: Report,
        *,
        hides_usage: bool,
        is_final_at_end: bool,
        has_one_choice: bool,
    ) -> None:
        self._report = report
        self._is_final_at_end = is_final_at_end
        #: Of several, one that has finished says nothing of the others, which are billed as well.
        self._has_one_choice = has_one_choice
        self._told: Usage | None = None
        self._reader = reader
        self._filter = _UsageChunkFilter() if hides_usage else None

    def passes(self, chunk: bytes) -> bytes:
        """What of this chunk, and of what was held of those before, the caller gets now."""
        reader = self._reader
        if reader is not None:
            reader.feed(chunk)
            if reader.terminal:
                if not self._is_final_at_end:
                    self._tell(reader, failed=False)
                    self._reader = None
            elif b"[]" in chunk and self._has_finished(reader) and chunk.endswith(b"\n\n"):
                # The usage chunk of a chat comes before the end of its stream, and many callers leave there. The
                # reading goes on: other chunks hold an empty list as well, and usage that still grows.
                self._tell(reader, failed=False)
        return chunk if self._filter is None else self._filter.passes(chunk)

    def ends(self, *, complete: bool) -> bytes:
        """What the caller still gets. `complete`: the answer came to its own end."""
        reader = self._reader
        self._reader = None
        if reader is not None and (complete or self._has_one_choice):
            # Who leaves when the answer is whole, and before the stream is, has the bill already.
            self._tell(reader, failed=not (complete or self._has_finished(reader)))
        return b"" if self._filter is None else self._filter.rest()

    def _tell(self, reader: UsageReader, *, failed: bool) -> None:
        usage = reader.result(failed=failed)
        if usage is not None and usage != self._told:
            self._told = usage
            self._report(usage)

    def _has_finished(self, reader: UsageReader) -> bool:
        return self._has_one_choice and reader.finish is not None


class _UsageChunkFilter:
    """Takes the usage chunk out of a chat's event stream.

    Whole events pass at once. What is held is the beginning of an event whose end has not come, which no reader of
    event streams can do anything with yet.
    """

    __slots__ = ("_held", "_owes_lf")

    def __init__(self) -> None:
        self._held = bytearray()
        #: What was taken out ended with a CR, whose LF is still to come.
        self._owes_lf = False

    def passes(self, chunk: bytes) -> bytes:
        held = self._held
        if self._owes_lf and chunk:
            self._owes_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not held and b"[]" not in chunk and chunk.endswith(b"\n\n"):
            return chunk  # whole events, none of them with an empty list
        searched = max(len(held) - 1, 0)  # an end that lies across the seam is an end from its last byte on as well
        held += chunk
        with_cr = b"\r" in held
        passed = bytearray()
        start = 0
        while (end := end_of_event(held, max(start, searched), with_cr=with_cr)) >= 0:
            event = bytes(held[start:end])
            if not _is_usage_chunk(event):
                passed += event
            else:
                if event.startswith(b"\n"):
                    passed += b"\n"  # of the event in front of it, whose CR has passed
                if event.endswith(b"\r") and end == len(held):
                    self._owes_lf = True
            start = end
        del held[:start]
        if len(held) > HELD_BYTES_MAX:
            passed += held
            held.clear()
        return bytes(passed)

    def rest(self) -> bytes:
        """What is held, unless it is the usage chunk that the end cut off."""
        rest = bytes(self._held)
        self._held.clear()
        return b"" if _is_usage_chunk(rest) else rest


def _is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    types = [value for name, value in headers if name.lower() == b"content-type"]
    return any(value.split(b";")[0].strip().lower() == b"text/event-stream" for value in types)


def _is_usage_chunk(event: bytes) -> bool:
    """A chunk with usage and nothing of an answer, nor why there is none.

    Providers that send usage and a part of the answer in one chunk send no extra one.
    """
    if b'"usage"' not in event or b"[" not in event:
        return False
    try:
        _, data = parse_event(event, first=False)
        chunk = parse_json(data) if data else None
    except ValueError:
        return False
    if not isinstance(chunk, dict) or chunk.get("error") is not None:
        return False
    return chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)
