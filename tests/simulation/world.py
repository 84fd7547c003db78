"""One run: workers with the real Redis ledger, and a network and a store that get into trouble."""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import LedgerUnavailable, Refused
from tests.simulation.broken import Broken
from tests.simulation.invariants import check, check_endings, check_leases
from tests.simulation.model_data import Data
from tests.simulation.model_store import OVERRUN, ModelStore
from tests.simulation.network import Network, Server
from tests.simulation.switch import SwitchAudit
from tests.simulation.virtual_loop import STARTS_AT, VirtualLoop
from tests.simulation.worker import Call, Worker

#: 2026-11-30T23:59:54Z
BEFORE_MIDNIGHT = 1_796_083_194.0
#: Of trouble, and of what it may take until everything owed is written.
TROUBLE_SECONDS, CALM_SECONDS = 10.0, 20.0

Loss = Literal["none", "emptied", "behind"]


@dataclass(frozen=True, slots=True)
class Place:
    """When it was taken: on the server's clock, and in the time that all share."""

    at_us: int
    at: float


@dataclass(slots=True)
class Audit:
    """What the store did, as seen from its door."""

    #: Amount and fields of each reservation it debited.
    debits: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    endings: dict[str, list[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    late: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    #: Reservations that took a place in each rate, and were not taken back; and those of them that the copy has.
    places: dict[str, Place] = field(default_factory=dict)
    copied: dict[str, Place] = field(default_factory=dict)
    #: Debited by field, since the copy was taken.
    tail: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class World:
    """Everything in one run, from its seed."""

    #: What its operator does.
    troubles: Sequence[str] = ("kill", "stop", "cut", "reset", "demote", "fill", "clock", "pause")

    def __init__(
        self, seed: int, *, ledger: type[RedisLedger] = RedisLedger, model: type[ModelStore] = ModelStore
    ) -> None:
        self.rng = random.Random(f"world {seed}")
        self.seed = seed
        self.loop = VirtualLoop(lambda make, host: self.network.connect(make, host))
        self.server = Server(self.loop, self._heard, model())
        self.server.starts_at = BEFORE_MIDNIGHT - STARTS_AT
        self.network = Network(self.loop, self.server, random.Random(f"network {seed}"))
        self.ledger_class = ledger
        self.workers: dict[str, Worker] = {}
        self.calls: list[Call] = []
        self.audit = Audit()
        self.copy: Data | None = None
        self.loss: Loss = self.rng.choices(("none", "emptied", "behind"), (7, 2, 1))[0]
        #: Seldom fewer than there are, so that some share the overflow client.
        self.clients_max = self.rng.choice((10_000, 10_000, 10_000, 5))
        self.has_lost = False
        self.known_loss: dict[str, int] = defaultdict(int)
        #: Charged when the store was emptied, who knew of it and has not raised it yet, and what others raised it to.
        self.charged_at_loss: dict[str, int] = {}
        self.to_raise: set[str] = set()
        self.raised_to: dict[str, int] = {}
        #: Reservations put back since, and what those of them that had ended before left over, by account.
        self.put_back: set[str] = set()
        self.ends_again: dict[str, int] = defaultdict(int)
        #: Of what was charged, what nobody alive had seen.
        self.unwitnessed: dict[str, int] = defaultdict(int)
        self.longest_decision = 0.0
        self.is_over = False
        self.admitted = 0
        self.unexpected: list[str] = []
        self.switch = SwitchAudit(self.unexpected)
        self.loop.set_exception_handler(self._ran_into)

    def run(self) -> None:
        """Raises `Broken`, naming the seed."""
        logger = logging.getLogger("routeguard")
        before, logger.disabled = logger.disabled, True
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._run())
        except Broken as broken:
            raise Broken(f"seed {self.seed} ({self.loss}): {broken}") from None
        finally:
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=1))
            logger.disabled = before
            self.loop.close()

    async def _run(self) -> None:
        rng, network = self.rng, self.network
        network.trouble = rng.choice((0.0, 0.02, 0.1, 0.3))
        network.delay = rng.choice(((0.0001, 0.002), (0.005, 0.06), (0.02, 0.2)))
        network.flushes = rng.choice((0.0, 0.05))
        for number in range(rng.randrange(1, 4)):
            self._start_worker(f"w{number}")
        checking = self.loop.create_task(self._check_again_and_again())
        ends = self.loop.time() + TROUBLE_SECONDS
        loses_at = self.loop.time() + rng.uniform(2, TROUBLE_SECONDS - 2)
        copied_at = loses_at - rng.uniform(0.05, 2.0)
        while self.loop.time() < ends:
            if self.loss == "behind" and self.copy is None and self.loop.time() >= copied_at:
                self.copy, self.audit.copied = self.server.model.copy(), dict(self.audit.places)
            if self.loss != "none" and not self.has_lost and self.loop.time() >= loses_at:
                self._lose()
            if rng.random() < 0.2:
                self.loop.create_task(self._trouble())
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            if checking.done():
                checking.result()
        await self._calm()
        checking.cancel()
        check(self)
        check_endings(self)
        await check_leases(self)

    async def _trouble(self) -> None:
        rng, server, network = self.rng, self.server, self.network
        kind = rng.choice(self.troubles)
        worker = rng.choice(list(self.workers))
        if kind == "kill":
            self._kill(worker)
            await asyncio.sleep(rng.uniform(0, 1))
            if not self.is_over:
                self._start_worker(f"{worker}x")
        elif kind == "stop" and not server.is_stopped:
            server.is_stopped = True
            await asyncio.sleep(rng.uniform(0.1, 3))
            server.resume(rng)
        elif kind == "cut":
            network.cut_off.add(worker)
            network.sever(worker)
            await asyncio.sleep(rng.uniform(0.1, 3))
            network.cut_off.discard(worker)
        elif kind == "reset":
            network.reset()
        elif kind == "demote":
            server.is_replica = True
            await asyncio.sleep(rng.uniform(0.1, 2))
            server.is_replica = False
        elif kind == "fill":
            server.is_full = True
            await asyncio.sleep(rng.uniform(0.1, 2))
            server.is_full = False
        elif kind == "clock" and not server.jumped:
            server.jumped = rng.choice((-86_400.0, -30.0, 30.0, 86_400.0))
        elif kind == "pause":
            await self.workers[worker].turn_switch()

    def _start_worker(self, name: str) -> None:
        self.workers[name] = Worker(self, name)

    def _kill(self, name: str) -> None:
        worker = self.workers.pop(name, None)
        if worker is None:
            return
        self.network.dead.add(name)
        self.network.sever(name)
        worker.stop()
        self.to_raise.discard(name)
        self._count_unwitnessed()
        if not self.workers:
            self._start_worker(f"{name}y")

    def _lose(self) -> None:
        """FLUSHALL, or a copy that was behind takes over."""
        self.has_lost = True
        data = self.server.model.data
        self.server.scripts.clear()
        self.network.reset()
        if self.loss == "emptied":
            self.charged_at_loss = {name: sum(parts[:OVERRUN]) for name, parts in data.accounts.items()}
            self.to_raise = {name for name, worker in self.workers.items() if worker.ledger._store.epoch}
            self._count_unwitnessed()
            self.server.model.empty()
            self.audit.places.clear()
        else:
            assert self.copy is not None
            for name, debited in self.audit.tail.items():
                self.known_loss[name] += debited
            self.server.model.data, self.audit.places = self.copy, self.audit.copied
        self._note_switch(None)

    def _count_unwitnessed(self) -> None:
        """What the store held when it was emptied, and nobody has raised or could still raise it to.

        Whoever came to know the ledger after that has seen none of it, whatever it knows of what came since.
        """
        seen = dict(self.raised_to)
        for name in self.to_raise:
            for field_name, nanousd in self._seen_by(name):
                seen[field_name] = max(seen.get(field_name, 0), nanousd)
        for name, charged in self.charged_at_loss.items():
            left = seen.get(name, 0) - self.ends_again[name]
            self.unwitnessed[name] = max(self.unwitnessed[name], charged - left)

    def _seen_by(self, worker: str) -> list[tuple[str, int]]:
        """Of clients it need only know the latest; of everybody, all it was ever told."""
        highest = self.workers[worker].ledger._store.knowledge.highest()
        known = [(f"{counter}|{start}|{kind}", known.highest_nanousd) for counter, start, kind, known in highest]
        return [*known, *self.workers[worker].told.items()]

    def lost(self, name: str) -> int:
        """What the counter may be short of: what nobody alive had seen, and what a loss has swallowed since."""
        return self.known_loss[name] + self.unwitnessed[name]

    async def _calm(self) -> None:
        network, server = self.network, self.server
        self.is_over = True
        network.trouble, network.flushes, network.delay = 0.0, 0.0, (0.0001, 0.002)
        # Whatever is under way ends by itself within three seconds, and what a dead worker sent arrives within seven.
        await asyncio.sleep(7.0)
        network.cut_off.clear()
        server.is_replica = server.is_full = server.is_stopped = False
        until = self.loop.time() + CALM_SECONDS
        while any(worker.is_busy for worker in self.workers.values()):
            if self.loop.time() > until:
                raise Broken("what is owed to the store is never written")
            await asyncio.sleep(0.5)
        for worker in self.workers.values():
            await worker.ledger.in_flight()

    def _heard(self, worker: str, script: str, arguments: list[str], answer: list[str]) -> None:
        audit, status = self.audit, answer[0]
        if script == "reserve" and status == "ok":
            name, amount = arguments[3], int(arguments[6])
            fields = answer[8::3]
            if name in audit.debits and self.loss == "none":
                raise Broken(f"{name} was debited twice")
            audit.debits[name] = (amount, fields)
            audit.places[name] = Place(int(answer[2]), self.loop.time())
            self._note_debit(amount, fields)
        elif script == "settle" and status == "ok":
            audit.endings[arguments[3]].append((arguments[4], int(arguments[5]), int(arguments[6])))
            if arguments[4] == "released":
                # Workers release nothing else but what nobody was admitted by.
                audit.places.pop(arguments[3], None)
        elif script == "late" and status == "ok":
            audit.late[arguments[3]] = (int(arguments[4]), answer[8::3])
            self._note_debit(int(arguments[4]), answer[8::3])
        elif script == "restore" and status == "ok":
            self._note_restored(worker, arguments[13:])
        self._note_switch(worker if script == "pause" and not (self.has_lost and self.loss == "behind") else None)

    def _note_restored(self, worker: str, arguments: Sequence[str]) -> None:
        self.to_raise.discard(worker)
        if worker in self.workers:
            for name, seen in self.workers[worker].told.items():
                self.raised_to[name] = max(self.raised_to.get(name, 0), seen)
        given = iter(arguments)
        for _ in range(int(next(given))):
            name, _, _, _, highest, _ = islice(given, 6)
            self.raised_to[name] = max(self.raised_to.get(name, 0), int(highest))
        for _ in range(int(next(given))):
            name, _, _, _, _, fields = islice(given, 6)
            self._note_put_back(name, list(islice(given, int(fields))))
        self._count_unwitnessed()

    def _note_put_back(self, name: str, fields: Sequence[str]) -> None:
        """Put back as open although it had ended: it ends once more, and what was seen shrinks by what it left over."""
        if name in self.put_back:
            return
        self.put_back.add(name)
        amount = self.audit.debits[name][0]
        for _, settled, kept in self.audit.endings[name]:
            for field_name in fields:
                self.ends_again[field_name] += max(0, amount - settled - kept)

    def _note_switch(self, worker: str | None) -> None:
        stands = self.server.model.data.meta.get("paused") == "1"
        self.switch.store(paused=stands, at=self.loop.time(), worker=worker)

    def _note_debit(self, amount: int, fields: list[str]) -> None:
        for name in fields:
            if self.copy is not None and not self.has_lost:
                self.audit.tail[name] += amount
            if self.to_raise:
                self.known_loss[name] += amount

    async def _check_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            check(self)

    def _ran_into(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        # Nobody is left to hear what a killed worker's requests ended with.
        if not isinstance(context.get("exception"), LedgerUnavailable | Refused):
            self.unexpected.append(repr(context))


def play(seed: int) -> World:
    """One run. Raises `Broken`, naming the seed."""
    world = World(seed)
    world.run()
    return world
