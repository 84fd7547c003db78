"""The last day of this process hour by hour, and its last events: what the status page draws.

Everything has a bound: 24 hours, 50 lines. What happens often within a moment becomes one line with a count, so that
an attack does not push everything else out.
"""

import threading
from collections import deque
from dataclasses import dataclass, replace

from routeguard.admitted import Admission
from routeguard.clock import Clock
from routeguard.ending import Charge
from routeguard.policy import NANOSECONDS

HOURS = 24
LINES = 50
HOUR_SECONDS = 3600
#: Events of one kind this close together share a line.
MOMENT_NS = 2 * NANOSECONDS


@dataclass(slots=True)
class Hour:
    """One hour since the Unix epoch."""

    #: Unix seconds.
    starts_at: int
    admitted: int = 0
    refused: int = 0
    charged_nanousd: int = 0


@dataclass(slots=True)
class Line:
    """One kind of event within a moment."""

    #: The events of the log, `admitted`, `settled`, `rejected`, …, and `ledger_error`.
    event: str
    #: Unix nanoseconds of the first.
    began_ns: int
    #: Reason of a refusal, why of an ending, or what failed.
    detail: str
    path: str | None
    #: Keyed hash of the client; None when unknown, or more than one.
    client: str | None
    times: int = 0
    #: What was reserved, charged or charged above, summed up.
    nanousd: int = 0


class History:
    """What one guard did, as far back as the page shows. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        #: What was settled, and what had been reserved for it.
        self.settled_nanousd = 0
        self.settled_ceiling_nanousd = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._hours: deque[Hour] = deque(maxlen=HOURS)
        self._lines: deque[Line] = deque(maxlen=LINES)
        self._moment_ns = 0
        self._in_moment: dict[tuple[str, str, str | None], Line] = {}

    def admitted(self, admission: Admission) -> None:
        """A reservation was made."""
        with self._lock:
            now_ns = self._clock.wall_ns()
            self._hour(now_ns).admitted += 1
            self._line(now_ns, "admitted", "", admission.path, admission.client).nanousd += admission.ceiling_nanousd

    def refused(self, event: str, reason: str, *, path: str, client: str | None) -> None:
        """A request was refused, or would have been."""
        with self._lock:
            now_ns = self._clock.wall_ns()
            self._hour(now_ns).refused += 1
            self._line(now_ns, event, reason, path, client)

    def ended(self, admission: Admission) -> None:
        """An admission has its charge."""
        charge = admission.charge
        assert charge is not None, "an ending has a charge"
        with self._lock:
            now_ns = self._clock.wall_ns()
            self._hour(now_ns).charged_nanousd += charge.total_nanousd
            line = self._line(now_ns, charge.state, charge.why, admission.path, admission.client)
            line.nanousd += charge.total_nanousd
            if charge.state == "settled":
                self.settled_nanousd += charge.settled_nanousd
                self.settled_ceiling_nanousd += admission.ceiling_nanousd

    def charged_above(self, admission: Admission, nanousd: int, *, late: bool) -> None:
        """A charge came out above its ceiling, or was raised after the ending."""
        with self._lock:
            now_ns = self._clock.wall_ns()
            if late:
                self._hour(now_ns).charged_nanousd += nanousd
            detail = "after the ending" if late else "above its ceiling"
            self._line(now_ns, "overrun", detail, admission.path, admission.client).nanousd += nanousd

    def charged_apart(
        self, admission: Admission, charge: Charge, *, model: str | None, over_nanousd: int, truncated: bool
    ) -> None:
        """A metered call that began after the ending has its own charge."""
        detail = "a metered call after the ending"
        with self._lock:
            now_ns = self._clock.wall_ns()
            self._hour(now_ns).charged_nanousd += charge.total_nanousd
            self._line(now_ns, charge.state, detail, admission.path, admission.client).nanousd += charge.total_nanousd
            if over_nanousd > 0:
                self._line(now_ns, "overrun", detail, admission.path, admission.client).nanousd += over_nanousd

    def happened(self, event: str, detail: str) -> None:
        """The ledger failed, or the kill switch was turned."""
        with self._lock:
            self._line(self._clock.wall_ns(), event, detail, None, None)

    def hours(self) -> list[Hour]:
        """The last 24 hours, oldest first, those in which nothing happened included."""
        with self._lock:
            now = self._clock.wall_ns() // NANOSECONDS // HOUR_SECONDS * HOUR_SECONDS
            known = {hour.starts_at: replace(hour) for hour in self._hours}
        starts = range(now - (HOURS - 1) * HOUR_SECONDS, now + 1, HOUR_SECONDS)
        return [known.get(start) or Hour(start) for start in starts]

    def lines(self) -> list[Line]:
        """The last events, youngest first."""
        with self._lock:
            return [replace(line) for line in reversed(self._lines)]

    def _hour(self, now_ns: int) -> Hour:
        starts_at = now_ns // NANOSECONDS // HOUR_SECONDS * HOUR_SECONDS
        # A clock that jumped back goes on with the youngest hour.
        if not self._hours or self._hours[-1].starts_at < starts_at:
            self._hours.append(Hour(starts_at))
        return self._hours[-1]

    def _line(self, now_ns: int, event: str, detail: str, path: str | None, client: str | None) -> Line:
        if not 0 <= now_ns - self._moment_ns < MOMENT_NS:
            self._moment_ns = now_ns
            self._in_moment = {}
        line = self._in_moment.get((event, detail, path))
        if line is None:
            line = self._in_moment[event, detail, path] = Line(event, now_ns, detail, path, client)
            self._lines.append(line)
        elif line.client != client:
            line.client = None
        line.times += 1
        return line
