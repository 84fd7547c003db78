"""What an operator asks of a ledger file and changes in it by hand, within a transaction."""

import json
import sqlite3
from contextlib import closing
from typing import Final

from routeguard.auditing import Adjustment, AdjustmentRefused, Statement
from routeguard.clock import Clock
from routeguard.ledgers.sqlite.counters import Counters, Debit
from routeguard.ledgers.sqlite.unwritten import Unwritten
from routeguard.money import NANOUSD_MAX, format_usd
from routeguard.policy import NANOSECONDS
from routeguard.records import Note, Record, Sums
from routeguard.sqlite_file.file import explained

#: How long a look waits where the log has to be read in after a crash.
LOCK_SECONDS: Final = 5.0


def path_of(db: sqlite3.Connection) -> str:
    """Where the file of a connection lies, whatever the working directory is by now."""
    path: str = db.execute("PRAGMA database_list").fetchone()[2]
    return path


def read_statement(path: str, namespace: int, *, name: str, clock: Clock) -> Statement:
    """The counters, what reservations add up to, and what waits for the journal, all of one moment.

    On a connection of its own, so that nobody waits: 100,000 counters take half a second to read.
    """
    counters = Counters(namespace, clients_max=0)
    unwritten = Unwritten(namespace, counters, clock)
    audit = Audit(namespace, counters, unwritten)
    try:
        with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as db:
            db.execute("BEGIN")
            return Statement(name, audit.counted(db), audit.held(db), tuple(unwritten.all(db)))
    except sqlite3.Error as error:
        raise explained(error, path) from error


class Audit:
    """One namespace of a file."""

    def __init__(self, namespace: int, counters: Counters, unwritten: Unwritten) -> None:
        self._namespace = namespace
        self._counters = counters
        self._unwritten = unwritten

    def held(self, db: sqlite3.Connection) -> dict[str, Sums]:
        """What the reservations add up to that are open or orphaned."""
        recorded: dict[str, Sums] = {}
        rows = db.execute(
            "SELECT state, amount, debits FROM entries WHERE namespace = ? AND state IN ('open', 'orphaned')",
            (self._namespace,),
        )
        for state, amount, debits in rows:
            held = Sums(open=amount) if state == "open" else Sums(orphaned=amount)
            for counter in self._unwritten.names(db, [Debit(*debit) for debit in json.loads(debits)]):
                recorded[counter] = recorded.get(counter, Sums()).plus(held)
        return recorded

    def counted(self, db: sqlite3.Connection) -> dict[str, Sums]:
        """Every counter of the namespace that is still there."""
        rows = db.execute(
            "SELECT b.id, c.starts, c.partition, c.settled, c.kept, c.orphaned, c.overrun, c.open "
            "FROM counters c JOIN budgets b ON b.id = c.budget WHERE b.namespace = ?",
            (self._namespace,),
        ).fetchall()
        return {self._counters.name_of(db, Debit(*row[:3])): Sums(*row[3:]) for row in rows}

    def adjust(self, db: sqlite3.Connection, adjustment: Adjustment, *, wall_ns: int, now_ns: int) -> Record:
        """Change one counter by hand."""
        assert adjustment.budget is not None, "an orphan is settled instead"
        known = self._done_before(db, adjustment)
        if known is not None:
            return known
        debit, sums = self._find(db, adjustment, wall_seconds=wall_ns // NANOSECONDS)
        change = lowered(sums, -adjustment.nanousd) if adjustment.nanousd < 0 else raised(sums, adjustment.nanousd)
        db.execute(
            "UPDATE counters SET settled = settled + ?, kept = kept + ? "
            "WHERE budget = ? AND starts = ? AND partition = ?",
            (change.settled, change.kept, *debit),
        )
        record = Record(
            adjustment.id,
            "adjust",
            wall_ns,
            self._unwritten.names(db, [debit]),
            0,
            change.settled,
            change.kept,
            note=Note(why="adjusted", reason=adjustment.reason),
        )
        db.execute(
            "INSERT INTO adjustments (namespace, id, wall_ns, counter, settled, kept, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self._namespace, record.id, wall_ns, record.counters[0], change.settled, change.kept, adjustment.reason),
        )
        self._unwritten.adjusted(db, record, now_ns=now_ns)
        return record

    def note_ending(self, db: sqlite3.Connection, record: Record) -> None:
        """An orphan was ended by hand: who looks into the file finds why."""
        db.executemany(
            "INSERT INTO adjustments (namespace, id, wall_ns, counter, settled, kept, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self._namespace,
                    record.id,
                    record.wall_ns,
                    counter,
                    record.settled_nanousd,
                    record.kept_nanousd,
                    record.note.reason,
                )
                for counter in record.counters
            ],
        )

    def _done_before(self, db: sqlite3.Connection, adjustment: Adjustment) -> Record | None:
        row = db.execute(
            "SELECT wall_ns, counter, settled, kept FROM adjustments WHERE namespace = ? AND id = ?",
            (self._namespace, adjustment.id),
        ).fetchone()
        if row is None:
            return None
        wall_ns, counter, settled, kept = row
        return Record(adjustment.id, "adjust", wall_ns, (counter,), 0, settled, kept)

    def _find(self, db: sqlite3.Connection, adjustment: Adjustment, *, wall_seconds: int) -> tuple[Debit, Sums]:
        """The counter of the current window: the newest that was debited, unless that is over."""
        assert adjustment.budget is not None, "an orphan is settled instead"
        unit, zone, per_client = adjustment.budget.counter
        row = db.execute(
            "SELECT c.budget, c.starts, c.partition, c.settled, c.kept, c.orphaned, c.overrun, c.open "
            "FROM counters c JOIN budgets b ON b.id = c.budget AND b.starts = c.starts "
            "WHERE b.namespace = ? AND b.unit = ? AND b.zone = ? AND b.per_client = ? AND c.partition = ? "
            "AND (b.ends IS NULL OR b.ends > ?)",
            (self._namespace, unit, zone, per_client, adjustment.client, wall_seconds),
        ).fetchone()
        if row is None:
            raise AdjustmentRefused("nothing was ever charged to this counter, so there is nothing to adjust")
        return Debit(*row[:3]), Sums(*row[3:])


def raised(sums: Sums, nanousd: int) -> Sums:
    """What changes when so much is added.

    Raises:
        AdjustmentRefused: It would be more than any budget.
    """
    if sums.settled + sums.kept + sums.open + sums.orphaned + nanousd > NANOUSD_MAX:
        raise AdjustmentRefused(
            f"more than {format_usd(NANOUSD_MAX)} USD would be charged there, and no budget is as large"
        )
    return Sums(nanousd)


def lowered(sums: Sums, nanousd: int) -> Sums:
    """What changes when so much is taken away: kept money first, of which nobody knows that it was billed.

    Raises:
        AdjustmentRefused: There is not so much.
    """
    kept = min(nanousd, sums.kept)
    settled = nanousd - kept
    if settled > sums.settled:
        raise AdjustmentRefused(
            "more than what is settled and kept there; open money ends by itself, and orphaned money by --reservation"
        )
    return Sums(-settled, -kept)
