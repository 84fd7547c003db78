"""A ledger as plain sums: what is asked of it, and what it has to answer.

It knows neither accounts nor files nor scripts: amounts by counter and part, streams by id, moments by rate. Limits are
small, so that a short history meets all of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from routeguard.policy import NANOSECONDS, Budget, Claim, Parallel, Rate, State, Window, WindowUnit
from routeguard.records import counter_name
from routeguard.testing import FakeClock

HOUR, DAY = 3_600, 86_400
SECONDS_OF: dict[WindowUnit, int] = {"hour": HOUR, "day": DAY}


def _budget(unit: WindowUnit, limit: int, *, per_client: bool = False) -> Budget:
    return Budget(unit, Window(unit, ZoneInfo("UTC")), limit, per_client)


#: By name, for histories that can be read.
BUDGETS = {
    "day": _budget("day", 30),
    "total": _budget("total", 90),
    "client's hour": _budget("hour", 12, per_client=True),
    "client's day": _budget("day", 20, per_client=True),
}
SLOT = Parallel(4, 330 * NANOSECONDS)
SLOT_OF_CLIENT = Parallel(2, 60 * NANOSECONDS, per_client=True)
RATES = {"global-1": Rate("global-1", 3, 600 * NANOSECONDS), "client-1": Rate("client-1", 1, 60 * NANOSECONDS)}


@dataclass(frozen=True)
class Asked:
    """One reservation as it is asked for. A stream without a slot has no lease, so each takes one of everybody's."""

    client: str
    amount: int
    budgets: Sequence[str]
    slot_of_client: bool
    rates: Sequence[str]
    force: bool

    @property
    def money(self) -> list[Claim[Budget]]:
        budgets = [BUDGETS[name] for name in self.budgets]
        return [Claim(one, self.client if one.per_client else "", self.amount) for one in budgets]

    @property
    def slots(self) -> list[Claim[Parallel]]:
        return [Claim(SLOT, "", 1), *([Claim(SLOT_OF_CLIENT, self.client, 1)] if self.slot_of_client else [])]

    @property
    def rate_claims(self) -> list[Claim[Rate]]:
        return [Claim(RATES[name], self.client if name == "client-1" else "", 1) for name in self.rates]


#: Cause, whether only policies of the client are in the way, when the last of them resets, and seconds until a rate
#: has room.
Verdict = tuple[str, bool, int | None, int]


@dataclass
class Stream:
    """What a reservation holds."""

    asked: Asked
    counters: Sequence[str]
    lease_ends: int
    state: State = "open"
    ended_at: int = 0


class Model:
    """Plain sums. Seconds, as the machine's rules let them pass."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.parts: Counter[tuple[str, str]] = Counter()
        #: Forced past the limit, by counter.
        self.forced: Counter[str] = Counter()
        self.streams: dict[str, Stream] = {}
        self._rates: dict[tuple[str, str], list[int]] = {}
        #: The latest second that chose a window, and was then taken back.
        self.latest_wall = 0

    @property
    def now(self) -> int:
        return self._clock.monotonic_ns() // NANOSECONDS

    @property
    def wall(self) -> int:
        """A window never moves backwards."""
        return max(self._clock.wall_ns() // NANOSECONDS, self.latest_wall)

    def counter(self, budget: Budget, client: str) -> str:
        partition = client if budget.per_client else ""
        return counter_name(budget.name, "UTC", self.span(budget)[0], per_client=budget.per_client, partition=partition)

    def span(self, budget: Budget) -> tuple[int, int | None]:
        seconds = SECONDS_OF.get(budget.name)
        if seconds is None:
            return 0, None
        start = self.wall // seconds * seconds
        return start, start + seconds

    def spent(self, counter: str) -> int:
        return sum(self.parts[counter, part] for part in ("settled", "kept", "orphaned"))

    def charged(self, counter: str) -> int:
        return self.spent(counter) + self.parts[counter, "open"]

    def holders(self, client: str = "") -> list[Stream]:
        """Streams that hold a slot: of everybody, or one of a client's own."""
        streams = [stream for stream in self.streams.values() if stream.state == "open"]
        if not client:
            return streams
        return [stream for stream in streams if stream.asked.slot_of_client and stream.asked.client == client]

    def verdict(self, asked: Asked) -> Verdict | None:
        """What stands in the way, the most final thing first."""
        never, spent, busy = [], [], []
        for budget, partition, _ in asked.money:
            counter = self.counter(budget, partition)
            free = budget.limit_nanousd - self.spent(counter)
            if asked.amount > budget.limit_nanousd:
                never.append(budget)
            if asked.amount > free:
                spent.append(budget)
            elif asked.amount > free - self.parts[counter, "open"]:
                busy.append(budget.per_client)
        if never:
            return "too_expensive", all(budget.per_client for budget in never), None, 0
        if spent:
            ends = [end for _, end in map(self.span, spent) if end is not None]
            resets_at = max(ends) if len(ends) == len(spent) else None
            return "budget_exhausted", all(budget.per_client for budget in spent), resets_at, 0
        waits = [(self.wait(claim), claim.partition) for claim in asked.rate_claims]
        if any(wait for wait, _ in waits):
            return "rate_limited", all(partition for wait, partition in waits if wait), None, max(waits)[0]
        busy += [policy.per_client for policy, partition, _ in asked.slots if self.is_full(policy, partition)]
        return ("busy", all(busy), None, 0) if busy else None

    def is_full(self, policy: Parallel, client: str) -> bool:
        assert policy.quota is not None
        return len(self.holders(client)) >= policy.quota

    def wait(self, claim: Claim[Rate]) -> int:
        """Seconds until a rate has room; 0 when it has."""
        rate, seconds = claim.policy, claim.policy.window_ns // NANOSECONDS
        taken = [at for at in self._rates.get((rate.name, claim.partition), []) if at > self.now - seconds]
        return taken[-rate.quota] + seconds - self.now if len(taken) >= rate.quota else 0

    def debit(self, name: str, asked: Asked, refused: Verdict | None) -> None:
        counters = [self.counter(budget, partition) for budget, partition, _ in asked.money]
        lease = max(claim.policy.lease_ns for claim in asked.slots) // NANOSECONDS
        self.streams[name] = Stream(asked, counters, self.now + lease)
        for counter in counters:
            self.parts[counter, "open"] += asked.amount
            self.forced[counter] += asked.amount if refused else 0
        # What is only observed takes no slot of a rate that is not there.
        if not any(map(self.wait, asked.rate_claims)):
            for claim in asked.rate_claims:
                self._rates.setdefault((claim.policy.name, claim.partition), []).append(self.now)

    def end(self, name: str, state: State, settled: int, kept: int) -> None:
        stream = self.streams[name]
        for counter in stream.counters:
            self.parts[counter, stream.state] -= stream.asked.amount
            self.parts[counter, "settled"] += settled
            self.parts[counter, "kept"] += kept
            self.parts[counter, "overrun"] += max(0, settled + kept - stream.asked.amount)
        stream.state, stream.ended_at = state, self.now

    def charge_late(self, name: str, extra: int) -> None:
        for counter in self.streams[name].counters:
            self.parts[counter, "settled"] += extra
            self.parts[counter, "overrun"] += extra

    def let_leases_end(self) -> None:
        for stream in self.streams.values():
            if stream.state == "open" and stream.lease_ends <= self.now:
                stream.state = "orphaned"
                for counter in stream.counters:
                    self.parts[counter, "open"] -= stream.asked.amount
                    self.parts[counter, "orphaned"] += stream.asked.amount
