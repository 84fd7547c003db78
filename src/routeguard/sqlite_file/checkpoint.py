"""Copying the log into the file, beside the commits instead of inside one of them.

SQLite by itself does this at the end of whichever commit makes the log 1000 pages long, and that request then waits
for the disk. Here a thread of its own copies, while others write; where they write without a pause it has to shut
them out for the last pages, or the log would grow for ever. That is a wait for the disk for everybody, a few
milliseconds and now and then some hundred, so it is done rarely: the log may become long.

A log that begins anew keeps its length on the disk, and is written over: with blocks of its own already, a wait for
the disk is shorter. So its size does not say how long it is.
"""

import os
import random
import shutil
import sqlite3
import struct
import threading
import time
from typing import Final

#: Bytes of the log at which it is copied, where the disk has as much left.
LOG_BYTES: Final = 64_000_000
#: Commits between two looks at its length.
LOOK_EVERY: Final = 32
#: Of the log's header and of the one before each page in it (https://www.sqlite.org/fileformat2.html#walformat).
_HEADER: Final = struct.Struct(">8xI4x8s8x")
_PAGE_HEADER: Final = struct.Struct(">8x8s8x")
#: Attempts to shut writers out, and seconds between two, at least and at most.
RESTARTS_MAX: Final = 200
RESTART_SECONDS: Final = (0.0001, 0.0006)


class Checkpoint:
    """Keeps the log of one file short."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._commits = 0
        self._is_at_it = threading.Lock()

    def start_if_due(self) -> None:
        """Called after each commit; looks at the length of the log now and then."""
        self._commits += 1
        if self._commits % LOOK_EVERY or not self._is_long():
            return
        if self._is_at_it.acquire(blocking=False):
            threading.Thread(target=self._copy, name="routeguard-checkpoint", daemon=True).start()

    def hold(self) -> None:
        """Wait for the copy that is under way, and begin none until `let_go`."""
        self._is_at_it.acquire()

    def let_go(self) -> None:
        """Go on after `hold`."""
        self._is_at_it.release()

    def _copy(self) -> None:
        try:
            db = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            try:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                for _ in range(RESTARTS_MAX):
                    busy, log_pages, _ = db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
                    if not busy or log_pages < 0:
                        return
                    time.sleep(random.uniform(*RESTART_SECONDS))  # noqa: S311 - keeps processes apart
            finally:
                db.close()
        except sqlite3.Error:
            # The next look at the log tries again; a disk that is full or broken shows in the commits.
            return
        finally:
            self._is_at_it.release()

    def _is_long(self) -> bool:
        """Whether the page at that length is one of this log, and not what an earlier one has left there."""
        try:
            # Copying needs room as well: on a small disk the log takes at most half of what there is.
            most = min(LOG_BYTES, shutil.disk_usage(os.path.dirname(self.path) or ".").free)
            # SQLite puts its locks on the two files beside it, so this one may be opened and closed.
            with open(f"{self.path}-wal", "rb") as log:
                page_bytes, salt = _HEADER.unpack(log.read(_HEADER.size))
                stride = _PAGE_HEADER.size + page_bytes
                log.seek(_HEADER.size + most // stride * stride)
                (page_salt,) = _PAGE_HEADER.unpack(log.read(_PAGE_HEADER.size))
        except (FileNotFoundError, struct.error):
            return False  # there is none, or it was never so long
        return bool(page_salt == salt)
