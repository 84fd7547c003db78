"""JSON objects as a provider writes them: UTF-8, no key twice, no NaN."""

import json
from typing import NoReturn

Json = dict[str, object]


def parse_json(text: str) -> object:
    """The value of a JSON document.

    Raises:
        ValueError: Not JSON, a key twice in one object, a number that JSON does not have, or too deeply nested.
    """
    try:
        value: object = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _without_repetition(pairs: list[tuple[str, object]]) -> Json:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key twice")
    return members


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition, parse_constant=_refuse)
