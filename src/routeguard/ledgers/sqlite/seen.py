"""What this process saw last of each counter, so that a spent budget is refused without asking.

Written by the writer's thread after each commit, read by event loops, without a lock: each entry is replaced or
added to whole, and a number that is a moment old refuses or asks a moment longer. It never admits.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from routeguard.ledgers.sqlite.counters import Debit, Parts, Share, latest_end
from routeguard.policy import Budget, Span

#: Client counters remembered; the first that came goes first.
CLIENTS_MAX: Final = 10_000


class SeenCounter:
    """Money of one counter that only the end of its window gives back."""

    __slots__ = ("span", "spent")

    def __init__(self, span: Span, spent: int) -> None:
        self.span = span
        self.spent = spent


class Seen:
    """The counters of one namespace, as last seen."""

    def __init__(self, *, clients_max: int) -> None:
        self._clients_max = clients_max
        #: Row of each budget by its name, and the budgets of everybody.
        self._ids: dict[tuple[str, str, bool], int] = {}
        self._shared: dict[tuple[str, str, bool], Budget] = {}
        self._counters: dict[tuple[int, str], SeenCounter] = {}
        self._clients: dict[tuple[int, str], None] = {}
        #: Budgets whose map of clients was full, so that newcomers are the overflow client.
        self._full: set[int] = set()

    @property
    def shared(self) -> list[Budget]:
        """The budgets of everybody that were seen."""
        return list(self._shared.values())

    def see(self, share: Share, debit: Debit | None) -> None:
        """A counter as a reservation found it; `debit` where it was debited."""
        budget = share.claim.policy
        budget_id = debit.budget_id if debit is not None else share.budget_id
        if budget_id is None:
            return
        self._ids[budget.counter] = budget_id
        if not budget.per_client:
            self._shared[budget.counter] = budget
        elif share.clients >= self._clients_max:
            self._full.add(budget_id)
        else:
            self._full.discard(budget_id)
        self._put((budget_id, share.partition), share.span, share.spent)

    def see_charged(self, charged: Iterable[tuple[Debit, Parts]]) -> None:
        """Counters after a late bill."""
        for debit, parts in charged:
            seen = self._counters.get((debit.budget_id, debit.partition))
            if seen is not None and seen.span.start == debit.starts:
                seen.spent = parts.spent

    def add(self, debits: Iterable[Debit], nanousd: int) -> None:
        """Money that was spent, or that an orphan's settlement gave back, in the counters of an entry."""
        for debit in debits:
            seen = self._counters.get((debit.budget_id, debit.partition))
            if seen is not None and seen.span.start == debit.starts:
                seen.spent += nanousd

    def exhausted(
        self, budgets: Sequence[Budget], client: str, amount_nanousd: int, wall_seconds: int
    ) -> tuple[bool, int | None]:
        """Whether one of the budgets has no room, and the latest reset of those in the way."""
        in_the_way = []
        for budget in budgets:
            seen = self._find(budget, client)
            if seen is None or (seen.span.end is not None and wall_seconds >= seen.span.end):
                if amount_nanousd > budget.limit_nanousd:
                    in_the_way.append(budget.window.span(wall_seconds))
            elif seen.spent + amount_nanousd > budget.limit_nanousd:
                in_the_way.append(seen.span)
        return (bool(in_the_way), latest_end(in_the_way))

    def _find(self, budget: Budget, client: str) -> SeenCounter | None:
        budget_id = self._ids.get(budget.counter)
        if budget_id is None:
            return None
        seen = self._counters.get((budget_id, client if budget.per_client else ""))
        if seen is None and budget_id in self._full:
            return self._counters.get((budget_id, ""))
        return seen

    def _put(self, key: tuple[int, str], span: Span, spent: int) -> None:
        if key[1]:
            # One that is known keeps its place in the line.
            self._clients[key] = None
            if len(self._clients) > CLIENTS_MAX:
                oldest = next(iter(self._clients))
                del self._clients[oldest]
                del self._counters[oldest]
        self._counters[key] = SeenCounter(span, spent)
