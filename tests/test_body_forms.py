"""Forms, query strings and multipart bodies: what is a field, what is a file, what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.body.forms import FIELDS_MAX, read_multipart, read_urlencoded
from routeguard.errors import Rejected
from tests.bodies import FORM, MULTIPART, NO_MEDIA, RULES, facts_of, reason_of

FIELD = 'Content-Disposition: form-data; name="{}"'
FILE = 'Content-Disposition: form-data; name="file"; filename="{}"'


def multipart(*parts: tuple[str, bytes]) -> bytes:
    opened = b"".join(b"--b\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n" for head, content in parts)
    return opened + b"--b--\r\n"


@pytest.mark.parametrize(
    ("raw", "texts"),
    [
        (b"a=1&b=2", [("a", "1"), ("b", "2")]),
        (b"a=1&a=2", [("a", "1"), ("a", "2")]),
        (b"a&b=&=c&&", [("a", ""), ("b", ""), ("", "c")]),
        (b"a+b=c%20d%2B", [("a b", "c d+")]),
        (b"a=b=c", [("a", "b=c")]),
        (b"%61=%e2%98%83", [("a", "☃")]),
        (b"a=%zz%", [("a", "%zz%")]),
        (b"a=%ff", [("a", "\ufffd")]),
        (b"a=1;b=2", [("a", "1;b=2"), ("a", "1"), ("b", "2")]),
        (b"", []),
    ],
)
def test_fields_are_read_as_frameworks_read_them(raw: bytes, texts: list[tuple[str, str]]) -> None:
    assert read_urlencoded(raw).texts == texts


def test_too_many_fields_are_refused() -> None:
    fields = "&".join(["a=1"] * FIELDS_MAX)

    assert facts_of(fields, FORM).chars == FIELDS_MAX
    assert reason_of(fields + "&a=1", FORM) == "bad_request"
    assert reason_of(b"", query="a;" * FIELDS_MAX + "a") == "bad_request"
    assert reason_of(multipart(*[(FIELD.format("a"), b"1")] * (FIELDS_MAX + 1)), MULTIPART) == "bad_request"


def test_json_that_claims_to_be_a_form_counts_at_the_larger_of_both_readings() -> None:
    growing = '{"=' + "%EF%B7%BA" * 20 + '":1}'

    assert facts_of('{"=abc":1}', FORM).chars == len('abc":1}')
    assert facts_of('{"=data:;base64,":1}', FORM).media_parts == 1
    assert facts_of(growing, FORM).input_bytes >= 33 * 20


def test_fields_count_their_characters_and_files_count_as_media() -> None:
    body = multipart(
        (FIELD.format("lang"), b"de"), (FILE.format("a.png"), b"\x89\0\xff"), (FIELD.format("q"), "hé".encode())
    )

    facts = facts_of(body, MULTIPART)

    assert (facts.chars, facts.media_parts, facts.input_bytes) == (4, 1, len(body))
    assert reason_of(body, MULTIPART, rules=NO_MEDIA) == "media_not_allowed"


@pytest.mark.parametrize(
    ("head", "content", "parts"),
    [
        (FIELD.format("a"), b"text", 0),
        (FIELD.format("a") + "\r\nContent-Type: text/plain; charset=UTF-8", b"text", 0),
        (FIELD.format("a") + "\r\ncontent-type: application/json", b"{}", 0),
        (FIELD.format("a"), b"data:image/png;base64,AA==", 1),
        (FILE.format("a.txt") + "\r\nContent-Type: text/plain", b"text", 1),
        (FILE.format('a\\"b.png'), b"", 1),
        (FILE.format("") + "\r\nContent-Type: application/octet-stream", b"", 0),
        (FILE.format(""), b"", 0),
        ('CONTENT-DISPOSITION:form-data;name="a";filename="x"', b"", 1),
        ("Content-Type: text/plain", b"hi", 0),
    ],
)
def test_a_part_with_a_file_name_is_media(head: str, content: bytes, parts: int) -> None:
    assert facts_of(multipart((head, content)), MULTIPART).media_parts == parts


@pytest.mark.parametrize(
    "head",
    [
        "Content-Disposition: form-data; name=\"a\"; filename*=utf-8''x.png",
        'Content-Disposition: form-data; name="a"; xfilename="b"',
        'Content-Disposition: form-data; name="a\\"; filename="b"',
        'Content-Disposition: form-data; name="a"; name="b"',
        'Content-Disposition: form-data; filename="a"; name="b"; filename="c"',
        "Content-Disposition: form-data; name=a",
        FIELD.format("a") + "\r\n" + FIELD.format("b"),
        FIELD.format("a") + "\r\nContent-Transfer-Encoding: base64",
        FIELD.format("a") + "\r\nContent-Type: image/png",
        FIELD.format("a") + "\r\nContent-Type: multipart/mixed; boundary=c",
        FIELD.format("a") + "\r\nContent-Type: text/plain; charset=utf-16",
        "Content-Type: image/png",
        FIELD.format("a") + "\r\n filename=x",
        FIELD.format("a") + "\nX: y",
        FIELD.format("a").replace(":", " :"),
        "no colon",
        "",
    ],
)
def test_a_part_that_two_parsers_may_read_differently_is_refused(head: str) -> None:
    assert reason_of(multipart((head, b"x")), MULTIPART) == "bad_request"


@pytest.mark.parametrize(
    "body",
    [
        b"text",
        b"--b",
        b"--b\r\n",
        b"preamble\r\n" + multipart((FIELD.format("a"), b"x")),
        multipart((FIELD.format("a"), b"x")) + b"epilogue",
        multipart((FIELD.format("a"), b"x")).replace(b"\r\n", b"\n"),
        multipart((FIELD.format("a"), b"x")).replace(b"--b\r", b"--b \r", 1),
        multipart((FIELD.format("a"), b"x\r\n--bc\r\ny")),
        multipart((FIELD.format("a"), b"x")).removesuffix(b"--b--\r\n"),
        b"--b\r\n" + FIELD.format("a").encode() + b"\r\n--b--\r\n",
        multipart((FIELD.format("a"), b"x")).replace(b"--b\r\n", b"--bX: y\r\n", 1),
        multipart((FIELD.format("a"), b"x--b")),
        multipart((FIELD.format("a"), b"x\n--b\r\n")),
        multipart((FILE.format(""), b"x")),
        multipart((FIELD.format("a"), b"\xff")),
        multipart((FIELD.format("a"), b"\0")),
        b"--b\r\n" + FIELD.format("\x00").encode() + b"\r\n\r\nx\r\n--b--",
    ],
)
def test_a_multipart_body_must_be_put_together_as_the_standard_says(body: bytes) -> None:
    assert reason_of(body, MULTIPART) == "bad_request"


def test_a_multipart_body_without_a_usable_boundary_is_refused() -> None:
    assert reason_of(multipart(), "multipart/form-data") == "bad_request"


def test_an_empty_multipart_form_is_fine() -> None:
    assert facts_of(b"--b--", MULTIPART).chars == 0


def test_multipart_fields_are_held_to_the_field_rules() -> None:
    prompt = (FIELD.format("prompt"), b"hi")

    assert reason_of(multipart(prompt, (FIELD.format("max_tokens"), b"5000")), MULTIPART) == "output_too_large"
    assert reason_of(multipart(prompt, (FIELD.format("store"), b"1")), MULTIPART) == "unsupported_field"
    assert reason_of(multipart(prompt, (FIELD.format("model"), b"x")), MULTIPART) == "model_not_allowed"
    assert reason_of(multipart(prompt), MULTIPART, rules=replace(RULES, chars_max=1)) == "input_too_long"


def test_a_multipart_field_counts_at_its_largest_normal_form() -> None:
    body = multipart((FIELD.format("a"), "ﷺ".encode() * 100))

    assert facts_of(body, MULTIPART).input_bytes >= 100 * 33


@given(st.lists(st.tuples(st.text("abc", max_size=3), st.text(max_size=20), st.booleans()), max_size=6))
@settings(max_examples=60)
def test_each_part_is_found_again(parts: list[tuple[str, str, bool]]) -> None:
    sent = [
        ((FILE.format("x") if is_file else FIELD.format(name)), text.encode("utf-8", "ignore").replace(b"\0", b""))
        for name, text, is_file in parts
    ]

    form = read_multipart(multipart(*sent), b"b")

    assert form.media_parts == sum(is_file for *_, is_file in parts)
    fields = [content.decode() for (_, content), (*_, is_file) in zip(sent, parts, strict=True) if not is_file]
    assert [text for _, text in form.texts] == fields


PIECES = st.sampled_from(
    [b"--b", b"\r\n", b"--", b'Content-Disposition: form-data; name="a"', b"; filename=", b'"', b"x"]
)


@given(st.lists(PIECES | st.binary(max_size=5), max_size=14).map(b"".join))
@settings(max_examples=200)
def test_any_multipart_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        form = read_multipart(body, b"b")
    except Rejected as refused:
        reason = refused.reason
    else:
        reason = "bad_request" if form.media_parts + len(form.texts) > body.count(b"--b") else ""

    assert reason in ("", "bad_request")
