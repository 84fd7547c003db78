"""What the headers alone decide about a body."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.body import BodyHead, BodyRules, check_headers
from routeguard.errors import Rejected

RULES = BodyRules(
    bytes_max=1000,
    types=frozenset({"json", "text", "form"}),
    chars_max=200,
    output_tokens_max=100,
    models=frozenset({"gpt-5-mini"}),
    allowed_fields=frozenset(),
    only_fields=None,
    media_allowed=False,
)
ALL_TYPES = frozenset({"json", "text", "form", "multipart", "binary"})


def head_of(*headers: tuple[str, str], target_bytes: int = 0, types: frozenset[str] = RULES.types) -> BodyHead:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return check_headers(raw, target_bytes=target_bytes, rules=replace(RULES, types=types))


def refusal_of(*headers: tuple[str, str], types: frozenset[str] = RULES.types) -> tuple[int, str]:
    with pytest.raises(Rejected) as refused:
        head_of(*headers, types=types)
    return refused.value.status, refused.value.reason


JSON = ("content-type", "application/json")


@pytest.mark.parametrize(
    ("value", "length"), [("5", 5), ("005", 5), ("5 ", 5), ("\t5", 5), ("0", 0), ("1000", 1000), ("0" * 5000 + "7", 7)]
)
def test_a_plain_length_is_read_whatever_its_blanks_and_zeros(value: str, length: int) -> None:
    head = head_of(("content-length", value), JSON)

    assert head.declared_bytes == length


@pytest.mark.parametrize(
    "value",
    ["", " ", "+5", "-1", "0x5", "5_0", "5 5", "5, 5", "5,5", "5.0", "1e3", "\u00b2", "\u00b5", "five", "5\x0b"],
)
def test_a_length_that_is_not_plain_digits_is_a_bad_request(value: str) -> None:
    assert refusal_of(("content-length", value), JSON) == (400, "bad_request")


@pytest.mark.parametrize("values", [("5", "5"), ("5", "05"), ("5", " 5 ", "5")])
def test_equal_lengths_may_be_repeated(values: Sequence[str]) -> None:
    head = head_of(*(("content-length", value) for value in values), JSON)

    assert head.declared_bytes == 5


def test_different_lengths_are_a_bad_request() -> None:
    assert refusal_of(("content-length", "5"), ("content-length", "6"), JSON) == (400, "bad_request")


@pytest.mark.parametrize("coding", ["chunked", "identity", ""])
def test_a_length_beside_a_transfer_encoding_is_a_bad_request(coding: str) -> None:
    assert refusal_of(("content-length", "5"), ("transfer-encoding", coding), JSON) == (400, "bad_request")


@pytest.mark.parametrize("digits", ["1001", "18446744073709551621", "9" * 25, "9" * 6000])
def test_a_declared_length_over_the_limit_is_too_large(digits: str) -> None:
    assert refusal_of(("content-length", digits), JSON) == (413, "request_too_large")


def test_path_and_query_count_towards_the_declared_length() -> None:
    head = head_of(("content-length", "990"), JSON, target_bytes=10)

    assert head.declared_bytes == 990
    with pytest.raises(Rejected, match="1000 bytes"):
        head_of(("content-length", "990"), JSON, target_bytes=11)


def test_an_address_over_the_limit_is_too_large_without_a_body() -> None:
    with pytest.raises(Rejected) as refused:
        head_of(target_bytes=1001)

    assert (refused.value.status, refused.value.reason) == (413, "request_too_large")


@pytest.mark.parametrize("value", ["identity", "Identity", " identity ", "identity, identity"])
def test_identity_is_no_encoding(value: str) -> None:
    assert head_of(("content-encoding", value), JSON).kind == "json"


@pytest.mark.parametrize("value", ["gzip", "br", "identity, gzip", "x-gzip", "deflate", "zstd", "", "identity;q=1"])
def test_any_other_encoding_is_unsupported(value: str) -> None:
    assert refusal_of(("content-encoding", value), JSON) == (415, "unsupported_encoding")


def test_a_second_encoding_header_is_looked_at_too() -> None:
    headers = ("content-encoding", "identity"), ("content-encoding", "gzip"), JSON

    assert refusal_of(*headers) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("application/json", "json"),
        ("Application/JSON ; Charset=UTF-8", "json"),
        ("application/vnd.api+json", "json"),
        ("text/x+json", "json"),
        ("text/json", "text"),
        ("text/plain;charset=US-ASCII", "text"),
        ("text/html", "text"),
        ("application/x-www-form-urlencoded", "form"),
        ("multipart/form-data; boundary=x", "multipart"),
        ("multipart/related; boundary=x", "multipart"),
        ("image/png", "binary"),
        ("application/jsonp", "binary"),
        ("+json", "binary"),
        ("json", "binary"),
        ("text/plain, application/json", "binary"),
        ("text/", "binary"),
    ],
)
def test_the_type_decides_the_kind(value: str, kind: str) -> None:
    assert head_of(("content-type", value), types=ALL_TYPES).kind == kind


@pytest.mark.parametrize("value", ["multipart/form-data; boundary=x", "image/png", "json", "application/octet-stream"])
def test_a_kind_that_is_not_listed_is_unsupported(value: str) -> None:
    assert refusal_of(("content-length", "5"), ("content-type", value)) == (415, "unsupported_type")


@pytest.mark.parametrize(
    "parameter",
    [
        "charset=latin-1",
        "charset=utf-16",
        'charset="UTF-16"',
        "CHARSET=utf-7",
        "charset=",
        "charset",
        'charset="utf-8',
        "charset='utf-8'",
        "charset*=utf-8''utf-16",
        "charset*0=utf-16",
        "charset =utf-16",
        "charset=utf-8; charset=utf-16",
        'x="; charset=utf-16"',
    ],
)
def test_a_charset_that_may_be_read_as_anything_but_utf8_is_unsupported(parameter: str) -> None:
    assert refusal_of(("content-type", f"application/json; {parameter}")) == (415, "unsupported_type")


@pytest.mark.parametrize(
    "parameter", ["charset=utf-8", 'charset="UTF-8"', "charset=utf8", "Charset = us-ascii", "", "q=1"]
)
def test_utf8_by_any_of_its_names_is_fine(parameter: str) -> None:
    assert head_of(("content-type", f"application/json; {parameter}")).kind == "json"


def test_a_type_or_an_encoding_is_read_up_to_a_thousand_bytes() -> None:
    longest = "application/json" + ";" * 984

    assert head_of(("content-type", longest)).kind == "json"
    assert refusal_of(("content-type", longest + ";")) == (415, "unsupported_type")
    assert head_of(("content-encoding", "identity" + " " * 992), JSON).kind == "json"
    assert refusal_of(("content-encoding", "identity," * 111 + "identity "), JSON) == (415, "unsupported_encoding")


def test_a_repeated_type_is_unsupported() -> None:
    assert refusal_of(JSON, JSON) == (415, "unsupported_type")


@pytest.mark.parametrize("sign_of_a_body", [("content-length", "1"), ("transfer-encoding", "chunked")])
def test_a_body_without_a_type_is_binary(sign_of_a_body: tuple[str, str]) -> None:
    assert head_of(sign_of_a_body, types=ALL_TYPES).kind == "binary"
    assert refusal_of(sign_of_a_body) == (415, "unsupported_type")


def test_an_empty_type_is_no_type() -> None:
    assert head_of(("content-type", " ; charset=utf-8")).kind is None
    assert refusal_of(("content-type", ""), ("content-length", "1")) == (415, "unsupported_type")


def test_no_sign_of_a_body_needs_no_type() -> None:
    head = head_of(("host", "shop.example"), ("accept", "*/*"))

    assert head == BodyHead(declared_bytes=None, kind=None, boundary=None)


@pytest.mark.parametrize("value", ["image/png", "application/json; charset=utf-16"])
def test_an_empty_body_may_have_any_type(value: str) -> None:
    head = head_of(("content-length", "0"), ("content-type", value))

    assert head == BodyHead(declared_bytes=0, kind=None, boundary=None)


@pytest.mark.parametrize(
    ("parameters", "boundary"),
    [
        ("boundary=abc", b"abc"),
        ('Boundary="a b"', None),
        ('boundary="a=b"', b"a=b"),
        ("boundary=abc; charset=utf-8", b"abc"),
        ("boundary=", None),
        ("x=1", None),
        ("boundary=a; boundary=b", None),
        ("boundary*=utf-8''a; boundary=b", None),
        ('boundary="a;b"', None),
        ("boundary=" + "a" * 71, None),
    ],
)
def test_a_boundary_is_taken_only_when_it_can_be_read_in_one_way(parameters: str, boundary: bytes | None) -> None:
    assert head_of(("content-type", f"multipart/form-data; {parameters}"), types=ALL_TYPES).boundary == boundary


def test_header_names_have_no_case() -> None:
    assert refusal_of(("Content-Length", "x")) == (400, "bad_request")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("content-length", "x"), "bad_request"),
        (("content-encoding", "gzip"), "unsupported_encoding"),
        (("content-type", "image/png"), "unsupported_type"),
        (("content-length", "1001"), "request_too_large"),
    ],
)
def test_the_first_check_that_fails_decides(wrong: tuple[str, str], reason: str) -> None:
    later = {
        "bad_request": [("content-encoding", "gzip"), ("content-type", "image/png")],
        "unsupported_encoding": [("content-type", "image/png"), ("content-length", "1001")],
        "unsupported_type": [("content-length", "1001")],
        "request_too_large": [JSON],
    }

    _, found = refusal_of(*later[reason], wrong)

    assert found == reason


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(Rejected) as refused:
        head_of(("content-length", "5"), ("content-type", "secret/<script>"))

    assert "secret" not in refused.value.message
    assert "application/json" in refused.value.message


NAMES = [b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"x"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=20))), st.integers(0, 2000))
def test_any_headers_are_read_or_refused(headers: list[tuple[bytes, bytes]], target_bytes: int) -> None:
    try:
        status = 200
        declared_bytes = check_headers(headers, target_bytes=target_bytes, rules=RULES).declared_bytes
    except Rejected as refused:
        status, declared_bytes = refused.status, None

    assert status in (200, 400, 413, 415)
    assert status != 200 or (declared_bytes or 0) + target_bytes <= RULES.bytes_max
