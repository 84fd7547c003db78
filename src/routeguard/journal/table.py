"""What lies in the file of a journal.

Rules that live here:

- Rows are added and never changed; the database itself refuses anything else.
- A row is there once: namespace, id and event are unique, and whoever adds it again has added nothing.
- Sums are kept for each ledger: one that was begun anew, or is another process's memory, starts at nothing.
- `journal_sums` is the sum of the rows by counter. A trigger keeps it, so that it cannot differ unless somebody
  changes the file by hand, and so that a counter of a million rows is read at once.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from routeguard.records import Record, Sums
from routeguard.sqlite_file.file import INTEGER_MAX, NotOurFile

SCHEMA_VERSION: Final = 1
COLUMNS: Final = (
    "namespace",
    "ledger",
    "id",
    "event",
    "at_ns",
    "path",
    "client",
    "model",
    "input_tokens",
    "output_tokens",
    "ceiling_nanousd",
    "settled_nanousd",
    "kept_nanousd",
    "orphaned_nanousd",
    "overrun_nanousd",
    "counters",
    "why",
    "reason",
)
SUMS: Final = "settled_nanousd, kept_nanousd, orphaned_nanousd, overrun_nanousd"

_NEW: Final = ", ".join(f"new.{column}" for column in SUMS.split(", "))
_ADDED: Final = ", ".join(f"{column} = {column} + excluded.{column}" for column in SUMS.split(", "))
_SCHEMA: Final = (
    f"CREATE TABLE journal_version AS SELECT {SCHEMA_VERSION} AS version",
    # Amounts are nano-USD, and changes: an orphan that ends takes its orphaned money back.
    """CREATE TABLE journal (
        seq INTEGER PRIMARY KEY, namespace TEXT NOT NULL, ledger TEXT NOT NULL, id TEXT NOT NULL, event TEXT NOT NULL,
        at_ns INTEGER NOT NULL, path TEXT, client TEXT, model TEXT, input_tokens INTEGER, output_tokens INTEGER,
        ceiling_nanousd INTEGER NOT NULL, settled_nanousd INTEGER NOT NULL, kept_nanousd INTEGER NOT NULL,
        orphaned_nanousd INTEGER NOT NULL, overrun_nanousd INTEGER NOT NULL, counters TEXT NOT NULL, why TEXT,
        reason TEXT, UNIQUE (namespace, id, event))""",
    """CREATE TABLE journal_sums (
        namespace TEXT NOT NULL, ledger TEXT NOT NULL, counter TEXT NOT NULL, settled_nanousd INTEGER NOT NULL,
        kept_nanousd INTEGER NOT NULL, orphaned_nanousd INTEGER NOT NULL, overrun_nanousd INTEGER NOT NULL,
        PRIMARY KEY (namespace, ledger, counter)) WITHOUT ROWID""",
    # `WHERE true`, or ON CONFLICT is read as the condition of a join (https://www.sqlite.org/lang_upsert.html).
    f"""CREATE TRIGGER journal_adds_up AFTER INSERT ON journal BEGIN
        INSERT INTO journal_sums (namespace, ledger, counter, {SUMS})
        SELECT new.namespace, new.ledger, value, {_NEW} FROM json_each(new.counters) WHERE true
        ON CONFLICT (namespace, ledger, counter) DO UPDATE SET {_ADDED}; END""",  # noqa: S608 - constants
    """CREATE TRIGGER journal_is_not_changed BEFORE UPDATE ON journal
        BEGIN SELECT raise(ABORT, 'rows are added to a journal, and never changed'); END""",
    """CREATE TRIGGER journal_is_not_cut BEFORE DELETE ON journal
        BEGIN SELECT raise(ABORT, 'rows are added to a journal, and never deleted'); END""",
)
_INSERT: Final = (
    f"INSERT INTO journal ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT DO NOTHING"  # noqa: S608
)


def create_schema(db: sqlite3.Connection) -> None:
    """Make the tables of a journal where there are none, within the caller's transaction.

    Raises:
        NotOurFile: They are those of another version.
    """
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'journal_version'").fetchone() is None:
        for statement in _SCHEMA:
            db.execute(statement)
    (version,) = db.execute("SELECT version FROM journal_version").fetchone()
    if version != SCHEMA_VERSION:
        raise NotOurFile(
            f"the journal was written by another version of routeguard (schema {version}, this one has "
            f"{SCHEMA_VERSION}): use that version, or name another file"
        )


def insert(db: sqlite3.Connection, namespace: str, rows: Sequence[tuple[str, Record]]) -> None:
    """Add those that are not there yet, each a ledger and a record of it."""
    db.executemany(_INSERT, [_row(namespace, ledger, record) for ledger, record in rows])


def read_sums(db: sqlite3.Connection, namespace: str, ledger: str) -> dict[str, Sums]:
    """What the rows of one ledger add up to, by the name of each counter."""
    rows = db.execute(
        f"SELECT counter, {SUMS} FROM journal_sums WHERE namespace = ? AND ledger = ?",  # noqa: S608 - constants
        (namespace, ledger),
    )
    return {counter: Sums(*parts) for counter, *parts in rows}


def _row(namespace: str, ledger: str, record: Record) -> tuple[object, ...]:
    note = record.note
    return (
        namespace,
        ledger,
        record.id,
        record.event,
        record.wall_ns,
        _text(note.path),
        _text(note.client),
        _text(note.model),
        _count(note.input_tokens),
        _count(note.output_tokens),
        *record[4:9],
        json.dumps(record.counters),
        _text(note.why),
        _text(note.reason),
    )


# What SQLite cannot hold would make the row fail, again and again.


def _text(value: str | None) -> str | None:
    return None if value is None else value.encode("utf-8", "replace").decode("utf-8")


def _count(value: int | None) -> int | None:
    return None if value is None else min(value, INTEGER_MAX)
