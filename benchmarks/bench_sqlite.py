"""What the SQLite ledger costs: alone, and with four processes that pay from one budget at a given pace.

The floor is the same load with transactions in which nothing is read or written: the same processes, event loops,
threads and file lock. What it takes is the machine's; a ledger can only come near it.

The pace is kept by arrivals at random moments, and a reservation takes from there to its answer. Each is settled at
once, so that the file sees twice as many operations.
"""

import asyncio
import itertools
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from zoneinfo import ZoneInfo

from arrivals import READY_SECONDS, at_random_moments
from measure import Row, duration, machine, print_table, verdict

from routeguard.clock import SystemClock
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.policy import Budget, Claim, LedgerUnavailable, Parallel, Rate, Refused, Window
from routeguard.sqlite_file.operation import Operation
from routeguard.sqlite_file.writer import Writer, writer_of

AMOUNT = 2_400_000
DAY = Budget("day", Window("day", ZoneInfo("UTC")), 9_000_000 * 10**9)
CLIENT_DAY = Budget("day", Window("day", ZoneInfo("UTC")), 9_000_000 * 10**9, per_client=True)
PARALLEL = Parallel(10_000, 330 * 10**9)
CLIENT_PARALLEL = Parallel(1_000, 330 * 10**9, per_client=True)
RATES = (Rate("client-1", 100, 10**9), Rate("client-2", 10**7, 86_400 * 10**9))
GLOBAL_RATE = Rate("global-1", 10**7, 60 * 10**9)

CLIENTS = 1_000
SECONDS = 4
PROCESSES = 4
PACES = (400, 1_200, 3_600)
P99_TARGET_MS = 1.0
FLOOR, ONE, ALL = "the floor: nothing", "a budget and a slot", "two budgets, two slots and three rates"


async def pair(ledger: SqliteLedger, number: str, client: str, *, all_claims: bool) -> int:
    """Reserve and settle. Returns when the reservation was answered, with a refusal or without."""
    money = [Claim(DAY, "", AMOUNT)]
    slots = [Claim(PARALLEL, "", 1)]
    rates = []
    if all_claims:
        money.append(Claim(CLIENT_DAY, client, AMOUNT))
        slots.append(Claim(CLIENT_PARALLEL, client, 1))
        rates = [Claim(GLOBAL_RATE, "", 1), *[Claim(rate, client, 1) for rate in RATES]]
    try:
        reservation = await ledger.reserve(number, money=money, slots=slots, rates=rates)
    except (Refused, LedgerUnavailable):
        return time.monotonic_ns()
    answered_ns = time.monotonic_ns()
    # A settlement that comes too late is written all the same.
    with suppress(LedgerUnavailable):
        await ledger.settle(reservation, state="settled", settled_nanousd=AMOUNT // 2, kept_nanousd=0)
    return answered_ns


class NothingToDo:
    """A book whose transactions take the lock of the file and let it go."""

    def attach(self, db: sqlite3.Connection) -> None: ...

    def tidy(self, db: sqlite3.Connection, operations: int) -> None: ...


async def floor_pair(writer: Writer, book: NothingToDo) -> int:
    """As `pair`, with nothing in it."""
    answered_ns = 0
    for _ in range(2):
        operation = Operation(book, lambda _: None, seconds=1.0)
        operation.expect()
        writer.submit(operation)
        with suppress(LedgerUnavailable):
            await operation.wait(1.0)
        answered_ns = answered_ns or time.monotonic_ns()
    return answered_ns


def open_file(folder: str, synchronous: str = "normal") -> SqliteLedger:
    return SqliteLedger(
        str(Path(folder) / "bench.db"),
        namespace="bench",
        clock=SystemClock(),
        synchronous="full" if synchronous == "full" else "normal",
    )


async def in_turn(ledger: SqliteLedger, pairs: int, *, tasks: int, all_claims: bool) -> float:
    """Pairs a second with so many tasks that each wait for their answer."""
    numbers = itertools.count()

    async def one() -> None:
        for number in itertools.takewhile(lambda number: number < pairs, numbers):
            await pair(ledger, f"{number}", f"{number % CLIENTS:016x}", all_claims=all_claims)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(one())
    return pairs / (time.perf_counter() - begun)


async def at_pace(folder: str, per_second: float, seed: int, *, claims: str) -> list[int]:
    """Nanoseconds of each reservation, at random moments so many times a second."""
    rng = random.Random(seed)
    took: list[int] = []
    ledger, book = open_file(folder), NothingToDo()
    writer = writer_of(str(Path(folder) / "bench.db"), "normal")

    async def arrive(number: int, moment_ns: int) -> None:
        if claims == FLOOR:
            answered_ns = await floor_pair(writer, book)
        else:
            client = f"{rng.randrange(CLIENTS):016x}"
            answered_ns = await pair(ledger, f"{seed}-{number}", client, all_claims=claims == ALL)
        took.append(answered_ns - moment_ns)

    while not ledger.healthy or not ledger.client_salt:
        with suppress(LedgerUnavailable):  # the others are at it already
            await ledger.refresh()
    await floor_pair(writer, book)
    await pair(ledger, f"{seed}-first", f"{seed:016x}", all_claims=claims == ALL)
    print("ready", flush=True)
    await at_random_moments(per_second, SECONDS, seed, arrive, begin=float(sys.stdin.readline()))
    await ledger.aclose()
    return took


def paced(folder: str, per_second: int, *, claims: str) -> list[float]:
    """Milliseconds of each reservation of all processes, sorted."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "child", folder, str(per_second / PROCESSES), str(seed), claims],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(PROCESSES)
    ]
    # All of them begin together, with nothing to import any more.
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    begin = time.monotonic() + READY_SECONDS
    for child in children:
        assert child.stdin is not None
        print(begin, file=child.stdin, flush=True)
    return sorted(took / 1e6 for child in children for took in json.loads(child.communicate()[0]))


def bench_alone() -> list[Row]:
    rows = []
    for synchronous, tasks, all_claims in itertools.product(("normal", "full"), (1, 64), (False, True)):
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
            ledger = open_file(folder, synchronous)
            pairs = 300 if (synchronous, tasks) == ("full", 1) else 4_000
            rate = runner.run(in_turn(ledger, pairs, tasks=tasks, all_claims=all_claims))
            runner.run(ledger.aclose())
        claims = "all claims" if all_claims else "a budget and a slot"
        rows.append(Row(f"{synchronous.upper()}, {tasks} at once, {claims}", f"{rate:,.0f} pairs/s"))
    return rows


def bench_paced(*, claims: str) -> list[Row]:
    rows = []
    for pace in PACES:
        with tempfile.TemporaryDirectory() as folder:
            took = paced(folder, pace, claims=claims)
        p50, p99, p999, worst = (took[min(int(len(took) * part), len(took) - 1)] for part in (0.5, 0.99, 0.999, 1))
        rows.append(
            Row(
                f"{pace:,} reservations/s asked for, {len(took) / SECONDS:,.0f} answered",
                f"p50 {duration(p50 * 1e6)}, p99 {duration(p99 * 1e6)}, p99.9 {duration(p999 * 1e6)}, "
                f"worst {duration(worst * 1e6)}",
                target=verdict(p99, P99_TARGET_MS, f"p99 {P99_TARGET_MS:g} ms"),
            )
        )
    return rows


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        folder, per_second, seed, claims = sys.argv[2:]
        took = asyncio.run(at_pace(folder, float(per_second), int(seed), claims=claims))
        print(json.dumps(took))
        return
    print(machine())
    print_table("One process", bench_alone())
    for claims in (FLOOR, ONE, ALL):
        print_table(f"{PROCESSES} processes, {claims}", bench_paced(claims=claims))


if __name__ == "__main__":
    main()
