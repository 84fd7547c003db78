"""A clock that only moves when told to."""

from datetime import UTC, datetime

from routeguard.policy import NANOSECONDS


class FakeClock:
    """Both clocks of `clock.Clock`, moved by hand.

    `advance` moves both, as waiting does; `jump` moves the wall clock alone, as an operator or NTP does.
    """

    def __init__(self, start: datetime = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)) -> None:
        self._wall_ns = int(start.timestamp()) * NANOSECONDS
        self._monotonic_ns = 1_000 * NANOSECONDS

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._wall_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back."""
        return self._monotonic_ns

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0, "time does not go back; use jump for a wall clock that does"
        self._wall_ns += round(seconds * NANOSECONDS)
        self._monotonic_ns += round(seconds * NANOSECONDS)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self._wall_ns += round(seconds * NANOSECONDS)
