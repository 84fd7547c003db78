"""The one thread of a process that touches a file of ours.

Rules that live here:

- What waits is written together: one transaction for up to `BATCH_MAX` operations, one wake-up an event loop.
- An operation that says no has written nothing, and its neighbours are not disturbed. One that raises takes the
  transaction with it; the others are then written one by one.
- No event loop ever waits for a lock, the disk or this thread. What must be written stays queued until it is,
  whatever became of whoever asked; what only answers a question is given up at its deadline.
- A lock is asked for again and again after 0.1 to 0.6 ms. SQLite's own busy handler sleeps longer each time and so
  starves whoever waited longest: worst waits of 0.5 s against 4 ms, measured with four processes.
- SQLite must not be carried through a fork (https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_).
  The connection is closed before one, and each side opens its own.
"""

import atexit
import logging
import os
import queue
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from routeguard.policy import LedgerUnavailable
from routeguard.sqlite_file.checkpoint import Checkpoint
from routeguard.sqlite_file.file import Synchronous, connect, explained, is_about_the_file, is_locked
from routeguard.sqlite_file.operation import Book, Operation, wake_all
from routeguard.telemetry import FIELDS

logger = logging.getLogger("routeguard")

#: Operations in one transaction.
BATCH_MAX: Final = 256
#: Questions in the queue beyond which the next is refused at once. What must be written always finds a place: there
#: is one such operation an admission or late report, and nothing is admitted while the file does not answer.
QUEUE_MAX: Final = 4096
#: Seconds between two attempts to get the lock, at least and at most; ten times that once it has been held for long.
LOCK_RETRY_SECONDS: Final = (0.0001, 0.0006)
LONG_LOCK_SECONDS: Final = 0.1
#: Seconds until a file that cannot be used is tried again for what must be written.
FAULT_RETRY_SECONDS: Final = 0.25
#: Seconds for which the same complaint is not repeated in the log.
COMPLAINT_SECONDS: Final = 60
#: Seconds that the end of the process waits for what is still to be written.
EXIT_SECONDS: Final = 2.0

#: What became of an operation is known to it alone, so here its result may be anything.
AnyOperation = Operation[Any]


class Writer:
    """Opens the file when the first operation comes, and closes it when asked to; the next opens it again."""

    def __init__(self, path: str, synchronous: Synchronous) -> None:
        self._path = path
        self._synchronous: Synchronous = synchronous
        self._queue: queue.SimpleQueue[AnyOperation | Callable[[], object]] = queue.SimpleQueue()
        self._pending: deque[AnyOperation] = deque()
        #: Whom to tell that the file is closed.
        self._closing: list[Callable[[], object]] = []
        self._is_running = False
        self._starting = threading.Lock()
        #: Held while the connection is in use, so that a fork can wait for a moment at which it is not.
        self._in_use = threading.Lock()
        self._checkpoint = Checkpoint(path)
        self._db: sqlite3.Connection | None = None
        self._attached: set[Book] = set()
        #: Device and inode of the file that was opened.
        self._identity: tuple[int, int] | None = None
        self._locked_since: float | None = None
        self._is_broken = False
        self._complained: tuple[str, float] = ("", 0.0)

    def submit(self, operation: AnyOperation) -> None:
        """Queue an operation. Never blocks; from any thread."""
        if operation.deadline is not None and self._queue.qsize() >= QUEUE_MAX:
            operation.failed(LedgerUnavailable("too many questions are waiting for the file"))
            wake_all([operation])
            return
        self._queue.put(operation)
        self._start()

    def abandon(self, operation: AnyOperation) -> None:
        """Nobody will use the answer: it is not begun, or what it may have written is taken back."""
        operation.abandoned = True
        undo = operation.undo()
        if undo is not None:
            self.submit(undo)

    @property
    def is_open(self) -> bool:
        """The thread runs, and may hold the file open."""
        return self._is_running

    def close(self, then: Callable[[], object]) -> None:
        """Close the file once everything queued before is written, and call `then` from the thread."""
        self._queue.put(then)
        self._start()

    def hold(self) -> None:
        """Wait until nothing is being written, and close the file, until `let_go`."""
        self._checkpoint.hold()
        self._in_use.acquire()
        self._disconnect()

    def let_go(self) -> None:
        """Go on after `hold`."""
        self._in_use.release()
        self._checkpoint.let_go()

    def _start(self) -> None:
        # The thread clears `_is_running` before it looks at the queue a last time; here it is the other way round,
        # so that whatever was queued is seen by one of the two.
        if self._is_running:
            return
        with self._starting:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="routeguard-file", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._collect()
            self._give_up_expired()
            if self._pending:
                with self._in_use:
                    self._write([self._pending.popleft() for _ in range(min(BATCH_MAX, len(self._pending)))])
                self._rest()
            elif self._closing and self._stop():
                return

    def _collect(self) -> None:
        """Take what is queued; wait only where there is nothing to do."""
        with suppress(queue.Empty):
            if not self._pending and not self._closing:
                self._take(self._queue.get())
            elif self._is_broken and self._pending:
                self._take(self._queue.get(timeout=FAULT_RETRY_SECONDS))
            while len(self._pending) < BATCH_MAX:
                self._take(self._queue.get_nowait())

    def _take(self, queued: AnyOperation | Callable[[], object]) -> None:
        if isinstance(queued, Operation):
            self._pending.append(queued)
        else:
            self._closing.append(queued)

    def _give_up_expired(self) -> None:
        if self._locked_since is None and not self._is_broken:
            return
        now = time.monotonic()
        expired = {one for one in self._pending if one.deadline is not None and one.deadline < now}
        if not expired:
            return
        self._pending = deque(one for one in self._pending if one not in expired)
        text = f"the file {self._path} is locked by another process"
        self._fail(list(expired), LedgerUnavailable(text))

    def _write(self, batch: list[AnyOperation]) -> None:
        """Write a batch, or put back what has to wait. `batch` shrinks by what is done with."""
        try:
            db = self._connection()
            for book in {operation.book for operation in batch} - self._attached:
                book.attach(db)
                self._attached.add(book)
            try:
                self._transact(db, batch)
            except Exception as error:
                if isinstance(error, sqlite3.Error) and (is_locked(error) or is_about_the_file(error)):
                    raise
                _roll_back(db)
                self._write_one_by_one(db, batch)
        except sqlite3.Error as error:
            if self._db is not None:
                _roll_back(self._db)
            if is_locked(error):
                self._locked_since = self._locked_since or time.monotonic()
                self._pending.extendleft(reversed(batch))
            else:
                self._break(batch, explained(error, self._path))
        except LedgerUnavailable as problem:
            self._break(batch, problem)
        except Exception as problem:
            logger.exception("ledger_error: nobody foresaw this")
            text = f"the file {self._path} cannot be used: {type(problem).__name__}"
            self._break(batch, LedgerUnavailable(text))
        else:
            self._locked_since = None
            self._is_broken = False

    def _transact(self, db: sqlite3.Connection, batch: list[AnyOperation]) -> None:
        db.execute("BEGIN IMMEDIATE")
        afterwards = [book.tidy(db, number) for book, number in _by_book(batch)]
        for operation in batch:
            operation.taken = True
            if not operation.abandoned:
                operation.attempt(db)
        db.execute("COMMIT")
        done = list(batch)
        batch.clear()
        for then in (*afterwards, *[operation.committed for operation in done]):
            try:
                if then is not None:
                    then()
            except Exception:
                # The money is written; what failed is what this process remembers of it.
                logger.exception("ledger_error: after a commit")
        self._tell(done)

    def _write_one_by_one(self, db: sqlite3.Connection, batch: list[AnyOperation]) -> None:
        """Find the operation that fails, and write the others."""
        waiting = list(batch)
        for operation in waiting:
            alone = [operation]
            try:
                self._transact(db, alone)
            except Exception as error:
                if isinstance(error, sqlite3.Error) and (is_locked(error) or is_about_the_file(error)):
                    raise
                _roll_back(db)
                logger.exception("ledger_error: an operation failed and was taken back")
                operation.failed(error)
                self._tell([operation])
            batch.remove(operation)

    def _break(self, batch: Sequence[AnyOperation], problem: LedgerUnavailable) -> None:
        """The file cannot be used: answer every question with that, and keep what must be written."""
        self._disconnect()
        self._is_broken = True
        must = [operation for operation in batch if operation.deadline is None]
        self._pending.extendleft(reversed(must))
        self._fail([operation for operation in batch if operation.deadline is not None], problem)

    def _fail(self, operations: Sequence[AnyOperation], problem: LedgerUnavailable) -> None:
        complained, since = self._complained
        text, now = str(problem), time.monotonic()
        if complained != text or now - since > COMPLAINT_SECONDS:
            self._complained = (text, now)
            logger.error("ledger_error: %s", text, extra={**dict.fromkeys(FIELDS), "event": "ledger_error"})
        for operation in operations:
            # One each, because every one that is raised gathers a traceback of its own.
            operation.failed(type(problem)(text))
        self._tell(operations)

    def _tell(self, operations: Sequence[AnyOperation]) -> None:
        for lost in wake_all(operations):
            if lost.error is None:
                self.abandon(lost)

    def _rest(self) -> None:
        """Between two transactions: let the holder of the lock finish, or copy the log when it has grown."""
        if self._locked_since is None:
            if not self._is_broken:
                self._checkpoint.start_if_due()
            return
        seconds = random.uniform(*LOCK_RETRY_SECONDS)  # noqa: S311 - keeps processes apart, hides nothing
        time.sleep(seconds if time.monotonic() - self._locked_since < LONG_LOCK_SECONDS else 10 * seconds)

    def _connection(self) -> sqlite3.Connection:
        if self._identity is not None and _identity(self._path) != self._identity:
            # Whoever opens the path now counts in another file, and two ledgers would spend two budgets.
            raise LedgerUnavailable(
                f"the file {self._path} was removed or replaced while it was in use: restart every process that "
                "shares it, and they begin with the file that is there"
            )
        if self._db is None:
            # The working directory may change, and asking for it is not for an event loop.
            self._path = os.path.abspath(self._path)
            self._checkpoint.path = self._path
            self._db = connect(self._path, self._synchronous)
            self._identity = _identity(self._path)
        return self._db

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        self._attached.clear()
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _stop(self) -> bool:
        """Close the file and say so. False when something came in the meantime, and the thread goes on."""
        with self._in_use:
            self._disconnect()
            self._identity = None
        closing, self._closing = self._closing, []
        self._is_running = False
        is_over = True
        if not self._queue.empty():
            with self._starting:
                if not self._is_running:
                    self._is_running, is_over = True, False
        for then in closing:
            with suppress(RuntimeError):  # the event loop that asked is gone
                then()
        return is_over


def _by_book(batch: Sequence[AnyOperation]) -> list[tuple[Book, int]]:
    numbers: dict[Book, int] = {}
    for operation in batch:
        numbers[operation.book] = numbers.get(operation.book, 0) + 1
    return list(numbers.items())


def _roll_back(db: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


_writers: dict[tuple[str, Synchronous], Writer] = {}
_opening = threading.Lock()


def writer_of(path: str, synchronous: Synchronous) -> Writer:
    """The writer of this file in this process, the same for all that is kept in it; opens nothing."""
    writer = _writers.get((path, synchronous))
    if writer is None:
        with _opening:
            writer = _writers.setdefault((path, synchronous), Writer(path, synchronous))
    return writer


def _before_fork() -> None:
    for writer in _writers.values():
        writer.hold()


def _after_fork_in_parent() -> None:
    for writer in _writers.values():
        writer.let_go()


def _after_fork_in_child() -> None:
    global _opening
    # Another thread may have held it at the moment of the fork, and does not exist here.
    _opening = threading.Lock()
    _writers.clear()


def _at_exit() -> None:
    """What was not drained, because the server told nobody that it stops, is written now."""
    until = time.monotonic() + EXIT_SECONDS
    closed = []
    for writer in _writers.values():
        if writer.is_open:
            closed.append(threading.Event())
            writer.close(closed[-1].set)
    for event in closed:
        event.wait(max(0.0, until - time.monotonic()))


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
