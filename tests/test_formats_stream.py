"""What the stream of each dialect is read to, and when it counts."""

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
    STREAMS,
    chat_chunk,
    chat_events,
    content_chunk,
    content_events,
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

DIALECTS = pytest.mark.parametrize("dialect", STREAMS)


@DIALECTS
def test_a_whole_stream_is_read_to_what_it_used(dialect: str) -> None:
    events, used = STREAMS[dialect]

    assert read(*events) == used


@DIALECTS
def test_a_stream_is_read_alike_wherever_it_is_cut(dialect: str) -> None:
    events, used = STREAMS[dialect]
    whole = b"".join(events)

    wrong = [cut for cut in range(len(whole)) if read(whole[:cut], whole[cut:]) != used]

    assert wrong == []
    assert read(*(whole[at : at + 1] for at in range(len(whole)))) == used


@DIALECTS
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_read_wherever_it_is_cut(dialect: str, end: bytes) -> None:
    events, used = STREAMS[dialect]
    whole = b"".join(events).replace(b"\r\n", b"\n").replace(b"\n", end)

    wrong = [cut for cut in range(len(whole)) if read(whole[:cut], whole[cut:]) != used]

    assert wrong == []
    assert read(*(whole[at : at + 1] for at in range(len(whole)))) == used


@DIALECTS
def test_comments_empty_lines_a_byte_order_mark_and_other_fields_change_nothing(dialect: str) -> None:
    events, used = STREAMS[dialect]
    noise = b": PROCESSING\n\n\n\nid: 7\nretry: 1000\n\nevent: nothing\n\n:\n\n"

    assert read(b"\xef\xbb", b"\xbf" + noise, *(part for event in events for part in (event, noise))) == used


@DIALECTS
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_data_over_several_lines_is_one_event(dialect: str, end: bytes) -> None:
    events, used = STREAMS[dialect]
    many_lines = [event.replace(b",", b",\ndata:").replace(b"\r\n", b"\n").replace(b"\n", end) for event in events]

    assert max(event.count(end) for event in many_lines) > 5
    assert read(*many_lines) == used


@DIALECTS
def test_seen_is_true_from_the_first_event_and_terminal_from_the_last(dialect: str) -> None:
    events, _ = STREAMS[dialect]
    reader = reader_of()
    seen = []
    terminal = []
    for event in events:
        reader.feed(event)
        seen.append(reader.seen)
        terminal.append(reader.terminal)

    assert all(seen)
    assert terminal == [False] * (len(events) - 1) + [True]
    assert reader.finish in {"stop", "completed", "end_turn", "STOP", "COMPLETE"}


@DIALECTS
def test_a_stream_that_reached_its_end_counts_whatever_failed_afterwards(dialect: str) -> None:
    events, used = STREAMS[dialect]

    assert read(*events, failed=True) == used


@DIALECTS
def test_a_stream_that_failed_before_its_end_tells_nothing(dialect: str) -> None:
    events, _ = STREAMS[dialect]

    assert [count for count in range(len(events)) if read(*events[:count], failed=True) is not None] == []


@DIALECTS
def test_the_last_event_counts_without_the_empty_line_behind_it(dialect: str) -> None:
    events, used = STREAMS[dialect]

    assert read(*events[:-1], events[-1].rstrip(), failed=True) == used


@DIALECTS
def test_an_event_that_was_cut_off_makes_the_stream_unreadable(dialect: str) -> None:
    events, _ = STREAMS[dialect]
    cut = events[-2][: len(events[-2]) // 2]

    assert read(*events, cut) is None


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


def test_two_answers_in_one_stream_are_not_read_since_the_second_would_replace_the_first() -> None:
    second = [event.replace(b"chatcmpl-1", b"chatcmpl-2") for event in chat_events("a")]

    assert read(*chat_events("a")[:-1], *second) is None
    assert read(*messages_events("a"), message_start(id="msg_2"), message_delta()) is None


def test_two_dialects_in_one_stream_are_not_read() -> None:
    assert read(*chat_events("a")[:-1], *content_events("a")) is None


def test_what_was_said_again_after_a_change_counts_again() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    text = sse(chat_chunk("a", usage=usage))

    changed = read(text, text, sse(chat_chunk("a", model="gpt-6")), text, DONE)
    spoiled = read(text, text, sse({"error": {"message": "m"}}), text, DONE)

    assert changed is not None
    assert changed.model == "gpt-5-mini-2025-08-07"
    assert spoiled is not None


def test_an_event_in_the_middle_of_another_is_not_skipped_because_it_is_usual() -> None:
    first, text, again, _, usage, done = chat_events("a", "b")

    assert read(first, text, again, usage, done) is not None
    assert read(first, text, again, usage[:50], text, usage[50:], done) is None


def test_result_may_be_asked_again() -> None:
    reader = reader_of(*chat_events("a"))

    assert reader.result(failed=False) == reader.result(failed=True) == CHAT_READ


def test_text_outside_ascii_may_be_cut_inside_a_character() -> None:
    chunk = json.dumps(chat_chunk("日本"), ensure_ascii=False, separators=(",", ":")).encode()
    events = [*chat_events()[:-2], *[b"data: " + chunk + b"\n\n"] * 3, *chat_events()[-2:]]
    whole = b"".join(events)

    assert [cut for cut in range(len(whole)) if read(whole[:cut], whole[cut:]) != CHAT_READ] == []
