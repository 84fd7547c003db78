"""JSON objects as a provider writes them: UTF-8, no key twice, no NaN."""

import json
from typing import NoReturn

Json = dict[str, object]

#: What JSON calls white space; `str.strip` alone would take more.
_BLANKS = " \t\n\r"


def parse_json(text: str) -> object:
    """The value of a JSON document.

    Raises:
        ValueError: Not JSON, a key twice in one object, a number that JSON does not have, or too deeply nested.
    """
    text = text.strip(_BLANKS)
    try:
        value: object
        value, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def _without_repetition(pairs: list[tuple[str, object]]) -> Json:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key twice")
    return members


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition, parse_constant=_refuse)
