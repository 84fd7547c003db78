"""Rows about requests that do not end as they should."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Final

import anyio

from routeguard.build import LEASE_GRACE_SECONDS
from routeguard.cli.prove.application import Chat
from routeguard.cli.prove.findings import Findings, NotRun
from routeguard.cli.prove.stage import Bench, Stage
from routeguard.cli.prove.waiting import wait_until
from routeguard.money import ceil_div, format_usd
from routeguard.policy import Claim, Refused
from routeguard.testing.driver import CancelAt
from routeguard.testing.scripted import Script

#: More than a request has ever had to wait for.
AWAITS_MAX: Final = 200
SECONDS_TO_MIDNIGHT: Final = 5
#: `MAX_STREAM`, made this short.
STREAM_SECONDS: Final = 0.2
#: How much longer it may take on a busy machine.
STOPPED_SECONDS: Final = 5.0
#: What it may take until a request reaches the application.
CALLED_SECONDS: Final = 2.0


async def failure(stage: Stage, found: Findings) -> None:
    """An answer that breaks off, an application that raises, and a provider that answers 500."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        each, kept = _of_a_failure(stage, bench), 0
        # The application passes a stream that breaks off on and returns: nothing failed that anybody could see, and
        # its one begun call is kept.
        begun = ceil_div(stage.ceiling, bench.settings.calls_per_request)
        failures = {
            "a broken stream": (Script(words=5, fail_after=2), None, begun),
            "an exception": (Script(words=5), RuntimeError("a bug of the application"), each),
            "a 500": (Script(status=500), None, each),
        }
        for name, (chat.script, chat.raises, expected) in failures.items():
            await bench.ask()
            before, kept = kept, (await bench.quiet()).kept_nanousd
            found.money(f"kept for {name}", expected=expected, seen=kept - before)
        if bench.settings.on_failure == "keep":
            chat.begins = False
            await bench.ask()
            untold = (await bench.quiet()).kept_nanousd - kept
            found.money("for one without a call seen", expected=stage.ceiling, seen=untold)


async def hang(stage: Stage, found: Findings) -> None:
    """A provider that says nothing more, longer than `MAX_STREAM`, before its answer and within it."""
    chat = stage.chat()
    async with stage.bench(chat, max_stream=STREAM_SECONDS) as bench:
        each, kept = _of_a_failure(stage, bench), 0
        for words, status in ((0, 504), (2, 200)):
            chat.script = Script(words=5, hang_after=words)
            client = bench.client()
            with anyio.move_on_after(STREAM_SECONDS + STOPPED_SECONDS):
                await client.call(bench.guard)
            before, kept = kept, (await bench.quiet()).kept_nanousd
            stopped = client.status == status and client.complete == (status == 504)
            found.true(f"stopped after {words} words", otherwise=None if stopped else f"not stopped ({client.status})")
            found.money("kept", expected=each, seen=kept - before)
        found.equal("slots held", expected=0, seen=await bench.ledger.in_flight())


async def disconnect(stage: Stage, found: Findings) -> None:
    """The client leaves when the answer has begun, and no usage has been told yet."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        client = bench.client()
        client.leaves_after = 2
        await client.call(bench.guard)
        balance = await bench.quiet()
        found.money("kept", expected=_of_a_failure(stage, bench), seen=balance.kept_nanousd)
        found.equal("slots held", expected=0, seen=await bench.ledger.in_flight())


async def cancel(stage: Stage, found: Findings) -> None:
    """A cancel thrown in at each await of a whole request, one after the other; with its call begun, and without."""
    chat = stage.chat()
    wrong: Counter[str] = Counter()
    # Without `keep`, what is charged for a call that nobody has seen is up to NO_CALL.
    for chat.begins in (True, False) if stage.settings.on_failure == "keep" else (True,):
        async with stage.bench(chat) as bench:
            wrong.update(await _cancelled_everywhere(stage, bench, chat))
    says = ", ".join(f"{count} x {what}" for what, count in sorted(wrong.items()))
    found.true("at every await: slot back, bill covered, charged once", otherwise=says or None)


async def crash(stage: Stage, found: Findings) -> None:
    """Nobody ends the request: after its lease the slot is back, its money is not, and a late ending still counts."""
    chat = stage.chat()
    chat.gate = anyio.Event()
    # For ever, because the lease may end in another hour or day than it began.
    only = f"{format_usd(stage.ceiling)}/total"
    async with stage.bench(chat, max_parallel=1, budget=only) as bench:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.ask)
            await _called(chat)
            bench.clock.advance(bench.settings.max_stream + LEASE_GRACE_SECONDS + 1)

            async def orphaned() -> bool:
                return (await bench.balance()).open_nanousd == 0

            balance = await bench.until(orphaned)
            found.equal("slots held after the lease", expected=0, seen=await bench.ledger.in_flight())
            found.money("orphaned", expected=stage.ceiling, seen=balance.orphaned_nanousd)
            found.true("no room beside it", otherwise=await _finds_room(stage, bench))
            chat.gate.set()
        balance = await bench.quiet()
        bill = bench.bill(chat)
        found.money("settled late", expected=bill, seen=balance.charged_nanousd)


async def midnight(stage: Stage, found: Findings) -> None:
    """A stream that is reserved before the window ends, and settled after it."""
    windows = [budget.window for budget in stage.settings.budgets]
    now = int(datetime.now(UTC).timestamp())
    ends = [end for window in windows if (end := window.span(now).end) is not None]
    if not ends:
        raise NotRun("no window of BUDGET ends")
    end = min(ends)
    start = datetime.fromtimestamp(end - SECONDS_TO_MIDNIGHT, UTC)
    chat = stage.chat()
    chat.gate = anyio.Event()
    async with stage.bench(chat, start=start, budget=stage.ceilings(4)) as bench:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.ask)
            await _called(chat)
            bench.clock.advance(2 * SECONDS_TO_MIDNIGHT)
            chat.gate.set()
        await bench.quiet()
        bill = bench.bill(chat)
        for balance in await bench.balances():
            is_new = balance.budget.window.span(end).start == end
            what = f"in the {'new' if is_new else 'same'} {balance.budget.name}"
            found.money(what, expected=0 if is_new else bill, seen=balance.charged_nanousd)
            found.money("open there", expected=0, seen=balance.open_nanousd)
        # A window that nothing was charged in may be chosen again.
        await bench.ask()
        await bench.quiet()
        known = await bench.balances()
        bench.clock.jump(-3 * SECONDS_TO_MIDNIGHT)
        await bench.ask()
        await bench.quiet()
        each = bench.bill(chat) // chat.provider.calls
        reopened = sum(
            (one.resets_at, one.charged_nanousd + each) != (other.resets_at, other.charged_nanousd)
            for one, other in zip(known, await bench.balances(), strict=True)
        )
        found.equal("windows reopened by a clock set back", expected=0, seen=reopened)


async def _finds_room(stage: Stage, bench: Bench) -> str | None:
    """What another reservation finds where the budget is full; None if it is refused, as it must be."""
    claims = [Claim(budget, "", stage.ceiling) for budget in bench.engine.rules.budgets]
    try:
        reservation = await bench.ledger.reserve("prove-room", money=claims, slots=[])
    except Refused:
        return None
    await bench.ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)
    return "reserved beside it"


async def _cancelled_everywhere(stage: Stage, bench: Bench, chat: Chat) -> Counter[str]:
    """What is wrong after requests of which each was cancelled one await later than the one before."""
    wrong: Counter[str] = Counter()
    charged = 0
    for number in range(AWAITS_MAX):
        before, calls = _billed(chat), chat.calls
        client = bench.client()
        run = CancelAt(bench.guard(client.scope(), client.receive, client.send), number, asyncio.CancelledError())
        try:
            await run
        except asyncio.CancelledError:
            cancelled = True
        else:
            cancelled = False
        balance = await bench.quiet()
        delta, charged = balance.charged_nanousd - charged, balance.charged_nanousd
        after = _billed(chat)
        bill = bench.cost(input_tokens=after[0] - before[0], output_tokens=after[1] - before[1])
        wrong.update(await _wrong(bench, balance.open_nanousd, delta, bill, stage.ceiling))
        if chat.calls > calls and delta == 0 and bench.settings.on_failure == "keep":
            wrong["given back"] += 1
        if not cancelled:
            return wrong
    raise NotRun(f"a request has more than {AWAITS_MAX} awaits")


async def _called(chat: Chat) -> None:
    """Wait until the request is admitted, or for so long that it never will be."""
    await wait_until(lambda: chat.calls > 0, seconds=CALLED_SECONDS)


def _of_a_failure(stage: Stage, bench: Bench) -> int:
    """What a request costs that failed with one call begun and not reported."""
    if bench.settings.on_failure == "keep":
        return stage.ceiling
    return ceil_div(stage.ceiling, bench.settings.calls_per_request)


def _billed(chat: Chat) -> tuple[int, int]:
    return chat.provider.input_tokens_billed, chat.provider.output_tokens_billed


async def _wrong(bench: Bench, open_nanousd: int, charged: int, bill: int, ceiling: int) -> list[str]:
    """What is wrong after a request that was cancelled somewhere."""
    wrong = []
    if await bench.ledger.in_flight():
        wrong.append("a slot is held")
    if open_nanousd:
        wrong.append("money is open")
    if charged < bill:
        wrong.append("the bill is not covered")
    if charged > ceiling:
        wrong.append("charged more than once")
    return wrong
