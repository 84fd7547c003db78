"""What a whole body may be, in the order in which it is judged."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.body import BodyFacts, check_body, check_headers
from routeguard.body.strict_json import DEPTH_MAX, JsonObject, JsonValue
from routeguard.errors import Rejected
from tests.bodies import BINARY, FORM, JSON, JSON_VALUES, MULTIPART, NO_MEDIA, PNG, RULES, facts_of, reason_of


@pytest.mark.parametrize("media_type", [JSON, "text/plain", FORM])
@pytest.mark.parametrize(
    "body", [b"\xff", b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\x80"}', b"a\0b", b'{"a":1}\0', b"\xfe\xff"]
)
def test_a_text_body_that_is_not_utf8_or_has_a_nul_is_refused(media_type: str, body: bytes) -> None:
    assert reason_of(body, media_type) == "bad_request"


@pytest.mark.parametrize(
    "body",
    [
        "",
        " ",
        "{",
        "{'a':1}",
        '{"a":1}}',
        '{"a":1,}',
        "[1,]",
        "nul",
        '{"a":\x01}',
        '"a\nb"',
        "\ufeff\ufeff{}",
        "{}{}",
        "01",
    ],
)
def test_what_is_called_json_must_be_json(body: str) -> None:
    if body:
        assert reason_of(body) == "bad_request"
    else:
        assert facts_of(body).chars == 0


@pytest.mark.parametrize("body", ['"hi"', "12", "true", "null", "[]", "{}", ' {"a":1e999}\n', '\ufeff{"a":"\\u0000"}'])
def test_any_strict_json_is_accepted(body: str) -> None:
    assert facts_of(body).media_parts == 0


@pytest.mark.parametrize("media_type", [JSON, "text/plain", FORM, MULTIPART, BINARY])
@pytest.mark.parametrize(
    "body",
    [
        '{"a":1,"a":2}',
        '{"a":1,"\\u0061":2}',
        '[{"b":{"a":1,"a":1}}]',
        '{"a":{"x":1,"x":2},"a":1}',
        '{"a":NaN}',
        "[Infinity]",
        "[-Infinity]",
        "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1),
        "[" * 30_000 + "]" * 30_000,
        '{"a":' * 900 + "1" + "}" * 900,
        "[" + "9" * 5000 + "]",
        '["\\ud800"]',
        '{"\\udc00":1}',
    ],
)
def test_what_only_some_parsers_take_is_refused_whatever_type_it_claims(media_type: str, body: str) -> None:
    assert reason_of(body, media_type) == "bad_request"


def test_the_deepest_nesting_is_accepted() -> None:
    assert facts_of("[" * DEPTH_MAX + '"x"' + "]" * DEPTH_MAX).chars == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("media_type", [JSON, "text/plain", FORM, MULTIPART, BINARY])
def test_json_in_another_encoding_is_refused(media_type: str, encoding: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "日本語"}]}, ensure_ascii=False).encode(encoding)

    assert json.loads(body)
    assert reason_of(body, media_type) == "bad_request"


@pytest.mark.parametrize("media_type", ["text/plain", FORM, MULTIPART, BINARY])
@pytest.mark.parametrize("prefix", ["", " \r\n\t", "\ufeff"])
def test_a_json_object_is_checked_as_json_whatever_type_it_claims(media_type: str, prefix: str) -> None:
    assert reason_of(prefix + '{"messages":[],"max_tokens":5000}', media_type) == "output_too_large"


@pytest.mark.parametrize("body", ['{"a":1,"a":2} is what I typed', "[NaN, NaN", "{hello}", '"quoted"', "12"])
def test_a_text_that_json_loads_would_refuse_is_just_text(body: str) -> None:
    facts = facts_of(body, "text/plain")

    assert facts.chars == len(body)


def test_a_body_that_no_header_announced_is_held_to_the_listed_types() -> None:
    assert reason_of("{}", None, rules=replace(RULES, types=frozenset({"json"}))) == "unsupported_type"
    assert facts_of("{}", None).media_parts == 0


def test_a_body_after_a_length_of_zero_is_refused() -> None:
    head = check_headers([(b"content-length", b"0"), (b"content-type", b"text/plain")], target_bytes=0, rules=RULES)

    with pytest.raises(Rejected) as refused:
        check_body(b"hi", head, query=b"", path_bytes=0, rules=RULES)

    assert refused.value.reason == "bad_request"


def test_more_bytes_than_the_limit_are_refused() -> None:
    rules = replace(RULES, bytes_max=20)

    assert facts_of("x" * 10, "text/plain", query="q=hello", path_bytes=3, rules=rules).input_bytes == 20
    with pytest.raises(Rejected, match="20 bytes"):
        facts_of("x" * 10, "text/plain", query="q=hello", path_bytes=4, rules=rules)


@pytest.mark.parametrize(
    ("body", "media_type", "chars"),
    [
        ({"messages": [{"role": "user", "content": "héllo"}], "n": 1, "x": None}, JSON, 4 + 5),
        ('["\\ud83d\\ude00", "ﷺ"]', JSON, 2),
        ({"a key": {"another": "v"}}, "text/plain", 1),
        ("plain text ☃", "text/plain", 12),
        ("a=1&b=two+words&c=%E2%98%83&d&=x&&", FORM, 1 + 9 + 1 + 0 + 1),
        ('{"a":"b&c=defgh"}', JSON, 9),
        ('{"a":"b&c=defgh"}', FORM, 9),
        ('{"a":1}=a value that is no JSON', FORM, 23),
        (b"\x00\x01", BINARY, 0),
    ],
)
def test_characters_are_counted_over_the_texts(body: bytes | str | JsonValue, media_type: str, chars: int) -> None:
    assert facts_of(body, media_type).chars == chars


@pytest.mark.parametrize("media_type", [JSON, "text/plain"])
def test_the_character_limit_is_inclusive(media_type: str) -> None:
    rules = replace(RULES, chars_max=10)
    body: str | JsonValue = ["☃" * 4, "☃" * 6] if media_type == JSON else "☃" * 10

    assert facts_of(body, media_type, rules=rules).chars == 10
    assert reason_of(body, media_type, query="q=x", rules=rules) == "input_too_long"


def test_a_prompt_in_the_query_of_an_empty_request_counts() -> None:
    facts = facts_of(b"", None, query="prompt=h%C3%A9llo+you", path_bytes=5)

    assert facts == BodyFacts(input_bytes=5 + 21, media_parts=0, chars=9, model=None)


def test_the_checks_run_in_the_order_of_the_contract() -> None:
    rules = replace(NO_MEDIA, chars_max=3)
    everything: JsonObject = {
        "messages": "long text",
        "model": "x",
        "store": True,
        "max_tokens": 10**6,
        "y": {"type": "image"},
    }
    found = []

    found.append(reason_of(json.dumps(everything)[:-1] + ',"y":NaN}', rules=rules))
    for fixed in ("model", "store", "y", "max_tokens"):
        found.append(reason_of(everything, rules=rules))
        del everything[fixed]
    found.append(reason_of(everything, rules=rules))

    assert found == [
        "bad_request",
        "model_not_allowed",
        "unsupported_field",
        "media_not_allowed",
        "output_too_large",
        "input_too_long",
    ]


REASONS = {
    "bad_request",
    "unsupported_type",
    "unsupported_field",
    "model_not_allowed",
    "media_not_allowed",
    "output_too_large",
    "input_too_long",
}
NOISE = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet='{}[]",:\\u0ad\x00 1eE-.&=;%+\r\n', max_size=60).map(str.encode),
    st.lists(
        st.sampled_from(
            [b'{"messages":', b'"model":', b"[", b"]", b"}", b'"a"', b"1e999", b"NaN", b",", b"\xff", b"\0"]
        )
    ).map(b"".join),
)


@given(NOISE, st.sampled_from([JSON, "text/plain", FORM, MULTIPART, BINARY, None]), st.binary(max_size=60))
@settings(max_examples=300)
def test_any_bytes_are_accepted_or_refused(body: bytes, media_type: str | None, query: bytes) -> None:
    headers = [] if media_type is None else [(b"content-type", media_type.encode())]
    head = check_headers(headers, target_bytes=0, rules=NO_MEDIA)

    try:
        reason = ""
        input_bytes = check_body(body, head, query=query, path_bytes=0, rules=NO_MEDIA).input_bytes
    except Rejected as refused:
        reason, input_bytes = refused.reason, len(body) + len(query)

    assert reason in {"", *REASONS}
    assert input_bytes >= len(body) + len(query)


FIELD_NAMES = st.sampled_from(
    ["messages", "model", "tools", "prompt", "n", "max_tokens", "reasoning", "options", "type"]
)


@given(st.dictionaries(FIELD_NAMES, JSON_VALUES), st.sampled_from([JSON, "text/plain", FORM, MULTIPART, BINARY]))
@settings(max_examples=150)
def test_any_document_is_judged_alike_under_every_type(document: JsonValue, media_type: str) -> None:
    def verdict(claimed: str) -> BodyFacts | str:
        try:
            return facts_of(document, claimed, rules=NO_MEDIA)
        except Rejected as refused:
            return refused.reason

    as_json = verdict(JSON)

    if media_type != FORM or not re.search(r"[&;=%+]", json.dumps(document)):
        assert verdict(media_type) == as_json


def test_no_refusal_repeats_what_was_sent() -> None:
    secret = "sesame"
    bodies: list[bytes | str | JsonValue] = [
        secret,
        f'{{"{secret}":NaN}}',
        {"messages": [], "model": secret},
        {"messages": [], "store": secret},
        {"messages": [], "max_tokens": secret},
        {secret: PNG},
        {secret: "x" * 21_000},
    ]

    for body in bodies:
        with pytest.raises(Rejected) as refused:
            facts_of(body, rules=replace(NO_MEDIA, only_fields=None))
        assert secret not in refused.value.message
