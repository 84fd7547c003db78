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


def parse_event(raw: bytes, *, first: bool) -> tuple[str, str | None]:
    """One event of its lines. `first`: a byte order mark may stand before it.

    Returns:
        The value of its `event:` line, or an empty text, and its `data:` lines joined: None for an event that has none,
        such as a comment that keeps the connection alive.

    Raises:
        ValueError: A line that is not a field of an event stream. The standard ignores those; a provider sends none.
    """
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:
        return "", raw[6:-2].decode("utf-8", "replace")
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
