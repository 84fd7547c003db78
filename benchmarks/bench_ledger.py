"""What the memory ledger costs: against the dictionary it could have been, and as its history and its maps grow."""

import asyncio
import itertools
import time
import tracemalloc
from collections.abc import Callable
from zoneinfo import ZoneInfo

from measure import Contest, Row, machine, print_table

from routeguard.clock import SystemClock
from routeguard.ledgers.memory import MemoryLedger
from routeguard.limiter import RateLimiter
from routeguard.policy import Budget, Claim, Parallel, Rate, Window

AMOUNT = 2_400_000
DAY = Budget("day", Window("day", ZoneInfo("UTC")), 9_000_000 * 10**9)
CLIENT_DAY = Budget("day", Window("day", ZoneInfo("UTC")), 9_000_000 * 10**9, per_client=True)
PARALLEL = Parallel(32, 330 * 10**9)
CLIENT_PARALLEL = Parallel(4, 330 * 10**9, per_client=True)
RATES = (Rate("client-1", 10, 60 * 10**9), Rate("client-2", 200, 86_400 * 10**9))
GLOBAL_RATES = (Rate("global-1", 10**9, 60 * 10**9),)

ROUNDS = 25
PAIRS_PER_RUN = 500
CLIENTS = 1_000
PAST = 1_000_000
CLIENTS_MAX = 50_000
KEYS = 200_000


async def pair(ledger: MemoryLedger, number: int, client: str) -> None:
    """Reserve from a budget and a client's share of it, take two slots, and settle."""
    reservation = await ledger.reserve(
        str(number),
        money=[Claim(DAY, "", AMOUNT), Claim(CLIENT_DAY, client, AMOUNT)],
        slots=[Claim(PARALLEL, "", 1), Claim(CLIENT_PARALLEL, client, 1)],
    )
    await ledger.settle(reservation, state="settled", settled_nanousd=AMOUNT // 2, kept_nanousd=0)


class Pairs:
    """Reservations of clients that take turns."""

    def __init__(self, runner: asyncio.Runner, *, clients: int, clients_max: int = CLIENTS_MAX) -> None:
        self.ledger = MemoryLedger(clock=SystemClock(), clients_max=clients_max)
        self._runner = runner
        self._numbers = itertools.count()
        self._clients = itertools.cycle(client_names(clients))

    def make(self, pairs: int) -> None:
        async def make() -> None:
            for number, client in zip(itertools.islice(self._numbers, pairs), self._clients, strict=False):
                await pair(self.ledger, number, client)

        self._runner.run(make())

    def run(self) -> float:
        return timed(self.make)


class DictionaryPairs:
    """The least that counts anything: add an amount to two entries, and take half of it away again."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._spent: dict[str, int] = dict.fromkeys(["", *client_names(CLIENTS)], 0)
        self._clients = itertools.cycle(client_names(CLIENTS))

    def make(self, pairs: int) -> None:
        async def reserve(client: str) -> None:
            self._spent[""] += AMOUNT
            self._spent[client] += AMOUNT

        async def settle(client: str) -> None:
            self._spent[""] -= AMOUNT // 2
            self._spent[client] -= AMOUNT // 2

        async def make() -> None:
            for client in itertools.islice(self._clients, pairs):
                await reserve(client)
                await settle(client)

        self._runner.run(make())

    def run(self) -> float:
        return timed(self.make)


class Claims:
    """Rate claims of clients that take turns, in a map of a hard size."""

    def __init__(self, *, clients: int, clients_max: int) -> None:
        self.limiter = RateLimiter(clock=SystemClock(), clients_max=clients_max)
        self._clients = itertools.cycle(client_names(clients))
        self.make(clients)
        assert len(self.limiter) == min(clients, clients_max), "the map has a hard size"

    def make(self, claims: int) -> None:
        for client in itertools.islice(self._clients, claims):
            ticket = self.limiter.claim(client, rates=RATES, global_rates=GLOBAL_RATES)
            self.limiter.give_back(ticket)  # nobody is refused, however long this runs

    def run(self) -> float:
        return timed(self.make)


def client_names(number: int) -> list[str]:
    """Keys as the guard makes them: sixteen hexadecimal digits."""
    return [f"{client:016x}" for client in range(number)]


def timed(make: Callable[[int], None]) -> float:
    start = time.process_time_ns()
    make(PAIRS_PER_RUN)
    return (time.process_time_ns() - start) / PAIRS_PER_RUN


def bench_pair(runner: asyncio.Runner) -> list[Row]:
    contest = Contest(
        {
            "two entries of a dictionary": DictionaryPairs(runner).run,
            "reserve and settle, two budgets and two slots": Pairs(runner, clients=CLIENTS).run,
        },
        rounds=ROUNDS,
    )
    baseline, ledger = contest.times
    return [contest.row(baseline, baseline=baseline), contest.row(ledger, baseline=baseline, target=20)]


def bench_growth(runner: asyncio.Runner) -> list[Row]:
    """The same operation with little behind it and with much."""
    young, old = Pairs(runner, clients=CLIENTS), Pairs(runner, clients=CLIENTS)
    full = Pairs(runner, clients=KEYS)
    old.make(PAST)
    full.make(KEYS)
    contest = Contest(
        {
            f"reserve and settle after {CLIENTS:,} reservations": young.run,
            f"reserve and settle after {PAST:,} reservations": old.run,
            f"reserve and settle, {KEYS:,} clients, {CLIENTS_MAX:,} places": full.run,
            f"rate claim of a known client, {CLIENTS:,} known": Claims(clients=CLIENTS, clients_max=CLIENTS).run,
            f"rate claim of a known client, {CLIENTS_MAX:,} known": Claims(
                clients=CLIENTS_MAX, clients_max=CLIENTS_MAX
            ).run,
            # Each of four times as many keys as there are places finds that it has been forgotten.
            f"rate claim of a newcomer, {CLIENTS:,} places": Claims(clients=4 * CLIENTS, clients_max=CLIENTS).run,
            f"rate claim of a newcomer, {CLIENTS_MAX:,} places": Claims(clients=KEYS, clients_max=CLIENTS_MAX).run,
        },
        rounds=ROUNDS,
    )
    few, past, keys, known_few, known_many, new_few, new_many = contest.times
    return [
        contest.row(few, baseline=few),
        contest.row(past, baseline=few, target=1.2),
        contest.row(keys, baseline=few, target=1.2),
        contest.row(known_few, baseline=known_few),
        contest.row(known_many, baseline=known_few, target=1.2),
        contest.row(new_few, baseline=new_few),
        contest.row(new_many, baseline=new_few, target=1.2),
    ]


def bench_memory(runner: asyncio.Runner) -> list[Row]:
    """Bytes a client holds while its window runs, its key included."""

    def money() -> object:
        ledger = MemoryLedger(clock=SystemClock(), clients_max=CLIENTS_MAX)

        async def fill() -> None:
            for number in range(CLIENTS_MAX):
                await pair(ledger, number, f"{number:016x}")

        runner.run(fill())
        return ledger

    def rates() -> object:
        limiter = RateLimiter(clock=SystemClock(), clients_max=CLIENTS_MAX)
        for number in range(CLIENTS_MAX):
            limiter.claim(f"{number:016x}", rates=RATES, global_rates=GLOBAL_RATES)
        return limiter

    return [
        Row("one client's money", f"{held_bytes(money) / CLIENTS_MAX:.0f} bytes"),
        Row("one client's rates, one slot of each taken", f"{held_bytes(rates) / CLIENTS_MAX:.0f} bytes"),
    ]


def held_bytes(build: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        built = build()
        held, _ = tracemalloc.get_traced_memory()
        del built
        return held
    finally:
        tracemalloc.stop()


def main() -> None:
    print(machine())
    with asyncio.Runner() as runner:
        print_table("Reserve and settle", bench_pair(runner))
        print_table("The same, as history and clients grow", bench_growth(runner))
        print_table(f"Memory, of {CLIENTS_MAX:,} clients", bench_memory(runner))


if __name__ == "__main__":
    main()
