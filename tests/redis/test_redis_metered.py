"""Metered clients of several processes on one ledger: one hard stop, also when one of them is killed midway.

Every call may cost ten cents and costs one.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.meter.payment import LEASE_SECONDS
from routeguard.policy import NANOSECONDS, Balance, Budget, Ledger, Window
from tests.meter.served import Served
from tests.redis.calls import PATIENT
from tests.redis.conftest import fresh_namespace
from tests.sockets.server import STACKS, Edge, Signal, running

ROOT = Path(__file__).resolve().parents[2]
CENT = 10_000_000
RUN = Budget("total", Window("total", ZoneInfo("UTC")), 55 * CENT)


class Worker:
    """A process that runs `tests.meter.worker`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.meter.worker", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def found(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Site:
    """A provider, and a ledger that several processes share."""

    def __init__(self, edge: Edge, port: int, ledger_url: str) -> None:
        self.edge = edge
        self.ledger_url = ledger_url
        self.namespace = fresh_namespace()
        self.provider = Served(port)
        edge.app = self.provider
        edge.exchanges = []

    @contextmanager
    def workers(self, count: int, *, budget: str = "0.55/total") -> Iterator[list[Worker]]:
        started = [Worker(self.ledger_url, self.namespace, self.provider.url, budget) for _ in range(count)]
        try:
            for worker in started:
                assert worker.found() == "ready"
            yield started
        finally:
            for worker in started:
                worker.kill()

    async def balance(self, *, seconds_later: int = 0) -> Balance:
        """What a process sees that comes to the ledger so much later."""
        ledger = self._ledger(seconds_later)
        await ledger.refresh()
        (found,) = await ledger.balances([RUN])
        await ledger.aclose()
        return found

    def _ledger(self, seconds_later: int) -> Ledger:
        if self.ledger_url.startswith("sqlite"):
            path, clock = self.ledger_url.removeprefix("sqlite:///"), Later(seconds_later, time.monotonic_ns)
            return SqliteLedger(path, namespace=self.namespace, clock=clock, clients_max=1000)
        # The scripts read the server's wall clock for both.
        return RedisLedger(
            self.ledger_url, namespace=self.namespace, timing=PATIENT, test_clock=Later(seconds_later, time.time_ns)
        )


class Later:
    """The clock of this host, so much later."""

    def __init__(self, seconds: int, monotonic_ns: Any) -> None:
        self._later_ns = seconds * NANOSECONDS
        self._monotonic_ns = monotonic_ns

    def wall_ns(self) -> int:
        return time.time_ns() + self._later_ns

    def monotonic_ns(self) -> int:
        now_ns: int = self._monotonic_ns()
        return now_ns + self._later_ns


@pytest.fixture(scope="module")
def provider_server() -> Iterator[tuple[Edge, int]]:
    with running(STACKS[0]) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def site(request: pytest.FixtureRequest, provider_server: tuple[Edge, int], tmp_path: Path) -> Iterator[Site]:
    is_redis = request.param == "redis"
    url = request.getfixturevalue("redis_url") if is_redis else f"sqlite:///{tmp_path}/agents.db"
    made = Site(*provider_server, url)
    yield made
    if made.provider.go_on is not None:
        made.provider.go_on.give()
    made.edge.wait_done()


async def test_streams_of_two_processes_at_once_share_one_hard_stop(site: Site) -> None:
    go_on = site.provider.go_on = Signal()

    with site.workers(2) as both:
        for worker in both:
            worker.tell("open 10")
        opened = [worker.found() for worker in both]
        held = await site.balance()
        sent = len(site.provider.calls)
        go_on.give()
        for worker in both:
            worker.tell("finish")
            worker.found()
        done = await site.balance()

    assert sum(one["open"] for one in opened) == sent == 5
    assert [reason for one in opened for reason in one["refused"]] == ["busy"] * 15
    assert (held.open_nanousd, held.charged_nanousd) == (50 * CENT, 50 * CENT)
    assert (done.settled_nanousd, done.charged_nanousd) == (5 * CENT, 5 * CENT)


async def test_two_processes_spend_one_budget_and_not_a_cent_more(site: Site) -> None:
    with site.workers(2) as both:
        for worker in both:
            worker.tell("spend")
        found = [worker.found() for worker in both]
        last = [stop(worker) for worker in both]
        charged = await site.balance()

    assert sum(one["got"] for one in found + last) == len(site.provider.calls)
    assert charged.charged_nanousd == charged.settled_nanousd == len(site.provider.calls) * CENT
    assert charged.charged_nanousd == 46 * CENT, "the first sum that leaves less than the ten cents of another call"
    assert [one["refused"] for one in last] == ["budget_exhausted"] * 2


def stop(worker: Worker) -> Any:
    """What one process gets after the other has stopped, whose last call may have held what this one needed."""
    worker.tell("spend")
    return worker.found()


async def test_a_process_killed_midway_leaves_its_money_charged_for_ever(site: Site) -> None:
    site.provider.go_on = Signal()

    with site.workers(2, budget="0.15/total") as (one, other):
        one.tell("open 1")
        opened = one.found()
        one.kill()
        killed = await site.balance()
        other.tell("spend")
        while_leased = other.found()
        orphaned = await site.balance(seconds_later=LEASE_SECONDS + 60)
        other.tell("spend")
        afterwards = other.found()

    assert opened == {"open": 1, "refused": []}
    assert (killed.open_nanousd, killed.orphaned_nanousd) == (10 * CENT, 0)
    assert while_leased == {"got": 0, "refused": "busy"}
    assert (orphaned.open_nanousd, orphaned.orphaned_nanousd) == (0, 10 * CENT)
    assert orphaned.charged_nanousd == 10 * CENT
    assert afterwards == {"got": 0, "refused": "budget_exhausted"}
    assert len(site.provider.calls) == 1
