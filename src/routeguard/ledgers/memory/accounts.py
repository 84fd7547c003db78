"""What a process counts in: the accounts of a budget's current window, and who debited which."""

from collections.abc import Sequence
from dataclasses import dataclass

from routeguard.policy import Budget, Claim, Parallel, Reservation, Span
from routeguard.records import counter_name


class Account:
    """The parts of one counter. `spent` and `open` decide; the parts explain."""

    __slots__ = ("kept", "open", "orphaned", "overrun", "settled")

    def __init__(self) -> None:
        self.settled = self.open = self.kept = self.orphaned = self.overrun = 0

    @property
    def spent(self) -> int:
        return self.settled + self.kept + self.orphaned


class Book:
    """The current window of one budget, and its accounts."""

    __slots__ = ("budget", "clients", "everybody", "overflow", "span")

    def __init__(self, budget: Budget, span: Span) -> None:
        self.budget = budget
        self.span = span
        self.everybody = Account()
        self.clients: dict[str, Account] = {}
        self.overflow = Account()

    def name_of(self, partition: str) -> str:
        """What a journal calls the account of a client, or for "" of everybody or the overflow client."""
        unit, zone, per_client = self.budget.counter
        return counter_name(unit, zone, self.span.start, per_client=per_client, partition=partition)


@dataclass(slots=True, eq=False)
class HeldReservation(Reservation):
    """A reservation with the accounts it debited, so that settling never looks at a clock."""

    #: Account, and the map it is dropped from when its money is zero.
    accounts: Sequence[tuple[Account, Book, str]] = ()
    #: The slots it holds, and the length of its lease.
    slots: Sequence[Claim[Parallel]] = ()
    lease_ns: int = 0

    @property
    def counters(self) -> tuple[str, ...]:
        """What a journal calls its accounts."""
        return tuple([book.name_of(partition) for _, book, partition in self.accounts])


def latest_end(in_the_way: Sequence[tuple[Budget, Span]]) -> int | None:
    """The latest reset of one or more; None as soon as one of them never resets."""
    ends = [span.end for _, span in in_the_way]
    return None if None in ends else max(end for end in ends if end is not None)
