"""What the headers say about a body that has not been read yet.

Servers differ in what they let through (two lengths, a length beside `Transfer-Encoding`, `5 ` with its blank), so
nothing here trusts that a server has looked. What is read is never more lenient than what a framework may read.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from routeguard.body.rules import BodyRules
from routeguard.errors import Rejected

_READ = frozenset({b"content-length", b"transfer-encoding", b"content-encoding", b"content-type"})
_BLANKS = b" \t"

#: Where a length stops being worth reading: far above any body, far below what `int()` refuses to parse.
_LENGTH_DIGITS_MAX = 18

#: Longest value that is read. uvicorn with httptools sets no limit: a type of 1 MB of semicolons took 0.8 s of the
#: event loop, before any rate was asked. A boundary has 70 bytes at most, and a charset fewer.
_VALUE_BYTES_MAX = 1000

# RFC 9110 §5.6.2 (token) and RFC 2046 §5.1.1 (boundary, without the blank that nobody sends).
_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+/[!#$%&'*+.^_`|~0-9a-z-]+")
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=?-]{1,70}")

_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_TYPE_EXAMPLES = {
    "json": "application/json",
    "text": "text/plain",
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
    "binary": "any other type",
}


class BodyHead(NamedTuple):
    """What the headers announce. A named tuple, because a request makes one."""

    #: Declared length in bytes, or None if the headers do not say.
    declared_bytes: int | None
    #: `json`, `text`, `form`, `multipart` or `binary`; None if there is no type and no sign of a body.
    kind: str | None
    #: Boundary of a multipart body; None when it has no usable one.
    boundary: bytes | None


NO_BODY = BodyHead(declared_bytes=None, kind=None, boundary=None)


def check_headers(headers: Sequence[tuple[bytes, bytes]], *, target_bytes: int, rules: BodyRules) -> BodyHead:
    """What the headers announce, if a body like that may come in; `target_bytes` is the size of path and query.

    Raises:
        Rejected: 400 `bad_request`, 415 `unsupported_encoding` or `unsupported_type`, 413 `request_too_large`.
    """
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lower_name = name.lower()
        if lower_name in _READ:
            found.setdefault(lower_name, []).append(value)

    has_transfer_encoding = b"transfer-encoding" in found
    declared_bytes = None
    if lengths := found.get(b"content-length"):
        declared_bytes = _read_length(lengths, has_transfer_encoding=has_transfer_encoding)
    if encodings := found.get(b"content-encoding"):
        _check_encoding(encodings)

    kind, boundary = None, None
    if declared_bytes != 0:  # an empty body needs no type, and a type it has does no harm
        if types := found.get(b"content-type"):
            kind, boundary = _read_type(types)
        if kind is None and (has_transfer_encoding or declared_bytes is not None):
            kind = "binary"
        if kind is not None:
            check_kind(kind, rules)
    if (declared_bytes or 0) + target_bytes > rules.bytes_max:
        raise too_large(rules.bytes_max)
    return BodyHead(declared_bytes, kind, boundary)


def check_kind(kind: str, rules: BodyRules) -> None:
    """Refuse a body type the operator did not list."""
    if kind not in rules.types:
        accepted = ", ".join(example for name, example in _TYPE_EXAMPLES.items() if name in rules.types)
        raise _unsupported_type(f"This type of body is not accepted here. Accepted: {accepted}.")


def too_large(bytes_max: int) -> Rejected:
    """The refusal of a request with more bytes than `bytes_max`."""
    return Rejected(
        "request_too_large", f"The request is too large; at most {bytes_max} bytes are accepted.", status=413
    )


def _read_length(values: list[bytes], *, has_transfer_encoding: bool) -> int:
    if has_transfer_encoding:
        # RFC 9112 §6.3: the mark of request smuggling. Two servers were seen to deliver more than the length says.
        raise _bad_request("Content-Length and Transfer-Encoding cannot be sent together.")
    lengths = set()
    for value in values:
        digits = value.strip(_BLANKS)
        if not digits.isdigit():  # of bytes: ASCII digits only
            raise _bad_request("Content-Length must be a plain number.")
        significant = digits.lstrip(b"0") or b"0"
        lengths.add(significant)
    if len(lengths) > 1:
        raise _bad_request("Content-Length was sent twice with different values.")
    (length,) = lengths
    return int(length) if len(length) <= _LENGTH_DIGITS_MAX else 10**_LENGTH_DIGITS_MAX


def _check_encoding(values: list[bytes]) -> None:
    for value in values:
        codings = value.split(b",") if len(value) <= _VALUE_BYTES_MAX else [value]
        if any(coding.strip(_BLANKS).lower() != b"identity" for coding in codings):
            # A compressed body has more text than bytes, so its size would bound nothing.
            raise Rejected(
                "unsupported_encoding",
                "The body is compressed. Send it without a Content-Encoding.",
                status=415,
            )


def _read_type(values: list[bytes]) -> tuple[str | None, bytes | None]:
    """The kind of body and the boundary of a multipart one.

    Parameters are cut at every semicolon, also inside quotes: whatever a more careful parser takes for a charset
    is then among the candidates, and one bad candidate refuses the type.
    """
    if len(values) > 1:
        raise _unsupported_type("Content-Type was sent more than once.")
    if len(values[0]) > _VALUE_BYTES_MAX:
        raise _unsupported_type("Content-Type is too long.")
    if values[0] == b"application/json":
        return "json", None  # what nearly all requests say
    media_type, *parameters = values[0].decode("latin-1").split(";")
    boundaries: list[str] = []
    for parameter in parameters:
        name, _, value = (part.strip() for part in parameter.partition("="))
        # The prefix also catches `charset*` and `charset*0` (RFC 2231), which some frameworks decode.
        if name.lower().startswith("charset") and not _is_utf8(name, value):
            raise _unsupported_type("The body must be UTF-8.")
        if name.lower().startswith("boundary"):
            boundaries.append(_unquoted(value))
    kind = _kind_of(media_type.strip().lower())
    if kind != "multipart" or len(boundaries) != 1 or not _BOUNDARY.fullmatch(boundaries[0]):
        return kind, None
    return kind, boundaries[0].encode()


def _is_utf8(name: str, value: str) -> bool:
    return name.lower() == "charset" and _unquoted(value).lower() in _CHARSETS


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def _kind_of(media_type: str) -> str | None:
    if not media_type:
        return None
    if not _MEDIA_TYPE.fullmatch(media_type):
        return "binary"
    if media_type == "application/json" or media_type.endswith("+json"):
        return "json"
    if media_type == "application/x-www-form-urlencoded":
        return "form"
    if media_type.startswith("text/"):
        return "text"
    if media_type.startswith("multipart/"):
        return "multipart"
    return "binary"


def _bad_request(message: str) -> Rejected:
    return Rejected("bad_request", message, status=400)


def _unsupported_type(message: str) -> Rejected:
    return Rejected("unsupported_type", message, status=415)
