"""The checks of a whole body, in the order that users are told."""

from collections.abc import Sequence
from dataclasses import dataclass
from json import detect_encoding
from typing import NamedTuple

from routeguard.body.fields import check_output_fields, check_price_fields, read_fields
from routeguard.body.forms import Form, read_multipart, read_urlencoded
from routeguard.body.headers import BodyHead, check_kind, too_large
from routeguard.body.rules import BodyRules
from routeguard.body.strict_json import JsonValue, NotJson, opens_container, parse_json, survey_json
from routeguard.body.text_size import is_data_url, normalised_bytes
from routeguard.errors import Rejected

#: What may stand before the first character of a JSON text: its white space, byte order marks, and the zeros of
#: UTF-16 and UTF-32.
_BEFORE_JSON = b" \t\r\n\0\xef\xbb\xbf\xfe\xff"
#: What a request without a query asks in it. Nobody writes to it.
_NO_QUERY = Form()


class BodyFacts(NamedTuple):
    """What a request holds, once it passed. A named tuple, because a request makes one."""

    #: Most bytes of text a model can be given from body, path and query: what was received, plus what normalising
    #: can add to it.
    input_bytes: int
    #: Media parts, each with a flat price.
    media_parts: int
    #: Characters that counted towards the limit.
    chars: int
    #: The configured model that the request names, or None.
    model: str | None


@dataclass(slots=True)
class _Content:
    """What one reading of the body found."""

    document: JsonValue = None
    texts: Sequence[tuple[str, str]] = ()
    chars: int = 0
    growth_bytes: int = 0
    media_parts: int = 0


def check_body(
    body: bytes, head: BodyHead, *, query: bytes, path_bytes: int, rules: BodyRules, path: str = ""
) -> BodyFacts:
    """The facts of a body that may go to the application.

    Args:
        body: The whole body as received, empty if there was none.
        query: The raw query string; its fields and texts count like those of a form.
        path_bytes: Size of the raw path.
        path: The path as the application gets it. What normalising can add to it counts as well.

    Raises:
        Rejected: The first check that failed.
    """
    received_bytes = len(body) + len(query) + path_bytes
    if received_bytes > rules.bytes_max:
        raise too_large(rules.bytes_max)
    content = _read_body(body, head, rules) if body else _Content()
    query_form = read_urlencoded(query) if query else _NO_QUERY
    fields = read_fields(content.document, [*content.texts, *query_form.texts])
    media_parts = content.media_parts + query_form.media_parts
    chars = content.chars + query_form.chars
    input_bytes = received_bytes + content.growth_bytes + query_form.growth_bytes
    if not path.isascii():
        # Servers and frameworks mark a byte that is not UTF-8 in one of two ways; as text it is U+FFFD.
        text = path.encode(errors="surrogateescape").decode(errors="replace")
        input_bytes += max(0, normalised_bytes(text) - path_bytes)

    model = check_price_fields(fields, rules)
    if media_parts and not rules.media_allowed:
        raise Rejected("media_not_allowed", "Files, images, audio and video are not accepted here.", status=400)
    check_output_fields(fields, rules)
    if chars > rules.chars_max:
        raise Rejected(
            "input_too_long", f"The text is too long; at most {rules.chars_max} characters are accepted.", status=413
        )
    return BodyFacts(input_bytes, media_parts, chars, model)


def _read_body(body: bytes, head: BodyHead, rules: BodyRules) -> _Content:
    """What the application may read in the body, under each type it may take it for.

    Raises:
        Rejected: 400 `bad_request`, or 415 `unsupported_type` for a body that no header announced.
    """
    if head.declared_bytes == 0:
        raise _bad_request("A body came although Content-Length says there is none.")
    kind = head.kind or "binary"
    check_kind(kind, rules)

    content = _read_json(body, kind)
    if kind == "form":
        form = read_urlencoded(body)
        if content is None:
            return _of_form(form)
        # A form parser finds fields in a JSON text, a JSON parser ignores that it is called a form. Both are judged.
        # The JSON text itself is no field: `curl -d` calls every body a form.
        content.texts = [(name, text) for name, text in form.texts if not opens_container(name)]
        content.chars = max(content.chars, form.chars)
        content.growth_bytes = max(content.growth_bytes, form.growth_bytes)
        content.media_parts = max(content.media_parts, form.media_parts)
    if content is not None:
        return content
    if kind == "multipart":
        return _of_form(read_multipart(body, head.boundary))
    if kind == "binary":
        return _Content(media_parts=1)
    text = body.decode()  # _read_json has made sure of it
    growth_bytes = 0 if text.isascii() else normalised_bytes(text) - len(body)
    return _Content(chars=len(text), growth_bytes=growth_bytes, media_parts=int(is_data_url(text)))


def _of_form(form: Form) -> _Content:
    return _Content(None, form.texts, form.chars, form.growth_bytes, form.media_parts)


def _read_json(body: bytes, kind: str) -> _Content | None:
    """The body as JSON; None if it neither claims to be JSON nor is an object or array to `json.loads`.

    Bodies that are text by their type are held to UTF-8 without NUL here, JSON or not.
    """
    is_opaque = kind in ("multipart", "binary")
    if is_opaque:
        # json.loads also takes UTF-16 and UTF-32 bytes, and half surrogates.
        if body.lstrip(_BEFORE_JSON)[:1] not in (b"{", b"["):
            return None
        text = body.decode(detect_encoding(body), "replace")
    else:
        text = _decode(body)
    if kind != "json" and not opens_container(text):
        return None
    try:
        document = parse_json(text)
    except NotJson:
        if kind == "json":
            raise _bad_request("The body is not valid JSON.") from None
        return None
    if is_opaque:
        text = _decode(body)
    survey = survey_json(document, text)
    return _Content(document, (), *survey)


def _decode(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise _bad_request("The body is not UTF-8.") from None
    if "\0" in text:
        raise _bad_request("The body has a NUL character.")
    return text


def _bad_request(message: str) -> Rejected:
    return Rejected("bad_request", message, status=400)
