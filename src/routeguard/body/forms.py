"""Forms and query strings: names and values that are all text, and files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from routeguard.body.text_size import is_data_url, normalised_bytes
from routeguard.errors import Rejected

# RFC 7578 §4.2, as browsers and HTTP clients write it. Frameworks disagree about every other shape (`filename*`,
# escaped quotes in a name, `base64`), and a part that one takes for a file is a field to the next.
_DISPOSITION = re.compile(
    r'\s*[a-z-]+\s*(?:;\s*name="(?P<name>[^"\\]*)"\s*)?(?:;\s*filename="(?P<filename>(?:[^"\\]|\\.)*)"\s*)?',
    re.IGNORECASE,
)
_TEXT_TYPE = re.compile(
    r"\s*(?:text/[\w.+-]+|application/(?:[\w.-]+\+)?json)\s*(?:;\s*charset=\"?(?:utf-8|us-ascii)\"?\s*)?",
    re.IGNORECASE | re.ASCII,
)
#: Django and Starlette stop here too. Each field costs about a microsecond of the event loop.
FIELDS_MAX = 1000

_PLAIN_ENCODINGS = frozenset({"7bit", "8bit", "binary"})


@dataclass(slots=True)
class Form:
    """What a form or a query string holds."""

    #: Names and values as an application may read them.
    texts: list[tuple[str, str]] = field(default_factory=list)
    #: Code points over all values.
    chars: int = 0
    #: Bytes that decoding and normalising can add to what was received.
    growth_bytes: int = 0
    #: Files, and values that are a file written out.
    media_parts: int = 0


def read_urlencoded(raw: bytes) -> Form:
    """The fields of a query string or a form body. Linear in the bytes.

    Bytes outside ASCII do not belong here, and are taken for Latin-1 (Starlette) or UTF-8 (Django): both are
    measured, the larger counts.

    Raises:
        Rejected: 400 `bad_request`: too many fields.
    """
    _check_count(raw.count(b"&") + raw.count(b";") + 1)
    form = _read_pairs(raw.decode("latin-1"), raw_bytes=len(raw))
    if not raw.isascii():
        other = _read_pairs(raw.decode("utf-8", "replace"), raw_bytes=len(raw))
        form.growth_bytes = max(form.growth_bytes, other.growth_bytes)
    if b";" in raw:
        # Once a separator too (HTML 4), and still one to some parsers. A browser writes it %3B.
        form.texts += _pairs(raw.replace(b";", b"&").decode("latin-1"))
    return form


def read_multipart(body: bytes, boundary: bytes | None) -> Form:
    """The fields and files of a multipart body.

    Raises:
        Rejected: 400 `bad_request`: not put together as RFC 7578 says, too many parts, or a field that is
            not UTF-8 or has a NUL.
    """
    if boundary is None:
        raise _bad_request("The multipart body has no usable boundary in its Content-Type.")
    form = Form()
    for head, content in _parts(body, boundary):
        name, filename = _read_part_head(head)
        if filename:
            form.media_parts += 1
            continue
        if filename is not None and content:
            raise _bad_request("A file of the multipart body has no name.")  # a field to Django, a file to Starlette
        text = _decode(content)
        form.texts.append((name, text))
        form.chars += len(text)
        form.growth_bytes += max(0, normalised_bytes(name) + normalised_bytes(text) - len(head) - len(content))
        form.media_parts += is_data_url(text)
    return form


def _read_pairs(raw: str, *, raw_bytes: int) -> Form:
    form = Form(_pairs(raw))
    normal_bytes = 0
    for name, value in form.texts:
        form.chars += len(value)
        normal_bytes += len(name) if name.isascii() else normalised_bytes(name)
        normal_bytes += len(value) if value.isascii() else normalised_bytes(value)
        form.media_parts += len(value) > len("data:;base64,") and is_data_url(value)
    form.growth_bytes = max(0, normal_bytes - raw_bytes)
    return form


def _pairs(raw: str) -> list[tuple[str, str]]:
    pairs = []
    for piece in raw.split("&"):
        if piece:
            name, _, value = piece.partition("=")
            pairs.append((_unquoted(name), _unquoted(value)))
    return pairs


def _unquoted(text: str) -> str:
    return unquote_plus(text) if "%" in text or "+" in text else text


def _check_count(fields: int) -> None:
    if fields > FIELDS_MAX:
        raise _bad_request(f"The request has too many fields; {FIELDS_MAX} are accepted.")


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Head and content of each part. No preamble, no padding, no epilogue: nobody sends them, parsers differ."""
    before, *sections = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if body.count(b"--" + boundary) != len(sections):  # Django ends a part at any of them
        raise _bad_request("The multipart body has its boundary inside a part.")
    if before or not sections or sections.pop() not in (b"--", b"--\r\n"):
        raise _bad_request("The multipart body does not begin and end with its boundary.")
    _check_count(len(sections))
    for section in sections:
        head, blank_line, content = section.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not section.startswith(b"\r\n") or not blank_line:
            raise _bad_request("A part of the multipart body has no complete head.")
        yield head, content


def _read_part_head(head: bytes) -> tuple[str, str | None]:
    """Field name, and file name (None: it is no file, whatever its type says)."""
    values: dict[str, str] = {}
    for line in _decode(head).split("\r\n"):
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or key in values or key != key.strip() or "\r" in value or "\n" in value:
            raise _bad_part()
        values[key] = value
    disposition = _DISPOSITION.fullmatch(values.get("content-disposition", "none"))
    encoding = values.get("content-transfer-encoding", "8bit").strip().lower()
    if disposition is None or encoding not in _PLAIN_ENCODINGS:
        raise _bad_part()
    filename: str | None = disposition["filename"]
    if filename is None and not _TEXT_TYPE.fullmatch(values.get("content-type", "text/plain")):
        raise _bad_part()
    return disposition["name"] or "", filename


def _decode(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise _bad_request("A field of the multipart body is not UTF-8 text.") from None
    if "\0" in text:
        raise _bad_request("A field of the multipart body has a NUL character.")
    return text


def _bad_part() -> Rejected:
    return _bad_request("A part of the multipart body has a head that cannot be read in one way only.")


def _bad_request(message: str) -> Rejected:
    return Rejected("bad_request", message, status=400)
