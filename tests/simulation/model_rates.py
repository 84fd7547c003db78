"""The rates of the model store: logs of claims and buckets, as `reserve.lua` and `places.lua` keep them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.simulation.model_data import Data

EXACT_MAX, BUCKETS = 100, 60


@dataclass(frozen=True, slots=True)
class Asked:
    """One rate of a reserve."""

    key: str
    quota: int
    window: int

    @property
    def is_exact(self) -> bool:
        return self.quota <= EXACT_MAX


def wait_us(data: Data, rate: Asked, now: int) -> int:
    """Until it has a place. Claims in the future happened before now: they are moved, and that is counted."""
    log = data.rates.get(rate.key, [])
    if log and _youngest(log[-1]) > now:
        for entry in log:
            entry[:2] = [min(at, now) for at in entry[:2]]
        data.meta["moved"] = str(int(data.meta.get("moved", "0")) + 1)
    if rate.is_exact:
        return max(0, log[-rate.quota][0] + rate.window - now) if len(log) >= rate.quota else 0
    living = [entry for entry in log if _youngest(entry) > now - rate.window]
    over = sum(count for _, _, count in living) - rate.quota + 1
    if over <= 0:
        return 0
    for _, last, count in living:
        over -= count
        if over <= 0:
            return last + rate.window - now
    raise AssertionError("what is over is in some bucket")


def claim(data: Data, rates: Sequence[Asked], now: int) -> None:
    for rate in rates:
        log = data.rates.setdefault(rate.key, [])
        if rate.is_exact:
            data.rates[rate.key] = [*log, [now]][-EXACT_MAX:]
            continue
        log[:] = [entry for entry in log if _youngest(entry) > now - rate.window]
        if log and now - log[-1][0] < rate.window // BUCKETS:
            log[-1][1:] = [now, log[-1][2] + 1]
        else:
            log.append([now, now, 1])


def give_back(data: Data, logs: Iterable[tuple[str, str]], claimed: str) -> None:
    """Take one claim out of these logs, each named with its kind, if none was moved since."""
    at_text, _, moved = claimed.removeprefix("@").partition(".")
    if moved != data.meta.get("moved", "0"):
        return
    at = int(at_text)
    for key, kind in logs:
        log = data.rates.get(key, [])
        if kind == "log" and [at] in log:
            log.remove([at])
        elif kind == "buckets":
            for entry in [entry for entry in log if entry[0] <= at <= entry[1]][-1:]:
                entry[2] -= 1
                if not entry[2]:
                    log.remove(entry)


def places(log: Iterable[Sequence[int]], *, since: int) -> int:
    """Claims that count when those up to `since` do not any more."""
    return sum(entry[2] if len(entry) > 1 else 1 for entry in log if _youngest(entry) > since)


def as_stored(log: Sequence[Sequence[int]]) -> str:
    """What the scripts would have written."""
    if not log:
        return ""
    if len(log[0]) == 1:
        return "".join(f"{at:016d}" for (at,) in log)
    total = sum(count for _, _, count in log)
    return f"{total:010d}" + "".join(f"{first:016d}{last:016d}{count:010d}" for first, last, count in log)


def _youngest(entry: Sequence[int]) -> int:
    return entry[:2][-1]
