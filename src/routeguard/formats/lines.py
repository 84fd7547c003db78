"""Streams of JSON lines: Ollama's own, and whoever relays a provider's events one a line."""

from routeguard.formats.reader import UsageReader
from routeguard.formats.reframed import Framing, ReframedReader
from routeguard.formats.stream import EVENT_BYTES_MAX


def line_reader(line_bytes_max: int = EVENT_BYTES_MAX) -> UsageReader:
    """A reader of one `application/x-ndjson`."""
    return ReframedReader(_LINES, line_bytes_max)


def _end_of_line(buffer: bytearray, start: int, searched: int) -> int:
    return buffer.find(b"\n", max(start, searched)) + 1 or -1


def _event_of_line(line: bytes) -> bytes:
    # A CR would end a line of an event stream. In JSON it is a blank, and stands inside no string.
    text = line.replace(b"\r", b" ").strip(b" \t\n")
    return b"data: " + text + b"\n\n" if text else b""


_LINES = Framing(end_of=_end_of_line, event_of=_event_of_line, last=b"\n")
