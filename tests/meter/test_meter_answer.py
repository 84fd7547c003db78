"""Reading a provider's answer while it passes: every byte but the usage chunk that only we asked for."""

import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routeguard.meter.answer import HELD_BYTES_MAX, Answer, answer_of
from routeguard.meter.endpoints import endpoint_of
from routeguard.usage import Usage
from tests.answers import COHERE_USAGE, cohere_events, line, ollama_parts
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
    b'data: {"choices": [], "usage": {"prompt_tokens": 1}, "error": {"message": "overloaded"}}\n\n',
]


COHERE = {
    "id": "c-1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
    "usage": COHERE_USAGE,
}


def ollama(*, done: bool = True, **members: Any) -> dict[str, Any]:
    """A whole answer of Ollama's, or one that is not done."""
    said = {"message": {"role": "assistant", "content": "hi"}, "done": done}
    return {"model": "llama3", "created_at": "2026-11-30T20:01:30.01Z", **said, **members}


class Told:
    """What was reported."""

    def __init__(self) -> None:
        self.usages: list[Usage] = []

    def __call__(self, usage: Usage) -> None:
        self.usages.append(usage)

    @property
    def tokens(self) -> tuple[int | None, int | None] | None:
        return (self.usages[-1].input_tokens, self.usages[-1].output_tokens) if self.usages else None


def reading(
    path: str,
    content_type: str,
    told: Told,
    *,
    hides_usage: bool = False,
    has_one_choice: bool = True,
    **others: str,
) -> Answer:
    endpoint = endpoint_of("POST", path)
    assert endpoint is not None
    named = {"content-type": content_type, **others}
    headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    return answer_of(endpoint, headers, report=told, hides_usage=hides_usage, has_one_choice=has_one_choice)


def passed(answer: Answer, chunks: Sequence[bytes], *, complete: bool = True) -> bytes:
    return b"".join([answer.passes(chunk) for chunk in chunks]) + answer.ends(complete=complete)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


#: Where the usage chunk lacks but that, when every line ends in CR LF.
BEFORE_ITS_LAST_LF = len(b"".join([CHAT[0], *DECOYS, *CHAT[1:-1]]).replace(b"\n", b"\r\n")) - 1
#: Where the event in front of it lacks but that.
BEFORE_THE_LF_IN_FRONT = BEFORE_ITS_LAST_LF - len(USAGE_CHUNK.replace(b"\n", b"\r\n"))


@example(places=[BEFORE_THE_LF_IN_FRONT], line_end=b"\r\n")
@example(places=[BEFORE_ITS_LAST_LF], line_end=b"\r\n")
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
    large = b"data: [" + b"x" * HELD_BYTES_MAX

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


def two_choices() -> list[bytes]:
    """A stream whose first choice ends before the second, with the usage so far in each chunk."""
    base = {"object": "chat.completion.chunk", "model": "m"}
    events = [
        {
            **base,
            "choices": [{"index": index, "delta": {"content": "a", "tool_calls": []}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output},
        }
        for index, finish, output in ((0, "stop", 1), (1, None, 50), (1, "stop", 100))
    ]
    return [*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"]


@pytest.mark.parametrize(("chunks", "complete", "tokens"), [(1, False, None), (2, False, None), (4, True, (10, 100))])
def test_of_several_choices_one_that_has_finished_is_no_bill_for_the_others(
    chunks: int, complete: bool, tokens: Any
) -> None:
    told = Told()

    passed(reading("/v1/chat/completions", SSE, told, has_one_choice=False), two_choices()[:chunks], complete=complete)

    assert told.tokens == tokens


def test_of_several_candidates_of_gemini_one_that_has_finished_is_no_bill_for_the_others() -> None:
    told = Told()
    event = f"data: {json.dumps(CONTENT)}\n\n".encode()

    path = "/v1beta/models/g:streamGenerateContent"
    passed(reading(path, SSE, told, has_one_choice=False), [event], complete=False)

    assert told.tokens is None


def test_usage_that_grows_after_the_finish_is_charged_as_it_ends() -> None:
    told = Told()

    passed(reading("/v1/chat/completions", SSE, told), two_choices(), complete=True)

    assert told.tokens == (10, 100)


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
        ("/api/chat", ollama(prompt_eval_count=10, eval_count=100), (10, 100)),
        ("/api/chat", ollama(eval_count=100), (None, 100)),
        ("/api/chat", ollama(done=False, prompt_eval_count=10, eval_count=100), None),
        ("/api/chat", {"error": "model not found"}, None),
        ("/api/generate", ollama(prompt_eval_count=True, eval_count="x"), None),
        ("/v2/chat", COHERE, (20, 9)),
    ],
)
def test_a_whole_answer_is_read_in_every_dialect(path: str, body: Any, tokens: Any) -> None:
    told = Told()
    data = json.dumps(body).encode()

    passed(reading(path, "application/json", told), [data[:10], data[10:]])

    assert told.tokens == tokens


def test_of_an_answer_in_lines_the_last_one_counts() -> None:
    data = b"".join(map(line, ollama_parts("Hel", "\n", "lo")))
    told = Told()

    passed(reading("/api/chat", "application/x-ndjson", told), [data[i : i + 7] for i in range(0, len(data), 7)])

    assert told.tokens == (20, 9)


@pytest.mark.parametrize(("numbers", "tokens"), [(300_000, (20, 9)), (1_200_000, None)])
def test_a_last_line_that_holds_the_context_is_read_up_to_four_megabytes(numbers: int, tokens: Any) -> None:
    *texts, last = ollama_parts("Hel", "lo", endpoint="generate")
    data = b"".join(map(line, [*texts, {**last, "context": [12_345] * numbers}]))
    told = Told()

    got = passed(reading("/api/generate", "application/x-ndjson", told), cut(data, list(range(0, len(data), 65_536))))

    assert (got == data, told.tokens) == (True, tokens)


def test_an_answer_in_lines_that_its_caller_left_is_no_bill_before_its_last_line() -> None:
    *texts, last = map(line, ollama_parts("Hel", "lo"))
    left, whole = Told(), Told()

    passed(reading("/api/chat", "application/x-ndjson", left), texts, complete=False)
    passed(reading("/api/chat", "application/x-ndjson", whole), [*texts, last], complete=False)

    assert (left.tokens, whole.tokens) == (None, (20, 9))


@pytest.mark.parametrize("complete", [True, False])
def test_a_stream_of_cohere_is_read_to_its_end(complete: bool) -> None:
    events = cohere_events("Hel", "lo")
    told, cut_off = Told(), Told()

    got = passed(reading("/v2/chat", SSE, told), events, complete=complete)
    passed(reading("/v2/chat", SSE, cut_off), events[:-1], complete=complete)

    assert (got, told.tokens, cut_off.tokens) == (b"".join(events), (20, 9), None)


def test_a_last_event_that_holds_the_answer_again_is_read() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "x" * 100_000}]}
    event = {"type": "response.completed", "sequence_number": 2, "response": {**RESPONSE, "output": [said]}}
    told = Told()

    passed(reading("/v1/responses", SSE, told), [f"data: {json.dumps(event)}\n\n".encode()])

    assert told.tokens == (10, 100)


@pytest.mark.parametrize(("header", "cost"), [("0.25", "0.25"), ("0.0", None), ("None", None)])
def test_what_a_litellm_proxy_charges_is_the_cost_of_an_answer(header: str, cost: str | None) -> None:
    told = Told()

    passed(
        reading("/v1/chat/completions", "application/json", told, x_litellm_response_cost=header),
        [json.dumps(COMPLETION).encode()],
    )

    assert told.usages[0].cost_usd == (None if cost is None else Decimal(cost))


@pytest.mark.parametrize("content_type", ["application/json", SSE])
def test_a_compressed_answer_passes_unread_and_unheld(content_type: str) -> None:
    told = Told()
    answer = reading("/v1/chat/completions", content_type, told, hides_usage=True, content_encoding="gzip")

    assert answer.passes(b"\x1f\x8b half an event") == b"\x1f\x8b half an event"
    assert (answer.ends(complete=True), told.usages) == (b"", [])


def test_where_a_stream_was_asked_for_a_body_is_not_held() -> None:
    answer = reading("/v1/chat/completions", "application/json", Told(), hides_usage=True)

    assert answer.passes(b'{"choices": []') == b'{"choices": []'


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
