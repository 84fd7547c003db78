"""The framing of an event stream (WHATWG HTML, section 9.2), one event at a time."""

import re

#: Two line ends in a row; a line ends with LF, CRLF or CR, and CRLF is one.
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE_END = re.compile(r"\r\n|\n|\r")
_BYTE_ORDER_MARK = "\ufeff"


def end_of_event(buffer: bytearray, start: int, *, with_cr: bool) -> int:
    """Where the first event after `start` ends, or -1. `with_cr`: whether the buffer may hold a CR.

    A CR that ends the buffer ends the event; the LF that may follow is then an empty line before the next one.
    """
    if with_cr:
        found = _BLANK_LINE.search(buffer, start)
        return found.end() if found else -1
    blank_line = buffer.find(b"\n\n", start)
    return blank_line + 2 if blank_line >= 0 else -1


def data_of(chunk: bytes) -> str | None:
    """The data of a chunk that is one whole event of one line, as the usual chunk; None for any other."""
    if chunk.startswith(b"data: ") and chunk.find(b"\n") == len(chunk) - 2 and chunk.endswith(b"\n"):
        return None if b"\r" in chunk else chunk[6:-2].decode("utf-8", "replace")
    return None


def parse_event(raw: bytes, *, first: bool) -> tuple[str, str | None]:
    """One event of its lines. `first`: a byte order mark may stand before it.

    Returns:
        The value of its `event:` line, or an empty text, and its `data:` lines joined: None for an event that has none,
        such as a comment that keeps the connection alive.

    Raises:
        ValueError: A line that is not a field of an event stream. The standard ignores those; a provider sends none.
    """
    text = raw.decode("utf-8", "replace")
    if first:
        text = text.removeprefix(_BYTE_ORDER_MARK)
    name = ""
    data = []
    for line in _LINE_END.split(text):
        field, _, value = line.partition(":")
        if field == "data":
            data.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ")
        elif field not in ("", "id", "retry"):
            raise ValueError("not a field of an event stream")
    return name, "\n".join(data) if data else None
