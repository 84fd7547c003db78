"""What is in the file of a ledger."""

import sqlite3
from typing import Final

from routeguard.sqlite_file.file import INTEGER_MAX, NotOurFile

SCHEMA_VERSION: Final = 3

_PART: Final = f"INTEGER NOT NULL DEFAULT 0 CHECK ({{0}} BETWEEN 0 AND {INTEGER_MAX})"
_SCHEMA: Final = (
    # One row a namespace: its kill switch, what its times are counted from, and its journals, one a line.
    """CREATE TABLE namespaces (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, client_salt BLOB NOT NULL,
        paused INTEGER NOT NULL DEFAULT 0, turned_ns INTEGER NOT NULL DEFAULT 0, offset_ns INTEGER NOT NULL DEFAULT 0,
        rated_clients INTEGER NOT NULL DEFAULT 0, longest_rate_ns INTEGER NOT NULL DEFAULT 0,
        journal TEXT NOT NULL DEFAULT '')""",
    # The current window of each budget, and how many clients hold money in it.
    """CREATE TABLE budgets (
        id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, unit TEXT NOT NULL, zone TEXT NOT NULL,
        per_client INTEGER NOT NULL, starts INTEGER NOT NULL, ends INTEGER, clients INTEGER NOT NULL DEFAULT 0,
        UNIQUE (namespace, unit, zone, per_client))""",
    # The partition "" is everybody; of a client budget it is the overflow client.
    f"""CREATE TABLE counters (
        budget INTEGER NOT NULL, starts INTEGER NOT NULL, partition TEXT NOT NULL,
        settled {_PART.format("settled")}, open {_PART.format("open")}, kept {_PART.format("kept")},
        orphaned {_PART.format("orphaned")}, overrun {_PART.format("overrun")},
        PRIMARY KEY (budget, starts, partition)) WITHOUT ROWID""",
    # Every reservation and late charge, with the counters it debited as [budget, starts, partition].
    """CREATE TABLE entries (
        namespace INTEGER NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, amount INTEGER NOT NULL,
        settled INTEGER NOT NULL DEFAULT 0, kept INTEGER NOT NULL DEFAULT 0, debits TEXT NOT NULL,
        slots TEXT NOT NULL, began_ns INTEGER, lease_ends_ns INTEGER, ended_ns INTEGER,
        PRIMARY KEY (namespace, id)) WITHOUT ROWID""",
    "CREATE INDEX entries_ended ON entries (namespace, ended_ns) WHERE ended_ns IS NOT NULL",
    "CREATE INDEX entries_leased ON entries (namespace, lease_ends_ns) WHERE lease_ends_ns IS NOT NULL",
    # How many entries with a running lease hold a slot of a partition.
    f"""CREATE TABLE slots (
        namespace INTEGER NOT NULL, partition TEXT NOT NULL, used {_PART.format("used")},
        PRIMARY KEY (namespace, partition)) WITHOUT ROWID""",
    # All windows of one client, as JSON; of everybody under "".
    """CREATE TABLE rates (
        namespace INTEGER NOT NULL, partition TEXT NOT NULL, touched_ns INTEGER NOT NULL, windows TEXT NOT NULL,
        PRIMARY KEY (namespace, partition)) WITHOUT ROWID""",
    "CREATE INDEX rates_touched ON rates (namespace, touched_ns)",
    # What the journal does not have yet; `since_ns` tells what was left behind.
    """CREATE TABLE unwritten (
        namespace INTEGER NOT NULL, id TEXT NOT NULL, event TEXT NOT NULL, since_ns INTEGER NOT NULL,
        wall_ns INTEGER NOT NULL, counters TEXT NOT NULL, ceiling INTEGER NOT NULL, settled INTEGER NOT NULL,
        kept INTEGER NOT NULL, orphaned INTEGER NOT NULL, overrun INTEGER NOT NULL, note TEXT NOT NULL,
        PRIMARY KEY (namespace, id, event)) WITHOUT ROWID""",
    # What was changed by hand, and why; never forgotten.
    """CREATE TABLE adjustments (
        namespace INTEGER NOT NULL, id TEXT NOT NULL, wall_ns INTEGER NOT NULL, counter TEXT NOT NULL,
        settled INTEGER NOT NULL, kept INTEGER NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (namespace, id, counter)) WITHOUT ROWID""",
    # Who was first to ask for a name, until the window it belongs to ends.
    """CREATE TABLE firsts (
        namespace INTEGER NOT NULL, name TEXT NOT NULL, asker TEXT NOT NULL, ends INTEGER,
        PRIMARY KEY (namespace, name)) WITHOUT ROWID""",
)


def create_schema(db: sqlite3.Connection) -> None:
    """Make the tables of a ledger where there are none, within the caller's transaction.

    Raises:
        NotOurFile: They are those of another version.
    """
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'namespaces'").fetchone() is None:
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise NotOurFile(
            f"the ledger was written by another version of routeguard (schema {version}, this one has "
            f"{SCHEMA_VERSION}): use that version, or name another file"
        )
