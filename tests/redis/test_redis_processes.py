"""Several processes on one store: the cap is one cap, also when the store forgets."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from routeguard.policy import Budget
from tests.redis.calls import CALL, EVER, QUICK, balance, until
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.server import RedisServer
from tests.stopwatch import seconds

Worker = subprocess.Popen[str]
#: More than the processes can spend while a test looks.
LOAD = Budget(EVER.name, EVER.window, 1_000_000 * CALL)


@contextmanager
def workers(mode: str, url: str, namespace: str, number: int, limit: int) -> Iterator[list[Worker]]:
    """So many processes, each of which has said that it is ready."""
    command = [sys.executable, "-m", "tests.redis.worker", mode, url, namespace]
    started = [
        subprocess.Popen(
            [*command, f"w{one}-{time.monotonic_ns()}", str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for one in range(number)
    ]
    try:
        for worker in started:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        yield started
    finally:
        for worker in started:
            worker.kill()
            worker.communicate()


def tell(worker: Worker) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def result(worker: Worker) -> dict[str, int]:
    assert worker.stdout is not None
    found: dict[str, int] = json.loads(worker.stdout.readline())
    return found


async def test_four_processes_stampede_on_a_budget_of_ten_and_exactly_ten_are_admitted(
    opens: Opens, redis_url: str
) -> None:
    namespace = fresh_namespace()

    def run() -> list[dict[str, int]]:
        with workers("stampede", redis_url, namespace, 4, 10 * CALL) as all_of_them:
            for worker in all_of_them:
                tell(worker)
            return [result(worker) for worker in all_of_them]

    found = await asyncio.to_thread(run)

    assert sum(one["admitted"] for one in found) == 10
    ledger = opens(redis_url, namespace=namespace)
    assert (await balance(ledger)).open_nanousd == 10 * CALL


async def test_a_store_flushed_under_the_load_of_four_processes_forgets_no_money(
    opens: Opens, own_server: RedisServer
) -> None:
    namespace = fresh_namespace()
    ledger = opens(own_server.url, namespace=namespace)
    await ledger.refresh()

    def run() -> tuple[list[dict[str, int]], float]:
        with workers("load", own_server.url, namespace, 4, LOAD.limit_nanousd) as all_of_them:
            charged = _until_charged(own_server.url, namespace, 300 * CALL)
            flushed = time.time()
            own_server.command("FLUSHALL")
            _until_charged(own_server.url, namespace, charged + 300 * CALL)
            held_back_until = int(_read(own_server.url, namespace, "until") or 0) / 10**6
            for worker in all_of_them:
                tell(worker)
            return [result(worker) for worker in all_of_them], held_back_until - flushed

    found, held_back = await asyncio.to_thread(run)

    billed = sum(one["billed"] for one in found)
    stands = await balance(ledger, LOAD)
    assert sum(one["unavailable"] for one in found) > 0
    assert billed <= stands.charged_nanousd <= LOAD.limit_nanousd
    assert stands.charged_nanousd - billed <= 4 * 8 * 2 * CALL, (
        "no more is stranded than the open calls of all, and of a highest value seen when others were open"
    )
    assert stands.open_nanousd == 0
    assert 0 < held_back < 5


async def test_processes_killed_at_random_leave_a_counter_that_covers_what_was_billed(
    opens: Opens, redis_url: str
) -> None:
    namespace = fresh_namespace()
    rng = random.Random(5)

    def run() -> None:
        for _ in range(3):
            with workers("load", redis_url, namespace, 2, LOAD.limit_nanousd) as both:
                _until_charged(redis_url, namespace, 300 * CALL)
                time.sleep(rng.random() * 0.2)
                both[0].kill()

    await asyncio.to_thread(run)

    ledger = opens(redis_url, namespace=namespace, timing=QUICK)

    async def is_open_where_it_holds_a_slot() -> bool:
        # What was on its way when a process was killed still arrives.
        return (await balance(ledger, LOAD)).open_nanousd == await ledger.in_flight() * CALL

    await until(is_open_where_it_holds_a_slot)
    found = await balance(ledger, LOAD)
    assert found.settled_nanousd % (CALL // 3) == 0
    assert found.settled_nanousd > 0
    assert found.orphaned_nanousd == 0, "their leases run on"


async def test_a_pause_in_one_process_is_seen_by_an_idle_one_within_two_seconds(opens: Opens, redis_url: str) -> None:
    namespace = fresh_namespace()
    one, other = opens(redis_url, namespace=namespace), opens(redis_url, namespace=namespace)
    await one.refresh()
    await other.refresh()

    await one.set_paused(paused=True)
    began = seconds()

    async def paused() -> bool:
        await other.refresh()
        return other.paused

    await until(paused)
    paused_in = seconds() - began
    await other.set_paused(paused=False)
    began = seconds()
    await until(lambda: _resumed(one))
    resumed_in = seconds() - began

    assert max(paused_in, resumed_in) < 2


async def _resumed(ledger: object) -> bool:
    return not getattr(ledger, "paused")  # noqa: B009


def _until_charged(url: str, namespace: str, nanousd: int) -> int:
    until_seconds = time.monotonic() + 120
    while True:
        charged = sum(map(int, _read(url, namespace, "total|UTC|0|0|a").split()[:4]))
        if charged >= nanousd:
            return charged
        assert time.monotonic() < until_seconds, "the load does not go on"
        time.sleep(0.01)


def _read(url: str, namespace: str, field: str) -> str:
    with Redis.from_url(url, decode_responses=True) as behind:
        found = behind.hget(f"{{rg:{namespace}}}:ledger", field)
    assert found is None or isinstance(found, str)
    return found or ""
