"""The store's time as this process knows it between two answers, and the windows that hold it."""

import time
from collections.abc import Callable
from typing import NamedTuple

from routeguard.clock import Clock
from routeguard.policy import NANOSECONDS, Budget, Span


class StoreClock:
    """The server decides what time it is. An estimate from its last answer chooses the windows to offer it."""

    def __init__(self, test_clock: Clock | None = None, *, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        #: Given to the scripts instead of the server's time. In tests only.
        self._test_clock = test_clock
        self._monotonic_ns = monotonic_ns
        self._offset_us = time.time_ns() // 1000 - monotonic_ns() // 1000
        self._wall_seconds = 0

    @property
    def argument(self) -> str:
        """What the scripts get as their time: empty for the server's own."""
        if self._test_clock is None:
            return ""
        return f"{self._test_clock.wall_ns() // NANOSECONDS} {self._test_clock.monotonic_ns() // 1000}"

    def hear(self, *, now_us: int, wall_seconds: int) -> None:
        """Learn from an answer. Its way back makes the estimate late by a round trip at most, never early."""
        self._offset_us = now_us - self._monotonic_ns() // 1000
        self._wall_seconds = wall_seconds

    def now_us(self) -> int:
        """Microseconds on the store's clock."""
        if self._test_clock is not None:
            return self._test_clock.monotonic_ns() // 1000
        return self._monotonic_ns() // 1000 + self._offset_us

    def wall_seconds(self) -> int:
        """The second that chooses windows; never before one that has chosen."""
        if self._test_clock is not None:
            return max(self._test_clock.wall_ns() // NANOSECONDS, self._wall_seconds)
        return max(self.now_us() // 1_000_000, self._wall_seconds)


class Windows(NamedTuple):
    """One counter's current window and the end of the next, as a script may choose between them."""

    #: `<name>|<zone>|<1 when per client>`: what names the counter beside its window's start.
    counter: str
    span: Span
    next_end: int | None

    @property
    def prefix(self) -> str:
        """What the fields of this window's accounts begin with."""
        return f"{self.counter}|{self.span.start}|"

    def arguments(self) -> tuple[str, str, str, str]:
        """As the scripts read them."""
        end, next_end = self.span.end, self.next_end
        return self.counter, str(self.span.start), "" if end is None else str(end), str(next_end or "")


class Calendar:
    """The windows of every budget seen; computed once a window, not once a request."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str, bool], Windows] = {}
        self._budgets: dict[str, Budget] = {}

    def windows(self, budget: Budget, wall_seconds: int) -> Windows:
        """The windows of a budget around this second."""
        found = self._windows.get(budget.counter)
        if found is None or not _holds(found.span, wall_seconds):
            name, zone, per_client = budget.counter
            span = budget.window.span(wall_seconds)
            next_end = None if span.end is None else budget.window.span(span.end).end
            found = self._windows[budget.counter] = Windows(f"{name}|{zone}|{int(per_client)}", span, next_end)
            self._budgets[found.counter] = budget
        return found

    def newest(self) -> set[tuple[str, int]]:
        """Every counter asked for, with the start of its window."""
        return {(windows.counter, windows.span.start) for windows in self._windows.values()}

    def span(self, counter: str, start: int) -> Span:
        """The window of a counter asked for before that began at this second."""
        return self._budgets[counter].window.span(start)


def _holds(span: Span, wall_seconds: int) -> bool:
    return span.start <= wall_seconds and (span.end is None or wall_seconds < span.end)
