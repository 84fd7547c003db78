"""Real processes, killed at random: `python -m tests.simulation.chaos --minutes 10`.

Half of the time workers share a SQLite file, half of it a Redis server that keeps an append-only file and is killed
and started again as well. Workers are `python -m tests.simulation.spender`: they say what the provider would bill
before they settle. At the end of each round the counter has to be the sum of its records and cover every bill.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from routeguard.clock import SystemClock
from routeguard.ledgers import open_ledger
from routeguard.policy import Balance, LedgerUnavailable
from tests.redis.server import RedisServer, find_server
from tests.simulation.spender import CAP, CAP_NANOUSD
from tests.sqlite.files import check_sums

WORKERS = 4
ROUND_SECONDS = 20.0
Worker = subprocess.Popen[bytes]


class Chaos:
    """One round on one ledger: workers come and go until the time is over."""

    def __init__(self, url: str, rng: random.Random, folder: Path, *, server: RedisServer | None) -> None:
        self._url = url
        self._rng = rng
        self._folder = folder
        self._server = server
        self._started = 0
        self.killed = 0

    def run(self, seconds: float) -> tuple[int, Balance]:
        """What was billed, and where the counter stands."""
        workers = [self._start() for _ in range(WORKERS)]
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                time.sleep(self._rng.uniform(0.05, 0.6))
                if self._server is not None and self._rng.random() < 0.1:
                    self._server.restart()
                victim = self._rng.randrange(WORKERS)
                workers[victim].kill()
                workers[victim].wait()
                self.killed += 1
                workers[victim] = self._start()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        billed = sum(int(line) for file in self._folder.glob("bill-*") for line in file.read_text().split())
        return billed, asyncio.run(self._balance())

    def _start(self) -> Worker:
        self._started += 1
        command = [sys.executable, "-m", "tests.simulation.spender", self._url, str(self._started)]
        with Path(self._folder, f"bill-{self._started}").open("wb") as bills:
            return subprocess.Popen(command, stdout=bills)

    async def _balance(self) -> Balance:
        ledger = open_ledger(self._url, namespace="chaos", clock=SystemClock(), clients_max=1000, shared=False)
        for _ in range(100):
            try:
                (found,) = await ledger.balances([CAP])
            except LedgerUnavailable:
                await asyncio.sleep(0.1)
            else:
                await ledger.aclose()
                return found
        raise AssertionError("the ledger does not come back")


def check(billed: int, stands: Balance, chaos: Chaos, name: str) -> None:
    charged = stands.charged_nanousd
    _say(f"{name}: {chaos.killed} kills, billed {billed}, charged {charged} of {CAP_NANOUSD}")
    assert billed <= charged <= CAP_NANOUSD, "billed <= counter <= cap"
    assert stands.overrun_nanousd == 0


def on_sqlite(rng: random.Random, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="rg-chaos-") as folder:
        file = Path(folder, "chaos.db")
        chaos = Chaos(f"sqlite:///{file}", rng, Path(folder), server=None)
        check(*chaos.run(seconds), chaos, "sqlite")
        check_sums(file)


def on_redis(program: str, rng: random.Random, seconds: float) -> None:
    always = ("--appendonly", "yes", "--appendfsync", "always")
    with tempfile.TemporaryDirectory(prefix="rg-chaos-") as folder, RedisServer(program, *always) as server:
        chaos = Chaos(server.url, rng, Path(folder), server=server)
        check(*chaos.run(seconds), chaos, "redis")
        stands = asyncio.run(chaos._balance())
        records = server.command("HVALS", "{rg:chaos}:calls").split("\r\n")
        held = {"open": 0, "orphaned": 0}
        for record in records:
            state, _, rest = record.partition(" ")
            if state in held and rest:
                held[state] += int(rest.split()[0])
        assert (held["open"], held["orphaned"]) == (stands.open_nanousd, stands.orphaned_nanousd)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    given = parser.parse_args()
    rng, program = random.Random(given.seed), find_server()
    _say(f"seed {given.seed}")
    until = time.monotonic() + 60 * given.minutes
    while (left := until - time.monotonic()) > 0:
        seconds = min(ROUND_SECONDS, max(1.0, left / 2))
        on_sqlite(rng, seconds)
        if program is None:
            _say("no redis-server: only SQLite was tried")
        else:
            on_redis(program, rng, seconds)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
