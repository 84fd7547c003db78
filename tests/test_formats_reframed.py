"""Streams of JSON lines and of binary frames are read like event streams, or not at all."""

import json
import logging
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.formats.reframed import ReframedReader
from routeguard.formats.stream import EVENT_BYTES_MAX
from routeguard.usage import Usage
from tests.answers import (
    CONVERSE_READ,
    DONE,
    MESSAGES_READ,
    OLLAMA_READ,
    REFRAMED,
    STREAMS,
    converse_frames,
    converse_parts,
    frame,
    invoke_frames,
    line,
    messages_events,
    ollama_parts,
    read,
    reader_for,
    sse,
)

LINES = "application/x-ndjson"
FRAMES = "application/vnd.amazon.eventstream"
EVERY_STREAM = pytest.mark.parametrize("stream", REFRAMED, ids="/".join)
OLLAMA = [line(part) for part in ollama_parts("a", "b")]


def _read(media_type: str, *chunks: bytes, failed: bool = False) -> Usage | None:
    return reader_for(media_type, *chunks).result(failed=failed)


@EVERY_STREAM
def test_a_whole_stream_is_read_to_what_it_used(stream: tuple[str, str]) -> None:
    items, used = REFRAMED[stream]

    assert _read(stream[0], *items) == used
    assert _read(stream[0], b"".join(items)) == used


@EVERY_STREAM
def test_a_stream_is_read_alike_wherever_it_is_cut(stream: tuple[str, str]) -> None:
    items, used = REFRAMED[stream]
    whole = b"".join(items)

    wrong = [cut for cut in range(len(whole)) if _read(stream[0], whole[:cut], whole[cut:]) != used]

    assert wrong == []
    assert _read(stream[0], *(whole[at : at + 1] for at in range(len(whole)))) == used


@EVERY_STREAM
def test_seen_is_true_from_the_first_event_and_terminal_from_the_last(stream: tuple[str, str]) -> None:
    items, used = REFRAMED[stream]
    reader = reader_for(stream[0])
    seen, terminal = [], []
    for item in items:
        reader.feed(item)
        seen.append(reader.seen)
        terminal.append(reader.terminal)

    assert all(seen)
    assert terminal == [False] * (len(items) - 1) + [True]
    assert reader.finish == used.finish


@EVERY_STREAM
def test_only_a_stream_that_reached_its_end_counts_when_something_failed(stream: tuple[str, str]) -> None:
    items, used = REFRAMED[stream]

    assert _read(stream[0], *items, failed=True) == used
    assert [n for n in range(len(items)) if _read(stream[0], *items[:n], failed=True) is not None] == []


@EVERY_STREAM
def test_an_event_that_was_cut_off_makes_the_stream_unreadable(stream: tuple[str, str]) -> None:
    items, _ = REFRAMED[stream]
    half = items[0][: len(items[0]) // 2]

    assert _read(stream[0], *items, half) is None
    assert _read(stream[0], *items, half, items[-1]) is None


@pytest.mark.parametrize("dialect", ["converse", "ollama chat", "ollama generate", "cohere"])
def test_a_second_answer_without_a_name_of_its_own_is_not_read(dialect: str) -> None:
    events, used = STREAMS[dialect]

    assert read(*events, DONE) == used
    assert read(*events, *events) is None
    assert read(*events, events[-1]) is None
    assert read(*events, events[0]) is None


def test_the_last_line_needs_no_end() -> None:
    assert _read(LINES, *OLLAMA[:-1], OLLAMA[-1].rstrip(), failed=True) == OLLAMA_READ


def test_blanks_empty_lines_and_carriage_returns_change_nothing() -> None:
    noisy = [b"\n", b" \r\n", *(item.replace(b"\n", b"\r\n").replace(b", ", b" ,\r") for item in OLLAMA), b"\n\n"]

    assert _read(LINES, *noisy) == OLLAMA_READ


def test_an_ollama_answer_whose_prompt_was_cached_has_an_unknown_input() -> None:
    *parts, last = ollama_parts("a")
    del last["prompt_eval_count"]

    assert _read(LINES, *map(line, [*parts, last])) == replace(OLLAMA_READ, input_tokens=None)


def test_an_error_line_spoils_the_stream() -> None:
    error = line({"error": "model runner has unexpectedly stopped"})

    assert _read(LINES, OLLAMA[0], error) is None
    assert _read(LINES, *OLLAMA, error, failed=True) is None


@pytest.mark.parametrize(
    "foreign",
    [
        b"Hello\n",
        b'"Hello"\n',
        b"7\n",
        b"[1]\n",
        b'{"token":"Hello"}\n',
        b'{"done":true,"prompt_eval_count":1,"eval_count":1}\n',
        sse(ollama_parts("a")[0]),
        b"\xef\xbb\xbf" + OLLAMA[0],
        OLLAMA[0].strip() + OLLAMA[0],
    ],
)
def test_one_foreign_line_anywhere_and_nothing_is_read(foreign: bytes) -> None:
    read_at = [n for n in range(len(OLLAMA) + 1) if _read(LINES, *OLLAMA[:n], foreign, *OLLAMA[n:]) is not None]

    assert read_at == []


def test_what_a_model_writes_stays_in_its_line() -> None:
    end = json.dumps({**ollama_parts()[0], "eval_count": 0})
    texts = [f'"}}}}\n{end}\n', f"\n\ndata: {end}\n\n", "\r\r", "data: [DONE]\n\n", *end]

    assert _read(LINES, *map(line, ollama_parts(*texts))) == OLLAMA_READ


def test_a_line_without_an_end_is_not_held_beyond_the_bound() -> None:
    reader = reader_for(LINES, *OLLAMA[:-1])
    assert isinstance(reader, ReframedReader)
    for _ in range(100):
        reader.feed(b"x" * 1_000)

    assert len(reader._carry) == 0
    reader.feed(b"\n" + OLLAMA[-1])
    assert reader.result(failed=False) is None
    assert reader.seen


def test_a_provider_s_exception_spoils_a_binary_stream() -> None:
    throttled = frame("throttlingException", b'{"message":"Too many tokens"}', message_type="exception")

    assert _read(FRAMES, *converse_frames("a")[:2], throttled) is None
    assert _read(FRAMES, *converse_frames("a")[:-1], throttled) is None
    assert not reader_for(FRAMES, throttled).seen


def test_an_event_of_a_model_inside_a_frame_is_read_in_its_own_dialect() -> None:
    metrics = {"inputTokenCount": 25, "outputTokenCount": 9, "invocationLatency": 7}
    stop = messages_events()[-1].replace(
        b'"message_stop"}', b'"message_stop","amazon-bedrock-invocationMetrics":%b}' % json.dumps(metrics).encode()
    )

    assert _read(FRAMES, *invoke_frames("a", "b")) == MESSAGES_READ
    assert read(*messages_events("a")[:-1], stop) == MESSAGES_READ


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b'{"bytes":7}', b'{"bytes":"*"}', b'{"bytes":"e30="}', b'{"bytes":"\xff"}', b"[]"]
)
def test_a_frame_without_an_event_of_a_model_is_foreign(payload: bytes) -> None:
    frames = invoke_frames("a")

    assert _read(FRAMES, *frames[:3], frame("chunk", payload), *frames[3:]) is None


@pytest.mark.parametrize(
    "odd",
    [
        b"\0\0\0\x0f" + b"\0" * 20,
        b"\0\0\0\0" * 6,
        (EVENT_BYTES_MAX + 1).to_bytes(4) + b"\0" * 20,
        b"\xff" * 40,
        b'{"messageStart":{"role":"assistant"}}',
        b"\0\0\0\x20" + b"\0\0\0\x12" + b"\0" * 24,
        b"\0\0\0\x20" + b"\0\0\0\x10" + b"\0" * 4 + b"\x0f" + b"a" * 15 + b"\0" * 4,
        b"\0\0\0\x20" + b"\0\0\0\x10" + b"\0" * 4 + b"\x01a\x07\xff\xff" + b"a" * 11 + b"\0" * 4,
        b"\0\0\0\x20" + b"\0\0\0\x10" + b"\0" * 4 + b"\x01a\x0a" + b"a" * 13 + b"\0" * 4,
        frame('a":{},"metadata', b"{}"),
        frame("", b"{}"),
        frame("ping", b"{}"),
        frame("metadata", b"7"),
        frame("metadata", b'{},"messageStop":{}'),
        frame("metadata", b"{}\n\n{}"),
        frame("metadata", b'{"usage":{"inputTokens":-1}}'),
    ],
    ids=range(16),
)
def test_what_is_no_frame_of_a_provider_makes_the_stream_unreadable(odd: bytes) -> None:
    frames = converse_frames("a", "b")

    read_at = [n for n in range(len(frames)) if _read(FRAMES, *frames[:n], odd, *frames[n:]) is not None]

    assert read_at == []


def test_an_error_that_names_an_event_is_still_an_error() -> None:
    *frames, _ = converse_frames("a")
    name, said = converse_parts()[-1]

    assert _read(FRAMES, *frames, frame(name, json.dumps(said).encode(), message_type="error")) is None


def test_a_payload_over_several_lines_is_one_event() -> None:
    frames = [frame(name, json.dumps(said, indent=1).replace("\n", "\r\n").encode()) for name, said in converse_parts()]

    assert _read(FRAMES, *frames) == CONVERSE_READ


def test_two_events_of_bedrock_in_one_object_are_foreign() -> None:
    *events, (_, metadata) = converse_parts("a")
    both = {"contentBlockStop": {}, "metadata": metadata}

    assert read(*(sse({name: said}) for name, said in events), sse(both)) is None


def test_a_frame_that_is_too_large_is_not_waited_for() -> None:
    reader = reader_for(FRAMES, (EVENT_BYTES_MAX + 1).to_bytes(4) + b"\0" * 20)

    assert isinstance(reader, ReframedReader)
    assert len(reader._carry) == 0


@pytest.mark.parametrize("missing", ["model", "created_at", "done", "message"])
def test_an_object_that_only_resembles_ollamas_is_foreign(missing: str) -> None:
    last = ollama_parts()[-1]
    del last[missing]

    assert _read(LINES, line(last)) is None


def test_headers_of_every_type_are_passed_over() -> None:
    widths = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
    others = b"".join(b"\1x" + bytes([kind]) + b"\xff" * width for kind, width in widths.items())
    others += b"\1y\6\0\3abc"
    name, said = converse_parts()[-1]
    plain = frame(name, json.dumps(said).encode())
    headers_bytes = int.from_bytes(plain[4:8])
    longer = (len(plain) + len(others)).to_bytes(4) + (headers_bytes + len(others)).to_bytes(4) + plain[8:12]

    assert _read(FRAMES, *converse_frames()[:-1], longer + others + plain[12:]) == CONVERSE_READ


def test_a_frame_of_exactly_the_largest_size_is_read_and_a_larger_one_is_not() -> None:
    frames = converse_frames("a")
    padded = len(converse_frames("")[1])
    # The event handed on is shorter than its frame, which has headers.
    largest, larger = (converse_frames("x" * (EVENT_BYTES_MAX - padded - 8 + n))[1] for n in (0, 99))

    assert len(largest) <= EVENT_BYTES_MAX < len(larger)
    assert _read(FRAMES, frames[0], largest, *frames[2:]) == CONVERSE_READ
    assert _read(FRAMES, frames[0], larger, *frames[2:]) is None


@given(st.lists(st.binary(max_size=40) | st.sampled_from([*converse_frames("a"), *OLLAMA]), max_size=9))
def test_any_bytes_are_read_or_not_and_never_raise(chunks: list[bytes]) -> None:
    for media_type in (LINES, FRAMES):
        reader = reader_for(media_type, *chunks)

        assert isinstance(reader, ReframedReader)
        assert len(reader._carry) <= EVENT_BYTES_MAX
        used = reader.result(failed=False)
        assert used is None or used.output_tokens == 9


def test_what_is_no_bytes_is_survived_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_for(LINES, *OLLAMA)

    with caplog.at_level(logging.WARNING, logger="routeguard"):
        for odd in (None, "data: x", 7):
            reader.feed(cast("bytes", odd))

    assert reader.result(failed=False) is None
    assert [record.getMessage() for record in caplog.records] == ["a stream could not be read: TypeError"]
