"""Time, as the two questions a guard asks: which calendar window is it, and how long has it been."""

import time
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds, twice. `testing.FakeClock` is the other implementation."""

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch. Decides calendar windows; may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back. Decides rates, leases and deadlines."""
        ...


class SystemClock:
    """The machine's clocks."""

    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
