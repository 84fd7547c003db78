"""Ledgers from code without an event loop.

A ledger is asked on an event loop. Sync clients share one, in a thread of its own that begins with the first call that
needs it. The memory ledger needs none: it never waits.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from routeguard.policy import Ledger


def run_blocking(ledger: Ledger | None, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what asks this ledger to its end; with no ledger, or one that never waits, right here."""
    if ledger is None or ledger.kind == "memory":
        _run_here(function())
    else:
        asked = asyncio.run_coroutine_threadsafe(function(), _thread.loop())
        try:
            asked.result()
        except BaseException:
            asked.cancel()  # after a Ctrl-C nobody is there for the answer, and the ledger takes it back
            raise


def _run_here(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a ledger that never waits has waited")


class _LoopThread:
    """The event loop of all sync clients of a process. A daemon, because nothing it does outlives who waits for it."""

    # Not anyio's portal: it is stopped by whoever drops it, and after a fork there is nothing to stop.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Loops of a parent process. They are not to be closed, which would reach into the parent's.
        self._inherited: list[asyncio.AbstractEventLoop] = []

    def loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None:
            with self._lock:
                loop = self._loop
                if loop is None:
                    loop = self._loop = asyncio.new_event_loop()
                    threading.Thread(target=loop.run_forever, name="routeguard-meter", daemon=True).start()
        return loop

    def forget(self) -> None:
        """After a fork the thread exists in the parent only, where another may have held the lock."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._inherited.append(self._loop)
            self._loop = None


_thread = _LoopThread()
os.register_at_fork(after_in_child=_thread.forget)
