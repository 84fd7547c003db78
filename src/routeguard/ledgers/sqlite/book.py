"""What is done inside a transaction: reserve, settle, orphan, forget.

Rules that live here:

- A verdict reads and a debit writes; nothing is written for what is refused.
- An entry names the counters it debited, window included. Ending it looks at no calendar.
- Time is one clock for all processes of the host, counted from its start. When that clock is found behind what is
  written, the host was started again: the difference is added from then on (`offset_ns`), so that rates go on where
  they stood, late but never early, and every lease has ended, because nobody who held one is alive.
- What is over is forgotten a few rows at a time.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from routeguard.auditing import Adjustment, AdjustmentRefused, Statement
from routeguard.clock import Clock
from routeguard.ledgers.sqlite.audit import Audit, read_statement
from routeguard.ledgers.sqlite.counters import Counters, Debit, Parts, Share, verdict
from routeguard.ledgers.sqlite.entries import Entries, Entry, json_text
from routeguard.ledgers.sqlite.rates import RateRows, forget_old_rates
from routeguard.ledgers.sqlite.schema import create_schema
from routeguard.ledgers.sqlite.unwritten import Unwritten
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
from routeguard.records import NO_NOTE, Note, Record, ledger_name
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

_TABLES: Final = ("budgets", "entries", "slots", "rates", "unwritten", "adjustments", "firsts")


class Debited(NamedTuple):
    """The answer to a reservation: what was written, what stands in the way, and the counters before it."""

    #: None when it is refused; one that has ended must not pass for an open one.
    entry: Entry | None
    refused: Refused | None = None
    shares: tuple[Share, ...] = ()
    #: This question wrote the entry, and not an earlier one with the same id.
    is_new: bool = False
    #: When it took its places in the rates; None where it took none.
    claimed_ns: int | None = None


class SqliteBook:
    """One namespace of a file, within the transactions of the writer's thread.

    What it knows from the file it has once `attach` has run, which is before anything else.
    """

    client_salt: bytes
    #: What a journal calls this ledger.
    name: str
    unwritten: Unwritten
    audit: Audit
    _namespace: int
    _offset_ns: int
    _entries: Entries
    _counters: Counters

    def __init__(
        self,
        namespace: str,
        *,
        clock: Clock,
        clients_max: int,
        on_orphans: Callable[[Sequence[Entry]], None],
        on_records: Callable[[Sequence[Record]], None],
    ) -> None:
        """
        Args:
            namespace: Its name.
            clock: The clock that all processes share.
            clients_max: Most clients with money a window, and most with rates.
            on_orphans: Told, after the commit, of entries whose lease has ended.
            on_records: Told, after the commit, what the journal has to know.
        """
        #: Asked, where it may take a moment, what the journal is called; "" without one.
        self.journal_name: Callable[[], str] = str
        self._name = namespace
        self._clock = clock
        self._clients_max = clients_max
        self._on_orphans = on_orphans
        self._on_records = on_records
        self._since_forgetting = 0

    def attach(self, db: sqlite3.Connection) -> None:
        """Find the namespace in the file, or make it."""
        db.execute("BEGIN IMMEDIATE")
        create_schema(db)
        db.execute(
            "INSERT INTO namespaces (name, client_salt) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (self._name, os.urandom(32)),
        )
        self._namespace, self.client_salt, self._offset_ns, journal_name = db.execute(
            "SELECT id, client_salt, offset_ns, journal FROM namespaces WHERE name = ?", (self._name,)
        ).fetchone()
        self._entries = Entries(self._namespace)
        self.name = ledger_name(self.client_salt)
        self._counters = Counters(self._namespace, clients_max=self._clients_max)
        self.unwritten = Unwritten(self._namespace, self._counters, self._clock)
        self.audit = Audit(self._namespace, self._counters, self.unwritten)
        name = self.journal_name()
        if self.unwritten.begin_journal(name, known_as=journal_name):
            for counter, sums in self.audit.counted(db).items():
                self.unwritten.opened(db, counter, sums, now_ns=self._now_ns())
            db.execute("UPDATE namespaces SET journal = journal || ? || char(10) WHERE id = ?", (name, self._namespace))
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
        self._entries.begin()
        self._counters.begin()
        self.unwritten.begin()
        self._since_forgetting += operations
        rounds, self._since_forgetting = divmod(self._since_forgetting, FORGET_EVERY)
        if rounds:
            self._forget(db, rows_max=rounds * FORGET_ROWS)
        now_ns = self._now_ns()
        orphans = self._orphan_leases(db, until_ns=now_ns, leases_max=ORPHANS_MAX)
        if len(orphans) == ORPHANS_MAX:
            self._entries.leave_overdue(db, now_ns)
        return partial(self._after_commit, orphans) if orphans or self.unwritten.is_kept else None

    def _after_commit(self, orphans: Sequence[Entry]) -> None:
        if orphans:
            self._on_orphans(orphans)
        records = self.unwritten.taken()
        if records:
            self._on_records(records)

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
        wall_seconds, now_ns = self._clock.wall_ns() // NANOSECONDS, self._now_ns()
        shares = tuple([self._counters.share(db, claim, wall_seconds) for claim in money])
        rate_rows = RateRows(db, self._namespace, rates) if rates else None
        full_rates, retry_ns = rate_rows.in_the_way(now_ns) if rate_rows is not None else ([], 0)
        full = [claim for claim in slots if self._is_full(db, claim)]
        refused = verdict(shares, full, full_rates, retry_ns)
        if refused is not None and not force:
            known = self._entries.find(db, reservation_id)
            return Debited(None, refused, shares) if known is None else Debited(known)
        entry = Entry(
            reservation_id,
            "open",
            money[0].amount if money else 0,
            tuple([self._counters.place(db, share) for share in shares]),
            tuple([claim.partition for claim in slots]),
            now_ns + max([claim.policy.lease_ns for claim in slots]) if slots else None,
        )
        if not self._entries.add(db, entry, now_ns):
            return Debited(self._entries.find(db, reservation_id))
        for share, debit in zip(shares, entry.debits, strict=True):
            self._counters.debit(db, share, debit)
        if rate_rows is None or full_rates:
            return Debited(entry, refused, shares, is_new=True)
        rate_rows.take(now_ns, clients_max=self._clients_max)
        return Debited(entry, refused, shares, is_new=True, claimed_ns=now_ns)

    def take_back(
        self, db: sqlite3.Connection, debited: Debited | None, *, entry_id: str, rates: Sequence[Claim[Rate]]
    ) -> None:
        """Release a reservation that nobody was admitted by, with its places in the rates, if there is one."""
        if debited is None or not debited.is_new:
            return
        released = self.settle(db, entry_id, state="released", settled_nanousd=0, kept_nanousd=0)
        if released is not None and debited.claimed_ns is not None:
            RateRows(db, self._namespace, rates).give_back(debited.claimed_ns, self._now_ns())

    def settle(
        self,
        db: sqlite3.Connection,
        entry_id: str,
        *,
        state: State,
        settled_nanousd: int,
        kept_nanousd: int,
        note: Note = NO_NOTE,
    ) -> Entry | None:
        """End an entry in the counters it debited. Returns it as it was; None when it had ended before."""
        entry = self._entries.find(db, entry_id)
        if entry is None or entry.state in ENDED:
            return None
        self._end(db, entry, state, settled_nanousd=settled_nanousd, kept_nanousd=kept_nanousd)
        charged = (settled_nanousd, kept_nanousd)
        self.unwritten.ended(db, entry, state=state, charged=charged, note=note, now_ns=self._now_ns())
        return entry

    def charge_late(
        self,
        db: sqlite3.Connection,
        charge_id: str,
        *,
        debits: Sequence[Debit],
        extra_nanousd: int,
        note: Note = NO_NOTE,
    ) -> list[tuple[Debit, Parts]]:
        """Charge a late bill, once. Returns where, and what that counter now adds up from."""
        if self._entries.find(db, charge_id) is not None:
            return []
        charged = self._counters.charge_late(db, debits, extra_nanousd)
        db.execute(
            "INSERT INTO entries (namespace, id, state, amount, settled, debits, slots, ended_ns) "
            "VALUES (?, ?, 'late', 0, ?, ?, '[]', ?)",
            (self._namespace, charge_id, extra_nanousd, json_text([debit for debit, _ in charged]), self._now_ns()),
        )
        debited = [debit for debit, _ in charged]
        self.unwritten.charged_late(db, charge_id, extra_nanousd, debited, note=note, now_ns=self._now_ns())
        return charged

    def left_behind(self, db: sqlite3.Connection) -> list[Record]:
        """Records that a process which is no more has not handed over."""
        return self.unwritten.left_behind(db, now_ns=self._now_ns())

    def adjust(self, db: sqlite3.Connection, adjustment: Adjustment) -> Record | AdjustmentRefused:
        """Change what is charged by hand, once. A refusal is an answer: nothing is to be taken back for it."""
        try:
            return self._adjust(db, adjustment)
        except AdjustmentRefused as refusal:
            return refusal

    def _adjust(self, db: sqlite3.Connection, adjustment: Adjustment) -> Record:
        wall_ns, now_ns = self._clock.wall_ns(), self._now_ns()
        if adjustment.budget is not None:
            return self.audit.adjust(db, adjustment, wall_ns=wall_ns, now_ns=now_ns)
        entry = self._entries.find(db, adjustment.id)
        if entry is None or entry.state != "orphaned":
            state = "not known any more" if entry is None else entry.state
            raise AdjustmentRefused(f"the reservation is {state}, and only what is orphaned can be ended by hand")
        record = self.unwritten.ending(
            db,
            entry,
            state="settled",
            charged=(adjustment.nanousd, 0),
            note=Note(why="adjusted", reason=adjustment.reason),
        )._replace(event="adjust")
        self._end(db, entry, "settled", settled_nanousd=adjustment.nanousd, kept_nanousd=0)
        self.audit.note_ending(db, record)
        self.unwritten.adjusted(db, record, now_ns=now_ns)
        return record

    def statement(self, path: str) -> Statement:
        """Where everything stands, read beside the writer's thread."""
        return read_statement(path, self._namespace, name=self.name, clock=self._clock)

    def shares(self, db: sqlite3.Connection, budgets: Sequence[Budget]) -> list[Share]:
        """Where each of these budgets stands."""
        wall_seconds = self._clock.wall_ns() // NANOSECONDS
        return [self._counters.total(db, budget, wall_seconds) for budget in budgets]

    def in_flight(self, db: sqlite3.Connection) -> int:
        """Streams holding a slot."""
        return self._entries.slots_in_use(db, "")

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

    def first(self, db: sqlite3.Connection, name: str, *, by: str, until: int | None) -> bool:
        """Whether `by` is the first to ask for `name`."""
        wall_seconds = self._clock.wall_ns() // NANOSECONDS
        db.execute("DELETE FROM firsts WHERE namespace = ? AND ends <= ?", (self._namespace, wall_seconds))
        db.execute(
            "INSERT INTO firsts (namespace, name, asker, ends) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (self._namespace, name, by, until),
        )
        (asker,) = db.execute(
            "SELECT asker FROM firsts WHERE namespace = ? AND name = ?", (self._namespace, name)
        ).fetchone()
        was_first: bool = asker == by
        return was_first

    def forget(self, db: sqlite3.Connection) -> None:
        """Remove every row of this namespace."""
        db.execute(
            "DELETE FROM counters WHERE budget IN (SELECT id FROM budgets WHERE namespace = ?)", (self._namespace,)
        )
        for table in _TABLES:
            db.execute(f"DELETE FROM {table} WHERE namespace = ?", (self._namespace,))  # noqa: S608 - our own names
        db.execute("DELETE FROM namespaces WHERE id = ?", (self._namespace,))

    def _end(
        self, db: sqlite3.Connection, entry: Entry, state: State, *, settled_nanousd: int, kept_nanousd: int
    ) -> None:
        self._counters.charge(
            db,
            entry.debits,
            amount_nanousd=entry.amount_nanousd,
            state=entry.state,
            settled_nanousd=settled_nanousd,
            kept_nanousd=kept_nanousd,
        )
        self._entries.free(db, entry)
        db.execute(
            "UPDATE entries SET state = ?, settled = ?, kept = ?, lease_ends_ns = NULL, ended_ns = ? "
            "WHERE namespace = ? AND id = ?",
            (state, settled_nanousd, kept_nanousd, self._now_ns(), self._namespace, entry.id),
        )

    def _now_ns(self) -> int:
        return self._clock.monotonic_ns() + self._offset_ns

    def _last_seen_ns(self, db: sqlite3.Connection) -> int:
        """The latest moment that is written anywhere; 0 where nothing is that depends on time."""
        (last_ns,) = db.execute(
            "SELECT max(turned_ns, coalesce((SELECT max(began_ns) FROM entries WHERE namespace = namespaces.id "
            "AND lease_ends_ns IS NOT NULL), 0), "
            "coalesce((SELECT max(touched_ns) FROM rates WHERE namespace = namespaces.id), 0), "
            "coalesce((SELECT max(ended_ns) FROM entries WHERE namespace = namespaces.id AND ended_ns IS NOT NULL), 0)"
            ") FROM namespaces WHERE id = ?",
            (self._namespace,),
        ).fetchone()
        found: int = last_ns
        return found

    def _is_full(self, db: sqlite3.Connection, claim: Claim[Parallel]) -> bool:
        quota = claim.policy.quota
        return quota is not None and self._entries.slots_in_use(db, claim.partition) + claim.amount > quota

    def _orphan_leases(self, db: sqlite3.Connection, *, until_ns: int, leases_max: int) -> list[Entry]:
        """Free the slots whose lease is over. The money of their owners stays: it is orphaned, not given back."""
        orphans = self._entries.overdue(db, until_ns, most=leases_max)
        for entry in orphans:
            self._counters.orphan(db, entry.debits, entry.amount_nanousd)
            self._entries.free(db, entry)
            db.execute(
                "UPDATE entries SET state = 'orphaned', lease_ends_ns = NULL WHERE namespace = ? AND id = ?",
                (self._namespace, entry.id),
            )
            self.unwritten.orphaned(db, entry, now_ns=self._now_ns())
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
