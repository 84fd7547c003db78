"""The line from one event loop to the store: one connection, and everything asked in one turn of the loop is one write.

Rules that live here:

- Answers come in the order of the questions, and one task reads them. A waiter that is cancelled leaves its answer to
  that task, and each answer says the number of its question, so no answer can reach the wrong waiter; after a timeout,
  an error or an answer to something else the connection is dropped with whatever was still to come.
- No timer gathers a batch. Endings and late bills go first in it, so that a reserve is decided by everything that was
  written before it was asked.
- A question without an answer is sent once more, with the same id, on a new connection. Then the circuit opens: every
  question is answered at once with `LedgerUnavailable`, and this task alone tries whether the store is back.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse, NoScriptError, ResponseError

from routeguard.ledgers.redis.debts import Debt, Debts
from routeguard.ledgers.redis.reply import Reply, read_reply
from routeguard.ledgers.redis.scripts import Script
from routeguard.ledgers.redis.session import FAILURES, Session, error_code, said_of, says_unavailable
from routeguard.policy import LedgerUnavailable

#: Questions on their way at once. At 60 µs each the store is busy with them for 15 ms.
FLYING_MAX = 256
#: Of one write, endings and late bills, so that a flood of them does not keep reserves waiting.
WRITES_MAX = 192
#: Questions that wait to be sent. At 10,000 a second (bench_redis) the last one waits 0.2 s.
QUEUE_MAX = 2048
#: Sends of one question, and tries to connect, before the circuit opens.
TRIES = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """How long anything may take, in seconds. Connect, ask, and each once more is 1.0 at the very most."""

    connect: float = 0.24
    exchange: float = 0.24
    #: Bound of a whole decision, whatever happens to the line.
    decision: float = 0.98
    #: Between two tries to reach a store that is away.
    probe: float = 0.5
    #: Between two looks at the kill switch and the epoch.
    look: float = 1.0
    #: Age of the last look above which a request waits for a new one.
    look_age_max: float = 1.5
    #: What every process gets to raise the counters of a store that lost them.
    grace: float = 3.0
    #: What `aclose` gives to pending writes.
    drain: float = 2.0


@dataclass(slots=True, eq=False)
class Request:
    """One question to the store."""

    script: Script
    #: Keys and arguments but for the epoch and the time; asked for at each send, since both may have changed.
    build: Callable[[], tuple[list[str], list[str]]]
    #: None when nobody waits.
    answer: asyncio.Future[Reply] | None
    #: What stays to be written when the store does not answer.
    debt: Debt | None = None
    #: The epoch it was last sent with.
    epoch: str = ""
    #: What its answer has to say. Something between us and the store may lose one answer of many.
    number: str = ""
    #: How often it was sent; it may have been executed as often.
    sends: int = 0
    #: When it was last sent, on the loop's clock.
    sent_at: float = 0.0
    #: The server does not know its script by name.
    by_text: bool = False

    @property
    def is_given_up(self) -> bool:
        """Nobody waits for it any more, and nothing has to be written."""
        return self.debt is None and self.answer is not None and self.answer.done()

    def fail(self, problem: str) -> None:
        """Whoever waits is told that nobody knows."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(LedgerUnavailable(problem))


@dataclass(slots=True)
class Desk:
    """The ledger behind a line: what the line asks it for."""

    connect: Callable[[], AbstractConnection]
    #: Runs on every new connection, before anything else.
    greet: Callable[[Session], Awaitable[None]]
    #: The first two arguments of every script: the epoch and the time.
    preamble: Callable[[], tuple[str, str]]
    #: Every answer, before its waiter gets it.
    hear: Callable[[Request, Reply], None]
    debts: Debts
    #: False keeps debts back for now.
    pays: Callable[[], bool]
    #: Errors by kind, for the log.
    report: Callable[[str, BaseException], None]


@dataclass(slots=True, eq=False)
class Line:
    """Made on the event loop it serves."""

    desk: Desk
    timing: Timing
    #: The circuit is open: nothing is asked.
    broken: bool = field(default=False, init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    #: Sent before, and to be sent again.
    _again: deque[Request] = field(default_factory=deque, init=False)
    _writes: deque[Request] = field(default_factory=deque, init=False)
    _questions: deque[Request] = field(default_factory=deque, init=False)
    #: Sent, in the order in which the answers come.
    _flying: deque[Request] = field(default_factory=deque, init=False)
    _session: Session | None = field(default=None, init=False)
    _reader: asyncio.Task[None] | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _sent: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _failures: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)
    _closing: bool = field(default=False, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def submit(self, request: Request) -> None:
        """Queue a question; it is on its way with the next batch. What cannot be asked now fails at once."""
        lane = self._questions if request.debt is None else self._writes
        if self.broken:
            self._fail(request, "the circuit is open")
        elif len(lane) >= QUEUE_MAX:
            self._fail(request, "too many questions are waiting")
        else:
            lane.append(request)
            self.wake()

    def wake(self) -> None:
        """There is something to do. Only on this line's loop."""
        if self._task is None or self._task.done():
            self._closing = False
            # Its own context: the request that happens to start it must not be seen by everything it does.
            self._task = self._loop.create_task(self._run(), context=contextvars.Context())
        self._wake.set()

    def wake_from_anywhere(self) -> None:
        """The same, from any thread; nothing happens when the loop is gone."""
        if self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return  # closed in between; its debts are for the next loop

    async def aclose(self) -> None:
        """Send what is queued, within the bound, and hang up."""
        task = self._task
        if task is None or task.done():
            return
        self._closing = True
        self._wake.set()
        if not self.broken or len(self.desk.debts):
            await asyncio.wait({task}, timeout=self.timing.drain)
        task.cancel()
        await asyncio.wait({task}, timeout=self.timing.drain)

    async def _run(self) -> None:
        try:
            while not self._is_finished():
                if self.broken:
                    await self._reach_again()
                    continue
                try:
                    await self._send_what_there_is()
                except FAILURES as failure:
                    await self._interrupted(failure)
        finally:
            self._fail_all("the line was closed")
            self.broken = False
            await self._hang_up()

    def _is_finished(self) -> bool:
        if not self._closing:
            return False
        return not (self._again or self._writes or self._questions or self._flying or len(self.desk.debts))

    async def _send_what_there_is(self) -> None:
        """One write, or one wait for something to write. Raises what the reader of the answers ran into."""
        if self._reader is not None and self._reader.done():
            self._reader.result()
        if self._session is None and self._has_something():
            await self._connect()
        session = self._session
        batch = self._take() if session is not None else []
        if session is None or not batch:
            self._wake.clear()
            if not self._is_finished():
                await self._wake.wait()
            return
        # From here on they are dealt with, whatever happens: answered, sent again, or failed.
        self._flying.extend(batch)
        # One moment for all of them: the reader then moves its time limit once a batch.
        sent_at = self._loop.time()
        commands = [self._command(session, request, sent_at) for request in batch]
        async with asyncio.timeout(self.timing.exchange):
            await session.send(commands)
        self._sent.set()

    def _has_something(self) -> bool:
        return bool(self._again or self._writes or self._questions or (self.desk.pays() and self.desk.debts.ready))

    def _take(self) -> list[Request]:
        room = FLYING_MAX - len(self._flying)
        batch: list[Request] = []
        while self._again and len(batch) < room:
            request = self._again.popleft()
            # Given up since: what it may have done is undone by its id.
            if not request.is_given_up:
                batch.append(request)
        writes = min(WRITES_MAX, room) - len(batch)
        if writes > 0 and self.desk.pays():
            batch += [Request(debt.script, _as_it_is(debt), None, debt) for debt in self.desk.debts.take(writes)]
        while self._writes and len(batch) < min(WRITES_MAX, room):
            batch.append(self._writes.popleft())
        while self._questions and len(batch) < room:
            request = self._questions.popleft()
            # Given up while it waited: it was never sent, so nothing has to be undone.
            if not request.is_given_up:
                batch.append(request)
        return batch

    async def _read(self, session: Session) -> None:
        """Hand out answers as they come, until one is late or says that the server does not work."""
        limited_at = 0.0
        async with asyncio.timeout(None) as limit:
            while True:
                if not self._flying:
                    limit.reschedule(None)
                    limited_at = 0.0
                    self._sent.clear()
                    self._wake.set()
                    await self._sent.wait()
                    continue
                request = self._flying[0]
                if request.sent_at != limited_at:
                    limited_at = request.sent_at
                    limit.reschedule(limited_at + self.timing.exchange)
                answer = await session.read()
                if isinstance(answer, ResponseError) and says_unavailable(answer):
                    raise answer
                reply = _reply_to(request, answer)
                self._flying.popleft()
                self._failures = 0
                if isinstance(answer, NoScriptError):
                    # The scripts were flushed, or the server is another one. It was not executed.
                    request.by_text = True
                    request.sends -= 1
                    self._again.append(request)
                    self._wake.set()
                else:
                    self._hand_out(request, reply)
                if len(self._flying) == FLYING_MAX // 2:
                    self._wake.set()

    async def _interrupted(self, failure: BaseException) -> None:
        """The connection is of no use any more: what was on its way goes again, or has failed."""
        await self._hang_up()
        self._failures += 1
        flying = list(self._flying)
        self._flying.clear()
        if self._failures >= TRIES or any(request.sends >= TRIES for request in flying):
            self.broken = True
            self.desk.report("exchange", failure)
            self._again.extendleft(reversed(flying))
            self._fail_all(f"the store does not answer ({said_of(failure)})")
        else:
            self._again.extendleft(reversed(flying))

    async def _connect(self) -> Session:
        session = Session(self.desk.connect())
        try:
            async with asyncio.timeout(self.timing.connect):
                await session.open()
                await self.desk.greet(session)
        except BaseException:
            await session.close()
            raise
        self._session = session
        self._sent.clear()
        self._reader = self._loop.create_task(self._read(session), context=contextvars.Context())
        self._reader.add_done_callback(self._reading_ended)
        return session

    def _reading_ended(self, reader: asyncio.Task[None]) -> None:
        self._wake.set()
        if not reader.cancelled():
            reader.exception()

    def _command(self, session: Session, request: Request, sent_at: float) -> list[str]:
        epoch, moment = self.desk.preamble()
        keys, arguments = request.build()
        request.epoch, request.sent_at = epoch, sent_at
        request.sends += 1
        self._asked += 1
        request.number = str(self._asked)
        source = request.script.source(allow_oom=session.allow_oom)
        # By its text where this connection has not sent it yet, so that a new server changes no order either.
        by_text = request.by_text or source.sha not in session.known
        session.known.add(source.sha)
        name = ["EVAL", source.text] if by_text else ["EVALSHA", source.sha]
        return [*name, str(len(keys)), *keys, epoch, moment, request.number, *arguments]

    def _hand_out(self, request: Request, reply: Reply | ResponseError) -> None:
        if isinstance(reply, ResponseError):
            self.desk.report(request.script.name, reply)
            self._fail(request, f"the store refused to run a script ({error_code(reply)})", refused=True)
            return
        self.desk.hear(request, reply)
        if request.answer is not None and not request.answer.done():
            request.answer.set_result(reply)

    def _fail(self, request: Request, problem: str, *, refused: bool = False) -> None:
        request.fail(problem)
        if request.debt is not None:
            self.desk.debts.postpone(request.debt, refused=refused)

    def _fail_all(self, problem: str) -> None:
        for lane in (self._flying, self._again, self._writes, self._questions):
            for request in lane:
                self._fail(request, problem)
            lane.clear()

    async def _reach_again(self) -> None:
        """The only one who asks while the circuit is open. Returns when the store answers, or nothing is owed to it."""
        while not self._is_finished():
            await asyncio.sleep(self.timing.probe)
            try:
                await self._connect()
            except FAILURES:
                continue
            self.broken, self._failures = False, 0
            self.desk.debts.wake()
            return

    async def _hang_up(self) -> None:
        reader, self._reader = self._reader, None
        session, self._session = self._session, None
        if reader is not None:
            reader.cancel()
        if session is not None:
            await session.close()


def _reply_to(request: Request, answer: object) -> Reply | ResponseError:
    """What was answered to this question. An error names no question: it only ever refuses."""
    if isinstance(answer, ResponseError):
        return answer
    assert isinstance(answer, list), "every script of ours answers with a list"
    reply = read_reply(answer)
    if reply.number != request.number:
        raise InvalidResponse(f"the answer to question {reply.number} came for question {request.number}")
    return reply


def _as_it_is(debt: Debt) -> Callable[[], tuple[list[str], list[str]]]:
    return lambda: (debt.keys, debt.arguments)
