"""The file: how it is opened, and what is said when it cannot be used.

Rules that live here:

- WAL on a local disk. `NORMAL` survives the death of every process at any moment; `FULL` also survives a loss of
  power, for one wait for the disk a commit.
- A file that is not ours is left alone: the application id says whose it is. What is in it is for the books.
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
PAGE_BYTES: Final = 1024
#: Bytes of the smallest page (https://www.sqlite.org/fileformat2.html).
SMALLEST_DATABASE: Final = 512
#: Most of a signed 64-bit integer. SQLite turns a sum above it into a float without a word; a CHECK does not.
INTEGER_MAX: Final = 2**63 - 1


class NotOurFile(LedgerUnavailable):
    """What lies at the path can never be used: the setting is wrong, and not the moment."""


def connect(path: str, synchronous: Synchronous) -> sqlite3.Connection:
    """A connection to the file at `path`, which is made where there is none.

    It never waits for a lock, so that the caller decides how long to; and it may be closed by another thread.

    Raises:
        NotOurFile: The file belongs to something else, or cannot be shared where it lies.
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
            raise NotOurFile(f"{path} cannot be shared by processes here; put it on a local disk")
        # Copying the log is `Checkpoint`'s, beside the commits.
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        _claim(db)
    except BaseException:
        db.close()
        raise
    return db


def explained(error: sqlite3.Error, path: str) -> LedgerUnavailable:
    """What is wrong with the file, and what to do about it."""
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return NotOurFile(f"{path} is not a database: name another file")
    folder = os.path.dirname(path) or "."
    remedies = {
        sqlite3.SQLITE_CANTOPEN: f"cannot be opened: is {folder} a folder that this process may write?",
        sqlite3.SQLITE_READONLY: f"cannot be written: let this process write {folder} and the files in it",
        sqlite3.SQLITE_PERM: f"cannot be written: let this process write {folder} and the files in it",
        sqlite3.SQLITE_FULL: "cannot grow: free some disk space",
        sqlite3.SQLITE_IOERR: "cannot be read or written: look at the disk, and keep the file on a local one",
        sqlite3.SQLITE_CORRUPT: "is damaged: stop every process and restore it from a copy, or name another file",
    }
    remedy = remedies.get(_code(error), f"does not answer ({type(error).__name__} {_code(error)})")
    return LedgerUnavailable(f"the file {path} {remedy}")


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
            raise NotOurFile(f"{path} is not a database: name another file") from None
    except OSError as error:
        folder = os.path.dirname(path)
        raise LedgerUnavailable(
            f"the file {path} cannot be made ({error.strerror}): is {folder} a folder that this process may write?"
        ) from error


def _check_owner(db: sqlite3.Connection, path: str) -> None:
    """Before anything is written: a file of ours, or nothing at all."""
    # In this order: another process may claim the file between two looks, and nothing is in it before.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID and (application_id or tables):
        raise NotOurFile(f"{path} is the database of something else: name another file")


def _claim(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,):
        return
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("COMMIT")
