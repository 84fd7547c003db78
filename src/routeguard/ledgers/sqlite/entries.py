"""The entries of one namespace: every reservation and late charge, with the counters it debited."""

import json
import sqlite3
from dataclasses import dataclass

from routeguard.ledgers.sqlite.counters import Debit
from routeguard.policy import State


@dataclass(frozen=True, slots=True)
class Entry:
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

    def find(self, db: sqlite3.Connection, entry_id: str) -> Entry | None:
        """The entry of an id; None where it is forgotten, or never was."""
        row = db.execute(
            "SELECT state, amount, debits, slots, lease_ends_ns FROM entries WHERE namespace = ? AND id = ?",
            (self._namespace, entry_id),
        ).fetchone()
        if row is None:
            return None
        state, amount_nanousd, debits, slots, lease_ends_ns = row
        return Entry(
            entry_id,
            state,
            amount_nanousd,
            tuple([Debit(*debit) for debit in json.loads(debits)]),
            tuple(json.loads(slots)),
            lease_ends_ns,
        )

    def write(self, db: sqlite3.Connection, entry: Entry, now_ns: int) -> None:
        """A new one, with its lease and its slots."""
        db.execute(
            "INSERT INTO entries (namespace, id, state, amount, debits, slots, lease_ends_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                self._namespace,
                entry.id,
                entry.state,
                entry.amount_nanousd,
                json_text(entry.debits),
                json_text(entry.slots),
                entry.lease_ends_ns,
            ),
        )
        if entry.lease_ends_ns is None:
            return
        db.execute(
            "INSERT INTO leases (namespace, ends_ns, entry, began_ns) VALUES (?, ?, ?, ?)",
            (self._namespace, entry.lease_ends_ns, entry.id, now_ns),
        )
        db.executemany(
            "INSERT INTO slots (namespace, partition, entry, ends_ns) VALUES (?, ?, ?, ?)",
            [(self._namespace, partition, entry.id, entry.lease_ends_ns) for partition in entry.slots],
        )

    def slots_in_use(self, db: sqlite3.Connection, partition: str, now_ns: int) -> int:
        """Of a partition, those whose lease runs."""
        # Of more leases than one transaction ends, those that are over hold nothing either.
        (number,) = db.execute(
            "SELECT count(*) FROM slots WHERE namespace = ? AND partition = ? AND ends_ns > ?",
            (self._namespace, partition, now_ns),
        ).fetchone()
        in_use: int = number
        return in_use

    def free(self, db: sqlite3.Connection, entry: Entry) -> None:
        """Give back the slots of an entry, if it holds any."""
        if entry.lease_ends_ns is None:
            return
        db.execute(
            "DELETE FROM leases WHERE namespace = ? AND ends_ns = ? AND entry = ?",
            (self._namespace, entry.lease_ends_ns, entry.id),
        )
        db.executemany(
            "DELETE FROM slots WHERE namespace = ? AND partition = ? AND entry = ?",
            [(self._namespace, partition, entry.id) for partition in entry.slots],
        )


def json_text(value: object) -> str:
    """Without a space nobody reads."""
    return json.dumps(value, separators=(",", ":"))
