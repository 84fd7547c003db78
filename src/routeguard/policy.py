"""What is counted, how much of it, per how long, and the ledger that counts it.

The vocabulary is the project's glossary: a *policy* is a quota over a unit and a window, a *partition* is
whose share it is, a *claim* is a policy plus a partition plus an amount, and a *ledger* debits claims.

Rules that live here:

- A reservation is a charge. It remembers the counters it debited, window included, and ends exactly once:
  settled, kept or released. `orphaned` (its owner died) is provisional; a later settle still ends it.
- Nothing in a ledger gives money back because time has passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar
from zoneinfo import ZoneInfo

from routeguard.records import NO_NOTE, Journal, Note

WindowUnit = Literal["hour", "day", "week", "month", "total"]

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """One concrete window, in whole seconds since the Unix epoch; `end` is exclusive, None for `total`."""

    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Window:
    """Calendar-aligned windows of one unit in one zone. Weeks begin on Monday (ISO 8601)."""

    unit: WindowUnit
    zone: ZoneInfo

    def span(self, wall_seconds: int) -> Span:
        """The window that holds this moment. Daylight saving days have 23 or 25 hours."""
        if self.unit == "total":
            return Span(0, None)
        local = datetime.fromtimestamp(wall_seconds, self.zone)
        midnight = datetime(local.year, local.month, local.day, tzinfo=self.zone)
        if _epoch(midnight + timedelta(days=1)) <= wall_seconds:
            # Clocks went back over midnight (St. John's until 2011: at 00:01). The day that has begun stays.
            midnight += timedelta(days=1)
        day = Span(_epoch(midnight), _epoch(midnight + timedelta(days=1)))
        if self.unit == "hour":
            return _hour(day, wall_seconds)
        if self.unit == "day":
            return day
        if self.unit == "week":
            monday = midnight - timedelta(days=midnight.weekday())
            return Span(_epoch(monday), _epoch(monday + timedelta(days=7)))
        first = midnight.replace(day=1)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        return Span(_epoch(first), _epoch(following))


def _hour(day: Span, wall_seconds: int) -> Span:
    # Counted from midnight, not by wall time: the repeated hour of autumn is two windows, and where clocks move by
    # half an hour (Lord Howe) the windows of that day still follow one another.
    assert day.end is not None, "a day ends"
    start = wall_seconds - (wall_seconds - day.start) % 3600
    return Span(start, min(start + 3600, day.end))


def _epoch(local_midnight: datetime) -> int:
    # Arithmetic on an aware datetime keeps wall time, so the sums above land on local midnights; the
    # offset is looked up again here. A midnight that does not exist becomes the moment of the jump.
    return int(local_midnight.astimezone(UTC).timestamp())


@dataclass(frozen=True, slots=True)
class Budget:
    """A policy in money: `limit_nanousd` per window, for everybody together or for each client."""

    #: Name of its window: `day`, `month`, …; what the status calls it.
    name: WindowUnit
    window: Window
    limit_nanousd: int
    #: Partitioned by client. Then an overflow client serves whoever finds the map full of money.
    per_client: bool = False
    #: What names its counters besides the window's start: never the limit, so a changed limit keeps spend.
    counter: tuple[str, str, bool] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counter", (self.name, self.window.zone.key, self.per_client))


@dataclass(frozen=True, slots=True)
class Rate:
    """A policy in requests: at most `quota` in *any* window of that length."""

    #: Name in the RateLimit headers, for example `client-1`.
    name: str
    quota: int
    window_ns: int


@dataclass(frozen=True, slots=True)
class Parallel:
    """A policy in open streams. A slot is a lease: it is back after `lease_ns` whatever happened to its owner."""

    #: None counts without limiting.
    quota: int | None
    lease_ns: int
    per_client: bool = False


PolicyT = TypeVar("PolicyT", Budget, Parallel, Rate)


class Claim(NamedTuple, Generic[PolicyT]):
    """One policy, whose share of it, and how much: nano-USD of a budget, 1 of a rate or a parallel policy.

    A named tuple, because a request makes half a dozen of them.
    """

    policy: PolicyT
    #: Whose share: the client's key, or "" for everybody together.
    partition: str
    amount: int


Cause = Literal["too_expensive", "budget_exhausted", "rate_limited", "busy"]


class Refused(Exception):
    """A ledger's verdict on a reservation: what stands in the way, the most final thing first.

    Nothing was debited. The guard turns it into an answer.
    """

    def __init__(self, cause: Cause, *, per_client: bool, resets_at: int | None, retry_ns: int = 0) -> None:
        super().__init__(cause)
        #: `too_expensive`: an amount exceeds its whole budget. `budget_exhausted`: settled, kept and orphaned
        #: money leave no room until the window ends. `rate_limited`: a shared rate has no slot free. `busy`: open
        #: reservations or slots are in the way for now.
        self.cause = cause
        #: True when only per-client policies are in the way.
        self.per_client = per_client
        #: Unix seconds of the latest reset among the budgets in the way; None for `total` and for slots.
        self.resets_at = resets_at
        #: Nanoseconds until every rate in the way has a slot again; 0 for other causes.
        self.retry_ns = retry_ns


class LedgerUnavailable(Exception):
    """The ledger did not answer in time, or is suspected to have lost writes. Nothing may be admitted."""


State = Literal["open", "orphaned", "settled", "kept", "released"]
#: States that a reservation never leaves.
ENDED: frozenset[State] = frozenset({"settled", "kept", "released"})


@dataclass(slots=True, eq=False)
class Reservation:
    """Money and slots debited for one request, and the exact counters they were debited from."""

    #: Client-made and time-ordered; every write for this reservation carries it.
    id: str
    #: What was debited from each budget; 0 when no money was claimed.
    amount_nanousd: int
    state: State = "open"
    #: With `force`: what would have been refused.
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """One budget in its current window. `settled + open + kept + orphaned` is the counter."""

    budget: Budget
    #: Unix seconds at which the window ends; None for `total`.
    resets_at: int | None
    settled_nanousd: int
    open_nanousd: int
    kept_nanousd: int
    orphaned_nanousd: int
    #: How much of the charges was above its ceilings; already inside the other parts.
    overrun_nanousd: int

    @property
    def charged_nanousd(self) -> int:
        """The counter: everything that is not free to spend."""
        return self.settled_nanousd + self.open_nanousd + self.kept_nanousd + self.orphaned_nanousd

    @property
    def remaining_nanousd(self) -> int:
        """What is left of the limit; negative after an overrun."""
        return self.budget.limit_nanousd - self.charged_nanousd


class Ledger(Protocol):
    """Where budgets and parallel slots are counted. `testing.LedgerContract` is what each must pass.

    Every method may be cancelled at any await, and none leaves money or a slot half-written.
    """

    #: `memory`, `sqlite`, `redis`: what the status and the start line say.
    kind: str
    #: Who shares these counters: `process`, `host` or `store`.
    scope: str
    #: Rates are shared as well and claimed in `reserve`. Else the limiter in front of the body is their count.
    counts_rates: bool

    @property
    def healthy(self) -> bool:
        """The last question was answered."""
        ...

    @property
    def client_salt(self) -> bytes:
        """Keys the hashes that stand for clients; the same for all who share the counters. Known after `refresh`."""
        ...

    @property
    def paused(self) -> bool:
        """The kill switch, as last known to this process. Set before the first question, it starts paused."""
        ...

    @paused.setter
    def paused(self, paused: bool) -> None: ...

    @property
    def journal(self) -> Journal | None:
        """Gets a record of whatever changes what is charged. Set before the first question; None without one."""
        ...

    @journal.setter
    def journal(self, journal: Journal | None) -> None: ...

    async def check(self) -> tuple[str, ...]:
        """What an operator should know before the first request, as warnings.

        Raises:
            ConfigError: What is behind this ledger cannot keep money safe, or may not be used.
        """
        ...

    async def refresh(self) -> None:
        """Ask for the kill switch again where others can turn it and the last answer is a second old.

        Raises:
            LedgerUnavailable: It never answered yet, so that not even a client can be named.
        """
        ...

    async def reserve(
        self,
        reservation_id: str,
        *,
        money: Sequence[Claim[Budget]],
        slots: Sequence[Claim[Parallel]],
        rates: Sequence[Claim[Rate]] = (),
        force: bool = False,
    ) -> Reservation:
        """Debit every claim, or none.

        The amounts of `money` are equal: the ceiling of one request. With the id of an open reservation the
        answer is that reservation, and nothing is debited again. With `force` (the observe mode) everything is
        debited in any case, and `Reservation.refused` says what stood in the way.

        Raises:
            Refused: Something stands in the way; no counter changed.
            LedgerUnavailable: Nobody knows. What was debited after all is released once the ledger answers again.
        """
        ...

    async def settle(
        self,
        reservation: Reservation,
        *,
        state: State,
        settled_nanousd: int,
        kept_nanousd: int,
        note: Note = NO_NOTE,
    ) -> bool:
        """End a reservation: replace what it debited by what is charged, in the counters it debited.

        What is charged above the reservation is counted as overrun. Frees the slots. Returns False, and changes
        nothing, when it had ended already. The record with its `note` goes to the journal.

        Raises:
            LedgerUnavailable: It is kept, and written as soon as the ledger answers.
        """
        ...

    def charge_late(
        self, reservation: Reservation, *, charge_id: str, extra_nanousd: int, note: Note = NO_NOTE
    ) -> None:
        """Charge what a bill exceeds its charge by, after the ending, to the same windows as overrun.

        May be called from any thread and never blocks; a ledger with a server behind it queues the write.
        """
        ...

    def exhausted_until(self, budgets: Sequence[Budget], amount_nanousd: int) -> tuple[bool, int | None]:
        """Whether, as far as this process knows without asking anyone, one of these budgets has no room for
        `amount_nanousd` beside settled, kept and orphaned money; and the latest reset of those in the way."""
        ...

    def client_exhausted_until(
        self, budgets: Sequence[Budget], client: str, amount_nanousd: int
    ) -> tuple[bool, int | None]:
        """The same for one client's budgets."""
        ...

    async def balances(self, budgets: Sequence[Budget]) -> list[Balance]:
        """Where each of these budgets stands, in their order."""
        ...

    async def in_flight(self) -> int:
        """Streams holding a slot."""
        ...

    async def set_paused(self, *, paused: bool) -> None:
        """Turn the kill switch."""
        ...

    async def first(self, name: str, *, by: str, until: int | None) -> bool:
        """Whether `by` is the first of all who share the counters to ask for `name`.

        The answer stays what it was: asked again by the same, it is true again, so that a lost reply costs nothing.

        Args:
            name: A word; not more of them than a few a window, because each is remembered.
            by: Who asks.
            until: Unix seconds at which the name is forgotten; None for never.

        Raises:
            LedgerUnavailable: Nobody knows.
        """
        ...

    async def forget(self) -> None:
        """Remove everything that this namespace holds, its money included. Only for a namespace that nobody uses:
        afterwards neither this object nor another that was open may be used, but to close it.

        Raises:
            LedgerUnavailable: It is not known to be gone.
        """
        ...

    async def aclose(self) -> None:
        """Finish pending writes, within a bound, and close what was opened."""
        ...
