"""The most text a request can give to a model, and the growth of a text in its normal forms."""

import json
import unicodedata
from urllib.parse import urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from routeguard.body import check_body, check_headers
from routeguard.body.strict_json import JsonValue
from routeguard.body.text_size import normalised_bytes
from tests.bodies import BINARY, FORM, GROWING, JSON, JSON_VALUES, RULES, TEXTS, facts_of


def test_the_bound_of_an_ascii_body_is_what_was_received() -> None:
    body = b'{"messages":[{"role":"user","content":"hi \\u0041"}]}'

    assert facts_of(body, query="q=%41", path_bytes=9).input_bytes == len(body) + 5 + 9


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        ('["ﷺ"]', JSON),
        ('["\\ufdfa"]', JSON),
        ('{"ﷺ":1}', JSON),
        ('{"a":{"\\ufdfa":[]}}', BINARY),
        ("ﷺ", "text/plain"),
    ],
)
def test_a_string_counts_at_its_largest_normal_form(body: str, media_type: str) -> None:
    assert facts_of(body, media_type).input_bytes == len(body.encode()) + 30


def test_a_form_value_counts_at_its_largest_normal_form() -> None:
    assert facts_of("a=%EF%B7%BA", FORM).input_bytes == len("a") + 33
    assert facts_of(b"", None, query="a=%EF%B7%BA").input_bytes == len("a") + 33


def test_bytes_that_a_query_may_not_hold_count_as_latin_1_and_as_utf8() -> None:
    head = check_headers([], target_bytes=0, rules=RULES)

    raw = check_body(b"", head, query=b"q=" + "ﷺ".encode(), path_bytes=0, rules=RULES)
    latin = check_body(b"", head, query=b"q=\xff\xff\xff", path_bytes=0, rules=RULES)

    assert raw.input_bytes >= len("q") + 33
    assert latin.input_bytes >= len("q") + len("ÿÿÿ".encode())


@pytest.mark.parametrize(
    ("path", "raw", "size"),
    [
        ("/ask/why", b"/ask/why", len("/ask/why")),
        ("/ask/ﷺ", b"/ask/%EF%B7%BA", len("/ask/") + 33),
        ("/ask/ﷺ", "/ask/ﷺ".encode(), len("/ask/") + 33),
        ("/ask/ü", b"/ask/%C3%BC", len("/ask/%C3%BC")),
        ("/ask/\udcff\ufffd", b"/ask/%FF%FF", len("/ask/%FF%FF")),
    ],
)
def test_a_path_counts_at_its_largest_normal_form(path: str, raw: bytes, size: int) -> None:
    head = check_headers([], target_bytes=len(raw), rules=RULES)

    facts = check_body(b"", head, query=b"", path_bytes=len(raw), path=path, rules=RULES)

    assert facts.input_bytes == size


def sizes(text: str) -> int:
    forms = (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFKC", text))
    return max(len(form.encode()) for form in forms)


def strings_in(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for inner in value for text in strings_in(inner)]
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in [key, *strings_in(inner)]]
    return []


@given(JSON_VALUES, st.booleans())
@settings(max_examples=150)
@example(["\ufdfa" * 9], True)
def test_the_bound_covers_every_decoded_string_in_every_normal_form(document: JsonValue, ensure_ascii: bool) -> None:
    body = json.dumps(document, ensure_ascii=ensure_ascii).encode()

    facts = facts_of(body)

    assert facts.input_bytes >= sum(map(sizes, strings_in(document)))
    assert facts.input_bytes >= len(body)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
@settings(max_examples=100)
def test_the_bound_covers_every_decoded_form_value(pairs: list[tuple[str, str]]) -> None:
    facts = facts_of(b"", None, query=urlencode(pairs))

    assert facts.input_bytes >= sum(sizes(name) + sizes(value) for name, value in pairs)


@given(st.lists(GROWING | st.characters(categories=["Mn", "Lo"]), max_size=400).map("".join))
@settings(max_examples=60)
@example("\u0344" * 200 + "\u0323" * 200)
@example("\u0f73" * 200)
@example("\u0301\uff9e" * 200)
def test_a_text_is_never_measured_below_its_largest_normal_form(text: str) -> None:
    assert normalised_bytes(text) >= sizes(text)


def test_the_larger_of_both_normal_forms_counts() -> None:
    text = "\U0001d15e" + "™" * 5  # NFC lengthens the first, NFKC also shortens the rest

    assert normalised_bytes(text) == len(unicodedata.normalize("NFC", text).encode()) > len(text.encode())


@pytest.mark.parametrize(
    "text", ["Grüße aus Köln…", "한국어…" * 50, "สวัสดีน้ำ" * 50, "Tiê\u0301ng Viê\u0323t" * 50, "½" * 999]
)
def test_ordinary_text_is_measured_exactly(text: str) -> None:
    assert normalised_bytes(text) == sizes(text)


@pytest.mark.parametrize("unit", ["\u0344\u0323", "\u0301\u0323", "\u0f73", "\u0301\uff9e", "\u0f75\u0f81"])
def test_a_flood_of_combining_marks_is_bounded_without_sorting_it(unit: str) -> None:
    text = "a" + unit * 10_000

    assert normalised_bytes(text) == 11 * len(text.encode())


def test_the_facts_about_unicode_hold_for_every_code_point() -> None:
    hidden_marks, growths = [], []
    for character in map(chr, [*range(0xD800), *range(0xE000, 0x110000)]):
        decomposed = unicodedata.normalize("NFKD", character)
        growths.append(len(decomposed.encode()) / len(character.encode()))
        if not unicodedata.combining(character) and unicodedata.combining(decomposed[0]):
            hidden_marks.append(character)

    assert max(growths) == 11
    assert "".join(hidden_marks) == "\u0f73\u0f75\u0f81\uff9e\uff9f"
