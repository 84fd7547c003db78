"""Ratios that survive a busy machine: the contestants take turns, and the median of the rounds counts.

Rules that live here:

- Time is processor time of this process, so that a neighbour who holds the core does not count.
- One round lets every contestant run once, in a new seeded order. A ratio compares two runs of the same round: what
  slows the machine down for seconds slows both.
- The garbage collector stays on, as in production; each run begins with an empty nursery.
- Nothing here decides a test. A target that is missed is printed, not raised.
"""

import gc
import os
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

#: Runs one contestant once, and returns the nanoseconds of one operation.
Run = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    what: str
    value: str
    ratio: str = ""
    target: str = ""


class Contest:
    """What each contestant took in each round, in nanoseconds of one operation."""

    def __init__(self, contestants: Mapping[str, Run], *, rounds: int) -> None:
        """Run all of them, `rounds` times, after one round that nobody counts."""
        self.times: dict[str, list[float]] = {name: [] for name in contestants}
        order = list(contestants)
        seeded = random.Random(0)
        for number in range(rounds + 1):
            seeded.shuffle(order)
            for name in order:
                gc.collect()
                took = contestants[name]()
                if number:
                    self.times[name].append(took)

    def median_ns(self, name: str) -> float:
        return median(self.times[name])

    def ratio(self, name: str, baseline: str) -> float:
        """Median of the ratios, each of one round."""
        return median(mine / its for mine, its in zip(self.times[name], self.times[baseline], strict=True))

    def difference_ns(self, name: str, baseline: str) -> float:
        """Median of the differences, each of one round."""
        return median(mine - its for mine, its in zip(self.times[name], self.times[baseline], strict=True))

    def row(self, name: str, *, baseline: str, target: float | None = None) -> Row:
        ratio = self.ratio(name, baseline)
        return Row(
            name,
            duration(self.median_ns(name)),
            f"{ratio:.2f} x",
            "" if target is None else verdict(ratio, target, f"{target:g} x"),
        )


def verdict(value: float, target: float, shown: str) -> str:
    """The target, and whether it was met."""
    return f"at most {shown}: {'met' if value <= target else 'MISSED'}"


def duration(nanoseconds: float) -> str:
    if abs(nanoseconds) < 1_000:
        return f"{nanoseconds:.0f} ns"
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1_000:.2f} µs"
    return f"{nanoseconds / 1_000_000:.1f} ms"


def print_table(title: str, rows: Sequence[Row]) -> None:
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("what", "value", "ratio")]
    print(f"\n{title}")
    for row in rows:
        what, value, ratio = row.what.ljust(widths[0]), row.value.rjust(widths[1]), row.ratio.rjust(widths[2])
        print(f"  {what}  {value}  {ratio}  {row.target}".rstrip())


def machine() -> str:
    """What this was measured on, in one line."""
    name = next(
        (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}, "
        f"{os.cpu_count()} x {name}, load {os.getloadavg()[0]:.1f}"
    )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
