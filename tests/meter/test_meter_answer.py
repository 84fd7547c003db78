"""Reading a provider's answer while it passes: every byte but the usage chunk that only we asked for."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.meter.answer import EVENT_BYTES_MAX, Answer, answer_of
from routeguard.meter.endpoints import endpoint_of
from routeguard.usage import Usage
from tests.driver import chat_chunks
from tests.meter.played import COMPLETION, ONE_CENT
from tests.meter.served import CONTENT, EMBEDDINGS, MESSAGE, RESPONSE
from tests.recordings import Recording, needs_recordings, recordings

SSE = "text/event-stream; charset=utf-8"
CHAT = chat_chunks(usage=ONE_CENT)
USAGE_CHUNK = CHAT[-2]
#: Chunks that look like the usage chunk and are none.
DECOYS = [
    b'data: {"choices": [], "usage": null, "model": "m", "prompt_filter_results": []}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"content": "\\"usage\\": {} []"}}], "usage": {"prompt_tokens": 1}}\n\n',
    b": keep-alive []\n\n",
    b'event: ping\ndata: {"type": "ping", "choices": [], "usage": 5}\n\n',
    b'data: {"choices": [], "usage": {broken\n\n',
]


class Told:
    """What was reported."""

    def __init__(self) -> None:
        self.usages: list[Usage] = []

    def __call__(self, usage: Usage) -> None:
        self.usages.append(usage)

    @property
    def tokens(self) -> tuple[int | None, int | None] | None:
        return (self.usages[-1].input_tokens, self.usages[-1].output_tokens) if self.usages else None


def reading(path: str, content_type: str, told: Told, *, hides_usage: bool = False) -> Answer:
    endpoint = endpoint_of("POST", path)
    assert endpoint is not None
    return answer_of(endpoint, content_type, report=told, hides_usage=hides_usage)


def passed(answer: Answer, chunks: Sequence[bytes], *, complete: bool = True) -> bytes:
    return b"".join([answer.passes(chunk) for chunk in chunks]) + answer.ends(complete=complete)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(places=st.lists(st.integers(0, 10_000), max_size=12), line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_however_a_stream_is_cut_all_but_the_usage_chunk_passes_byte_for_byte(
    places: list[int], line_end: bytes
) -> None:
    events = [CHAT[0], *DECOYS, *CHAT[1:]]
    data = b"".join(events).replace(b"\n", line_end)
    expected = b"".join(event for event in events if event != USAGE_CHUNK).replace(b"\n", line_end)
    told = Told()

    got = passed(reading("/v1/chat/completions", SSE, told, hides_usage=True), cut(data, places))

    assert got == expected


@given(places=st.lists(st.integers(0, 10_000), max_size=12))
def test_however_a_stream_is_cut_its_usage_is_reported(places: list[int]) -> None:
    told = Told()

    passed(reading("/v1/chat/completions", SSE, told, hides_usage=True), cut(b"".join(CHAT), places))

    assert told.tokens == (10, 100)


@given(chunks=st.lists(st.binary(max_size=60) | st.sampled_from(CHAT + DECOYS), max_size=20), complete=st.booleans())
def test_whatever_comes_the_caller_gets_it_all_when_it_asked_for_usage(chunks: list[bytes], complete: bool) -> None:
    for path, content_type in (("/v1/chat/completions", SSE), ("/v1/messages", "application/json"), ("/api/chat", "")):
        got = passed(reading(path, content_type, Told()), chunks, complete=complete)

        assert got == b"".join(chunks)


def test_an_event_passes_as_soon_as_it_is_whole() -> None:
    answer = reading("/v1/chat/completions", SSE, Told(), hides_usage=True)
    held = [answer.passes(part) for part in (CHAT[0][:20], CHAT[0][20:] + CHAT[1][:5], CHAT[1][5:])]

    assert held == [b"", CHAT[0], CHAT[1]]


def test_an_event_too_large_to_be_the_usage_chunk_is_not_held() -> None:
    answer = reading("/v1/chat/completions", SSE, Told(), hides_usage=True)
    large = b"data: [" + b"x" * EVENT_BYTES_MAX

    assert answer.passes(large) == large


def test_usage_is_told_at_its_chunk_and_not_at_the_end() -> None:
    told = Told()
    answer = reading("/v1/chat/completions", SSE, told)

    for chunk in CHAT[:-1]:
        answer.passes(chunk)

    assert told.tokens == (10, 100)


@pytest.mark.parametrize("complete", [True, False])
def test_usage_that_grows_with_each_chunk_is_no_bill_for_who_leaves_midway(complete: bool) -> None:
    growing = [
        {"object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}]}
        | {"usage": {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n}}
        for n in (1, 2)
    ]
    told = Told()

    passed(
        reading("/v1/chat/completions", SSE, told),
        [f"data: {json.dumps(event)}\n\n".encode() for event in growing],
        complete=complete,
    )

    assert told.tokens == ((10, 2) if complete else None)


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/v1/chat/completions", COMPLETION, (10, 100)),
        ("/v1/chat/completions", {**COMPLETION, "object": None}, (10, 100)),
        ("/v1/chat/completions", {**COMPLETION, "error": {"message": "no"}}, None),
        ("/v1/chat/completions", {**COMPLETION, "usage": None}, None),
        ("/v1/chat/completions", {**COMPLETION, "usage": {"prompt_tokens": -1, "completion_tokens": 5}}, None),
        ("/v1/responses", RESPONSE, (10, 100)),
        ("/v1/responses", {**RESPONSE, "status": "queued", "usage": None}, None),
        ("/v1/messages", MESSAGE, (10, 100)),
        ("/v1/embeddings", EMBEDDINGS, (10, 0)),
        ("/v1beta/models/g:generateContent", CONTENT, (10, 100)),
        ("/v1beta/models/g:streamGenerateContent", [{**CONTENT, "usageMetadata": {}}, CONTENT], (10, 100)),
        ("/v1beta/models/g:streamGenerateContent", [CONTENT, {"error": {"code": 500}}], None),
        ("/api/chat", {"done": True, "prompt_eval_count": 10, "eval_count": 100}, (10, 100)),
        ("/api/chat", {"done": True, "eval_count": 100}, (None, 100)),
        ("/api/chat", {"done": False, "prompt_eval_count": 10, "eval_count": 100}, None),
        ("/api/generate", {"done": True, "prompt_eval_count": True, "eval_count": "x"}, None),
    ],
)
def test_a_whole_answer_is_read_in_every_dialect(path: str, body: Any, tokens: Any) -> None:
    told = Told()
    data = json.dumps(body).encode()

    passed(reading(path, "application/json", told), [data[:10], data[10:]])

    assert told.tokens == tokens


def test_of_an_answer_in_lines_the_last_one_counts() -> None:
    lines = [{"done": False, "message": {"content": "\n"}}, {"done": True, "prompt_eval_count": 10, "eval_count": 100}]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    told = Told()

    passed(reading("/api/chat", "application/x-ndjson", told), [data[i : i + 7] for i in range(0, len(data), 7)])

    assert told.tokens == (10, 100)


def test_half_an_answer_is_no_bill() -> None:
    told = Told()
    data = json.dumps(COMPLETION).encode()

    passed(reading("/v1/chat/completions", "application/json", told), [data[:-1]], complete=False)

    assert told.usages == []


PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "generateContent": "/v1/models/m:generateContent",
    "streamGenerateContent": "/v1/models/m:streamGenerateContent",
}


#: Of the dialects that a metered client knows.
STREAMS = [recording for recording in recordings() if recording.is_stream and recording.api in PATHS]


@needs_recordings
@pytest.mark.parametrize("recording", STREAMS, ids=lambda recording: recording.file)
def test_a_recorded_stream_is_reported_as_it_is_billed_and_passes_unchanged(recording: Recording) -> None:
    told = Told()
    body = recording.body

    got = passed(reading(PATHS[recording.api], SSE, told), [body[i : i + 1000] for i in range(0, len(body), 1000)])

    assert got == body
    if told.tokens is not None and "model" not in recording.other:
        assert told.tokens == (recording.input_tokens, recording.output_tokens)
