"""What counts as a media part, and how often."""

import pytest

from routeguard.body import BodyFacts
from routeguard.body.strict_json import JsonValue
from tests.bodies import BINARY, NO_MEDIA, PNG, facts_of, reason_of


@pytest.mark.parametrize(
    "part",
    [
        *[
            {"type": kind}
            for kind in ("image", "image_url", "input_image", "audio", "input_audio", "file", "input_file")
        ],
        *[{"type": kind} for kind in ("document", "video", "video_url", "image_file")],
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"inline_data": None},
        {"fileData": {"fileUri": "gs://x"}},
        {"file_data": "AA=="},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "file", "file": {"file_data": PNG}},
        {"type": "text", "text": PNG},
        {"url": " DATA:image/png;charset=x;BASE64,AA=="},
        [PNG],
    ],
)
def test_a_media_part_counts_once(part: JsonValue) -> None:
    body: JsonValue = {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "hi"}]}]}

    assert facts_of(body).media_parts == 1
    assert reason_of(body, rules=NO_MEDIA) == "media_not_allowed"


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        ([{"type": "image"}, {"type": "image"}], 2),
        ([PNG, PNG, {"a": PNG}], 3),
        ({"type": "document", "content": [{"type": "image"}, {"type": "image"}]}, 2),
        ({"type": "image", "a": PNG, "b": {"type": "file", "c": PNG}}, 2),
        ({"type": "image", "a": {"type": "image", "b": [PNG, PNG, PNG]}}, 3),
        ({"inlineData": {}, "fileData": {}}, 2),
        ([[[{"type": "image", "x": [[{"y": PNG}]]}]], PNG], 2),
    ],
)
def test_media_inside_media_counts_once_and_the_rest_in_full(document: JsonValue, parts: int) -> None:
    assert facts_of(document).media_parts == parts


@pytest.mark.parametrize(
    "document",
    [
        {"type": "text"},
        {"type": ["image"]},
        {"type": {"image": 1}},
        {"type": None},
        {"kind": "image"},
        ["image", "inlineData", "data:", "data:text/plain,hi", "see data:image/png;base64,AA=="],
        ["\\u0064ata"],
    ],
)
def test_what_only_resembles_media_is_text(document: JsonValue) -> None:
    assert facts_of(document, rules=NO_MEDIA).media_parts == 0


def test_escapes_do_not_hide_media() -> None:
    assert facts_of('{"\\u0074ype":"im\\u0061ge"}').media_parts == 1
    assert facts_of('["\\u0064ata:image/png;\\u0062ase64,AA=="]').media_parts == 1
    assert facts_of('["data:image\\/png;base64,AA=="]').media_parts == 1


def test_a_binary_body_is_one_media_part() -> None:
    body = b"\x89PNG\r\n\x1a\n\0{"

    assert facts_of(body, BINARY) == BodyFacts(len(body), media_parts=1, chars=0, model=None)
    assert reason_of(body, BINARY, rules=NO_MEDIA) == "media_not_allowed"


@pytest.mark.parametrize(("body", "media_type", "query"), [(PNG, "text/plain", ""), (b"", None, "image=" + PNG)])
def test_a_file_written_out_is_media_in_any_text(body: bytes | str, media_type: str | None, query: str) -> None:
    assert facts_of(body, media_type, query=query).media_parts == 1
