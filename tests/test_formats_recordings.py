"""Recorded answers, whole and cut anywhere, are read to the numbers of their table."""

import random
from decimal import Decimal
from itertools import pairwise

import pytest

from routeguard.usage import Usage
from tests.answers import reader_for
from tests.recordings import READ, UNREAD, Recording, needs_recordings, recordings

pytestmark = needs_recordings

EVERY_ROW = recordings()
ALL = [recording for recording in EVERY_ROW if recording.api in READ]
STREAMS = [recording for recording in ALL if recording.is_stream]
SHORT_STREAMS = [recording for recording in STREAMS if len(recording.body) < 8_000]
BODIES = [recording for recording in ALL if not recording.is_stream]


def _name(recording: Recording) -> str:
    return recording.file


def _read(recording: Recording, *chunks: bytes, failed: bool = False) -> Usage | None:
    return reader_for(recording.media_type, *chunks).result(failed=failed)


def test_every_recorded_answer_is_read_or_listed_with_a_reason() -> None:
    assert EVERY_ROW
    assert {row.api for row in EVERY_ROW} == READ | UNREAD.keys()


@pytest.mark.parametrize("recording", [row for row in EVERY_ROW if row.api in UNREAD], ids=_name)
def test_what_is_listed_as_unread_tells_nothing(recording: Recording) -> None:
    assert recording.input_tokens is recording.output_tokens is None
    assert _read(recording, recording.body) is None


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
    elif recording.other.startswith("billed_units:"):
        # The model read and wrote more than was billed; the larger numbers are the ones above.
        billed = dict(part.split("=") for part in recording.other.removeprefix("billed_units:").split(","))
        assert int(billed["in"]) < (used.input_tokens or 0)
        assert int(billed["out"]) <= (used.output_tokens or 0)
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
    events = recording.events
    reader = reader_for(recording.media_type)
    passed = []
    for event in events:
        reader.feed(event)
        if reader.terminal:
            break
        passed.append(event)

    assert _read(recording, *passed, failed=True) is None


@pytest.mark.parametrize("recording", [r for r in ALL if r.http_status >= 400], ids=_name)
def test_a_recorded_error_is_not_taken_for_an_answer(recording: Recording) -> None:
    reader = reader_for(recording.media_type, recording.body)

    assert reader.result(failed=False) is None
    assert not reader.seen
