"""Recorded answers, whole and cut anywhere, are read to the numbers of their table."""

import random
from decimal import Decimal
from itertools import pairwise

import pytest

from routeguard.formats import body_reader, stream_reader
from routeguard.usage import Usage
from tests.recordings import Recording, needs_recordings, recordings

pytestmark = needs_recordings

ALL = recordings()
STREAMS = [recording for recording in ALL if recording.is_stream]
SHORT_STREAMS = [recording for recording in STREAMS if len(recording.body) < 8_000]
BODIES = [recording for recording in ALL if not recording.is_stream]


def _name(recording: Recording) -> str:
    return recording.file


def _read(recording: Recording, *chunks: bytes, failed: bool = False) -> Usage | None:
    reader = stream_reader() if recording.is_stream else body_reader(64_000)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.result(failed=failed)


@pytest.mark.parametrize("recording", ALL, ids=_name)
def test_a_recorded_answer_is_read_to_the_numbers_of_its_table(recording: Recording) -> None:
    used = _read(recording, recording.body)

    if recording.input_tokens is None and recording.output_tokens is None:
        assert used is None
        return
    assert used is not None
    assert used.input_tokens == recording.input_tokens
    assert used.output_tokens == recording.output_tokens
    assert used.cached_input_tokens == (recording.cached or 0)
    assert used.cache_write_tokens + used.cache_write_1h_tokens == (recording.written or 0)
    assert used.reasoning_tokens == (recording.reasoning or 0)


@pytest.mark.parametrize("recording", ALL, ids=_name)
def test_a_recorded_answer_tells_why_it_ended_and_what_else_is_billed(recording: Recording) -> None:
    used = _read(recording, recording.body)

    if used is None:
        return
    assert used.finish in {*(recording.finish or "").split(","), "STOP" if recording.finish == "1" else None}
    if recording.other.startswith("cost="):
        assert used.cost_usd == Decimal(recording.other.removeprefix("cost="))
    elif recording.other.startswith("cost_in_usd_ticks="):
        assert used.cost_usd == Decimal(recording.other.removeprefix("cost_in_usd_ticks=")).scaleb(-10)
    elif recording.other.startswith("web_search="):
        assert used.web_searches == int(recording.other.removeprefix("web_search="))
    elif recording.other.startswith("claude-"):
        assert recording.other == ";".join(
            f"{other.model}:in={other.input_tokens},out={other.output_tokens}" for other in used.other_models
        )


@pytest.mark.parametrize("recording", SHORT_STREAMS, ids=_name)
def test_a_recorded_stream_is_read_alike_wherever_it_is_cut_in_two(recording: Recording) -> None:
    body = recording.body
    whole = _read(recording, body)

    wrong = [cut for cut in range(len(body)) if _read(recording, body[:cut], body[cut:]) != whole]

    assert wrong == []


@pytest.mark.parametrize("recording", STREAMS, ids=_name)
def test_a_recorded_stream_is_read_alike_byte_by_byte_and_in_random_chunks(recording: Recording) -> None:
    body = recording.body
    whole = _read(recording, body)
    seeded = random.Random(recording.file)

    assert _read(recording, *(body[at : at + 1] for at in range(len(body)))) == whole
    for _ in range(5):
        cuts = [0, *sorted(seeded.sample(range(1, len(body)), seeded.randint(1, 40))), len(body)]
        assert _read(recording, *(body[a:b] for a, b in pairwise(cuts))) == whole


@pytest.mark.parametrize("recording", STREAMS, ids=_name)
def test_a_recorded_stream_that_reached_its_end_counts_although_the_request_failed(recording: Recording) -> None:
    assert _read(recording, recording.body, failed=True) == _read(recording, recording.body)


@pytest.mark.parametrize("recording", STREAMS, ids=_name)
def test_a_recorded_stream_that_was_cut_off_by_a_failure_tells_nothing(recording: Recording) -> None:
    events = recording.body.rstrip().replace(b"\r\n", b"\n").split(b"\n\n")

    assert _read(recording, b"".join(event + b"\n\n" for event in events[:-1]), failed=True) is None


@pytest.mark.parametrize("recording", [r for r in ALL if r.http_status >= 400], ids=_name)
def test_a_recorded_error_is_not_taken_for_an_answer(recording: Recording) -> None:
    reader = body_reader(64_000)
    reader.feed(recording.body)

    assert reader.result(failed=False) is None
    assert not reader.seen
