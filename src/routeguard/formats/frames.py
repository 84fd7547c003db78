"""The binary event streams of Amazon (`application/vnd.amazon.eventstream`), as Bedrock sends them.

A frame is: its length, the length of its headers, a checksum of those two; the headers; the payload; a checksum of
everything. The connection already vouches for the bytes, so that checksums are not computed; lengths must add up.
https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html
"""

from base64 import b64decode
from collections.abc import Iterator
from functools import lru_cache

from routeguard.formats.reader import UsageReader
from routeguard.formats.reframed import Framing, ReframedReader
from routeguard.formats.stream import EVENT_BYTES_MAX
from routeguard.formats.strict_json import parse_json

_PRELUDE_BYTES = 12
_CHECKSUM_BYTES = 4
#: Type of a header's value → how many bytes it takes: true, false, byte, short, integer, long, timestamp, UUID.
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
#: Types whose value begins with its length: bytes and text.
_SIZED_VALUES = (6, 7)


def frame_reader() -> UsageReader:
    """A reader of one `application/vnd.amazon.eventstream`."""
    return ReframedReader(_FRAMES)


def _end_of_frame(buffer: bytearray, start: int, _: int) -> int:
    if len(buffer) < start + _PRELUDE_BYTES:
        return -1
    frame_bytes = int.from_bytes(buffer[start : start + 4])
    if not _PRELUDE_BYTES + _CHECKSUM_BYTES <= frame_bytes <= EVENT_BYTES_MAX:
        raise ValueError("not the length of a frame that is read")
    end = start + frame_bytes
    return end if end <= len(buffer) else -1


def _event_of_frame(frame: bytes) -> bytes:
    payload_start = _PRELUDE_BYTES + int.from_bytes(frame[4:8])
    payload_end = len(frame) - _CHECKSUM_BYTES
    if payload_start > payload_end:
        raise ValueError("headers longer than their frame")
    kind, payload = _kind_in(frame[_PRELUDE_BYTES:payload_start]), frame[payload_start:payload_end]
    if kind == b"chunk":
        return _event(_model_event_in(payload))
    # The payload does not say which event it is. This is how the SDKs of Amazon show it.
    return _event(b'{"' + kind + b'":' + payload + b"}")


def _event(json: bytes) -> bytes:
    return b"data: " + json.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


def _model_event_in(payload: bytes) -> bytes:
    """InvokeModel wraps each event of the model's own dialect."""
    wrapper = parse_json(payload.decode())
    wrapped = wrapper.get("bytes") if isinstance(wrapper, dict) else None
    if not isinstance(wrapped, str):
        raise ValueError("no event of a model")
    return b64decode(wrapped, validate=True)


@lru_cache(maxsize=16)  # all frames of one kind have the same headers
def _kind_in(headers: bytes) -> bytes:
    values = dict(_headers_in(headers))
    if values.get(b":message-type") != b"event":
        raise ValueError("the provider gave up")
    return values.get(b":event-type", b"")


def _headers_in(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(raw):
        name_end = at + 1 + raw[at]
        name, kind = raw[at + 1 : name_end], int.from_bytes(raw[name_end : name_end + 1])
        value_start = name_end + 1
        if kind in _SIZED_VALUES:
            value_start += 2
            at = value_start + int.from_bytes(raw[value_start - 2 : value_start])
        elif kind in _VALUE_BYTES:
            at = value_start + _VALUE_BYTES[kind]
        else:
            raise ValueError("not a type of header")
        if at > len(raw):
            raise ValueError("a header longer than all of them")
        yield name, raw[value_start:at]


_FRAMES = Framing(end_of=_end_of_frame, event_of=_event_of_frame, last=b"")
