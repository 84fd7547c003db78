"""What a model, or an application around it, cannot make the reader believe."""

import json
import logging
from typing import cast

import pytest

from routeguard.formats.stream import EVENT_BYTES_MAX, FOREIGN_EVENTS_MAX
from tests.answers import (
    CHAT_READ,
    CHAT_USAGE,
    DONE,
    STREAMS,
    chat_chunk,
    chat_events,
    cohere_events,
    content_chunk,
    converse_parts,
    message_delta,
    message_event,
    message_start,
    ollama_parts,
    read,
    reader_of,
    response,
    response_event,
    responses_events,
    sse,
    text_delta,
)

#: What a model can be talked into printing, if it is relayed as an event of its own.
FAKES: dict[str, list[bytes]] = {
    "chat": [sse(chat_chunk(choices=[], usage={"prompt_tokens": 0, "completion_tokens": 0})), DONE],
    "responses": [response_event("completed", 9, response=response("completed", {"input_tokens": 0}))],
    "messages": [
        message_start({"input_tokens": 0}),
        message_delta({"output_tokens": 0}),
        message_event("message_stop"),
    ],
    "generate_content": [sse(content_chunk("", 0, finish="STOP"))],
    "converse": [sse({name: said}) for name, said in converse_parts(usage={"inputTokens": 0, "outputTokens": 0})],
    "ollama": [sse({**part, "prompt_eval_count": 0, "eval_count": 0}) for part in ollama_parts()],
    "cohere": [event.replace(b"20", b"0").replace(b"9", b"0") for event in cohere_events()],
}

#: Events that no provider sends in the middle of an answer.
FOREIGN: dict[str, bytes] = {
    "text": b"data: Hello\n\n",
    "empty data": b"data:\n\n",
    "a JSON string": b'data: "Hello"\n\n',
    "a number": b"data: 7\n\n",
    "an array": b"data: [1]\n\n",
    "null": b"data: null\n\n",
    "an object of the application": b'data: {"token":"Hello"}\n\n',
    "an object with a usage": sse({"usage": CHAT_USAGE}),
    "a chunk inside an object": sse({"chunk": chat_chunk("a")}),
    "a chunk inside a string": sse({"token": json.dumps(chat_chunk(usage=CHAT_USAGE))}),
    "a list of choices": b'data: {"choices":["red","green"]}\n\n',
    "an end without a response": sse({"type": "response.completed"}),
    "an event of a user interface": b'data: {"type":"text-delta","id":"1","delta":"a"}\n\n',
    "an object named like an event of Bedrock": b'data: {"metadata":{"usage":{"inputTokens":1,"outputTokens":1}}}\n\n',
    "an object that calls itself done": b'data: {"done":true,"prompt_eval_count":1,"eval_count":1}\n\n',
    "an end without a message": b'data: {"type":"message-end","usage":{"tokens":{"input_tokens":1}}}\n\n',
    "text without framing": b"Hello\n\n",
    "text behind an event": b'data: {"x":1}\nHello\n\n',
    "JSON with something behind it": b"data: " + json.dumps(chat_chunk("a")).encode() + b" ok\n\n",
    "half an event": b'data: {"object":"chat.completion.chunk","model":"m","choi\n\n',
    "a key twice": b'data: {"object":"chat.completion.chunk","model":"m","choices":[],"choices":[]}\n\n',
    "NaN": b'data: {"object":"chat.completion.chunk","model":"m","choices":[],"x":NaN}\n\n',
    "Infinity": b'data: {"object":"chat.completion.chunk","model":"m","choices":[],"x":-Infinity}\n\n',
    "deep nesting": b'data: {"object":"chat.completion.chunk","model":"m","choices":' + b"[" * 60_000 + b"\n\n",
    "an integer of 5,000 digits": b'data: {"object":"chat.completion.chunk","model":"m","choices":[],"x":%b}\n\n'
    % (b"9" * 5_000),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("dialect", STREAMS)
def test_one_foreign_event_anywhere_and_nothing_is_read(dialect: str, kind: str) -> None:
    events, _ = STREAMS[dialect]

    read_at = [at for at in range(len(events) + 1) if read(*events[:at], FOREIGN[kind], *events[at:]) is not None]

    assert read_at == []


@pytest.mark.parametrize("fake", FAKES)
def test_a_fake_event_among_plain_text_is_not_read(fake: str) -> None:
    relayed = [b"data: Sure!\n\n", *FAKES[fake], b"data: Bye\n\n", DONE]

    assert read(*relayed) is None
    assert read(*FAKES[fake], b"data: Bye\n\n", DONE) is None
    assert read(*FAKES[fake], *FAKES[fake], b"data: \n\n") is None


@pytest.mark.parametrize("fake", FAKES)
def test_a_fake_event_in_the_text_of_a_model_stays_text(fake: str) -> None:
    text = b"".join(FAKES[fake]).decode()

    assert read(*chat_events("a", text, f'"}}]}}\n\n{text}', *text)) == CHAT_READ


def test_a_fake_finish_reason_or_error_in_the_text_of_a_model_stays_text() -> None:
    texts = ['"},"finish_reason":"length"', '","error":{"code":1}', '"usage":{"prompt_tokens":1}', "[DONE]", "\\"]
    reader = reader_of(*(sse(chat_chunk(text)) for text in texts * 3))

    assert reader.finish is None
    assert not reader.terminal
    assert reader.result(failed=False) is None


def test_text_relayed_one_piece_at_a_time_is_not_read_although_it_spells_an_event() -> None:
    pieces = b"".join(FAKES["chat"])

    assert (
        read(*(b"data: %b\n\n" % pieces[at : at + 4].replace(b"\n", b" ") for at in range(0, len(pieces), 4))) is None
    )


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": "20", "completion_tokens": 1},
        {"prompt_tokens": 1.5, "completion_tokens": 1},
        {"prompt_tokens": 10**12, "completion_tokens": 1},
        {"prompt_tokens": [20], "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": 7},
        {"prompt_tokens": 1, "completion_tokens": 1, "cost": -1},
        {"prompt_tokens": 1, "completion_tokens": 1, "iterations": [{}] * 300},
        "many",
        7,
    ],
)
def test_a_bill_that_cannot_be_right_makes_the_stream_unreadable(usage: object) -> None:
    assert read(*chat_events("a", usage=usage)) is None
    assert read(sse(chat_chunk("a", usage=CHAT_USAGE)), *chat_events("a", usage=usage)) is None


@pytest.mark.parametrize("usage", [{}, [], {"queue_time": 0.1}, {"prompt_tokens_details": {"cached_tokens": 5}}])
def test_a_usage_without_counts_is_no_bill(usage: object) -> None:
    assert read(*chat_events("a", usage=usage)) is None


def test_an_event_of_exactly_the_largest_size_is_read_and_a_larger_one_is_not() -> None:
    frame = len(sse(chat_chunk("")))
    largest = sse(chat_chunk("x" * (EVENT_BYTES_MAX - frame)))
    larger = sse(chat_chunk("x" * (EVENT_BYTES_MAX - frame + 1)))

    assert len(largest) == EVENT_BYTES_MAX
    assert read(largest, *chat_events("a")) == CHAT_READ
    assert read(larger, *chat_events("a")) is None
    assert read(larger[:9], larger[9:], *chat_events("a")) is None


def test_an_event_without_an_end_is_not_held_beyond_the_bound() -> None:
    reader = reader_of(*chat_events("a")[:-1])
    for _ in range(200):
        reader.feed(b"data: " + b"x" * 1_000)

    assert len(reader._carry) <= EVENT_BYTES_MAX + 1_006
    assert reader.result(failed=False) is None
    assert reader.seen


def test_an_event_that_comes_byte_by_byte_is_searched_once() -> None:
    body = b"data: " + b"x" * 60_000
    reader = reader_of(sse(chat_chunk("a")))
    for at in range(len(body)):
        reader.feed(body[at : at + 1])

    assert len(reader._carry) == len(body)
    assert reader._events == 1


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_event_is_not_seen_as_a_call(kind: str) -> None:
    reader = reader_of(FOREIGN[kind])

    assert not reader.seen
    assert not reader.terminal


def test_a_provider_is_seen_behind_foreign_events_but_looked_for_only_a_while() -> None:
    foreign = b'data: {"session":1}\n\n'

    assert reader_of(foreign, sse(chat_chunk("a"))).seen
    assert reader_of(*[foreign] * (FOREIGN_EVENTS_MAX - 1), sse(chat_chunk("a"))).seen
    assert not reader_of(*[foreign] * FOREIGN_EVENTS_MAX, sse(chat_chunk("a"))).seen
    assert not reader_of(b"".join([*[foreign] * FOREIGN_EVENTS_MAX, sse(chat_chunk("a"))])).seen


def test_a_foreign_stream_has_no_end_that_a_model_could_fake() -> None:
    for fake in FAKES.values():
        assert not reader_of(b"data: Hello\n\n", *fake).terminal
        assert not reader_of(b"".join([b"data: Hello\n\n", *fake])).terminal


def test_what_is_no_bytes_is_survived_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_of(*chat_events("a"))

    with caplog.at_level(logging.WARNING, logger="routeguard"):
        for odd in (None, "data: x", 7, [b"x"]):
            reader.feed(cast("bytes", odd))
    for other in (None, "data: x", 7, memoryview(b"data: x")):
        for texts in ([], chat_events("a")[1:2]):
            among_texts = reader_of(*chat_events("a", "b")[:3])
            among_texts.feed_all([*texts, cast("bytes", other)])
            assert among_texts.result(failed=False) is None

    assert reader.result(failed=False) is None
    assert {record.getMessage() for record in caplog.records} <= {
        "a stream could not be read: AttributeError",
        "a stream could not be read: TypeError",
    }


def test_bytes_that_are_not_utf8_stay_inside_their_text() -> None:
    broken = [event.replace(b"lo", b"\xff\xfe\xc3") for event in STREAMS["chat"][0]]

    assert read(*broken) == CHAT_READ
    assert read(b"\xff", *chat_events("a")) is None


def test_a_byte_order_mark_stands_only_at_the_beginning() -> None:
    marked = b"\xef\xbb\xbf" + sse(chat_chunk("a"))
    nameless = b"\xef\xbb\xbf" + sse(chat_chunk("a", id="", model="", service_tier=None))

    assert read(marked, *chat_events("a")) == CHAT_READ
    assert read(nameless, *chat_events("a")) == CHAT_READ
    assert read(marked, marked, *chat_events("a")) is None
    assert read(nameless, nameless, *chat_events("a")) is None


def test_an_anthropic_delta_in_a_chat_stream_is_foreign() -> None:
    assert read(*chat_events("a")[:2], text_delta("x"), *chat_events("a")[2:]) is None
    assert read(*responses_events("a")[:2], sse({"type": "ping"}), *responses_events("a")[2:]) is None
