"""The tallies in Prometheus' own format, by its own library (extra `prometheus`).

Rules that live here:

- Counters and histograms are the process's. With `PROMETHEUS_MULTIPROC_DIR` they are those of all processes that
  share the folder, as everywhere with this library.
- Gauges are the ledger's, asked when somebody scrapes. No process writes them down: one that died would leave them.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from anyio import to_thread

from routeguard.metrics import FAMILIES, Family, Histogram, Tallies
from routeguard.money import NANOUSD_PER_USD
from routeguard.policy import Balance
from routeguard.telemetry import logger

if TYPE_CHECKING:
    from prometheus_client import Metric

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
#: How much later another process may show what this one counted.
SHARE_SECONDS = 1.0

#: Names of a sample, of its labels, and their values.
Sample = tuple[str, str, str, tuple[str, ...], tuple[str, ...]]


class _Value(Protocol):
    """One number in the library's file of this process."""

    def inc(self, amount: float) -> None: ...


# Guards of one process share the file, and each number in it has one writer.
_values: dict[Sample, _Value] = {}
_lock = threading.Lock()


def is_installed() -> bool:
    """Whether the extra `prometheus` is there."""
    return find_spec("prometheus_client") is not None


@dataclass(frozen=True, slots=True)
class Gauges:
    """Where the ledger stands; None and nothing where it does not answer."""

    balances: Sequence[Balance]
    in_flight: int | None


class Exposition:
    """What one guard shows of its tallies. Everything here may block on files: call it from a thread."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies
        self._is_shared = MULTIPROCESS_DIR in os.environ
        #: What the other processes have been told already.
        self._told: dict[Sample, float] = {}
        #: The process whose timer is running; a child of a fork has none of its own yet.
        self._timer_of: int | None = None
        if self._is_shared:
            tallies.on_change = self._share_soon

    def render(self, gauges: Gauges, accept: str) -> tuple[bytes, str]:
        """The page, and its content type.

        Raises:
            ValueError, OSError: `PROMETHEUS_MULTIPROC_DIR` names no folder that can be read and written.
        """
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected([*self._counted(), *_gauges(gauges)]))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def share(self) -> None:
        """Write down what has been counted since, for the other processes."""
        from prometheus_client.values import ValueClass

        with _lock:
            for sample, number in self._samples():
                added = number - self._told.get(sample, 0)
                if added or sample not in self._told:
                    kind, name, sample_name, labels, values = sample
                    value = _values.get(sample)
                    if value is None:
                        value = _values[sample] = ValueClass(kind, name, sample_name, labels, values, self._help(name))
                    value.inc(added)
                    self._told[sample] = number

    async def aclose(self) -> None:
        """Write down what is left, before the process goes."""
        if self._is_shared:
            await to_thread.run_sync(self._share_now)

    def _share_soon(self) -> None:
        pid = os.getpid()
        if self._timer_of != pid:
            self._timer_of = pid
            timer = threading.Timer(SHARE_SECONDS, self._share_now)
            timer.daemon = True
            timer.start()

    def _share_now(self) -> None:
        # First, so that what is counted from here on has a timer again.
        self._timer_of = None
        try:
            self.share()
        except OSError as problem:
            logger.error("metrics: %s cannot be written (%s)", MULTIPROCESS_DIR, type(problem).__name__)

    def _counted(self) -> Iterable["Metric"]:
        if not self._is_shared:
            return self._own()
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        self.share()
        found = MultiProcessCollector(CollectorRegistry()).collect()  # type: ignore[no-untyped-call]  # the library has no types here
        return [metric for metric in found if metric.name.startswith("routeguard_")]

    def _own(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        tallies = self._tallies
        with tallies.lock:
            counts = dict(tallies.counts)
            histograms = [(one, list(one.counts), one.total) for one in tallies.histograms]
        for family in FAMILIES:
            metric = CounterMetricFamily(family.name, family.help, labels=family.labels)
            if not family.labels:
                counts.setdefault((family, ()), 0)
            for (known, values), number in counts.items():
                if known is family:
                    metric.add_metric(values, _shown(family, number))
            yield metric
        for histogram, numbers, total in histograms:
            so_far, buckets = 0, []
            for bound, number in zip(_bounds(histogram), numbers, strict=True):
                so_far += number
                buckets.append((bound, so_far))
            yield HistogramMetricFamily(histogram.name, histogram.help, buckets=buckets, sum_value=total)

    def _samples(self) -> Iterator[tuple[Sample, float]]:
        """Every number as the files hold it: buckets not cumulated."""
        tallies = self._tallies
        with tallies.lock:
            counts = dict(tallies.counts)
            histograms = [(one, list(one.counts), one.total) for one in tallies.histograms]
        for (family, values), number in counts.items():
            sample = ("counter", family.name, f"{family.name}_total", family.labels, values)
            yield sample, _shown(family, number)
        for histogram, numbers, total in histograms:
            name = histogram.name
            yield ("histogram", name, f"{name}_sum", (), ()), total
            for bound, number in zip(_bounds(histogram), numbers, strict=True):
                yield ("histogram", name, f"{name}_bucket", ("le",), (bound,)), number

    def _help(self, name: str) -> str:
        return next(known.help for known in (*FAMILIES, *self._tallies.histograms) if known.name == name)


class _Collected:
    """What a registry asks, answered already."""

    def __init__(self, metrics: Sequence["Metric"]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable["Metric"]:
        return self._metrics


def _gauges(gauges: Gauges) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    limit = GaugeMetricFamily("routeguard_budget_limit_usd", "The cap of a budget.", labels=("budget",))
    remaining = GaugeMetricFamily(
        "routeguard_budget_remaining_usd", "What is left of it; negative after an overrun.", labels=("budget",)
    )
    for balance in gauges.balances:
        limit.add_metric((balance.budget.name,), balance.budget.limit_nanousd / NANOUSD_PER_USD)
        remaining.add_metric((balance.budget.name,), balance.remaining_nanousd / NANOUSD_PER_USD)
    yield limit
    yield remaining
    if gauges.balances:
        # The same requests are open in every budget; after a turn of one window it holds the fewest.
        most = max(balance.open_nanousd for balance in gauges.balances)
        yield GaugeMetricFamily(
            "routeguard_open_usd", "Reserved by requests that still run.", value=most / NANOUSD_PER_USD
        )
    if gauges.in_flight is not None:
        yield GaugeMetricFamily("routeguard_in_flight", "Requests that still run.", value=gauges.in_flight)


def _shown(family: Family, number: int) -> float:
    return number / NANOUSD_PER_USD if family.is_money else number


def _bounds(histogram: Histogram) -> list[str]:
    from prometheus_client.utils import floatToGoString

    return [floatToGoString(bound) for bound in (*histogram.bounds, float("inf"))]  # type: ignore[no-untyped-call]  # nor here
