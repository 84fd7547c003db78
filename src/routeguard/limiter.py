"""Rates, counted in this process: at most L admissions in *any* window of that length.

Rules that live here:

- Up to `EXACT_MAX` the window is a log of times and exact. Above it claims share a bucket of 1/60 of the
  window, and a bucket leaves when its *youngest* claim is a window old: a slot comes back late by at most
  that sixtieth, never early.
- Claims are all or nothing over every rate of the request, and nothing is awaited between check and claim.
- Per-client state is an LRU map with a hard size. An entry expires by its own content, so there is no sweep,
  and it is made only when a slot is taken: a refused stranger costs no memory. The global rates live outside
  the map and cannot be evicted.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache

from routeguard.clock import Clock
from routeguard.policy import Rate

#: Largest quota that is counted exactly.
EXACT_MAX = 100
#: Buckets a window is cut into above that.
BUCKETS = 60
#: A client's refusals are limited to this many times its tightest quota, in that quota's window.
REFUSALS_PER_QUOTA = 10


class RateRefused(Exception):
    """No slot is free. Nothing was claimed."""

    def __init__(self, retry_ns: int, *, per_client: bool) -> None:
        super().__init__("no slot is free")
        #: Nanoseconds until every rate in the way has a slot again.
        self.retry_ns = retry_ns
        #: True when a rate of the client is in the way, False when only a global one is.
        self.per_client = per_client


class Left(NamedTuple):
    """What a client has left of one rate."""

    rate: Rate
    remaining: int
    #: Nanoseconds until its oldest slot is back; the whole window when it holds none.
    reset_ns: int


class ExactWindow:
    """A log of claim times, oldest first."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times: list[int] = []

    def used(self, now_ns: int, window_ns: int) -> int:
        """Slots in use; forgets what is older than the window."""
        times = self.times
        if times and times[0] <= now_ns - window_ns:
            horizon = now_ns - window_ns
            self.times = times = [time for time in times if time > horizon]
        return len(times)

    def add(self, now_ns: int, window_ns: int) -> None:
        self.times.append(now_ns)

    def give_back(self, claimed_ns: int) -> None:
        if claimed_ns in self.times:
            self.times.remove(claimed_ns)

    def wait_ns(self, now_ns: int, window_ns: int, quota: int) -> int:
        """Nanoseconds until one more claim fits; asked only of a full window."""
        return self.times[-quota] + window_ns - now_ns

    def reset_ns(self, now_ns: int, window_ns: int) -> int:
        """Nanoseconds until the oldest slot is back; the whole window when none is in use."""
        return self.times[0] + window_ns - now_ns if self.times else window_ns


class BucketWindow:
    """Counts in buckets of 1/60 of the window: `[first, last, count]`, oldest first."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets: list[list[int]] = []
        self.total = 0

    def used(self, now_ns: int, window_ns: int) -> int:
        """Slots in use; forgets buckets whose youngest claim is older than the window."""
        buckets = self.buckets
        gone = 0
        while gone < len(buckets) and buckets[gone][1] <= now_ns - window_ns:
            self.total -= buckets[gone][2]
            gone += 1
        if gone:
            del buckets[:gone]
        return self.total

    def add(self, now_ns: int, window_ns: int) -> None:
        buckets = self.buckets
        if buckets and now_ns - buckets[-1][0] < window_ns // BUCKETS:
            buckets[-1][1] = now_ns
            buckets[-1][2] += 1
        else:
            buckets.append([now_ns, now_ns, 1])
        self.total += 1

    def give_back(self, claimed_ns: int) -> None:
        for bucket in reversed(self.buckets):
            if bucket[0] <= claimed_ns <= bucket[1]:
                bucket[2] -= 1
                self.total -= 1
                if not bucket[2]:
                    self.buckets.remove(bucket)
                return

    def wait_ns(self, now_ns: int, window_ns: int, quota: int) -> int:
        """Nanoseconds until one more claim fits; asked only of a full window."""
        over = self.total - quota + 1
        for _, last, count in self.buckets:
            over -= count
            if over <= 0:
                return last + window_ns - now_ns
        raise AssertionError("a full window holds as many claims as its quota")

    def reset_ns(self, now_ns: int, window_ns: int) -> int:
        """Nanoseconds until the oldest slot is back; the whole window when none is in use."""
        return self.buckets[0][1] + window_ns - now_ns if self.buckets else window_ns


RateWindow = ExactWindow | BucketWindow
#: A rate and the window it is counted in.
Counted = tuple[RateWindow, Rate]


class ClientState:
    """One client's windows, each with its length, and its refusals."""

    __slots__ = ("_counted", "_rates", "refusals", "windows")

    def __init__(self) -> None:
        self.windows: list[tuple[int, RateWindow]] = []
        self.refusals: BucketWindow | None = None
        self._rates: tuple[Rate, ...] = ()
        self._counted: tuple[Counted, ...] = ()

    def window(self, rate: Rate) -> RateWindow:
        kind = ExactWindow if rate.quota <= EXACT_MAX else BucketWindow
        for window_ns, window in self.windows:
            if window_ns == rate.window_ns and isinstance(window, kind):
                return window
        window = kind()
        self.windows.append((rate.window_ns, window))
        return window

    def counted(self, rates: Sequence[Rate]) -> tuple[Counted, ...]:
        """Each rate with its window. A guard asks for the same ones each time, and finds them put together."""
        rates = tuple(rates)  # of a tuple this is the tuple itself
        if rates is not self._rates:
            self._rates, self._counted = rates, tuple((self.window(rate), rate) for rate in rates)
        return self._counted


@dataclass(slots=True)
class RateTicket:
    """One slot of each rate, taken at one moment."""

    claimed_ns: int
    counted: Sequence[Counted]
    #: What the client has left of its tightest rate after this claim; None without client rates.
    left: Left | None


class RateLimiter:
    """The rates of one namespace in this process."""

    def __init__(self, *, clock: Clock, clients_max: int) -> None:
        self._clock = clock
        self._clients: LRUCache[str, ClientState] = LRUCache(maxsize=clients_max)
        self._everybody = ClientState()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Clients with state."""
        return len(self._clients)

    def claim(self, client: str, *, rates: Sequence[Rate], global_rates: Sequence[Rate]) -> RateTicket:
        """Take one slot of every rate, or none.

        Raises:
            RateRefused: A rate has no slot free, or the client was refused too often.
        """
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            known = self._clients.get(client) if rates else None
            state = known or ClientState()
            own, shared = state.counted(rates), self._everybody.counted(global_rates)
            counted = own + shared
            refusal_wait_ns = 0 if state.refusals is None else _refusal_wait_ns(state.refusals, rates, now_ns)
            if refusal_wait_ns or _wait_ns(counted, now_ns):
                client_wait_ns = max(_wait_ns(own, now_ns), refusal_wait_ns)
                raise RateRefused(max(client_wait_ns, _wait_ns(shared, now_ns)), per_client=client_wait_ns > 0)
            for window, rate in counted:
                window.add(now_ns, rate.window_ns)
            if rates and known is None:
                self._clients[client] = state
            return RateTicket(now_ns, counted, _fewest_left(own, now_ns))

    def give_back(self, ticket: RateTicket) -> None:
        """Return the slots of a request that was refused for money, slots or a sick ledger."""
        with self._lock:
            for window, _ in ticket.counted:
                window.give_back(ticket.claimed_ns)

    def count_refusal(self, client: str, rates: Sequence[Rate]) -> None:
        """Remember a refusal of a client that is already known; strangers make no entry."""
        if not rates:
            return
        with self._lock:
            state = self._clients.get(client)
            if state is None:
                return
            if state.refusals is None:
                state.refusals = BucketWindow()
            window_ns = _tightest(rates).window_ns
            now_ns = self._clock.monotonic_ns()
            state.refusals.used(now_ns, window_ns)
            state.refusals.add(now_ns, window_ns)

    def left(self, client: str, rates: Sequence[Rate]) -> Left | None:
        """What the client has left of the rate with the fewest slots left; None without rates."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            state = self._clients.get(client) or ClientState()
            return _fewest_left(state.counted(rates), now_ns)


def _wait_ns(counted: Sequence[Counted], now_ns: int) -> int:
    """Nanoseconds until every rate has a slot free; 0 when each has one now."""
    wait_ns = 0
    for window, rate in counted:
        if window.used(now_ns, rate.window_ns) >= rate.quota:
            wait_ns = max(wait_ns, window.wait_ns(now_ns, rate.window_ns, rate.quota))
    return wait_ns


def _fewest_left(counted: Sequence[Counted], now_ns: int) -> Left | None:
    fewest: Left | None = None
    for window, rate in counted:
        remaining = max(0, rate.quota - window.used(now_ns, rate.window_ns))
        if fewest is None or remaining < fewest.remaining:
            fewest = Left(rate, remaining, window.reset_ns(now_ns, rate.window_ns))
    return fewest


def _tightest(rates: Sequence[Rate]) -> Rate:
    return min(rates, key=lambda rate: (rate.quota, rate.window_ns))


def _refusal_wait_ns(refusals: BucketWindow, rates: Sequence[Rate], now_ns: int) -> int:
    tightest = _tightest(rates)
    quota = REFUSALS_PER_QUOTA * tightest.quota
    if refusals.used(now_ns, tightest.window_ns) < quota:
        return 0
    return refusals.wait_ns(now_ns, tightest.window_ns, quota)
