"""Writes that must reach the store even when nobody waits for them any more.

Endings, late bills, and the release of a reservation whose answer was lost. Each carries an id and does nothing a
second time, so it may be sent until an answer comes.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from routeguard.ledgers.redis.scripts import Script
from routeguard.policy import Reservation
from routeguard.telemetry import logger

#: Writes kept while the store is away. Beyond it the oldest is given up: an ending becomes an orphan at its lease.
DEBTS_MAX = 100_000
#: Times a store that answers may refuse one of them.
REFUSALS_MAX = 20


@dataclass(slots=True, eq=False)
class Debt:
    """One write, whichever connection carries it."""

    script: Script
    keys: list[str]
    arguments: list[str]
    #: Called once when the store has it.
    on_paid: Callable[[], None] | None = None
    #: What it ends, kept alive until it is written.
    ends: Reservation | None = None
    #: Since when, in microseconds on the store's clock.
    owed_us: int = 0
    refusals: int = field(default=0, init=False)


class Debts:
    """What is to be written. Thread-safe: a late bill comes from any thread."""

    def __init__(self) -> None:
        #: Writes given up.
        self.lost = 0
        self._ready: deque[Debt] = deque()
        self._waiting: deque[Debt] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting)

    @property
    def ready(self) -> int:
        """Those that `take` would give."""
        return len(self._ready)

    def add(self, debt: Debt) -> None:
        """To be written with the next batch."""
        with self._lock:
            self._ready.append(debt)
            self._bound()

    def postpone(self, debt: Debt, *, refused: bool = False) -> None:
        """To be written after the next `wake`: the store was away, or (`refused`) would not have it."""
        debt.refusals += refused
        with self._lock:
            if debt.refusals > REFUSALS_MAX:
                self._give_up(1)
                return
            self._waiting.append(debt)
            self._bound()

    def wake(self) -> None:
        """The store answers: what was postponed may be tried again."""
        with self._lock:
            self._ready.extend(self._waiting)
            self._waiting.clear()

    def take(self, most: int) -> list[Debt]:
        """The next ones, oldest first."""
        if not self._ready:
            return []
        with self._lock:
            return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def _bound(self) -> None:
        while len(self) > DEBTS_MAX:
            (self._waiting or self._ready).popleft()
            self._give_up(1)

    def _give_up(self, number: int) -> None:
        self.lost += number
        if self.lost == number or self.lost % 1000 == 0:
            logger.error("ledger_error: %d writes were given up; their reservations end as orphans", self.lost)
