"""The store as this process knows it: its epoch and switches, a line for each event loop, and what to do when it
has forgotten what it had acknowledged."""

import asyncio
import contextvars
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from routeguard.clock import Clock
from routeguard.ledgers.redis.debts import Debt, Debts
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.knowledge import Knowledge
from routeguard.ledgers.redis.line import Desk, Line, Request, Timing
from routeguard.ledgers.redis.reply import Reply, read_reply
from routeguard.ledgers.redis.restoring import RedisReservation, entries, pieces
from routeguard.ledgers.redis.scripts import DROP, LATE, LOOK, OPEN, RESTORE, SETTLE, Script
from routeguard.ledgers.redis.session import Session, error_code
from routeguard.ledgers.redis.store_clock import Calendar, StoreClock
from routeguard.ledgers.redis.written import HandOver, split_records
from routeguard.policy import Budget, LedgerUnavailable
from routeguard.telemetry import log_orphaned, logger

#: Version of the keys. A process of another version must not count in them.
SCHEMA = "1"
#: How much of what is due one look does: about 1 ms of the store's time.
DUE_PER_LOOK = 100
#: Times a question is asked again because a window turned, or the store's clock was set, while it was on its way.
ASKED_AGAIN_MAX = 2
#: Records of the dead that one look hands over.
HANDED_OVER_MAX = 256
#: Counters of everybody that each look reads again.
LOOKED_AT_MAX = 16
#: For less than an ended record is kept, the answer that there is none means that it was lost.
RECORD_KEPT_US = 300 * 1_000_000
#: Of the same trouble, the first and then each hundredth is logged.
TROUBLES_PER_LINE = 100

Build = Callable[[], tuple[list[str], list[str]]]

#: How long `refresh` kept this request waiting.
_refreshing_seconds: contextvars.ContextVar[float] = contextvars.ContextVar("refreshing_seconds", default=0.0)


@dataclass(slots=True)
class Ear:
    """A line, and the task that looks at the store once a second as long as the line's loop runs."""

    line: Line
    watch: asyncio.Task[None]


class Store:
    """Asks, hears and remembers. Everything but `debts` and `knowledge` is used on event loops only."""

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        *,
        keyspace: Keyspace,
        clients_max: int,
        timing: Timing,
        test_clock: Clock | None,
    ) -> None:
        self.keyspace = keyspace
        self.timing = timing
        self.clock = StoreClock(test_clock)
        self.calendar = Calendar()
        self.knowledge = Knowledge(clients_max=clients_max)
        self.debts = Debts()
        self.hand_over = HandOver(self._drop)
        #: What the journal is called; asked for once, beside the event loop, because the disk is asked.
        self._journal_name = ""
        #: Open reservations of this process, as long as somebody holds them.
        self.held: WeakValueDictionary[str, RedisReservation] = WeakValueDictionary()
        #: Those whose ending the store has not taken down yet, as long as it is owed.
        self.unwritten: WeakValueDictionary[str, RedisReservation] = WeakValueDictionary()
        self.paused = False
        self.salt = b""
        #: Which life of the store this process counts in; empty until it has answered.
        self.epoch = ""
        self._connect = connect
        self._recovering_until_us = 0
        #: On the clock of the loops, which is one for all of them.
        self._looked_at = -1e9
        self._looked_for: dict[tuple[str, str, bool], Budget] = {}
        self._ears: dict[asyncio.AbstractEventLoop, Ear] = {}
        self._looking: dict[asyncio.AbstractEventLoop, asyncio.Task[Reply]] = {}
        self._restoring: asyncio.Task[None] | None = None
        self._troubles: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def healthy(self) -> bool:
        """The last question was answered, and reservations are being made."""
        broken = any(ear.line.broken for ear in list(self._ears.values()))
        return bool(self.epoch) and not broken and self.clock.now_us() >= self._recovering_until_us

    @property
    def is_restoring(self) -> bool:
        """It was found to have forgotten, and is not raised yet."""
        return self._restoring is not None

    def request(self, script: Script, build: Build, *, debt: Debt | None = None) -> Request:
        """Queue a question; `wait` has its answer."""
        line = self._line()
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # Whoever asked may be gone by then; a failure is no news to anybody else.
        answer.add_done_callback(_take_note)
        request = Request(script, build, answer, debt)
        line.submit(request)
        return request

    def decided_by(self) -> float:
        """When whoever asks now must have an answer, on the loop's clock.

        What `refresh` kept a request waiting is taken off, once: both together are one decision.
        """
        waited = _refreshing_seconds.get()
        if waited:
            _refreshing_seconds.set(0.0)
        return asyncio.get_running_loop().time() + self.timing.decision - waited

    async def wait(self, request: Request, *, until: float | None = None) -> Reply:
        """The answer to a question. When this waiter is cancelled, nobody waits for it any more.

        Args:
            request: The question.
            until: When to give up waiting, on the loop's clock; by default a decision's time from now.

        Raises:
            LedgerUnavailable: There was none in time.
        """
        assert request.answer is not None, "somebody waits"
        loop = asyncio.get_running_loop()
        if until is None:
            until = loop.time() + self.timing.decision
        # A bare timer: `asyncio.timeout` and `shield` took a tenth of the time of a reserve.
        timer = loop.call_at(until, request.fail, "the store did not answer in time")
        try:
            return await request.answer
        finally:
            timer.cancel()
            # A cancelled task has done so already; whoever throws a cancel in otherwise has not.
            request.answer.cancel()

    def owe(self, debt: Debt) -> None:
        """Something to be written, by whichever loop runs. From any thread."""
        self.debts.add(debt)
        for ear in list(self._ears.values()):
            ear.line.wake_from_anywhere()

    def watch_for(self, budgets: Iterable[Budget]) -> None:
        """Have these accounts of everybody read with each look."""
        for budget in budgets:
            if not budget.per_client and len(self._looked_for) < LOOKED_AT_MAX:
                self._looked_for.setdefault(budget.counter, budget)

    async def refresh(self) -> None:
        """Look, where the last look is too old. One look at a time serves all who wait.

        Raises:
            LedgerUnavailable: The store never answered yet.
        """
        self._line()
        began = asyncio.get_running_loop().time()
        if began - self._looked_at < self.timing.look_age_max:
            return
        try:
            await self._look_together()
        except LedgerUnavailable:
            if not self.epoch:
                raise
        _refreshing_seconds.set(asyncio.get_running_loop().time() - began)

    async def look(self, budgets: Iterable[Budget]) -> Reply:
        """The switches, the streams, and where these budgets stand.

        Raises:
            LedgerUnavailable: Nobody knows.
        """
        chosen = tuple(budgets)

        def build() -> tuple[list[str], list[str]]:
            wall_seconds = self.clock.wall_seconds()
            journal = self.hand_over.journal
            left = HANDED_OVER_MAX if journal is not None and journal.is_idle else 0
            arguments = [str(DUE_PER_LOOK), str(left), str(len(chosen))]
            for budget in chosen:
                arguments += self.calendar.windows(budget, wall_seconds).arguments()
            return list(self.keyspace.common), arguments

        until = asyncio.get_running_loop().time() + self.timing.decision
        reply = await self.wait(self.request(LOOK, build), until=until)
        for _ in range(ASKED_AGAIN_MAX):
            if reply.status == "stale":
                reply = await self.wait(self.request(LOOK, build), until=until)
        if reply.status != "ok":
            raise LedgerUnavailable(f"the store has no answer ({reply.status})")
        self._read_switches(reply.first)
        self.hand_over.take(split_records(reply.second)[1:], salt=self.salt)
        self._looked_at = asyncio.get_running_loop().time()
        self.debts.wake()
        return reply

    async def aclose(self) -> None:
        """Write what is owed, within the bound, and close what this event loop opened."""
        loop = asyncio.get_running_loop()
        with self._lock:
            ear = self._ears.pop(loop, None)
        if self._restoring is not None and self._restoring.get_loop() is loop:
            self._restoring.cancel()
        if ear is not None:
            ear.watch.cancel()
            self.debts.wake()
            await ear.line.aclose()

    def _line(self) -> Line:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise LedgerUnavailable("the redis ledger needs asyncio") from None
        ear = self._ears.get(loop)
        if ear is None:
            desk = Desk(
                connect=self._connect,
                greet=self._greet,
                preamble=lambda: (self.epoch, self.clock.argument),
                hear=self._hear,
                debts=self.debts,
                pays=lambda: not self.is_restoring,
                report=self._report,
            )
            line = Line(desk, self.timing)
            ear = Ear(line, loop.create_task(self._watch(), context=contextvars.Context()))
            with self._lock:
                self._ears = {known: kept for known, kept in self._ears.items() if not known.is_closed()}
                self._ears[loop] = ear
        return ear.line

    async def _watch(self) -> None:
        """Once a second: another process may have turned the switch, and an idle process must notice a loss too."""
        while True:
            await asyncio.sleep(self.timing.look)
            try:
                await self._look_together()
            except LedgerUnavailable:
                continue

    async def _look_together(self) -> Reply:
        loop = asyncio.get_running_loop()
        looking = self._looking.get(loop)
        if looking is None or looking.done():
            coroutine = self.look(self._looked_for.values())
            looking = loop.create_task(coroutine, context=contextvars.Context())
            looking.add_done_callback(_take_note)
            self._looking = {loop: looking, **{known: kept for known, kept in self._looking.items() if not kept.done()}}
        # Whoever is cancelled leaves it to the others. Not with `shield`: from Python 3.14 on, a failure that nobody
        # waits for any more would then be in the log of the loop.
        await asyncio.wait([looking])
        return looking.result()

    async def _greet(self, session: Session) -> None:
        """Find or found the ledger, before this process asks its first question."""
        if self.epoch:
            return
        journal = self.hand_over.journal
        if journal is not None and not self._journal_name:
            self._journal_name = await asyncio.to_thread(lambda: journal.name)
        founding = [SCHEMA, os.urandom(8).hex(), os.urandom(32).hex()]
        arguments = ["", self.clock.argument, "", *founding, self._journal_name]
        text = OPEN.source(allow_oom=False).text
        keys = self.keyspace.common
        (answer,) = await session.exchange([("EVAL", text, str(len(keys)), *keys, *arguments)])
        if isinstance(answer, ResponseError):
            raise answer
        assert isinstance(answer, list), "every script of ours answers with a list"
        reply = read_reply(answer)
        switches, _, schema = reply.second.rpartition(" ")
        if schema != SCHEMA:
            raise ResponseError(
                f"SCHEMA the namespace was written by another version of routeguard (keys {schema}, not {SCHEMA}): "
                "set another NAMESPACE, or run one version"
            )
        self.clock.hear(now_us=reply.now_us, wall_seconds=reply.wall_seconds)
        self._read_switches(switches)
        self.epoch = reply.first
        self._looked_at = asyncio.get_running_loop().time()

    def _read_switches(self, switches: str) -> None:
        paused, until_us, salt = switches.split()
        self.paused = paused == "1"
        self._recovering_until_us = int(until_us)
        self.salt = bytes.fromhex(salt)

    def _hear(self, request: Request, reply: Reply) -> None:
        self.clock.hear(now_us=reply.now_us, wall_seconds=reply.wall_seconds)
        for orphan in reply.orphans:
            log_orphaned(orphan)
            if (held := self.held.get(orphan)) is not None:
                held.state = "orphaned"
        if reply.status == "lost":
            if request.debt is not None:
                self.debts.postpone(request.debt)
            # An answer to the epoch before the last is no news.
            if request.epoch == self.epoch:
                self._begin_restoring("its epoch is gone")
            return
        if reply.status == "recovering":
            self._recovering_until_us = int(reply.first)
        if not self.knowledge.learn(reply):
            self._begin_restoring("a counter fell")
        if request.debt is not None:
            self._hear_paid(request.debt, reply)

    def _drop(self, records: Sequence[str]) -> None:
        self.owe(Debt(DROP, list(self.keyspace.common), list(records)))

    def _hear_paid(self, debt: Debt, reply: Reply) -> None:
        if debt.script is SETTLE:
            ended = self.unwritten.pop(debt.arguments[0], None)
            if reply.status == "unknown" and ended is not None and reply.now_us - debt.owed_us < RECORD_KEPT_US:
                # It had acknowledged this reservation: a copy that was behind has taken its place.
                self._begin_restoring("a reservation is gone")
        if debt.script in {SETTLE, LATE} and reply.status == "ok":
            self.hand_over.take(split_records(reply.first), salt=self.salt)
        if debt.on_paid is not None:
            debt.on_paid()

    def _report(self, doing: str, problem: BaseException) -> None:
        # A server's own words may name a user or an address: only their first word is logged, and not each time.
        code = error_code(problem) if isinstance(problem, RedisError) else ""
        trouble = f"{doing}: {type(problem).__name__} {code}"
        seen = self._troubles[trouble]
        self._troubles[trouble] = seen + 1
        if seen % TROUBLES_PER_LINE == 0:
            logger.error("ledger_error: %s", trouble)

    def _begin_restoring(self, why: str) -> None:
        if self._restoring is not None:
            return
        logger.error("ledger_error: the store lost what it had acknowledged (%s); raising it to what is known", why)
        loop = asyncio.get_running_loop()
        self._restoring = loop.create_task(self._restore(self.epoch), context=contextvars.Context())

    async def _restore(self, lost_epoch: str) -> None:
        """Raise the store to what this process knows, as often as it takes."""
        try:
            while True:
                try:
                    await self._restore_once(lost_epoch)
                except LedgerUnavailable:
                    await asyncio.sleep(self.timing.probe)
                else:
                    return
        finally:
            self._restoring = None
            self.debts.wake()

    async def _restore_once(self, lost_epoch: str) -> None:
        journaled = await self.hand_over.sums(self.salt)
        held = [reservation for reservation in self.held.values() if reservation.state == "open"]
        held += self.unwritten.values()
        accounts, latest = entries(self.knowledge, journaled, held, self.calendar)
        epoch = os.urandom(8).hex()
        for keys, arguments in pieces(accounts, held, self.keyspace):
            is_first = self.epoch == lost_epoch
            first = ["1" if is_first else "0", epoch, self.salt.hex(), "1" if self.paused else "0", SCHEMA]
            head = [*first, str(round(self.timing.grace * 1_000_000)), str(latest)]
            head += [str(self.knowledge.adjusts), self._journal_name]
            reply = await self.wait(self.request(RESTORE, self._asked_now(keys, [*head, *arguments])))
            if reply.status != "ok":
                raise LedgerUnavailable(f"the store was not raised ({reply.status})")
            self.epoch, self._recovering_until_us = reply.first, int(reply.second)

    def _asked_now(self, keys: list[str], arguments: list[str]) -> Build:
        return lambda: (keys, [str(self.clock.now_us()), *arguments])


def _take_note(answer: "asyncio.Future[Reply]") -> None:
    if not answer.cancelled():
        answer.exception()
