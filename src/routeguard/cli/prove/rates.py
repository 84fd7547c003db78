"""The row about rates: at most so many in any window of that length, wherever the window begins."""

from contextlib import suppress
from typing import Final

import anyio

from routeguard.cli.prove.findings import Findings
from routeguard.cli.prove.stage import NEIGHBOUR, Bench, Stage
from routeguard.cli.prove.waiting import wait_until
from routeguard.policy import Claim, Refused

#: Counted exactly, and beside it a longer window that is full soon.
EXACT: Final = "5/minute, 9/hour"
#: Counted in sixtieths of the window: what comes back may be late by one of them.
IN_BUCKETS: Final = "120/minute"
#: What it may take until a stream runs.
CALLED_SECONDS: Final = 2.0


async def rates(stage: Stage, found: Findings) -> None:
    """Requests spread over a window, so that only a window that slides admits the right number at each moment."""
    steps: tuple[tuple[float, int], ...] = ((0, 3), (30, 4), (29, 1), (1.5, 5), (29.5, 3))
    async with stage.bench(stage.chat(), rate=EXACT) as bench:
        admitted = [await _admitted(bench, after=after, asks=asks) for after, asks in steps]
        _compare(found, "one by one", expected=[3, 2, 0, 3, 1], seen=admitted)
    async with stage.bench(stage.chat(), rate=EXACT) as bench:
        if bench.ledger.counts_rates:
            # The process has counted before it, so that its own count alone shows nothing above.
            admitted = [await _reserved(bench, after=after, asks=asks) for after, asks in steps]
            _compare(found, "by the ledger", expected=[3, 2, 0, 3, 1], seen=admitted)
    async with stage.bench(stage.chat(), rate=IN_BUCKETS) as bench:
        bucketed: tuple[tuple[float, int], ...] = ((0, 60), (0.9, 61), (59.2, 1), (1.9, 1))
        admitted = [await _admitted(bench, after=after, asks=asks) for after, asks in bucketed]
        _compare(found, "in buckets", expected=[60, 60, 0, 1], seen=admitted)
    async with stage.bench(stage.chat(), global_rate="5/minute") as bench:
        clients = [await bench.ask(f"203.0.113.{number + 1}") for number in range(8)]
        admitted = [sum(client.status == 200 for client in clients)]
        _compare(found, "of everybody", expected=[5], seen=admitted)
    found.equal("slots lost to refusals that take none", expected=0, seen=await _lost_to_refusals(stage))


async def _lost_to_refusals(stage: Stage) -> int:
    """Of two slots of a client who was told `busy` before."""
    chat = stage.chat()
    chat.gate = anyio.Event()
    async with stage.bench(chat, rate="2/minute", max_parallel=1) as bench:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.ask)
            await wait_until(lambda: chat.calls > 0, seconds=CALLED_SECONDS)
            for _ in range(3):
                await bench.ask(NEIGHBOUR)
            chat.gate.set()
        await bench.quiet()
        later = [await bench.ask(NEIGHBOUR) for _ in range(2)]
    return sum(client.status != 200 for client in later)


async def _admitted(bench: Bench, *, after: float, asks: int) -> int:
    """How many of so many requests are admitted, so many seconds later."""
    bench.clock.advance(after)
    clients = [await bench.ask() for _ in range(asks)]
    await bench.quiet()
    return sum(client.status == 200 for client in clients)


async def _reserved(bench: Bench, *, after: float, asks: int) -> int:
    """The same, asked of the ledger without a request."""
    bench.clock.advance(after)
    reserved = 0
    for number in range(asks):
        rates = [Claim(rate, "prove", 1) for rate in bench.engine.rules.rates]
        with suppress(Refused):
            await bench.ledger.reserve(f"prove-{bench.clock.wall_ns()}-{number}", money=[], slots=[], rates=rates)
            reserved += 1
    return reserved


def _compare(found: Findings, what: str, *, expected: list[int], seen: list[int]) -> None:
    said = f"{', '.join(map(str, expected))} admitted {what}"
    found.true(said, otherwise=None if seen == expected else f"{', '.join(map(str, seen))} admitted {what}")
