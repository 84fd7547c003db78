"""The file: how it is opened, what is in it, and what is said when it cannot be used.

Rules that live here:

- WAL on a local disk. `NORMAL` survives the death of every process at any moment; `FULL` also survives a loss of
  power, for one wait for the disk a commit.
- A file that is not ours is left alone: the application id says whose it is, `user_version` which schema.
- Pages of 1 kB, because a commit appends every page it changed to the log, whole. Measured with a row changed in
  each of eight tables: 33 µs and 8 kB a transaction, where SQLite's 4 kB took 58 µs and 31 kB.
"""

import os
import sqlite3
from typing import Final, Literal

from routeguard.policy import LedgerUnavailable

Synchronous = Literal["normal", "full"]

#: "rGrd": tells `file(1)` and us whose file it is (https://www.sqlite.org/pragma.html#pragma_application_id).
APPLICATION_ID: Final = 0x72477264
SCHEMA_VERSION: Final = 1
PAGE_BYTES: Final = 1024
#: Bytes of the smallest page (https://www.sqlite.org/fileformat2.html).
SMALLEST_DATABASE: Final = 512
#: Most of a signed 64-bit integer. SQLite turns a sum above it into a float without a word; a CHECK does not.
INTEGER_MAX: Final = 2**63 - 1

_PART: Final = f"INTEGER NOT NULL DEFAULT 0 CHECK ({{0}} BETWEEN 0 AND {INTEGER_MAX})"
_SCHEMA: Final = (
    # One row a namespace: its kill switch, and what its times are counted from.
    """CREATE TABLE namespaces (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, client_salt BLOB NOT NULL,
        paused INTEGER NOT NULL DEFAULT 0, turned_ns INTEGER NOT NULL DEFAULT 0, offset_ns INTEGER NOT NULL DEFAULT 0,
        rated_clients INTEGER NOT NULL DEFAULT 0, longest_rate_ns INTEGER NOT NULL DEFAULT 0)""",
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
        slots TEXT NOT NULL, lease_ends_ns INTEGER, ended_ns INTEGER, PRIMARY KEY (namespace, id)) WITHOUT ROWID""",
    "CREATE INDEX entries_ended ON entries (namespace, ended_ns) WHERE ended_ns IS NOT NULL",
    """CREATE TABLE leases (
        namespace INTEGER NOT NULL, ends_ns INTEGER NOT NULL, entry TEXT NOT NULL, began_ns INTEGER NOT NULL,
        PRIMARY KEY (namespace, ends_ns, entry)) WITHOUT ROWID""",
    """CREATE TABLE slots (
        namespace INTEGER NOT NULL, partition TEXT NOT NULL, entry TEXT NOT NULL, ends_ns INTEGER NOT NULL,
        PRIMARY KEY (namespace, partition, entry)) WITHOUT ROWID""",
    # All windows of one client, as JSON; of everybody under "".
    """CREATE TABLE rates (
        namespace INTEGER NOT NULL, partition TEXT NOT NULL, touched_ns INTEGER NOT NULL, windows TEXT NOT NULL,
        PRIMARY KEY (namespace, partition)) WITHOUT ROWID""",
    "CREATE INDEX rates_touched ON rates (namespace, touched_ns)",
)


class NotALedger(LedgerUnavailable):
    """What lies at the path can never be this ledger: the setting is wrong, and not the moment."""


def connect(path: str, synchronous: Synchronous) -> sqlite3.Connection:
    """A connection to the ledger at `path`, which is created where there is none.

    It never waits for a lock, so that the caller decides how long to; and it may be closed by another thread.

    Raises:
        NotALedger: The file belongs to something else, or cannot be shared where it lies.
        LedgerUnavailable: It cannot be made.
        sqlite3.Error: Anything else, a lock included.
    """
    _make_private(path)
    db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        _check_owner(db, path)
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise NotALedger(f"{path} cannot be shared by processes here; put it on a local disk")
        # Copying the log is `Checkpoint`'s, beside the commits; begun anew, the log becomes short.
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA journal_size_limit = 0")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        _create(db)
    except BaseException:
        db.close()
        raise
    return db


def explained(error: sqlite3.Error, path: str) -> LedgerUnavailable:
    """What is wrong with the file, and what to do about it."""
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return NotALedger(f"{path} is not a database: name another file in LEDGER")
    folder = os.path.dirname(path) or "."
    remedies = {
        sqlite3.SQLITE_CANTOPEN: f"cannot be opened: is {folder} a folder that this process may write?",
        sqlite3.SQLITE_READONLY: f"cannot be written: let this process write {folder} and every file of the ledger",
        sqlite3.SQLITE_PERM: f"cannot be written: let this process write {folder} and every file of the ledger",
        sqlite3.SQLITE_FULL: "cannot grow: free some disk space",
        sqlite3.SQLITE_IOERR: "cannot be read or written: look at the disk, and keep the file on a local one",
        sqlite3.SQLITE_CORRUPT: "is damaged: stop every process and restore it from a copy, or name another file",
    }
    remedy = remedies.get(_code(error), f"does not answer ({type(error).__name__} {_code(error)})")
    return LedgerUnavailable(f"the ledger file {path} {remedy}")


def is_locked(error: sqlite3.Error) -> bool:
    """Somebody else is writing: the same question may be answered a moment later."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def is_about_the_file(error: sqlite3.Error) -> bool:
    """The file or the disk refuses, rather than our own SQL or one of its checks."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def _code(error: sqlite3.Error) -> int:
    # The extended code says more than anyone acts on; absent where Python itself raised.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _make_private(path: str) -> None:
    """Make the file, readable by nobody else: who knows the salt in it can guess which address a hash stands for."""
    try:
        # Only where there is none: closing a file that SQLite has open in this process would drop its locks.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if 0 < os.stat(path).st_size < SMALLEST_DATABASE:
            # SQLite would take it for an empty database and write over it.
            raise NotALedger(f"{path} is not a database: name another file in LEDGER") from None
    except OSError as error:
        folder = os.path.dirname(path)
        raise LedgerUnavailable(
            f"the ledger file {path} cannot be made ({error.strerror}): is {folder} a folder that this process may "
            "write?"
        ) from error


def _check_owner(db: sqlite3.Connection, path: str) -> None:
    """Before anything is written: a ledger of this version, or nothing at all."""
    # In this order: another process may make the ledger between two looks, and makes all of it at once.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID and (application_id or tables):
        raise NotALedger(f"{path} is the database of something else: name another file in LEDGER")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if tables and version != SCHEMA_VERSION:
        raise NotALedger(
            f"{path} was written by another version of routeguard (schema {version}, this one has {SCHEMA_VERSION}): "
            "use that version, or name another file in LEDGER"
        )


def _create(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,):
        return
    db.execute("BEGIN IMMEDIATE")
    # Another process may have been faster.
    if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.execute("COMMIT")
