"""A stream passes the guard unchanged and undelayed, and a crowd gets exactly what the budget allows."""

import itertools
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from routeguard import Admission
from tests.answers import DONE, chat_chunk, sse
from tests.driver import stream_app
from tests.sockets.apps import streaming
from tests.sockets.server import Ledger, Serve, Signal
from tests.sockets.wire import request

CHUNKS = 1_000
CROWD = 200


def events(rng: random.Random) -> list[bytes]:
    words = ["lamp" * rng.randrange(1, 9) for _ in range(CHUNKS - 1)]
    return [*(sse(chat_chunk(word, obfuscation="x" * rng.randrange(9))) for word in words), DONE]


def events_cut_anywhere(rng: random.Random) -> list[bytes]:
    whole = b"".join(events(rng))
    cuts = [0, *sorted(rng.sample(range(1, len(whole)), CHUNKS - 1)), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(cuts)]


def noise(rng: random.Random) -> list[bytes]:
    return [rng.randbytes(rng.randrange(1, 200)) for _ in range(CHUNKS)]


@pytest.mark.parametrize("make", [events, events_cut_anywhere, noise])
def test_a_thousand_chunks_arrive_as_they_were_sent(serve: Serve, make: Callable[[random.Random], list[bytes]]) -> None:
    chunks = make(random.Random(20261130))
    site = serve(stream_app(chunks))

    with site.connect() as wire:
        wire.send(request())
        answer = wire.answer()

    assert len(chunks) == CHUNKS
    assert answer.complete
    assert list(answer.chunks) == chunks


def test_every_chunk_arrives_before_the_next_one_is_made(serve: Serve) -> None:
    """The application goes on only when the client has what was sent: one chunk held back anywhere would stop both."""
    chunks = [sse(chat_chunk(f"word {number}")) for number in range(50)]
    received = [Signal() for _ in chunks]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk, signal in zip(chunks, received, strict=True):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await signal.arrives()
        await send({"type": "http.response.body", "body": b""})

    site = serve(app)

    with site.connect() as wire:
        wire.send(request())
        wire.head()
        for chunk, signal in zip(chunks, received, strict=True):
            assert wire.chunk() == chunk
            signal.give()
        assert wire.chunk() == b""


def test_a_crowd_of_two_hundred_finds_exactly_the_ten_calls_the_budget_holds(serve: Serve) -> None:
    decided = Signal()
    calls = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal calls
        calls += 1
        scope["routeguard"].begin()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"word", "more_body": True})
        await decided.arrives()
        await send({"type": "http.response.body", "body": b""})

    unlimited = {"rate": "unlimited", "max_parallel": "unlimited", "max_parallel_per_client": "unlimited"}
    site = serve(app, budget="1/day", **unlimited)

    wires = [site.connect() for _ in range(CROWD)]
    try:
        for wire in wires:
            wire.send(request().removesuffix(b"}"))
        site.wait_begun(CROWD)
        for wire in wires:
            wire.send(b"}")
        heads = [wire.head() for wire in wires]
        while_open = site.ledger()
        decided.give()
        answers = [wire.rest(head) for wire, head in zip(wires, heads, strict=True)]
        wires[0].send(request())
        afterwards = wires[0].answer()
    finally:
        for wire in wires:
            wire.close()

    statuses = [answer.status for answer in answers]
    assert (statuses.count(200), statuses.count(429)) == (10, CROWD - 10)
    assert {answer.reason for answer in answers if answer.status == 429} == {"busy"}
    assert all(answer.complete for answer in answers)
    assert while_open == Ledger(open="1", in_flight=10)
    assert (afterwards.status, afterwards.reason) == (503, "budget_exhausted")
    assert site.ledger() == Ledger(kept="1")
    assert calls == 10


def test_a_crowd_that_drops_its_streams_spends_the_budget_and_holds_no_slot(serve: Serve) -> None:
    never = Signal()

    async def generate(admission: Admission) -> AsyncIterator[str]:
        admission.begin()
        yield "data: one\n\n"
        await never.arrives()

    unlimited = {"rate": "unlimited", "max_parallel": 20, "max_parallel_per_client": "unlimited"}
    site = serve(streaming(generate), budget="2/day", **unlimited)

    for _ in range(20):
        with site.connect() as wire:
            wire.send(request())
            wire.head()
            wire.chunk()
            wire.reset()
    site.wait_done(20)
    with site.connect() as wire:
        wire.send(request())
        refused = wire.answer()

    assert site.ledger() == Ledger(kept="2")
    assert site.status()["requests"]["endings"] == {"kept": 20}
    assert (refused.status, refused.reason) == (503, "budget_exhausted")
