"""Which reader suits an answer, by its headers."""

import re
from collections.abc import Iterable
from decimal import Decimal

from routeguard.formats.body import body_reader
from routeguard.formats.frames import frame_reader
from routeguard.formats.lines import line_reader
from routeguard.formats.reader import UsageReader
from routeguard.formats.stream import EVENT_BYTES_MAX, stream_reader

#: Media types of streams → what reads them. Each is a stream of events, whatever frames them.
_STREAMS = {
    b"text/event-stream": stream_reader,
    b"application/vnd.amazon.eventstream": lambda _: frame_reader(),  # the framing itself bounds them
}
#: JSON lines have no frame that a model could not write itself: what is true of a JSON body is true of them.
_LINES = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines"})
#: What a LiteLLM proxy charges for a call. It may be empty, `None`, or 0.0 for an answer it had in its cache or has no
#: price for, and comes before the body of a stream, whose cost nobody knows yet.
_COST_HEADER = b"x-litellm-response-cost"
_COST = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,40})?(?:[eE]-?[0-9]{1,2})?")


def answer_reader(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    read_bodies: bool,
    body_bytes_max: int,
    event_bytes_max: int = EVENT_BYTES_MAX,
    from_provider: bool = False,
) -> UsageReader | None:
    """What reads usage from an answer with these headers, or None; nothing reads a compressed one.

    Args:
        headers: Headers of the answer, in any case.
        read_bodies: Whether a JSON body and JSON lines are read, and not only a stream with a frame around its events.
        body_bytes_max: A larger JSON body is not read.
        event_bytes_max: Nor is a stream that holds a larger event or line.
        from_provider: A provider itself sent it, and no application that may relay what a model wrote. Whatever is no
            stream is then a JSON body, and counts tokens in whosever words.
    """
    media_type = cost = b""
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"content-type":
            media_type = value.split(b";")[0].strip().lower()
        elif lowered == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return None
        elif lowered == _COST_HEADER:
            cost = value
    if (reader := _STREAMS.get(media_type)) is not None:
        return reader(event_bytes_max)
    if read_bodies and media_type in _LINES:
        return line_reader(event_bytes_max)
    if read_bodies and (media_type == b"application/json" or media_type.endswith(b"+json") or from_provider):
        return body_reader(body_bytes_max, cost_usd=_cost_in(cost), from_provider=from_provider)
    return None


def _cost_in(value: bytes) -> Decimal | None:
    value = value.strip()
    cost = Decimal(value.decode()) if _COST.fullmatch(value) else None
    return cost or None  # nothing charged is as good as nothing said: the body's own usage then decides
