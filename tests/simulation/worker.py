"""A process of the simulation, with the real ledger and some callers."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from routeguard.ledgers.redis.knowledge import CLIENT, split
from routeguard.ledgers.redis.reply import Reply
from routeguard.ledgers.redis.store_clock import StoreClock
from routeguard.policy import Budget, Claim, LedgerUnavailable, Parallel, Rate, Refused, Reservation, State, Window
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.world import World

CALL = 1_000
UTC = ZoneInfo("UTC")
EVER = Budget("total", Window("total", UTC), 1_000_000 * CALL)
#: Small enough to be full now and then. Its day ends in the middle of the run.
DAY = Budget("day", Window("day", UTC), 10 * CALL)
#: A client a call, so that an answer says whose it is.
MINE = Budget("total", Window("total", UTC), 3 * CALL, per_client=True)
LEASE_SECONDS = 5
SLOT = Parallel(12, LEASE_SECONDS * 10**9)
#: A log that is full now and then, and buckets of ten seconds.
RATES = (Rate("global-1", 15, 2 * 10**9), Rate("global-2", 150, 600 * 10**9))


@dataclass(slots=True)
class Call:
    """One call to the provider, as its worker knows it."""

    id: str
    worker: str
    bill: int
    reservation: Reservation | None = None
    fields: tuple[str, ...] = ()
    amount: int = 0
    ending: tuple[State, int, int] | None = None


class Worker:
    """A process: a ledger of its own, and some callers that use it as the guard does."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.world = world
        self.rng = random.Random(f"{world.seed} {name}")
        self.ledger = world.ledger_class(f"redis://{name}:6379", namespace="sim", clients_max=world.clients_max)
        # It has a clock of its own, as a process on another machine has.
        offset_ns = self.rng.randrange(10**12)
        self.ledger._store.clock = StoreClock(monotonic_ns=lambda: round(world.loop.time() * 1e9) + offset_ns)
        #: The most that answers said of each account of everybody and of newcomers, whatever the ledger makes of it.
        self.told: dict[str, int] = {}
        knowledge = self.ledger._store.knowledge
        self._learn = knowledge.learn
        setattr(knowledge, "learn", self._hear)  # noqa: B010 - of this one alone
        self._tasks = [world.loop.create_task(self._caller(number)) for number in range(self.rng.randrange(2, 5))]

    @property
    def is_busy(self) -> bool:
        store = self.ledger._store
        is_working = not all(task.done() for task in self._tasks)
        return is_working or bool(len(store.debts)) or store._restoring is not None or not self.ledger.healthy

    def _hear(self, reply: Reply) -> bool:
        for account in reply.accounts:
            if not split(account.field)[2].startswith(CLIENT):
                self.told[account.field] = max(self.told.get(account.field, 0), account.parts.charged)
        return self._learn(reply)

    def check(self) -> None:
        """Raises what a caller ran into."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def stop(self) -> None:
        """As `kill -9` does: nothing is finished. Its network was severed before."""
        for task in self._tasks:
            task.cancel()
        store = self.ledger._store
        for ear in store._ears.values():
            ear.watch.cancel()
            if ear.line._task is not None:
                ear.line._task.cancel()
        if store._restoring is not None:
            store._restoring.cancel()

    async def turn_switch(self) -> None:
        for paused in (True, False):
            switch, loop = self.world.switch, self.world.loop
            turn, confirmed = switch.begin(self.name, paused=paused, at=loop.time()), False
            with suppress(LedgerUnavailable):
                await self.ledger.set_paused(paused=paused)
                confirmed = True
            switch.end(turn, confirmed=confirmed, at=loop.time())

    async def _caller(self, number: int) -> None:
        made = 0
        while not self.world.is_over:
            await asyncio.sleep(self.rng.uniform(0, 0.8))
            made += 1
            await self._request(f"{self.name}-{number}-{made}")

    async def _request(self, name: str) -> None:
        rng, loop = self.rng, self.world.loop
        began = loop.time()
        deciding = loop.create_task(self._decide(name))
        if rng.random() < 0.1:
            # The client goes away.
            await asyncio.wait({deciding}, timeout=rng.uniform(0, 0.1))
            deciding.cancel()
        (result,) = await asyncio.gather(deciding, return_exceptions=True)
        self.world.longest_decision = max(self.world.longest_decision, loop.time() - began)
        if isinstance(result, Refused | LedgerUnavailable | asyncio.CancelledError):
            return
        if isinstance(result, BaseException):
            raise Broken(f"a decision of {name} ended with {result!r}") from result
        await self._stream(result)

    async def _decide(self, name: str) -> Call:
        await self.ledger.refresh()
        amount = self.rng.randrange(1, CALL + 1)
        bill = self.rng.randrange(amount + 1)
        if self.rng.random() < 0.05:
            bill = amount + self.rng.randrange(CALL)
        call = Call(name, self.name, bill)
        reservation = await self.ledger.reserve(
            name,
            money=[Claim(EVER, "", amount), Claim(DAY, "", amount), Claim(MINE, name, amount)],
            slots=[Claim(SLOT, "", 1)],
            rates=[Claim(rate, "", 1) for rate in RATES],
        )
        fields: tuple[str, ...] = getattr(reservation, "fields")  # noqa: B009 - of RedisReservation
        if fields[2].rpartition("|")[2] not in {name, "o"}:
            raise Broken(f"{name} got the answer of {fields[2]}")
        call.reservation, call.fields, call.amount = reservation, fields, amount
        self.world.calls.append(call)
        self.world.admitted += 1
        return call

    async def _stream(self, call: Call) -> None:
        rng, loop, reservation = self.rng, self.world.loop, call.reservation
        assert reservation is not None
        await asyncio.sleep(rng.expovariate(2) if rng.random() < 0.95 else LEASE_SECONDS + 1)
        if rng.random() < 0.2:
            ending: tuple[State, int, int] = ("kept", 0, max(call.bill, call.amount))
        else:
            ending = ("settled", call.bill, 0)
        call.ending = ending
        began = loop.time()
        with suppress(LedgerUnavailable):
            await self.ledger.settle(reservation, state=ending[0], settled_nanousd=ending[1], kept_nanousd=ending[2])
        self.world.longest_decision = max(self.world.longest_decision, loop.time() - began)
        if rng.random() < 0.1:
            self.ledger.charge_late(reservation, charge_id=f"{call.id}-late", extra_nanousd=rng.randrange(1, CALL))
