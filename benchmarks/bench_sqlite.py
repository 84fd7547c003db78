"""What the SQLite ledger costs: alone, and with four processes that pay from one budget at a given pace.

The pace is kept by arrivals at random moments, whatever the answers do, so that a slow one is not hidden by the
requests it holds up. Every reservation is settled at once, so that the file sees twice as many operations.
"""

import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from zoneinfo import ZoneInfo

from measure import Row, duration, machine, print_table, verdict

from routeguard.clock import SystemClock
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.policy import Budget, Claim, LedgerUnavailable, Parallel, Rate, Refused, Window

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


async def pair(ledger: SqliteLedger, number: str, client: str, *, all_claims: bool) -> int:
    """Reserve and settle. Returns the nanoseconds until the reservation was answered, with a refusal or without."""
    money = [Claim(DAY, "", AMOUNT)]
    slots = [Claim(PARALLEL, "", 1)]
    rates = []
    if all_claims:
        money.append(Claim(CLIENT_DAY, client, AMOUNT))
        slots.append(Claim(CLIENT_PARALLEL, client, 1))
        rates = [Claim(GLOBAL_RATE, "", 1), *[Claim(rate, client, 1) for rate in RATES]]
    begun = time.perf_counter_ns()
    try:
        reservation = await ledger.reserve(number, money=money, slots=slots, rates=rates)
    except (Refused, LedgerUnavailable):
        return time.perf_counter_ns() - begun
    took = time.perf_counter_ns() - begun
    # A settlement that comes too late is written all the same.
    with suppress(LedgerUnavailable):
        await ledger.settle(reservation, state="settled", settled_nanousd=AMOUNT // 2, kept_nanousd=0)
    return took


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


async def at_pace(ledger: SqliteLedger, per_second: float, seed: int, *, all_claims: bool) -> list[int]:
    """Nanoseconds of each reservation, at random moments so many times a second."""
    rng = random.Random(seed)
    took: list[int] = []

    async def one(number: int) -> None:
        took.append(await pair(ledger, f"{seed}-{number}", f"{rng.randrange(CLIENTS):016x}", all_claims=all_claims))

    await ledger.refresh()
    begun = due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in itertools.count():
            due += rng.expovariate(per_second)
            if due > begun + SECONDS:
                break
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(one(number))
    await ledger.aclose()
    return took


def paced(folder: str, per_second: int, *, all_claims: bool) -> list[float]:
    """Milliseconds of each reservation of all processes, sorted."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "child", folder, str(per_second / PROCESSES), str(seed), str(int(all_claims))],
            stdout=subprocess.PIPE,
        )
        for seed in range(PROCESSES)
    ]
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


def bench_paced(*, all_claims: bool) -> list[Row]:
    rows = []
    for pace in PACES:
        with tempfile.TemporaryDirectory() as folder:
            took = paced(folder, pace, all_claims=all_claims)
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
        folder, per_second, seed, all_claims = sys.argv[2:]
        took = asyncio.run(at_pace(open_file(folder), float(per_second), int(seed), all_claims=all_claims == "1"))
        print(json.dumps(took))
        return
    print(machine())
    print_table("One process", bench_alone())
    print_table(f"{PROCESSES} processes, a budget and a slot", bench_paced(all_claims=False))
    print_table(f"{PROCESSES} processes, two budgets, two slots and three rates", bench_paced(all_claims=True))


if __name__ == "__main__":
    main()
