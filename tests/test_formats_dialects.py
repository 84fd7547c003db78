"""What each dialect says in its stream: where its counts are, what ends it, and what spoils it."""

import json
from dataclasses import replace

import pytest

from routeguard.usage import Usage
from tests.answers import (
    CHAT_READ,
    CHAT_USAGE,
    DONE,
    FINAL_USAGE,
    MESSAGES_READ,
    RESPONSES_USAGE,
    chat_chunk,
    chat_events,
    content_chunk,
    message_delta,
    message_event,
    message_start,
    messages_events,
    read,
    reader_of,
    response,
    response_event,
    responses_events,
    sse,
    text_delta,
)


def test_usage_counts_without_the_end_marker_if_nothing_failed() -> None:
    assert read(*chat_events("a")[:-1]) == CHAT_READ
    assert read(*messages_events("a")[:-1]) == MESSAGES_READ


def test_a_chat_stream_without_usage_tells_nothing_although_it_ended() -> None:
    reader = reader_of(sse(chat_chunk("a")), sse(chat_chunk(finish_reason="length")), DONE)

    assert reader.result(failed=False) is None
    assert reader.seen
    assert reader.terminal
    assert reader.finish == "length"


@pytest.mark.parametrize("done", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n"])
def test_the_end_marker_of_a_chat_stream_may_stand_between_blanks(done: bytes) -> None:
    assert read(*chat_events("a")[:-1], done, failed=True) == CHAT_READ


def test_null_never_replaces_what_was_said() -> None:
    used = read(sse(chat_chunk("a", usage=CHAT_USAGE)), sse(chat_chunk("b", model="", service_tier=None)), DONE)

    assert used is not None
    assert (used.output_tokens, used.model, used.service_tier) == (9, "gpt-5-mini-2025-08-07", "default")


def test_counts_that_repeat_and_grow_are_not_added_up() -> None:
    growing = [sse(chat_chunk("a", usage={"prompt_tokens": 7, "completion_tokens": n})) for n in (1, 2, 5)]

    used = read(*growing, DONE)

    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (7, 5)


def test_usage_said_twice_in_one_chunk_counts_once() -> None:
    used = read(sse(chat_chunk(usage=CHAT_USAGE, x_groq={"id": "r", "usage": CHAT_USAGE})), DONE)

    assert used is not None
    assert used.output_tokens == 9


def test_usage_is_found_where_groq_and_moonshot_put_it() -> None:
    groq = read(sse(chat_chunk(x_groq={"usage": CHAT_USAGE})), DONE)
    moonshot = read(sse(chat_chunk(choices=[{"index": 0, "delta": {}, "usage": CHAT_USAGE}])), DONE)

    assert groq is not None
    assert moonshot is not None
    assert groq.output_tokens == moonshot.output_tokens == 9


def test_azures_first_chunk_without_names_belongs_to_the_stream() -> None:
    first = sse({"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": []})

    assert read(first, *chat_events("a")) == CHAT_READ


@pytest.mark.parametrize("left_out", [{"model"}, {"object"}, {"model", "object"}, {"model", "object", "id", "created"}])
def test_a_relay_may_leave_out_the_names_of_a_chunk(left_out: set[str]) -> None:
    events = [json.loads(event.removeprefix(b"data: ")) for event in chat_events("a", "b")[:-1]]

    bare = [{name: value for name, value in event.items() if name not in left_out} for event in events]

    assert read(*map(sse, bare), DONE) == (replace(CHAT_READ, model=None) if "model" in left_out else CHAT_READ)


def test_a_cost_and_audio_are_read_from_a_stream() -> None:
    usage = {**CHAT_USAGE, "cost": 0.000837, "completion_tokens_details": {"audio_tokens": 6}}

    used = read(*chat_events("a", usage=usage))

    assert used is not None
    assert str(used.cost_usd) == "0.000837"
    assert used.output_audio_tokens == 6


def test_legacy_completions_are_read() -> None:
    chunk = {"id": "cmpl-1", "object": "text_completion", "model": "gpt-3.5-turbo-instruct"}
    texts = [sse({**chunk, "choices": [{"index": 0, "text": text, "finish_reason": None}]}) for text in "abc"]

    used = read(*texts, sse({**chunk, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}}), DONE)

    assert used == Usage(input_tokens=3, output_tokens=3, model="gpt-3.5-turbo-instruct")


def test_an_error_spoils_what_a_chat_stream_said_before_it() -> None:
    error = sse({"error": {"message": "overloaded", "type": "server_error"}})

    assert read(sse(chat_chunk("a", usage=CHAT_USAGE)), error, DONE) is None
    assert read(sse(chat_chunk("a", usage=CHAT_USAGE)), error) is None


def test_an_error_with_usage_counts_if_the_stream_reached_its_end() -> None:
    chunk = sse(chat_chunk("", error={"code": 400, "message": "limit"}, usage=CHAT_USAGE))

    assert read(sse(chat_chunk("a")), chunk, DONE, failed=True) is not None
    assert read(sse(chat_chunk("a")), chunk) is None


def test_a_named_error_event_spoils_the_stream() -> None:
    error = sse({"error": {"message": "tool_use_failed", "status_code": 400}}, name="error")

    reader = reader_of(sse(chat_chunk("a")), error)

    assert reader.result(failed=False) is None
    assert not reader.terminal
    assert read(sse(chat_chunk("a", usage=CHAT_USAGE)), sse(chat_chunk("b"), name="error"), DONE) is None


@pytest.mark.parametrize(
    ("last", "finish"), [("completed", "completed"), ("incomplete", "max_output_tokens"), ("failed", "failed")]
)
def test_every_last_event_of_responses_carries_the_bill(last: str, finish: str) -> None:
    reader = reader_of(*responses_events("a", last=last))

    used = reader.result(failed=True)

    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.finish) == (20, 9, finish)
    assert reader.finish == finish


def test_a_failed_response_without_usage_tells_nothing() -> None:
    assert read(*responses_events("a", last="failed", usage=None)) is None


def test_a_failed_response_counts_after_an_error_event_if_it_has_usage() -> None:
    created, *_ = responses_events()
    error = sse({"type": "error", "code": "server_error", "message": "m", "sequence_number": 1}, name="error")
    failed = response_event("failed", 2, response=response("failed", RESPONSES_USAGE))

    unnamed = sse({"type": "error", "code": "server_error", "message": "m", "sequence_number": 1})

    assert read(created, error, failed, failed=True) is not None
    assert read(created, unnamed, failed, failed=True) is not None
    assert read(created, error, response_event("failed", 2, response=response("failed"))) is None
    assert read(created, error) is None


def test_done_behind_another_dialect_says_nothing() -> None:
    created, *_, completed = responses_events("a")

    assert read(created, completed, DONE) is not None
    assert read(created, DONE, failed=True) is None
    assert not reader_of(created, DONE).terminal


def test_anthropics_last_counts_replace_the_first_guess_key_by_key() -> None:
    used = read(
        message_start({"input_tokens": 43, "cache_read_input_tokens": 5, "output_tokens": 1}),
        message_delta({"output_tokens": 2}, stop_reason=None),
        message_delta({"input_tokens": 61, "output_tokens": 7, "server_tool_use": {"web_search_requests": 3}}),
        message_event("message_stop"),
    )

    assert used is not None
    assert (used.input_tokens, used.cached_input_tokens, used.output_tokens) == (66, 5, 7)
    assert used.web_searches == 3


def test_anthropics_first_guess_alone_is_not_a_bill() -> None:
    assert read(message_start(), text_delta("a")) is None
    assert read(message_start(), text_delta("a"), message_event("message_stop"), failed=True) is None


def test_a_first_guess_behind_the_bill_takes_nothing_back() -> None:
    *events, last = messages_events("a")

    assert read(*events, message_start(), last) == MESSAGES_READ


def test_a_repeated_message_start_does_not_double_the_input() -> None:
    assert read(message_start(), *messages_events("a")) == MESSAGES_READ


def test_an_hour_long_cache_write_keeps_its_lifetime_through_a_stream() -> None:
    used = read(
        message_start(
            {
                "input_tokens": 4,
                "cache_creation_input_tokens": 300,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 300},
                "output_tokens": 1,
            }
        ),
        message_delta({"cache_creation_input_tokens": 320, "output_tokens": 8}),
        message_event("message_stop"),
    )

    assert used is not None
    assert (used.input_tokens, used.cache_write_tokens, used.cache_write_1h_tokens) == (324, 0, 320)


def test_a_compaction_is_added_and_an_adviser_kept_apart() -> None:
    iterations = [
        {"type": "compaction", "input_tokens": 100, "cache_read_input_tokens": 55096, "output_tokens": 83},
        {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 9, "output_tokens": 2},
        {"type": "message", "input_tokens": 181, "output_tokens": 8},
    ]
    used = read(
        message_start(),
        message_delta(
            {"input_tokens": 181, "cache_read_input_tokens": 0, "output_tokens": 8, "iterations": iterations}
        ),
        message_event("message_stop"),
    )

    assert used is not None
    assert (used.input_tokens, used.cached_input_tokens, used.output_tokens) == (55377, 55096, 91)
    assert used.other_models == (Usage(model="claude-opus-5", input_tokens=9, output_tokens=2),)


def test_an_overload_in_the_middle_of_a_message_tells_nothing() -> None:
    overloaded = message_event("error", error={"type": "overloaded_error", "message": "Overloaded"})

    assert read(message_start(), text_delta("a"), overloaded) is None
    assert read(message_start(), text_delta("a"), message_delta(FINAL_USAGE), overloaded) is None


def test_a_message_stream_whose_beginning_is_missing_is_not_read() -> None:
    assert read(*messages_events("a")[1:]) is None


def test_geminis_chunks_without_counts_reset_nothing() -> None:
    early = {"candidates": [{"content": {}}], "usageMetadata": {"trafficType": "ON_DEMAND"}}

    used = read(sse(content_chunk("a", 3)), sse(early), sse(content_chunk("b", 4, finish="MAX_TOKENS")), failed=True)

    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.finish) == (20, 9, "MAX_TOKENS")


def test_a_prompt_that_gemini_blocked_counts_when_nothing_failed() -> None:
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
        "modelVersion": "gemini-2.5-flash",
    }

    assert read(sse(blocked)) == Usage(input_tokens=9, output_tokens=0, model="gemini-2.5-flash")
    assert read(sse(blocked), failed=True) is None
