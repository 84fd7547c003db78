"""Looking at a journal from outside, while it is being written or not."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from routeguard.journal.table import COLUMNS, SUMS, create_schema, read_sums
from routeguard.policy import LedgerUnavailable
from routeguard.records import Record, Sums
from routeguard.sqlite_file.file import connect, explained

#: Rows fetched at a time, so that an export of any length fits into memory.
ROWS_AT_ONCE: Final = 500
#: How long to wait for a lock that another program holds.
LOCK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a journal says of one ledger."""

    #: By the name of each counter.
    sums: dict[str, Sums]
    #: Of the records that wait in the ledger, those that are not here yet.
    missing: tuple[Record, ...]


class JournalReader:
    """One connection to a journal."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def begin(self) -> None:
        """Settle the moment that the next `standing` is of."""
        self._db.execute("BEGIN")
        # A transaction sees what there is when it first reads (https://www.sqlite.org/isolation.html).
        self._db.execute("SELECT version FROM journal_version").fetchone()

    def standing(self, namespace: str, ledger: str, unwritten: Sequence[Record]) -> Standing:
        """The sums of one ledger, and which of these records they lack, as of `begin`, or of now without it."""
        if not self._db.in_transaction:
            self.begin()
        try:
            missing = [record for record in unwritten if not self._has(namespace, record)]
            return Standing(read_sums(self._db, namespace, ledger), tuple(missing))
        finally:
            self._db.execute("ROLLBACK")

    def damaged(self, namespace: str, ledger: str) -> frozenset[str]:
        """Counters whose rows do not add up to the sums beside them. Reads every row of the ledger."""
        parts = ", ".join(f"sum({column})" for column in SUMS.split(", "))
        self.begin()
        try:
            rows = self._db.execute(
                f"SELECT value, {parts} FROM journal, json_each(counters) "  # noqa: S608 - constants
                "WHERE namespace = ? AND ledger = ? GROUP BY value",
                (namespace, ledger),
            )
            added_up = {counter: Sums(*added) for counter, *added in rows}
            kept = read_sums(self._db, namespace, ledger)
        finally:
            self._db.execute("ROLLBACK")
        nothing = Sums()
        return frozenset(
            counter for counter in {*kept, *added_up} if kept.get(counter, nothing) != added_up.get(counter, nothing)
        )

    def rows(self, namespace: str, *, since_ns: int) -> Iterator[dict[str, str | int | None]]:
        """Every row from a moment on, in the order in which they were written."""
        after = 0
        while True:
            found = self._db.execute(
                f"SELECT seq, {', '.join(COLUMNS)} FROM journal "  # noqa: S608 - constants
                "WHERE seq > ? AND namespace = ? AND at_ns >= ? ORDER BY seq LIMIT ?",
                (after, namespace, since_ns, ROWS_AT_ONCE),
            ).fetchall()
            if not found:
                return
            for row in found:
                yield dict(zip(COLUMNS, row[1:], strict=True))
            after = found[-1][0]

    def _has(self, namespace: str, record: Record) -> bool:
        found = self._db.execute(
            "SELECT 1 FROM journal WHERE namespace = ? AND id = ? AND event = ?", (namespace, record.id, record.event)
        )
        return found.fetchone() is not None


@contextmanager
def reading(path: str) -> Iterator[JournalReader]:
    """A journal that exists.

    Raises:
        LedgerUnavailable: There is none, or it cannot be read.
    """
    if not Path(path).exists():
        raise LedgerUnavailable(
            f"there is no journal at {os.path.abspath(path)}: the guard makes it with its first ending, and a relative "
            "path in JOURNAL is looked up in the working directory"
        )
    try:
        db = connect(path, "normal")
    except sqlite3.Error as error:
        raise explained(error, path) from error
    try:
        db.execute(f"PRAGMA busy_timeout = {int(LOCK_SECONDS * 1000)}")
        # Older than its first row, or the file of a ledger alone: then it is an empty journal.
        db.execute("BEGIN IMMEDIATE")
        create_schema(db)
        db.execute("COMMIT")
        yield JournalReader(db)
    except sqlite3.Error as error:
        raise explained(error, path) from error
    finally:
        db.close()
