"""Reading what a provider's answer says it used while the answer passes to the caller.

The caller gets every byte as it came and when it came, with one exception: the usage chunk that only we asked for.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from routeguard.formats import UsageReader, stream_reader
from routeguard.formats.sse import end_of_event, parse_event
from routeguard.formats.strict_json import parse_json
from routeguard.meter.endpoints import Endpoint
from routeguard.usage import Tally, Usage, usage_from

#: Largest answer that is read though it is no stream of events; a larger one counts at its worst case.
BODY_BYTES_MAX = 16 * 1024 * 1024
#: Largest event that is held to see whether it is the usage chunk.
EVENT_BYTES_MAX = 64 * 1024
#: Largest last line of an answer in lines. Ollama's carries the context as a list of numbers.
LINE_BYTES_MAX = 4 * 1024 * 1024

#: Takes what the call used, as soon as that is known.
Report = Callable[[Usage], None]


class Answer(Protocol):
    """An answer on its way to the caller. It never raises."""

    def passes(self, chunk: bytes) -> bytes:
        """What of this chunk, and of what was held of those before, the caller gets now."""
        ...

    def ends(self, *, complete: bool) -> bytes:
        """What the caller still gets. `complete`: the answer came to its own end."""
        ...


def answer_of(endpoint: Endpoint, content_type: str, *, report: Report, hides_usage: bool) -> Answer:
    """How to read an answer of this endpoint with this content type."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "text/event-stream":
        # Gemini's usage may still grow in what follows its finish reason.
        return StreamAnswer(report, hides_usage=hides_usage, is_final_at_end=endpoint.name == "generate_content")
    if endpoint.is_ollama:
        return LinesAnswer(report)
    return BodyAnswer(report, has_output=bool(endpoint.caps))


class StreamAnswer:
    """An event stream."""

    __slots__ = ("_filter", "_is_final_at_end", "_reader", "_report")

    def __init__(self, report: Report, *, hides_usage: bool, is_final_at_end: bool) -> None:
        self._report = report
        self._is_final_at_end = is_final_at_end
        self._reader: UsageReader | None = stream_reader()
        self._filter = _UsageChunkFilter() if hides_usage else None

    def passes(self, chunk: bytes) -> bytes:
        reader = self._reader
        if reader is not None:
            reader.feed(chunk)
            if reader.terminal:
                if not self._is_final_at_end:
                    self._tell(reader, failed=False)
            elif b"[]" in chunk and reader.finish is not None and chunk.endswith(b"\n\n"):
                # The usage chunk of a chat comes before the end of its stream, and many callers leave there.
                self._tell(reader, failed=False)
        return chunk if self._filter is None else self._filter.passes(chunk)

    def ends(self, *, complete: bool) -> bytes:
        reader = self._reader
        if reader is not None:
            # Who leaves when the answer is whole, and before the stream is, has the bill already.
            self._tell(reader, failed=not (complete or reader.finish is not None))
            self._reader = None
        return b"" if self._filter is None else self._filter.rest()

    def _tell(self, reader: UsageReader, *, failed: bool) -> None:
        usage = reader.result(failed=failed)
        if usage is not None:
            self._reader = None
            self._report(usage)


class BodyAnswer:
    """One JSON document: an object, or the array of events that Gemini streams without `alt=sse`."""

    __slots__ = ("_body", "_has_output", "_report")

    def __init__(self, report: Report, *, has_output: bool) -> None:
        self._report = report
        self._has_output = has_output
        self._body: bytearray | None = bytearray()

    def passes(self, chunk: bytes) -> bytes:
        if self._body is not None:
            self._body += chunk
            if len(self._body) > BODY_BYTES_MAX:
                self._body = None
        return chunk

    def ends(self, *, complete: bool) -> bytes:
        # A body that parses is whole, also where the caller did not wait for its end.
        body, self._body = self._body, None
        usage = _usage_in_body(body) if body else None
        if usage is not None:
            self._report(usage if self._has_output else _without_output(usage))
        return b""


class LinesAnswer:
    """Ollama's answer: objects in lines, of which the last one counts; a whole answer is one line."""

    __slots__ = ("_line", "_report")

    def __init__(self, report: Report) -> None:
        self._report = report
        self._line = bytearray()

    def passes(self, chunk: bytes) -> bytes:
        self._line += chunk
        if len(self._line) > LINE_BYTES_MAX or b"\n" in chunk:
            # Whatever ends before the last line end is of no interest once something follows.
            cut = self._line.rstrip().rfind(b"\n") + 1
            del self._line[: cut or max(len(self._line) - LINE_BYTES_MAX, 0)]
        return chunk

    def ends(self, *, complete: bool) -> bytes:
        usage = _ollama_usage(bytes(self._line))
        self._line.clear()
        if usage is not None:
            self._report(usage)
        return b""


class _UsageChunkFilter:
    """Takes the usage chunk out of a chat's event stream.

    Whole events pass at once. What is held is the beginning of an event whose end has not come, which no reader of
    event streams can do anything with yet.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def passes(self, chunk: bytes) -> bytes:
        held = self._held
        if not held and b"[]" not in chunk and chunk.endswith(b"\n\n"):
            return chunk  # whole events, none of them with an empty list
        held += chunk
        with_cr = b"\r" in held
        passed = bytearray()
        start = 0
        while (end := end_of_event(held, start, with_cr=with_cr)) >= 0:
            event = bytes(held[start:end])
            if not _is_usage_chunk(event):
                passed += event
            start = end
        del held[:start]
        if len(held) > EVENT_BYTES_MAX:
            passed += held
            held.clear()
        return bytes(passed)

    def rest(self) -> bytes:
        """What is held, unless it is the usage chunk that the end cut off."""
        rest = bytes(self._held)
        self._held.clear()
        return b"" if _is_usage_chunk(rest) else rest


def _is_usage_chunk(event: bytes) -> bool:
    """A chunk with usage and nothing of an answer. Providers that send both in one chunk send no extra one."""
    if b'"usage"' not in event or b"[" not in event:
        return False
    try:
        data = parse_event(event, first=False).data
        chunk = parse_json(data) if data else None
    except ValueError:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)


def _usage_in_body(body: bytes | bytearray) -> Usage | None:
    try:
        answer = parse_json(body.decode("utf-8-sig"))
        if isinstance(answer, list):
            tally = Tally()
            for part in answer:
                if not isinstance(part, dict) or part.get("error") is not None:
                    return None
                tally.read_answer(part)
            return tally.usage()
    except ValueError:
        return None
    if not isinstance(answer, dict) or (answer.get("error") is not None and answer.get("object") != "response"):
        return None  # an error under a status of success: what it used is not to be trusted
    return usage_from(answer)


def _without_output(usage: Usage) -> Usage:
    return replace(usage, output_tokens=usage.output_tokens or 0)


def _ollama_usage(line: bytes) -> Usage | None:
    """The counts of the line that ends an answer. The input is not told where all of it was cached."""
    try:
        answer = parse_json(line.decode())
    except ValueError:
        return None
    if not isinstance(answer, dict) or answer.get("done") is not True:
        return None
    counts = {"prompt_tokens": answer.get("prompt_eval_count"), "completion_tokens": answer.get("eval_count")}
    return usage_from({name: count for name, count in counts.items() if count is not None})
