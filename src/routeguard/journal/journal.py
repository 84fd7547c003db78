"""Takes the records of a ledger and writes each of them once, in order, a group at a time.

Rules that live here:

- `take` never blocks and never drops. A record stays queued until the file has it; then the ledger is told, which
  has kept it too until then.
- One group is being written at a time. It stays in front of the queue until it is committed, so that whatever becomes
  of the transaction, nothing is skipped and the order holds.
- A journal that does not answer does not stop what runs. From so many rows on nothing new is admitted (`is_full`).
"""

import atexit
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

import anyio

from routeguard.errors import ConfigError
from routeguard.journal.table import create_schema, insert, read_sums
from routeguard.ledgers import sqlite_file
from routeguard.policy import LedgerUnavailable
from routeguard.records import Record, Sums
from routeguard.sqlite_file.file import NotOurFile, Synchronous
from routeguard.sqlite_file.operation import Operation, wake_here
from routeguard.sqlite_file.writer import Writer, writer_of

#: Seconds for which records gather before they are written together: a commit and the two threads it wakes cost as
#: much as some requests do, so there are at most ten a second.
GROUP_SECONDS: Final = 0.1
#: Rows in one transaction.
GROUP_ROWS: Final = 256
#: Unwritten rows of this process beyond which nothing is admitted. What runs already still ends.
ROWS_MAX: Final = 10_000
#: Seconds after which a group that is not written makes the journal unhealthy.
SLOW_SECONDS: Final = 1.0
#: How long the start waits for an answer, and `aclose` for what is still to be written.
CHECK_SECONDS: Final = 0.9
CLOSE_SECONDS: Final = 2.0

Written = Callable[[Sequence[Record]], None]
#: Whom to tell, whose it is, and what it says.
Row = tuple[Written, str, Record]


class SqliteJournal:
    """The journal of one namespace, in one file. Building one opens nothing; see `records.Journal`."""

    def __init__(
        self,
        path: str,
        *,
        namespace: str,
        synchronous: Synchronous = "normal",
        group_seconds: float = GROUP_SECONDS,
        rows_max: int = ROWS_MAX,
    ) -> None:
        """
        Args:
            path: The file, made with the first record; on a local disk. A ledger may live in it too.
            namespace: Whose records these are.
            synchronous: `full` also survives a loss of power.
            group_seconds: How long records gather.
            rows_max: Unwritten rows at which the journal is full.
        """
        self._path = path
        self._synchronous: Synchronous = synchronous
        self._namespace = namespace
        self._group_seconds = group_seconds
        self._rows_max = rows_max
        self._book = JournalBook()
        self._rows: deque[Row] = deque()
        self._timer: threading.Timer | None = None
        self._writing: Operation[None] | None = None
        self._writing_since = 0.0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The file, however it is spelled; see `records.Journal`."""
        return os.path.realpath(self._path)

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be written."""
        return not self._rows

    @property
    def is_full(self) -> bool:
        """So much waits to be written that nothing new may be admitted."""
        return len(self._rows) >= self._rows_max

    @property
    def healthy(self) -> bool:
        """What was handed over is being written."""
        is_slow = self._writing is not None and time.monotonic() - self._writing_since > SLOW_SECONDS
        return not is_slow and not self.is_full

    async def check(self) -> tuple[str, ...]:
        """Open the file, and say what keeps it from being written, as warnings.

        Raises:
            ConfigError: What lies there can never be a journal.
        """
        operation = Operation(self._book, _nothing, seconds=CHECK_SECONDS)
        operation.expect()
        self._writer().submit(operation)
        try:
            await operation.wait(CHECK_SECONDS)
        except NotOurFile as problem:
            raise ConfigError([f"ROUTEGUARD_JOURNAL: {problem}"]) from problem
        except LedgerUnavailable as problem:
            return (f"ROUTEGUARD_JOURNAL: {problem}; its rows wait, and from {self._rows_max} on requests get 503",)
        return ()

    def take(self, records: Sequence[Record], *, ledger: str, written: Written) -> None:
        """Write these, each once; see `records.Journal`."""
        with self._lock:
            self._rows.extend([(written, ledger, record) for record in records])
            timer = self._new_timer()
        self._start(timer)

    async def sums(self, ledger: str) -> dict[str, Sums]:
        """What the rows of a ledger add up to; see `records.Journal`."""
        self._write_group()
        run = partial(read_sums, namespace=self._namespace, ledger=ledger)
        operation = Operation(self._book, run, seconds=CHECK_SECONDS)
        operation.expect()
        self._writer().submit(operation)
        return await operation.wait(CHECK_SECONDS)

    async def aclose(self) -> None:
        """Write what is queued, within 2 s, and close the file; the next record opens it again."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            while self._rows:
                self._write_group()
                flushed = Operation(self._book, _nothing, seconds=None)
                flushed.expect()
                self._writer().submit(flushed)
                with suppress(LedgerUnavailable):
                    await flushed.wait(CLOSE_SECONDS)
            writer = self._writer()
            if writer.is_open:
                closed = anyio.Event()
                writer.close(partial(wake_here(), closed.set))
                await closed.wait()

    def flush(self) -> None:
        """Begin to write what is queued, without waiting for more."""
        self._write_group()

    def forget(self) -> None:
        """After a fork: what is queued is the parent's to write."""
        self._lock = threading.Lock()
        self._rows = deque()
        self._timer = self._writing = None
        self._book = JournalBook()

    def _write_group(self) -> None:
        with self._lock:
            self._timer = None
            if self._is_writing() or not self._rows:
                return
            group = list(islice(self._rows, GROUP_ROWS))
            rows = [(ledger, record) for _, ledger, record in group]
            run = partial(insert, namespace=self._namespace, rows=rows)
            self._writing = Operation(self._book, run, seconds=None, then=partial(self._wrote, group))
            self._writing_since = time.monotonic()
            operation = self._writing
        self._writer().submit(operation)

    def _is_writing(self) -> bool:
        # One that failed for a reason of its own is begun again.
        return self._writing is not None and self._writing.error is None

    def _wrote(self, group: Sequence[Row], _: None) -> None:
        with self._lock:
            for _row in group:
                self._rows.popleft()
            self._writing = None
            is_behind = len(self._rows) >= GROUP_ROWS
            timer = None if is_behind or not self._rows else self._new_timer()
        if is_behind:
            self._write_group()
        self._start(timer)
        for written, rows in groupby(group, key=itemgetter(0)):
            written([record for _, _, record in rows])

    def _new_timer(self) -> threading.Timer | None:
        """What writes a group once it has gathered; None where something will already."""
        if self._timer is not None or self._is_writing():
            return None
        self._timer = threading.Timer(self._group_seconds, self._write_group)
        self._timer.daemon = True
        return self._timer

    def _start(self, timer: threading.Timer | None) -> None:
        if timer is None:
            return
        try:
            timer.start()
        except RuntimeError:  # the interpreter ends and starts no more threads
            self._write_group()

    def _writer(self) -> Writer:
        # Looked up each time: after a fork the child has another.
        return writer_of(self._path, self._synchronous)


class JournalBook:
    """What the writer's thread has to know of a journal."""

    def attach(self, db: sqlite3.Connection) -> None:
        """Make the tables where there are none."""
        db.execute("BEGIN IMMEDIATE")
        create_schema(db)
        db.execute("COMMIT")

    def tidy(self, db: sqlite3.Connection, operations: int) -> None:
        """A journal is never tidied."""


def _nothing(db: sqlite3.Connection) -> None:
    """To know that the file answers, and that whatever was asked before is done."""


_opened: dict[tuple[str, str], SqliteJournal] = {}
_opening = threading.Lock()


def open_journal(url: str, *, namespace: str) -> SqliteJournal:
    """The journal of a namespace, the same for every guard of this process; opens no file and no thread.

    Raises:
        ValueError: The URL is not that of a journal.
    """
    path, synchronous = sqlite_file(url)
    with _opening:
        journal = _opened.get((url, namespace))
        if journal is None:
            journal = _opened[url, namespace] = SqliteJournal(str(path), namespace=namespace, synchronous=synchronous)
        return journal


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.Lock()
    for journal in _opened.values():
        journal.forget()


def _at_exit() -> None:
    """What was not drained is written now; the writer, which was there first, waits for it."""
    for journal in _opened.values():
        journal.flush()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
