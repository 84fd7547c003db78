"""Records on their way from a ledger to its journal.

They are written in the transaction that changes the counters, and deleted once the journal has them. Whoever dies in
between leaves them here, and the next process that looks hands them over again: a journal takes each of them once.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from routeguard.clock import Clock
from routeguard.ledgers.sqlite.counters import Counters, Debit
from routeguard.ledgers.sqlite.entries import Entry
from routeguard.policy import NANOSECONDS, State
from routeguard.records import Event, Note, Record, Sums, late_record, orphan_record, settled_record

#: A record this old belongs to nobody who is alive, or to a journal that does not answer.
LEFT_BEHIND_NS: Final = 2 * NANOSECONDS
#: Records of the dead handed over at a time.
HANDED_OVER_MAX: Final = 256

_COLUMNS: Final = "id, event, wall_ns, counters, ceiling, settled, kept, orphaned, overrun, note"


class Unwritten:
    """The records of one namespace that no journal has yet."""

    def __init__(self, namespace: int, counters: Counters, clock: Clock) -> None:
        #: This process has a journal. Without one it keeps nothing of its own for it.
        self.is_kept = False
        #: Somebody who shares the ledger has one.
        self._is_known = False
        self._namespace = namespace
        self._counters = counters
        self._clock = clock
        self._fresh: list[Record] = []

    def begin(self) -> None:
        """A transaction begins; what one before it added and took back is no record."""
        self._fresh = []

    def taken(self) -> list[Record]:
        """What this transaction has added, to be handed over once it is committed."""
        return self._fresh

    def begin_journal(self, name: str, *, known_as: str) -> bool:
        """Keep records for the journal of this name. Whether it is new to the ledger.

        Then it begins with what every counter holds, or the two would never add up.
        """
        self.is_kept, self._is_known = bool(name), bool(name or known_as)
        return self.is_kept and name not in known_as.splitlines()

    def opened(self, db: sqlite3.Connection, counter: str, sums: Sums, *, now_ns: int) -> None:
        """What a counter holds at the beginning of a journal."""
        parts = (sums.settled, sums.kept, sums.orphaned, sums.overrun)
        if any(parts):
            wall_ns = self._clock.wall_ns()
            record = Record(f"{wall_ns:016x}-{counter}", "opening", wall_ns, (counter,), 0, *parts)
            self.add(db, record, now_ns=now_ns)

    def ended(
        self, db: sqlite3.Connection, entry: Entry, *, state: State, charged: tuple[int, int], note: Note, now_ns: int
    ) -> None:
        """An entry has ended; `entry` is as it was before."""
        if self.is_kept:
            self.add(db, self.ending(db, entry, state=state, charged=charged, note=note), now_ns=now_ns)

    def ending(
        self, db: sqlite3.Connection, entry: Entry, *, state: State, charged: tuple[int, int], note: Note
    ) -> Record:
        """The record of an ending."""
        return settled_record(
            (entry.id, entry.amount_nanousd, self.names(db, entry.debits)),
            state=state,
            was_orphaned=entry.state == "orphaned",
            charged=charged,
            wall_ns=self._clock.wall_ns(),
            note=note,
        )

    def orphaned(self, db: sqlite3.Connection, entry: Entry, *, now_ns: int) -> None:
        """The lease of an entry has ended.

        Whoever looks finds it out: for an entry of somebody else, and perhaps, like `routeguard status`, without having
        been told of the journal that its owner wrote to.
        """
        if self._is_known:
            names = self.names(db, entry.debits)
            record = orphan_record((entry.id, entry.amount_nanousd, names), wall_ns=self._clock.wall_ns())
            self.add(db, record, now_ns=now_ns)

    def charged_late(
        self,
        db: sqlite3.Connection,
        charge_id: str,
        extra_nanousd: int,
        debits: Sequence[Debit],
        *,
        note: Note,
        now_ns: int,
    ) -> None:
        """A bill came after the ending."""
        if self.is_kept:
            names = self.names(db, debits)
            record = late_record(charge_id, extra_nanousd, names, wall_ns=self._clock.wall_ns(), note=note)
            self.add(db, record, now_ns=now_ns)

    def adjusted(self, db: sqlite3.Connection, record: Record, *, now_ns: int) -> None:
        """Something was changed by hand, perhaps by a process that was not told of the journal of the others."""
        if self._is_known:
            self.add(db, record, now_ns=now_ns)

    def names(self, db: sqlite3.Connection, debits: Sequence[Debit]) -> tuple[str, ...]:
        """What a journal calls the counters of these debits."""
        return tuple([self._counters.name_of(db, debit) for debit in debits])

    def add(self, db: sqlite3.Connection, record: Record, *, now_ns: int) -> None:
        """Keep a record until the journal has it."""
        db.execute(
            f"INSERT INTO unwritten (namespace, since_ns, {_COLUMNS}) "  # noqa: S608 - constants
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._namespace,
                now_ns,
                *record[:3],
                json.dumps(record.counters),
                *record[4:9],
                json.dumps(record.note),
            ),
        )
        self._fresh.append(record)

    def left_behind(self, db: sqlite3.Connection, *, now_ns: int) -> list[Record]:
        """Some of those that nobody has handed over in time."""
        if not self.is_kept:
            return []
        return self._read(db, before_ns=now_ns - LEFT_BEHIND_NS, most=HANDED_OVER_MAX)

    def all(self, db: sqlite3.Connection) -> list[Record]:
        """Everything that waits."""
        return self._read(db, before_ns=None, most=-1)

    def drop(self, db: sqlite3.Connection, records: Sequence[Record]) -> None:
        """The journal has these."""
        db.executemany(
            "DELETE FROM unwritten WHERE namespace = ? AND id = ? AND event = ?",
            [(self._namespace, record.id, record.event) for record in records],
        )

    def _read(self, db: sqlite3.Connection, *, before_ns: int | None, most: int) -> list[Record]:
        rows = db.execute(
            f"SELECT {_COLUMNS} FROM unwritten WHERE namespace = ?1 AND (?2 IS NULL OR since_ns <= ?2) LIMIT ?3",  # noqa: S608 - constants
            (self._namespace, before_ns, most),
        ).fetchall()
        return [_record(*row) for row in rows]


def _record(entry_id: str, event: Event, wall_ns: int, counters: str, *rest: int | str) -> Record:
    *amounts, note = rest
    ceiling, settled, kept, orphaned, overrun = map(int, amounts)
    names = tuple(json.loads(counters))
    return Record(
        entry_id, event, wall_ns, names, ceiling, settled, kept, orphaned, overrun, Note(*json.loads(str(note)))
    )
