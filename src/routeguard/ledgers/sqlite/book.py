"""What is done inside a transaction: reserve, settle, orphan, forget.

Rules that live here:

- A verdict reads and a debit writes; nothing is written for what is refused.
- An entry names the counters it debited, window included. Ending it looks at no calendar.
- Time is one clock for all processes of the host, counted from its start. When that clock is found behind what is
  written, the host was started again: the difference is added from then on (`offset_ns`), so that rates go on where
  they stood, late but never early, and every lease has ended, because nobody who held one is alive.
- What is over is forgotten a few rows at a time.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from routeguard.clock import Clock
from routeguard.ledgers.sqlite.counters import Counters, Debit, Parts, Share, verdict
from routeguard.ledgers.sqlite.rates import RateRows, forget_old_rates
from routeguard.ledgers.sqlite.schema import create_schema
from routeguard.policy import (
    ENDED,
    NANOSECONDS,
    Budget,
    Claim,
    Parallel,
    Rate,
    Refused,
    State,
)
from routeguard.sqlite_file.file import INTEGER_MAX

#: How long an ended entry is kept, so that whoever asks again finds that it has ended.
KEEP_ENDED_NS: Final = 120 * NANOSECONDS
#: Operations between two rounds of forgetting, and rows of each kind forgotten a round: more than are made.
FORGET_EVERY: Final = 16
FORGET_ROWS: Final = 4 * FORGET_EVERY
#: Leases ended in one transaction.
ORPHANS_MAX: Final = 256
#: A time this far ahead of the clock was written before the host was started again.
RESTART_SLACK_NS: Final = NANOSECONDS


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


@dataclass(frozen=True, slots=True)
class Debited:
    """The answer to a reservation: what was written, what stands in the way, and the counters before it."""

    #: None when it is refused; one that has ended must not pass for an open one.
    entry: Entry | None
    refused: Refused | None = None
    shares: tuple[Share, ...] = ()
    #: This question wrote the entry, and not an earlier one with the same id.
    is_new: bool = False


class SqliteBook:
    """One namespace of a file, within the transactions of the writer's thread."""

    def __init__(
        self, namespace: str, *, clock: Clock, clients_max: int, on_orphans: Callable[[Sequence[Entry]], None]
    ) -> None:
        """
        Args:
            namespace: Its name.
            clock: The clock that all processes share.
            clients_max: Most clients with money a window, and most with rates.
            on_orphans: Told, after the commit, of entries whose lease has ended.
        """
        self.client_salt = b""
        self._name = namespace
        self._clock = clock
        self._clients_max = clients_max
        self._on_orphans = on_orphans
        self._namespace = 0
        self._offset_ns = 0
        self._counters = Counters(0, clients_max=clients_max)
        self._since_forgetting = 0

    def attach(self, db: sqlite3.Connection) -> None:
        """Find the namespace in the file, or make it."""
        db.execute("BEGIN IMMEDIATE")
        create_schema(db)
        db.execute(
            "INSERT INTO namespaces (name, client_salt) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (self._name, os.urandom(32)),
        )
        self._namespace, self.client_salt, self._offset_ns = db.execute(
            "SELECT id, client_salt, offset_ns FROM namespaces WHERE name = ?", (self._name,)
        ).fetchone()
        self._counters = Counters(self._namespace, clients_max=self._clients_max)
        behind_ns = self._last_seen_ns(db) - self._now_ns()
        orphans: list[Entry] = []
        if behind_ns > RESTART_SLACK_NS:
            self._offset_ns += behind_ns
            db.execute("UPDATE namespaces SET offset_ns = ? WHERE id = ?", (self._offset_ns, self._namespace))
            orphans = self._orphan_leases(db, until_ns=INTEGER_MAX, leases_max=-1)
        db.execute("COMMIT")
        self._on_orphans(orphans)

    def tidy(self, db: sqlite3.Connection, operations: int) -> Callable[[], None] | None:
        """End the leases that are over, and now and then forget what nobody will ask for."""
        self._since_forgetting += operations
        rounds, self._since_forgetting = divmod(self._since_forgetting, FORGET_EVERY)
        if rounds:
            self._forget(db, rows_max=rounds * FORGET_ROWS)
        orphans = self._orphan_leases(db, until_ns=self._now_ns(), leases_max=ORPHANS_MAX)
        return (lambda: self._on_orphans(orphans)) if orphans else None

    def reserve(
        self,
        db: sqlite3.Connection,
        reservation_id: str,
        *,
        money: Sequence[Claim[Budget]],
        slots: Sequence[Claim[Parallel]],
        rates: Sequence[Claim[Rate]],
        force: bool,
    ) -> Debited:
        """Debit every claim, or none."""
        known = self._entry(db, reservation_id)
        if known is not None:
            return Debited(known)
        wall_seconds, now_ns = self._clock.wall_ns() // NANOSECONDS, self._now_ns()
        shares = tuple([self._counters.share(db, claim, wall_seconds) for claim in money])
        rate_rows = RateRows(db, self._namespace, rates) if rates else None
        full_rates, retry_ns = rate_rows.in_the_way(now_ns) if rate_rows is not None else ([], 0)
        full = [claim for claim in slots if self._is_full(db, claim, now_ns)]
        refused = verdict(shares, full, full_rates, retry_ns)
        if refused is not None and not force:
            return Debited(None, refused, shares)
        entry = Entry(
            reservation_id,
            "open",
            money[0].amount if money else 0,
            tuple([self._counters.debit(db, share) for share in shares]),
            tuple([claim.partition for claim in slots]),
            now_ns + max([claim.policy.lease_ns for claim in slots]) if slots else None,
        )
        self._write(db, entry, now_ns)
        if rate_rows is not None and not full_rates:
            rate_rows.take(now_ns, clients_max=self._clients_max)
        return Debited(entry, refused, shares, is_new=True)

    def settle(
        self, db: sqlite3.Connection, entry_id: str, *, state: State, settled_nanousd: int, kept_nanousd: int
    ) -> Entry | None:
        """End an entry in the counters it debited. Returns it as it was; None when it had ended before."""
        entry = self._entry(db, entry_id)
        if entry is None or entry.state in ENDED:
            return None
        self._counters.charge(
            db,
            entry.debits,
            amount_nanousd=entry.amount_nanousd,
            state=entry.state,
            settled_nanousd=settled_nanousd,
            kept_nanousd=kept_nanousd,
        )
        self._free(db, entry)
        db.execute(
            "UPDATE entries SET state = ?, settled = ?, kept = ?, lease_ends_ns = NULL, ended_ns = ? "
            "WHERE namespace = ? AND id = ?",
            (state, settled_nanousd, kept_nanousd, self._now_ns(), self._namespace, entry_id),
        )
        return entry

    def charge_late(
        self, db: sqlite3.Connection, charge_id: str, *, debits: Sequence[Debit], extra_nanousd: int
    ) -> list[tuple[Debit, Parts]]:
        """Charge a late bill, once. Returns where, and what that counter now adds up from."""
        if self._entry(db, charge_id) is not None:
            return []
        charged = self._counters.charge_late(db, debits, extra_nanousd)
        db.execute(
            "INSERT INTO entries (namespace, id, state, amount, settled, debits, slots, ended_ns) "
            "VALUES (?, ?, 'late', 0, ?, ?, '[]', ?)",
            (self._namespace, charge_id, extra_nanousd, _json([debit for debit, _ in charged]), self._now_ns()),
        )
        return charged

    def shares(self, db: sqlite3.Connection, budgets: Sequence[Budget]) -> list[Share]:
        """Where each of these budgets stands."""
        wall_seconds = self._clock.wall_ns() // NANOSECONDS
        return [self._counters.total(db, budget, wall_seconds) for budget in budgets]

    def in_flight(self, db: sqlite3.Connection) -> int:
        """Streams holding a slot."""
        return self._slots_in_use(db, "", self._now_ns())

    def paused(self, db: sqlite3.Connection, *, started_paused_ns: int | None) -> bool:
        """The kill switch, after turning it for a process that was told to start paused.

        Args:
            db: The connection.
            started_paused_ns: When this process was told so, on its own clock. Whoever turned the switch after that
                meant this process too.
        """
        paused, turned_ns = db.execute(
            "SELECT paused, turned_ns FROM namespaces WHERE id = ?", (self._namespace,)
        ).fetchone()
        if started_paused_ns is not None and turned_ns < started_paused_ns + self._offset_ns:
            self.set_paused(db, paused=True)
            return True
        return bool(paused)

    def set_paused(self, db: sqlite3.Connection, *, paused: bool) -> None:
        """Turn the kill switch."""
        db.execute(
            "UPDATE namespaces SET paused = ?, turned_ns = ? WHERE id = ?", (paused, self._now_ns(), self._namespace)
        )

    def _now_ns(self) -> int:
        return self._clock.monotonic_ns() + self._offset_ns

    def _last_seen_ns(self, db: sqlite3.Connection) -> int:
        """The latest moment that is written anywhere; 0 where nothing is that depends on time."""
        (last_ns,) = db.execute(
            "SELECT max(turned_ns, coalesce((SELECT max(began_ns) FROM leases WHERE namespace = id), 0), "
            "coalesce((SELECT max(touched_ns) FROM rates WHERE namespace = namespaces.id), 0), "
            "coalesce((SELECT max(ended_ns) FROM entries WHERE namespace = namespaces.id AND ended_ns IS NOT NULL), 0)"
            ") FROM namespaces WHERE id = ?",
            (self._namespace,),
        ).fetchone()
        found: int = last_ns
        return found

    def _is_full(self, db: sqlite3.Connection, claim: Claim[Parallel], now_ns: int) -> bool:
        quota = claim.policy.quota
        return quota is not None and self._slots_in_use(db, claim.partition, now_ns) + claim.amount > quota

    def _slots_in_use(self, db: sqlite3.Connection, partition: str, now_ns: int) -> int:
        # Of more leases than one transaction ends, those that are over hold nothing either.
        (number,) = db.execute(
            "SELECT count(*) FROM slots WHERE namespace = ? AND partition = ? AND ends_ns > ?",
            (self._namespace, partition, now_ns),
        ).fetchone()
        in_use: int = number
        return in_use

    def _entry(self, db: sqlite3.Connection, entry_id: str) -> Entry | None:
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

    def _write(self, db: sqlite3.Connection, entry: Entry, now_ns: int) -> None:
        db.execute(
            "INSERT INTO entries (namespace, id, state, amount, debits, slots, lease_ends_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                self._namespace,
                entry.id,
                entry.state,
                entry.amount_nanousd,
                _json(entry.debits),
                _json(entry.slots),
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

    def _free(self, db: sqlite3.Connection, entry: Entry) -> None:
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

    def _orphan_leases(self, db: sqlite3.Connection, *, until_ns: int, leases_max: int) -> list[Entry]:
        """Free the slots whose lease is over. The money of their owners stays: it is orphaned, not given back."""
        ended = db.execute(
            "SELECT entry FROM leases WHERE namespace = ? AND ends_ns <= ? LIMIT ?",
            (self._namespace, until_ns, leases_max),
        ).fetchall()
        orphans = []
        for (entry_id,) in ended:
            entry = self._entry(db, entry_id)
            assert entry is not None, "an entry is kept while its lease runs"
            self._counters.orphan(db, entry.debits, entry.amount_nanousd)
            self._free(db, entry)
            db.execute(
                "UPDATE entries SET state = 'orphaned', lease_ends_ns = NULL WHERE namespace = ? AND id = ?",
                (self._namespace, entry_id),
            )
            orphans.append(entry)
        return orphans

    def _forget(self, db: sqlite3.Connection, *, rows_max: int) -> None:
        now_ns = self._now_ns()
        db.execute(
            "DELETE FROM entries WHERE namespace = ?1 AND id IN (SELECT id FROM entries "
            "WHERE namespace = ?1 AND ended_ns IS NOT NULL AND ended_ns <= ?2 LIMIT ?3)",
            (self._namespace, now_ns - KEEP_ENDED_NS, rows_max),
        )
        forget_old_rates(db, self._namespace, now_ns, rows_max=rows_max)
        self._counters.forget_past_clients(db, rows_max=rows_max)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
