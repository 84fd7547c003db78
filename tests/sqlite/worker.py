"""One process beside others on a ledger file: `python -m tests.sqlite.worker NAME FILE [ARGUMENT]`.

Prints one line when it is ready, begins when a line comes in, and prints what it found as a line of JSON.
"""

import asyncio
import json
import os
import random
import resource
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from routeguard import RouteGuard
from routeguard.clock import SystemClock
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.policy import Claim, LedgerUnavailable, Refused
from routeguard.testing.ledger_contract.claims import CALL, admitted, attempt, budget, slot
from tests.driver import Client
from tests.guarding import TEN_CENTS, Counting
from tests.patience import as_promised, be_patient
from tests.stopwatch import seconds

#: Of the budget that `spend` spends from.
CAP = 2_000 * CALL
ROUNDS = 10


def tell(found: object) -> None:
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def begin() -> None:
    """Wait for the others."""
    tell("ready")
    sys.stdin.readline()


def ledger_in(path: str, namespace: str = "default", clients_max: int = 1000) -> SqliteLedger:
    return SqliteLedger(path, namespace=namespace, clock=SystemClock(), clients_max=clients_max)


async def stampede(path: str, _: str) -> list[int]:
    """Fifty at once, in several namespaces one after the other: how many each admitted."""
    ledgers = [ledger_in(path, f"round-{index}") for index in range(ROUNDS)]
    begin()
    admitted = []
    for index, ledger in enumerate(ledgers):
        names = [f"{os.getpid()}-{index}-{number}" for number in range(50)]
        day, own = budget(10 * CALL), budget(1000 * CALL, per_client=True)
        answers = await asyncio.gather(
            *[attempt(ledger, name, [day, own], client=name[-1], slots=[slot(1000)]) for name in names]
        )
        admitted.append(sum(answer is not None for answer in answers))
    return admitted


async def spend(path: str, _: str) -> None:
    """Reserve and settle until killed. What the provider would bill is told first, as a line of its own."""
    ledger, ever, rng = ledger_in(path), budget(CAP, "total"), random.Random(os.getpid())
    own = budget(CAP, "total", per_client=True)
    begin()

    async def one(name: str) -> None:
        money = [Claim(ever, "", CALL), Claim(own, name[-1], CALL)]
        try:
            reservation = await ledger.reserve(name, money=money, slots=[Claim(slot(64), "", 1)])
        except Refused:
            await asyncio.sleep(0.01)
            return
        bill = rng.randrange(1, CALL + 1)
        os.write(1, f"{bill}\n".encode())
        await asyncio.sleep(rng.random() * 0.01)
        await ledger.settle(reservation, state="settled", settled_nanousd=bill, kept_nanousd=0)

    for index in range(1_000_000):
        await asyncio.gather(*[one(f"{os.getpid()}-{index}-{number}") for number in range(4)])


async def hold(path: str, _: str) -> str:
    """Hold a reservation and its slot, and end only when told to."""
    reservation = await attempt(ledger_in(path), f"held-{os.getpid()}", [budget(CALL)], slots=[slot(1)])
    begin()
    return "admitted" if reservation is not None else "refused"


async def leave(path: str, _: str) -> None:
    """Settle and bill without waiting for either, and end without closing."""
    ledger = ledger_in(path)
    reservation = await attempt(ledger, "1", [budget(10 * CALL)])
    assert reservation is not None
    begin()
    settling = asyncio.ensure_future(ledger.settle(reservation, state="settled", settled_nanousd=3, kept_nanousd=0))
    await asyncio.sleep(0)
    settling.cancel()
    ledger.charge_late(reservation, charge_id="late", extra_nanousd=4)


async def fork(path: str, _: str) -> list[int]:
    """Fork while the ledger is in use, and close the file while the child goes on. What each admitted."""
    ledger, wide = ledger_in(path), budget(1000 * CALL)
    await ledger.refresh()
    begin()

    async def spend_some(prefix: str) -> int:
        answers = await asyncio.gather(*[attempt(ledger, f"{prefix}-{number}", [wide]) for number in range(100)])
        return sum(answer is not None for answer in answers)

    before = asyncio.gather(*[attempt(ledger, f"before-{number}", [wide]) for number in range(100)])
    await asyncio.sleep(0)
    (from_child, to_parent), (from_parent, to_child) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        # The child of a fork has no use for its parent's loop.
        asyncio.events._set_running_loop(None)
        loop = asyncio.new_event_loop()
        in_child = loop.run_until_complete(spend_some("child"))
        os.write(to_parent, b"while the parent has the file open")
        os.read(from_parent, 16)
        in_child += loop.run_until_complete(spend_some("child again"))
        os.write(to_parent, str(in_child).encode())
        os._exit(0)
    in_parent = sum(answer is not None for answer in await before) + await spend_some("parent")
    os.read(from_child, 64)
    # SQLite removes the log of a file that it believes nobody else has open.
    await ledger.aclose()
    os.write(to_child, b"closed")
    return [in_parent, int(os.read(from_child, 16))]


async def fill(path: str, _: str) -> dict[str, Any]:
    """A disk that takes nothing more for a while: what is admitted meanwhile, and what is written after."""
    ledger, wide = ledger_in(path), budget(10**6 * CALL)
    streams = [await admitted(ledger, f"before-{number}", [wide], slots=[slot(10**6)]) for number in range(50)]
    begin()
    # The system refuses to write any file beyond its first kilobyte.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
    errors: list[str] = []
    slowest = 0.0
    with as_promised():
        for number in range(20):
            began = seconds()
            try:
                await attempt(ledger, f"full-{number}", [wide])
            except LedgerUnavailable as error:
                errors.append(str(error))
            slowest = max(slowest, seconds() - began)
        endings = [ledger.settle(stream, state="settled", settled_nanousd=1, kept_nanousd=0) for stream in streams]
        answers = await asyncio.gather(*endings, return_exceptions=True)
    waiting = sum(isinstance(answer, LedgerUnavailable) for answer in answers)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    balance = (await ledger.balances([wide]))[0]
    after = await attempt(ledger, "after", [wide]) is not None
    await ledger.aclose()
    return {
        "errors": errors,
        "slowest": slowest,
        "waiting": waiting,
        "settled": balance.settled_nanousd,
        "open": balance.open_nanousd,
        "after": after,
    }


async def unwritable(path: str, _: str) -> str:
    """Use a ledger in a folder where this process may read and not write."""
    begin()
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        await ledger_in(path).refresh()
    except LedgerUnavailable as error:
        return str(error)
    return "admitted"


async def serve(path: str, requests: str) -> dict[str, int]:
    """So many requests at once through a guard on this file: how many got each status."""
    app = Counting()
    guard = RouteGuard(
        app,
        paths=["/chat"],
        budget="1/total",
        client_budget="unlimited",
        rate="unlimited",
        max_parallel_per_client="unlimited",
        ledger=f"sqlite:///{path}",
        **TEN_CENTS,
    )
    begin()
    clients = await asyncio.gather(*[Client().call(guard) for _ in range(int(requests))])
    statuses = [str(client.status) for client in clients]
    await guard._guard.ledger.aclose()  # type: ignore[union-attr] # a guard that enforces has one
    return {status: statuses.count(status) for status in sorted(set(statuses))} | {"calls": app.calls}


async def refuse(path: str, requests: str) -> dict[str, int]:
    """The same, and nobody waits longer than users do."""
    with as_promised():
        return await serve(path, requests)


NAMES: dict[str, Callable[[str, str], Awaitable[object]]] = {
    function.__name__: function for function in (stampede, spend, hold, leave, fork, fill, unwritable, serve, refuse)
}


async def main() -> None:
    _, name, path, *argument = sys.argv
    tell(await NAMES[name](path, *argument or [""]))


if __name__ == "__main__":
    be_patient(pytest.MonkeyPatch())
    asyncio.run(main())
