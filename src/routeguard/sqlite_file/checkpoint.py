"""Copying the log into the file, beside the commits instead of inside one of them.

SQLite by itself does this at the end of whichever commit makes the log 1000 pages long, and that request then waits
for the disk. Here a thread of its own copies, while others write; where they write without a pause it has to shut
them out for the last pages, or the log would grow for ever.
"""

import os
import random
import sqlite3
import threading
import time
from typing import Final

#: Size of the log at which it is copied.
LOG_BYTES: Final = 4_000_000
#: Commits between two looks at its size.
LOOK_EVERY: Final = 32
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
        """Called after each commit; looks at the size of the log now and then."""
        self._commits += 1
        if self._commits % LOOK_EVERY or self._log_bytes() < LOG_BYTES:
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

    def _log_bytes(self) -> int:
        try:
            return os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            return 0
