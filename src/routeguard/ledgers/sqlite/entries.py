"""The entries of one namespace: every reservation and late charge, with the counters it debited."""

import json
import sqlite3
from collections import Counter
from typing import Final, NamedTuple

from routeguard.ledgers.sqlite.counters import Debit
from routeguard.policy import State

_COLUMNS: Final = "id, state, amount, debits, slots, lease_ends_ns"
_FREE_LAST: Final = "DELETE FROM slots WHERE namespace = ? AND partition = ? AND used = 1"
_FREE_ONE: Final = "UPDATE slots SET used = used - 1 WHERE namespace = ? AND partition = ?"
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Entry(NamedTuple):
    """A reservation as it is written."""

    id: str
    state: State
    amount_nanousd: int
    debits: tuple[Debit, ...]
    #: Partitions in which it holds a slot, and the end of its lease.
    slots: tuple[str, ...] = ()
    lease_ends_ns: int | None = None


class Entries:
    """Reads and writes them, within the caller's transaction."""

    def __init__(self, namespace: int) -> None:
        self._namespace = namespace
        self.begin()

    def begin(self) -> None:
        """A transaction begins, with no lease that is over."""
        #: Slots of entries whose lease was over by then, by partition.
        self._overdue: Counter[str] = Counter()
        self._overdue_until_ns = 0

    def find(self, db: sqlite3.Connection, entry_id: str) -> Entry | None:
        """The entry of an id; None where it is forgotten, or never was."""
        row = db.execute(
            f"SELECT {_COLUMNS} FROM entries WHERE namespace = ? AND id = ?",  # noqa: S608 - constants
            (self._namespace, entry_id),
        ).fetchone()
        return None if row is None else _entry(*row)

    def add(self, db: sqlite3.Connection, entry: Entry, now_ns: int) -> bool:
        """A new one, with its lease and its slots. False, with nothing written, where its id is known."""
        added = db.execute(
            "INSERT INTO entries (namespace, id, state, amount, debits, slots, began_ns, lease_ends_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                self._namespace,
                entry.id,
                entry.state,
                entry.amount_nanousd,
                json_text(entry.debits),
                json_text(entry.slots),
                now_ns,
                entry.lease_ends_ns,
            ),
        ).rowcount
        if added and entry.lease_ends_ns is not None:
            db.executemany(
                "INSERT INTO slots (namespace, partition, used) VALUES (?, ?, 1) "
                "ON CONFLICT DO UPDATE SET used = used + 1",
                [(self._namespace, partition) for partition in entry.slots],
            )
        return bool(added)

    def slots_in_use(self, db: sqlite3.Connection, partition: str) -> int:
        """Of a partition, those whose lease runs."""
        row = db.execute(
            "SELECT used FROM slots WHERE namespace = ? AND partition = ?", (self._namespace, partition)
        ).fetchone()
        return 0 if row is None else row[0] - self._overdue[partition]

    def leave_overdue(self, db: sqlite3.Connection, until_ns: int) -> None:
        """Leave leases that are over to a later transaction: their slots are not in use all the same."""
        self._overdue_until_ns = until_ns
        for entry in self.overdue(db, until_ns, most=-1):
            self._overdue.update(entry.slots)

    def overdue(self, db: sqlite3.Connection, until_ns: int, *, most: int) -> list[Entry]:
        """Entries whose lease has ended by then, at most so many."""
        rows = db.execute(
            f"SELECT {_COLUMNS} FROM entries WHERE namespace = ? AND lease_ends_ns <= ? LIMIT ?",  # noqa: S608 - constants
            (self._namespace, until_ns, most),
        ).fetchall()
        return [_entry(*row) for row in rows]

    def free(self, db: sqlite3.Connection, entry: Entry) -> None:
        """Give back the slots of an entry, if it holds any. Its lease ends with whatever the caller writes into it."""
        if entry.lease_ends_ns is None:
            return
        if entry.lease_ends_ns <= self._overdue_until_ns:
            self._overdue.subtract(entry.slots)
        for partition in entry.slots:
            where = (self._namespace, partition)
            # A client without a slot has no row; everybody has one for good.
            gone = db.execute(_FREE_LAST, where).rowcount if partition else 0
            if not gone:
                db.execute(_FREE_ONE, where)


def json_text(value: object) -> str:
    """Without a space nobody reads."""
    return _encode(value)


def _entry(
    entry_id: str, state: State, amount_nanousd: int, debits: str, slots: str, lease_ends_ns: int | None
) -> Entry:
    return Entry(
        entry_id,
        state,
        amount_nanousd,
        tuple([Debit(*debit) for debit in json.loads(debits)]),
        tuple(json.loads(slots)),
        lease_ends_ns,
    )
