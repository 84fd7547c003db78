"""Bodies as a client sends them, and what became of them."""

import json
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from routeguard.body import BodyFacts, BodyRules, check_body, check_headers
from routeguard.body.strict_json import JsonValue
from routeguard.errors import Rejected

RULES = BodyRules(
    bytes_max=64_000,
    types=frozenset({"json", "text", "form", "multipart", "binary"}),
    chars_max=20_000,
    output_tokens_max=1000,
    models=frozenset({"gpt-5-mini"}),
    allowed_fields=frozenset(),
    only_fields=None,
    media_allowed=True,
)
NO_MEDIA = replace(RULES, media_allowed=False)

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
BINARY = "application/octet-stream"
MULTIPART = "multipart/form-data; boundary=b"

PNG = "data:image/png;base64,iVBORw0KGgo="


def facts_of(
    body: bytes | str | JsonValue,
    media_type: str | None = JSON,
    *,
    query: str = "",
    path_bytes: int = 0,
    rules: BodyRules = RULES,
) -> BodyFacts:
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    headers = [] if media_type is None else [(b"content-type", media_type.encode())]
    head = check_headers(headers, target_bytes=0, rules=rules)
    return check_body(raw, head, query=query.encode(), path_bytes=path_bytes, rules=rules)


def reason_of(
    body: bytes | str | JsonValue, media_type: str | None = JSON, *, query: str = "", rules: BodyRules = RULES
) -> str:
    with pytest.raises(Rejected) as refused:
        facts_of(body, media_type, query=query, rules=rules)
    status = {"input_too_long": 413, "request_too_large": 413, "unsupported_type": 415}.get(refused.value.reason, 400)
    assert refused.value.status == status
    return refused.value.reason


GROWING = st.sampled_from("\ufdfa\u0390\u1f82\u00c5\u0323\u0344\u0f73\uff9e½…Å가ﷺé\U0001d15e\u2a74")
TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), GROWING), max_size=40)
JSON_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
