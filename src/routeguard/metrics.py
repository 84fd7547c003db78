"""What is counted for Prometheus: plain whole numbers, added up as requests end, and read when somebody scrapes.

Nothing here needs the extra `prometheus`: its instruments take a lock and a float each, five times a request, which
costs three times as much as these sums. `status/exposition.py` writes them in its format.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from routeguard.admitted import Admission
from routeguard.ending import Charge


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One counter of the exposition. Compared by identity: it is a key on the way of every request."""

    #: Without the ending `_total`.
    name: str
    help: str
    labels: tuple[str, ...] = ()
    #: Counted in nano-USD, shown in USD.
    is_money: bool = False


REQUESTS: Final = Family(
    "routeguard_requests", "Guarded requests by how they ended: settled, kept, released, rejected.", ("path", "outcome")
)
REJECTED: Final = Family("routeguard_rejected", "Refused requests by reason.", ("path", "reason"))
SPEND: Final = Family(
    "routeguard_spend_usd", "Settled money, by configured model or `other`.", ("path", "model"), is_money=True
)
KEPT: Final = Family(
    "routeguard_kept_usd",
    "Money charged at its worst case, by why nobody knows better.",
    ("path", "why"),
    is_money=True,
)
OVERRUN: Final = Family("routeguard_overrun_usd", "Money charged above what was reserved for it.", is_money=True)
TRUNCATED: Final = Family("routeguard_truncated", "Answers that were cut off at their output cap.", ("path",))
LEDGER_ERRORS: Final = Family(
    "routeguard_ledger_errors", "Questions the ledger did not answer, by what was asked.", ("kind",)
)
FAMILIES: Final = (REQUESTS, REJECTED, SPEND, KEPT, OVERRUN, TRUNCATED, LEDGER_ERRORS)


class Histogram:
    """Observations by bucket; each bound is inclusive, and the last bucket has none."""

    __slots__ = ("bounds", "counts", "help", "name", "total")

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.help = help_text
        self.bounds = bounds
        #: Not cumulated.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tallies:
    """Every sum of one guard since its start. Thread-safe."""

    def __init__(self) -> None:
        #: By family and label values; money in nano-USD.
        self.counts: Counter[tuple[Family, tuple[str, ...]]] = Counter()
        self.settle_ratio = Histogram(
            "routeguard_settle_ratio",
            "What a settled request cost, as a part of what was reserved for it.",
            (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5),
        )
        self.ledger_seconds = Histogram(
            "routeguard_ledger_seconds",
            "How long the ledger took for a reservation or a settlement.",
            (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
        )
        #: Called after each change, where other processes have to see it.
        self.on_change: Callable[[], None] | None = None
        self.lock = threading.Lock()

    @property
    def histograms(self) -> tuple[Histogram, Histogram]:
        return self.settle_ratio, self.ledger_seconds

    def admitted(self, admission: Admission) -> None:
        """Counted when it ends."""

    def refused(self, event: str, reason: str, *, path: str, client: str | None) -> None:
        """A request was refused; what only would have been is not counted here."""
        if event == "rejected":
            with self.lock:
                self.counts[REJECTED, (path, reason)] += 1
                self.counts[REQUESTS, (path, "rejected")] += 1
            self._changed()

    def ended(self, admission: Admission) -> None:
        """An admission has its charge."""
        charge, path = admission.charge, admission.path
        assert charge is not None, "an ending has a charge"
        with self.lock:
            counts = self.counts
            counts[REQUESTS, (path, charge.state)] += 1
            if charge.settled_nanousd:
                counts[SPEND, (path, admission.model or "other")] += charge.settled_nanousd
            if charge.kept_nanousd:
                counts[KEPT, (path, charge.why)] += charge.kept_nanousd
            if admission.truncated:
                counts[TRUNCATED, (path,)] += 1
            if charge.state == "settled" and admission.ceiling_nanousd:
                self.settle_ratio.observe(charge.settled_nanousd / admission.ceiling_nanousd)
        if self.on_change is not None:
            self.on_change()

    def charged_above(self, admission: Admission, nanousd: int, *, late: bool) -> None:
        """A charge came out above its ceiling, or was raised after the ending."""
        with self.lock:
            self.counts[OVERRUN, ()] += nanousd
            if late:
                self.counts[SPEND, (admission.path, admission.model or "other")] += nanousd
        self._changed()

    def charged_apart(
        self, admission: Admission, charge: Charge, *, model: str | None, over_nanousd: int, truncated: bool
    ) -> None:
        """A metered call that began after the ending has its own charge; it is no request that ends."""
        with self.lock:
            if charge.settled_nanousd:
                self.counts[SPEND, (admission.path, model or "other")] += charge.settled_nanousd
            if charge.kept_nanousd:
                self.counts[KEPT, (admission.path, charge.why)] += charge.kept_nanousd
            if over_nanousd > 0:
                self.counts[OVERRUN, ()] += over_nanousd
            if truncated:
                self.counts[TRUNCATED, (admission.path,)] += 1
        self._changed()

    def happened(self, event: str, detail: str) -> None:
        """The ledger failed."""
        if event == "ledger_error":
            with self.lock:
                self.counts[LEDGER_ERRORS, (detail,)] += 1
            self._changed()

    def took(self, nanoseconds: int) -> None:
        """The ledger answered, or gave up. Others are told with the ending that follows."""
        seconds, histogram = nanoseconds / 1e9, self.ledger_seconds
        with self.lock:
            histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
            histogram.total += seconds

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
