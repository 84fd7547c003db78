"""What the stream of any dialect is read to, and when it counts."""

import json
import re

import pytest

from tests.answers import (
    CHAT_READ,
    DONE,
    STREAMS,
    chat_chunk,
    chat_events,
    content_events,
    message_delta,
    message_start,
    messages_events,
    read,
    reader_of,
    sse,
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


@pytest.mark.parametrize("last_line", [b"id: 7", b"retry: 10", b":"])
def test_an_event_with_a_line_behind_its_data_is_read_alike_wherever_it_is_cut(last_line: bytes) -> None:
    events, used = STREAMS["chat"]
    whole = b"".join(events).replace(b"\n\n", b"\n" + last_line + b"\n\n")

    wrong = [cut for cut in range(len(whole)) if read(whole[:cut], whole[cut:]) != used]

    assert wrong == []


def test_lines_that_end_with_a_carriage_return_are_told_apart_in_a_single_chunk() -> None:
    event, done = (
        sse(chat_chunk(usage={"prompt_tokens": 1, "completion_tokens": 1})),
        DONE.replace(b"\n\n", b"\rid: 7\n\n"),
    )

    assert read(event.replace(b"\n\n", b"\rid: 7\n\n"), done) == read(event, DONE) is not None


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


def test_two_answers_in_one_stream_are_not_read_since_the_second_would_replace_the_first() -> None:
    second = [event.replace(b"chatcmpl-1", b"chatcmpl-2") for event in chat_events("a")]

    assert read(*chat_events("a")[:-1], *second) is None
    assert read(*messages_events("a"), message_start(id="msg_2"), message_delta()) is None


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_after_its_end_an_answer_without_a_name_is_not_followed_by_another(dialect: str) -> None:
    """The smaller of the two would be free."""
    events, _ = STREAMS[dialect]
    nameless = [re.sub(rb'"id":"[^"]*",', b"", event) for event in events]

    assert read(*nameless) is not None
    assert read(*nameless, *nameless) is None


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 0}, {"total_tokens": 0}])
def test_an_answer_that_used_nothing_is_not_believed(usage: dict[str, int]) -> None:
    assert read(*chat_events("a", usage=usage)) is None


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


def test_a_group_of_usual_events_in_the_middle_of_another_event_is_not_skipped() -> None:
    opening, first, second, third, *end = chat_events("a", "b", "c")
    reader = reader_of(opening, first, second[:-9])

    reader.feed_all([third, third])
    reader.feed_all([second[-9:], *end])

    assert reader.result(failed=False) is None


def test_result_may_be_asked_again() -> None:
    reader = reader_of(*chat_events("a"))

    assert reader.result(failed=False) == reader.result(failed=True) == CHAT_READ


def test_text_outside_ascii_may_be_cut_inside_a_character() -> None:
    chunk = json.dumps(chat_chunk("日本"), ensure_ascii=False, separators=(",", ":")).encode()
    events = [*chat_events()[:-2], *[b"data: " + chunk + b"\n\n"] * 3, *chat_events()[-2:]]
    whole = b"".join(events)

    assert [cut for cut in range(len(whole)) if read(whole[:cut], whole[cut:]) != CHAT_READ] == []
