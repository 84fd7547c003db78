"""Rows about a ledger that others use too: two processes, a process that dies, answers that get lost."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import anyio

from routeguard.cli.prove.errand import Told, amounts
from routeguard.cli.prove.findings import Findings, NotRun
from routeguard.cli.prove.stage import Bench, Stage
from routeguard.clock import SystemClock
from routeguard.ledgers import ledger_kind, open_ledger
from routeguard.policy import Claim, Ledger, LedgerUnavailable
from routeguard.testing.fault_proxy import FaultProxy

FITTING: Final = 10
EACH: Final = 20
#: What a process may take to start, and to play its part.
WORKER_SECONDS: Final = 15.0
#: The contract: no decision takes longer.
DECISION_SECONDS: Final = 1.0
#: More than one request is ever sent again.
EVERY_ANSWER: Final = 1_000


async def two_processes(stage: Stage, found: Findings) -> None:
    """Two processes ask at the same moment, and one of them is killed in the middle of its streams."""
    _require_shared(stage)
    told = Told(stage.settings.ledger, stage.settings.namespace, fitting=FITTING, asks=EACH)
    async with stage.ledger(SystemClock(), rules_the_store=False) as ledger:
        workers = [await _worker(told, name) for name in ("a", "b")]
        try:
            for worker in workers:
                await _line(worker)
            for worker in workers:
                await _say(worker, "go")
            admitted = [int(await _line(worker)) for worker in workers]
            found.equal(f"of {2 * EACH} admitted by two", expected=FITTING, seen=sum(admitted))
            survivor, victim = (0, 1) if admitted[0] <= admitted[1] else (1, 0)
            workers[victim].kill()
            await workers[victim].wait()
            await _say(workers[survivor], "end")
            await _line(workers[survivor])
            (balance,) = await ledger.balances([told.budget])
            ceiling, bill = amounts()
            ended, killed = admitted[survivor] * bill, admitted[victim] * ceiling
            seen = balance.charged_nanousd - ended
            found.money("still charged for the killed one", expected=killed, seen=seen)
        finally:
            for worker in workers:
                with suppress(ProcessLookupError):
                    worker.kill()
                await worker.wait()


async def lost_reply(stage: Stage, found: Findings) -> None:
    """The store did what it was asked, and its answer is lost: once, and for good."""
    _require_shared(stage)
    if ledger_kind(stage.settings.ledger) != "redis":
        raise NotRun("no network between this ledger and its file")
    parts = urlsplit(stage.settings.ledger)
    if parts.scheme != "redis" or parts.hostname is None:
        raise NotRun(f"only played on a plain redis:// connection, not on {parts.scheme}://")
    async with (
        stage.bench(stage.chat(), budget=stage.ceilings(FITTING)) as bench,
        FaultProxy(parts.port or 6379, host=parts.hostname) as proxy,
    ):
        user, _, _ = parts.netloc.rpartition("@")
        through = urlunsplit(parts._replace(netloc=f"{user}{'@' if user else ''}127.0.0.1:{proxy.port}"))
        ledger = open_ledger(
            through,
            namespace=bench.settings.namespace,
            clock=bench.clock,
            clients_max=bench.settings.max_clients,
            shared=False,
            rules_the_store=True,
        )
        try:
            await ledger.refresh()
            await _lose(stage, bench, ledger, proxy, found)
        finally:
            await ledger.aclose()


async def _lose(stage: Stage, bench: Bench, ledger: Ledger, proxy: FaultProxy, found: Findings) -> None:
    claims = [Claim(budget, "", stage.ceiling) for budget in bench.engine.rules.budgets]
    proxy.holding = b"prove-lost-once"
    proxy.break_next(1, "drop_reply")
    reservation = await ledger.reserve("prove-lost-once", money=claims, slots=[])
    opened = (await bench.balance()).open_nanousd
    found.money("reserved, one answer lost", expected=stage.ceiling, seen=opened)
    proxy.break_next(1, "drop_reply")
    with suppress(LedgerUnavailable):
        await ledger.settle(reservation, state="settled", settled_nanousd=1, kept_nanousd=0)
    settled = await bench.quiet()
    found.money("settled, one answer lost", expected=1, seen=settled.charged_nanousd)

    proxy.holding = b"prove-lost-ever"
    proxy.break_next(EVERY_ANSWER, "drop_reply")
    began = anyio.current_time()
    try:
        await ledger.reserve("prove-lost-ever", money=claims, slots=[])
    except LedgerUnavailable:
        is_refused = True
    else:
        is_refused = False
    seconds = anyio.current_time() - began
    is_right = is_refused and seconds < DECISION_SECONDS + 0.2
    found.true("no answer: refused in 1 s", otherwise=None if is_right else f"{is_refused=} after {seconds:.1f} s")
    proxy.left = 0
    found.money("charged for it", expected=1, seen=(await bench.quiet()).charged_nanousd)


def _require_shared(stage: Stage) -> None:
    if ledger_kind(stage.settings.ledger) == "memory":
        raise NotRun("memory:// counts in each process for itself: two processes have two budgets")


async def _worker(told: Told, name: str) -> Process:
    command = [sys.executable, "-m", "routeguard.cli.prove.worker", name]
    worker = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    # Over a pipe and not as an argument: the address of a ledger may hold a password.
    await _say(worker, json.dumps(told.as_dict()))
    return worker


async def _say(worker: Process, line: str) -> None:
    assert worker.stdin is not None, "a worker has a pipe"
    worker.stdin.write(line.encode() + b"\n")
    await worker.stdin.drain()


async def _line(worker: Process) -> str:
    assert worker.stdout is not None, "a worker has a pipe"
    async with asyncio.timeout(WORKER_SECONDS):
        line = await worker.stdout.readline()
    if not line:
        raise NotRun("a second process could not be started")
    return line.decode().strip()
