"""What a whole JSON answer is read to."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from routeguard.formats import body_reader
from routeguard.formats.body import BodyReader
from routeguard.usage import Usage
from tests.answers import (
    CHAT_USAGE,
    COHERE_USAGE,
    CONVERSE_USAGE,
    FINAL_USAGE,
    RESPONSES_USAGE,
    Json,
    content_chunk,
    ollama_parts,
    response,
)

BODY_BYTES_MAX = 10_000

CHAT: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-5-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": CHAT_USAGE,
}
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5",
    "content": [],
    "stop_reason": "end_turn",
    "usage": FINAL_USAGE,
}

CONVERSE: Json = {
    "output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
    "stopReason": "max_tokens",
    "usage": CONVERSE_USAGE,
    "metrics": {"latencyMs": 7},
}
COHERE: Json = {
    "id": "c-1",
    "finish_reason": "MAX_TOKENS",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
    "usage": COHERE_USAGE,
}

#: Dialect → (a whole body, model, finish reason).
BODIES: dict[str, tuple[object, str | None, str]] = {
    "chat": (CHAT, "gpt-5-mini", "stop"),
    "legacy completions": ({**CHAT, "object": "text_completion"}, "gpt-5-mini", "stop"),
    "responses": (response("completed", RESPONSES_USAGE), "gpt-5-mini-2025-08-07", "completed"),
    "a failed response with usage": (
        response("failed", RESPONSES_USAGE, error={"code": "server_error"}),
        "gpt-5-mini-2025-08-07",
        "failed",
    ),
    "messages": (MESSAGE, "claude-sonnet-5", "end_turn"),
    "generate_content": (content_chunk("hi", 4, finish="STOP"), "gemini-2.5-flash", "STOP"),
    "a stream as an array": (
        [content_chunk("h", 1), content_chunk("i", 4, finish=1)],
        "gemini-2.5-flash",
        "STOP",
    ),
    "converse": (CONVERSE, None, "max_tokens"),
    "ollama chat": (ollama_parts()[-1], "llama3", "stop"),
    "ollama generate": (ollama_parts(endpoint="generate")[-1], "llama3", "stop"),
    "cohere": (COHERE, None, "MAX_TOKENS"),
}

EMBEDDINGS: dict[str, Json] = {
    "openai": {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.1]}],
        "model": "text-embedding-3-small",
        "usage": {"prompt_tokens": 20, "total_tokens": 20},
    },
    "gemini": {"embedding": {"values": [0.1]}, "usageMetadata": {"promptTokenCount": 20, "totalTokenCount": 20}},
    "gemini without a total": {"embeddings": [{"values": [0.1]}], "usageMetadata": {"promptTokenCount": 20}},
    "cohere": {
        "id": "e-1",
        "embeddings": {"float": [[0.1]]},
        "texts": ["hi"],
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 20}},
        "response_type": "embeddings_by_type",
    },
    "ollama": {"model": "all-minilm", "embeddings": [[0.1]], "total_duration": 7, "prompt_eval_count": 20},
}


def _reader_of(*chunks: bytes, max_bytes: int = BODY_BYTES_MAX) -> BodyReader:
    reader = body_reader(max_bytes)
    assert isinstance(reader, BodyReader)
    for chunk in chunks:
        reader.feed(chunk)
    return reader


def _read(body: object) -> Usage | None:
    return _reader_of(json.dumps(body).encode()).result(failed=False)


@pytest.mark.parametrize("dialect", BODIES)
def test_a_whole_body_is_read_to_what_it_used(dialect: str) -> None:
    body, model, finish = BODIES[dialect]

    reader = _reader_of(json.dumps(body).encode())
    used = reader.result(failed=False)

    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.model, used.finish) == (20, 9, model, finish)
    assert reader.seen
    assert reader.terminal
    assert reader.finish == finish


@pytest.mark.parametrize("dialect", BODIES)
def test_a_body_is_read_alike_in_pieces_and_whatever_failed_after_it(dialect: str) -> None:
    body = json.dumps(BODIES[dialect][0], ensure_ascii=False).encode()

    pieces = _reader_of(b"\xef\xbb\xbf", *(body[at : at + 7] for at in range(0, len(body), 7)), b"\n")

    assert pieces.result(failed=True) == _read(BODIES[dialect][0])


@pytest.mark.parametrize("provider", EMBEDDINGS)
def test_embeddings_have_an_input_and_no_output(provider: str) -> None:
    used = _read(EMBEDDINGS[provider])

    assert used == Usage(input_tokens=20, output_tokens=0, model=used.model if used else None)


def test_what_converse_wrote_for_an_hour_is_told_apart() -> None:
    used = _read(CONVERSE)

    assert used is not None
    assert (used.cached_input_tokens, used.cache_write_tokens, used.cache_write_1h_tokens) == (5, 1, 3)


def test_a_lifetime_that_nobody_knows_is_an_hour() -> None:
    used = _read({**CONVERSE, "usage": {**CONVERSE_USAGE, "cacheDetails": [{"ttl": "2h", "inputTokens": 4}]}})

    assert used is not None
    assert (used.cache_write_tokens, used.cache_write_1h_tokens) == (0, 4)


def test_of_what_cohere_read_and_what_it_bills_the_larger_counts() -> None:
    more = {
        "tokens": {"input_tokens": 496, "output_tokens": 9},
        "billed_units": {"input_tokens": 1, "output_tokens": 11},
    }

    used = _read({**COHERE, "usage": more})

    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (496, 11)


def test_a_body_that_used_nothing_is_not_believed_unless_it_says_what_it_costs() -> None:
    nothing = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

    costs = _read({**CHAT, "usage": {**nothing, "cost": 0.01}})

    assert _read({**CHAT, "usage": nothing}) is None
    assert _read({**CHAT, "usage": {**nothing, "cost": 0}}) is None
    assert costs is not None
    assert costs.cost_usd == Decimal("0.01")


def test_half_a_body_tells_nothing() -> None:
    body = json.dumps(CHAT).encode()

    assert [cut for cut in range(len(body)) if _reader_of(body[:cut]).result(failed=False) is not None] == []


def test_a_body_of_exactly_the_largest_size_is_read_and_a_larger_one_is_not_held() -> None:
    body = json.dumps(CHAT).encode()
    larger = _reader_of(body, b" ", max_bytes=len(body))

    assert _reader_of(body, max_bytes=len(body)).result(failed=False) is not None
    assert larger.result(failed=False) is None
    assert not larger.seen
    assert len(larger._body) == 0
    larger.feed(body)
    assert len(larger._body) == 0


@pytest.mark.parametrize(
    "body",
    [
        {"usage": CHAT_USAGE},
        {"answer": json.dumps(CHAT)},
        {"answer": CHAT},
        [CHAT],
        [content_chunk("a", 1), {"usage": CHAT_USAGE}],
        [],
        "text",
        7,
        None,
        {"error": {"message": "m"}},
        {**CHAT, "error": {"code": 400}},
        {**CHAT, "object": "chat.completion.chunk"},
        {**CHAT, "choices": None},
        {"choices": ["red"], "usage": CHAT_USAGE},
        {"choices": [], "usage": CHAT_USAGE},
        {"type": "message", "content": "mine", "usage": FINAL_USAGE},
        {"candidates": ["Ada", "Grace"]},
        {"type": "error", "error": {"type": "not_found_error"}},
        {**ollama_parts()[-1], "done": False},
        {"done": True, "prompt_eval_count": 1, "eval_count": 1},
        {"stopReason": "end_turn", "usage": CONVERSE_USAGE},
        {"output": "text", "stopReason": "end_turn", "usage": CONVERSE_USAGE},
        {"message": "Hi", "finish_reason": "COMPLETE", "usage": COHERE_USAGE},
        {"object": "list", "data": [], "usage": {"prompt_tokens": 0}},
        {"object": "list", "data": [{"object": "model"}], "usage": {"prompt_tokens": 0}},
        {"embedding": [0.1], "tokens": 3},
        [ollama_parts()[-1]],
    ],
    ids=repr,
)
def test_a_body_that_is_not_a_providers_answer_is_not_read(body: object) -> None:
    reader = _reader_of(json.dumps(body).encode())

    assert reader.result(failed=False) is None
    assert not reader.terminal


@pytest.mark.parametrize("left_out", [{"model"}, {"object"}, {"model", "object"}])
def test_a_relay_may_leave_out_the_names_of_a_completion(left_out: set[str]) -> None:
    whole = _read(CHAT)

    used = _read({name: value for name, value in CHAT.items() if name not in left_out})

    assert whole is not None
    assert used == (replace(whole, model=None) if "model" in left_out else whole)


def test_an_error_or_an_application_s_own_body_is_not_seen_as_a_call() -> None:
    for body in ({"error": "not found"}, {"detail": "Not Found"}, {"candidates": ["Ada"]}):
        reader = _reader_of(json.dumps(body).encode())
        reader.result(failed=False)

        assert not reader.seen


def test_a_queued_response_is_seen_and_tells_nothing() -> None:
    reader = _reader_of(json.dumps(response("queued")).encode())

    assert reader.result(failed=False) is None
    assert reader.seen


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe{\x00}\x00",
        b"[" * 9_000,
        b'{"a":' * 1_500,
        json.dumps(CHAT).encode() + b"{}",
        json.dumps(CHAT).encode().replace(b'"usage":', b'"usage":{},"usage":'),
        json.dumps(CHAT).encode().replace(b": 20", b": NaN"),
        json.dumps(CHAT).encode().replace(b": 20", b": -20"),
        json.dumps(CHAT).encode().replace(b": 20", b": " + b"2" * 5_000),
        json.dumps(CHAT).encode("utf-16"),
    ],
    ids=range(10),
)
def test_a_hostile_body_tells_nothing(body: bytes) -> None:
    assert _reader_of(body).result(failed=False) is None
