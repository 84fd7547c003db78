"""JSON as RFC 8259 wants it and I-JSON (RFC 7493) narrows it: one reading for the guard and for the application.

`json.loads` is what the application will use, so its own scanner does the work. What that scanner lets pass,
and two readers may read differently (a key twice, NaN), it is made to leave a mark for; the survey finds the mark.
"""

from collections.abc import Iterable
from json import JSONDecodeError, JSONDecoder
from typing import Final, NamedTuple, TypeAlias, cast

from routeguard.body.text_size import is_data_url, normalised_bytes
from routeguard.errors import Rejected

JsonValue: TypeAlias = str | int | float | bool | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject: TypeAlias = dict[str, JsonValue]

#: Objects and arrays inside each other. Chat bodies have about five, tool schemas about fifteen.
DEPTH_MAX = 64

#: What json calls white space; `str.strip` would take more.
_BLANKS = " \t\n\r"
#: Stands in the parsed document for an object with a key twice, and for NaN, Infinity and -Infinity.
_NOT_STRICT: Final = cast(JsonValue, object())

# A media part says so in its `type`. The second line names the same things in other dialects: a video URL in a
# request under 1 kB was billed at 17,713 input tokens, so none of them may count as text.
_MEDIA_TYPES = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "file", "input_file", "document", "video"}
    | {"video_url", "input_video", "audio_url", "document_url", "file_url", "image_file"}
)
_MEDIA_KEYS = frozenset({"inlineData", "inline_data", "fileData", "file_data"})
_MEDIA_PART_KEYS = frozenset({"type", *_MEDIA_KEYS})


class NotJson(ValueError):
    """`json.loads` would not accept this text."""


class Survey(NamedTuple):
    """What a document holds besides its structure. A named tuple, because a request makes one."""

    #: Code points over all string values (keys are not counted).
    chars: int
    #: Bytes that normalising can add to the strings and keys.
    growth_bytes: int
    #: Media parts.
    media_parts: int


def opens_container(text: str) -> bool:
    """Whether the text could be a JSON object or array, judged by its first character."""
    return text.removeprefix("\ufeff").lstrip(_BLANKS)[:1] in ("{", "[")


def parse_json(text: str) -> JsonValue:
    """The document as `json.loads` reads it. It may hold a mark: survey it before anything else looks at it.

    Raises:
        NotJson: `json.loads` would refuse the text.
        Rejected: Nested too deep, or a number too long for `json.loads`; other parsers take both.
    """
    text = text.removeprefix("\ufeff").strip(_BLANKS)
    try:
        document: JsonValue
        document, end = _DECODER.raw_decode(text)
    except JSONDecodeError as error:
        raise NotJson from error
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # Python's own limit of 4,300 digits
        raise _bad_request("The JSON body has a number that is too long.") from None
    if end != len(text):
        raise NotJson
    return document


def survey_json(document: JsonValue, text: str) -> Survey:
    """Look at every value; `text` is what the document was parsed from.

    Raises:
        Rejected: The document is too deep, holds a key twice or NaN, or half of a surrogate pair.
    """
    objects, strings = _collect(document)
    has_escapes = "\\" in text and "\\u" in text
    growth_bytes = 0
    if has_escapes or not text.isascii():
        try:
            growth_bytes = sum(map(_growth_bytes, strings)) + sum(
                [_growth_bytes(key) for keys in objects for key in keys]
            )
        except UnicodeEncodeError:
            # Python would fail to send it, and others would replace it: nobody means half a character (RFC 7493 §2.1).
            raise _bad_request("The JSON body has half of a surrogate pair (\\ud800 to \\udfff).") from None
    has_media = _any_media_in_keys(objects)
    if not has_media and (has_escapes or (";" in text and ";base64," in text.lower())):
        # Without an escape for a letter, a decoded string holds no letters that the text does not.
        has_media = any(map(is_data_url, strings))
    return Survey(sum(map(len, strings)), growth_bytes, _count_media(document) if has_media else 0)


def _collect(document: JsonValue) -> tuple[list[JsonObject], list[str]]:
    """Every object and every string value. Goes level by level, so that depth costs no stack.

    This loop runs over each value of each request on the event loop, so it does nothing else.
    """
    objects: list[JsonObject] = []
    strings: list[str] = []
    level: list[JsonObject | list[JsonValue]] = [[document]]
    for _ in range(DEPTH_MAX + 1):
        next_level: list[JsonObject | list[JsonValue]] = []
        for container in level:
            values: Iterable[JsonValue] = container
            if type(container) is dict:
                objects.append(container)
                values = container.values()
            for value in values:
                if type(value) is str:
                    strings.append(value)
                elif type(value) is dict or type(value) is list:
                    next_level.append(value)
                elif value is _NOT_STRICT:
                    raise _bad_request("The JSON body is not strict: it has a key twice, NaN or Infinity.")
        if not next_level:
            return objects, strings
        level = next_level
    raise _too_deep()


def _any_media_in_keys(objects: Iterable[JsonObject]) -> bool:
    for fields in objects:  # noqa: SIM110 - a generator would cost more than the look at most bodies
        if not _MEDIA_PART_KEYS.isdisjoint(fields) and _media_in_keys(fields):
            return True
    return False


def _count_media(document: JsonValue) -> int:
    """Media parts of a document. An image object with its `data:` URL inside is one part, not two.

    Each media object gives a credit to what is inside it, and the first media inside uses it up.
    """
    count = 0
    stack: list[tuple[JsonValue, list[int]]] = [(document, [0])]
    while stack:
        value, credit = stack.pop()
        parts = 0
        if type(value) is dict:
            parts = _media_in_keys(value)
        elif type(value) is str:
            parts = int(is_data_url(value))
        if parts:
            covered = min(parts, credit[0])
            credit[0] -= covered
            count += parts - covered
            credit = [parts]
        if type(value) is dict:
            stack.extend([(inner, credit) for inner in value.values()])
        elif type(value) is list:
            stack.extend([(inner, credit) for inner in value])
    return count


def _media_in_keys(container: JsonObject) -> int:
    kind = container.get("type")
    named = type(kind) is str and kind in _MEDIA_TYPES
    return len(_MEDIA_KEYS.intersection(container)) or int(named)


def _growth_bytes(text: str) -> int:
    # The raw size never exceeds what the string takes in the body: an escape only lengthens.
    return 0 if text.isascii() else normalised_bytes(text) - len(text.encode())


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _NOT_STRICT


def _not_a_number(_: str) -> JsonValue:
    return _NOT_STRICT


def _too_deep() -> Rejected:
    return _bad_request(f"The JSON body is nested too deep; {DEPTH_MAX} levels are accepted.")


def _bad_request(message: str) -> Rejected:
    return Rejected("bad_request", message, status=400)


_DECODER = JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_not_a_number)
