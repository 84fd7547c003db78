"""The counters of one namespace: a row for each budget, window and partition that holds money.

The current window of a budget only moves forward. Client counters are at most so many a window; whoever finds the
map full of money is charged to the overflow client, whose partition is "". Counters of everybody stay when their
window is over: a row a window says what each of them cost.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from routeguard.policy import Balance, Budget, Claim, Parallel, Rate, Refused, Span, State
from routeguard.records import counter_name

_CURRENT: Final = (
    "SELECT b.id, b.starts, b.ends, b.clients, c.settled, c.open, c.kept, c.orphaned, c.overrun FROM budgets b "
    "LEFT JOIN counters c ON c.budget = b.id AND c.starts = b.starts AND c.partition = ? "
    "WHERE b.namespace = ? AND b.unit = ? AND b.zone = ? AND b.per_client = ?"
)
#: By the state of the entry: what replaces the money it debited by what is charged.
_CHARGE: Final = {
    "open": "UPDATE counters SET open = open - ?, settled = settled + ?, kept = kept + ?, overrun = overrun + ? "
    "WHERE budget = ? AND starts = ? AND partition = ?",
    "orphaned": "UPDATE counters SET orphaned = orphaned - ?, settled = settled + ?, kept = kept + ?, "
    "overrun = overrun + ? WHERE budget = ? AND starts = ? AND partition = ?",
}


class Debit(NamedTuple):
    """The counter that was debited: budget, start of its window, and whose share."""

    budget_id: int
    starts: int
    partition: str


class Parts(NamedTuple):
    """What a counter adds up from."""

    settled: int = 0
    open: int = 0
    kept: int = 0
    orphaned: int = 0
    overrun: int = 0

    @property
    def spent(self) -> int:
        return self.settled + self.kept + self.orphaned


class Share(NamedTuple):
    """A claim beside the counter it would be debited from."""

    claim: Claim[Budget]
    #: Row of the budget; None where nothing was ever debited from it.
    budget_id: int | None
    span: Span
    #: Whose counter it is: the claim's own, or the overflow client's.
    partition: str
    #: The window of the row is over, and this one follows it.
    is_next: bool = False
    #: None where there is no such counter yet.
    parts: Parts | None = None
    #: Clients that hold money in the window.
    clients: int = 0

    @property
    def spent(self) -> int:
        return 0 if self.parts is None else self.parts.spent

    @property
    def open(self) -> int:
        return 0 if self.parts is None else self.parts.open

    @property
    def balance(self) -> Balance:
        parts = self.parts or Parts()
        return Balance(
            self.claim.policy, self.span.end, parts.settled, parts.open, parts.kept, parts.orphaned, parts.overrun
        )


class Counters:
    """Reads and writes the counters of one namespace, within the caller's transaction."""

    def __init__(self, namespace: int, *, clients_max: int) -> None:
        self._namespace = namespace
        self._clients_max = clients_max
        #: Found in this transaction: what one adds and takes back may leave its number to another budget.
        self._budgets: dict[int, tuple[str, str, bool]] = {}

    def begin(self) -> None:
        """A transaction begins."""
        self._budgets.clear()

    def name_of(self, db: sqlite3.Connection, debit: Debit) -> str:
        """What a journal calls a counter; see `records.counter_name`."""
        budget = self._budgets.get(debit.budget_id)
        if budget is None:
            budget = self._budgets[debit.budget_id] = db.execute(
                "SELECT unit, zone, per_client FROM budgets WHERE id = ?", (debit.budget_id,)
            ).fetchone()
        unit, zone, per_client = budget
        return counter_name(unit, zone, debit.starts, per_client=per_client, partition=debit.partition)

    def share(self, db: sqlite3.Connection, claim: Claim[Budget], wall_seconds: int) -> Share:
        """The counter of a claim in the current window. Writes nothing."""
        budget = claim.policy
        share = self._share(db, claim, claim.partition if budget.per_client else "", wall_seconds)
        if budget.per_client and share.parts is None and share.clients >= self._clients_max:
            return self._share(db, claim, "", wall_seconds)
        return share

    def place(self, db: sqlite3.Connection, share: Share) -> Debit:
        """The counter that a share would be debited from, whose budget has a row from then on."""
        budget_id = share.budget_id
        if budget_id is None:
            budget_id = self._new_budget(db, share.claim.policy, share.span)
        return Debit(budget_id, share.span.start, share.partition)

    def debit(self, db: sqlite3.Connection, share: Share, debit: Debit) -> None:
        """Add the amount of a claim to the open money of its `place`."""
        if share.is_next:
            db.execute(
                "UPDATE budgets SET starts = ?, ends = ?, clients = 0 WHERE id = ?",
                (share.span.start, share.span.end, debit.budget_id),
            )
        amount_nanousd = share.claim.amount
        if share.parts is None:
            db.execute(
                "INSERT INTO counters (budget, starts, partition, open) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET open = open + excluded.open",
                (*debit, amount_nanousd),
            )
            if share.partition:
                db.execute("UPDATE budgets SET clients = clients + 1 WHERE id = ?", (debit.budget_id,))
        else:
            db.execute(
                "UPDATE counters SET open = open + ? WHERE budget = ? AND starts = ? AND partition = ?",
                (amount_nanousd, *debit),
            )

    def charge(
        self,
        db: sqlite3.Connection,
        debits: Sequence[Debit],
        *,
        amount_nanousd: int,
        state: State,
        settled_nanousd: int,
        kept_nanousd: int,
    ) -> None:
        """Replace what was debited by what is charged. A counter of a window long over may be gone, and stays so."""
        overrun_nanousd = max(0, settled_nanousd + kept_nanousd - amount_nanousd)
        db.executemany(
            _CHARGE[state],
            [(amount_nanousd, settled_nanousd, kept_nanousd, overrun_nanousd, *debit) for debit in debits],
        )
        if not settled_nanousd and not kept_nanousd:
            for debit in debits:
                self._drop_if_empty(db, debit)

    def orphan(self, db: sqlite3.Connection, debits: Iterable[Debit], amount_nanousd: int) -> None:
        """The owner of this money is gone; it stays."""
        db.executemany(
            "UPDATE counters SET open = open - ?, orphaned = orphaned + ? "
            "WHERE budget = ? AND starts = ? AND partition = ?",
            [(amount_nanousd, amount_nanousd, *debit) for debit in debits],
        )

    def charge_late(
        self, db: sqlite3.Connection, debits: Iterable[Debit], extra_nanousd: int
    ) -> list[tuple[Debit, Parts]]:
        """Charge a late bill as overrun. Returns where, and what that counter now adds up from."""
        charged = []
        for debit in debits:
            place = self._place_for(db, debit)
            db.execute(
                "INSERT INTO counters (budget, starts, partition, settled, overrun) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET settled = settled + excluded.settled, overrun = overrun + excluded.overrun",
                (*place, extra_nanousd, extra_nanousd),
            )
            row = db.execute(
                "SELECT settled, open, kept, orphaned, overrun FROM counters "
                "WHERE budget = ? AND starts = ? AND partition = ?",
                place,
            ).fetchone()
            charged.append((place, Parts(*row)))
        return charged

    def total(self, db: sqlite3.Connection, budget: Budget, wall_seconds: int) -> Share:
        """The counter of everybody; of a client budget, what newcomers share."""
        return self._share(db, Claim(budget, "", 0), "", wall_seconds)

    def forget_past_clients(self, db: sqlite3.Connection, *, rows_max: int) -> None:
        """Drop client counters whose window is over, at most so many of each budget."""
        budgets = db.execute(
            "SELECT id, starts FROM budgets WHERE namespace = ? AND per_client = 1", (self._namespace,)
        ).fetchall()
        for budget_id, starts in budgets:
            db.execute(
                "DELETE FROM counters WHERE (budget, starts, partition) IN (SELECT budget, starts, partition "
                "FROM counters WHERE budget = ? AND starts < ? LIMIT ?)",
                (budget_id, starts, rows_max),
            )

    def _share(self, db: sqlite3.Connection, claim: Claim[Budget], partition: str, wall_seconds: int) -> Share:
        unit, zone, per_client = claim.policy.counter
        row = db.execute(_CURRENT, (partition, self._namespace, unit, zone, per_client)).fetchone()
        if row is None:
            return Share(claim, None, claim.policy.window.span(wall_seconds), partition)
        budget_id, starts, ends, clients, *parts = row
        if ends is not None and wall_seconds >= ends:
            return Share(claim, budget_id, claim.policy.window.span(wall_seconds), partition, is_next=True)
        found = None if parts[0] is None else Parts(*parts)
        return Share(claim, budget_id, Span(starts, ends), partition, parts=found, clients=clients)

    def _new_budget(self, db: sqlite3.Connection, budget: Budget, span: Span) -> int:
        db.execute(
            "INSERT INTO budgets (namespace, unit, zone, per_client, starts, ends) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (self._namespace, *budget.counter, span.start, span.end),
        )
        row = db.execute(
            "SELECT id FROM budgets WHERE namespace = ? AND unit = ? AND zone = ? AND per_client = ?",
            (self._namespace, *budget.counter),
        ).fetchone()
        budget_id: int = row[0]
        return budget_id

    def _drop_if_empty(self, db: sqlite3.Connection, debit: Debit) -> None:
        """Only money holds a place in the map of clients."""
        if not debit.partition:
            return
        dropped = db.execute(
            "DELETE FROM counters WHERE budget = ? AND starts = ? AND partition = ? "
            "AND settled = 0 AND open = 0 AND kept = 0 AND orphaned = 0",
            debit,
        ).rowcount
        if dropped:
            db.execute(
                "UPDATE budgets SET clients = clients - 1 WHERE id = ? AND starts = ?", (debit.budget_id, debit.starts)
            )

    def _place_for(self, db: sqlite3.Connection, debit: Debit) -> Debit:
        """The counter of a late bill: its own was dropped if its money was zero, and its place may be taken."""
        if not debit.partition:
            return debit
        known = db.execute("SELECT 1 FROM counters WHERE budget = ? AND starts = ? AND partition = ?", debit)
        if known.fetchone():
            return debit
        row = db.execute(
            "SELECT clients FROM budgets WHERE id = ? AND starts = ?", (debit.budget_id, debit.starts)
        ).fetchone()
        if row is None:
            return debit
        if row[0] >= self._clients_max:
            return debit._replace(partition="")
        db.execute("UPDATE budgets SET clients = clients + 1 WHERE id = ?", (debit.budget_id,))
        return debit


def verdict(
    shares: Sequence[Share], full: Sequence[Claim[Parallel]], full_rates: Sequence[Claim[Rate]], retry_ns: int
) -> Refused | None:
    """What is in the way, the most final thing first: never fits, spent, spent by this client, rate, busy.

    Args:
        shares: The claims of money.
        full: Claims of slots that are all taken.
        full_rates: Claims of rates without a free slot.
        retry_ns: Until each of those has one.
    """
    never: list[Budget] = []
    spent: list[Share] = []
    busy: list[bool] = []
    for share in shares:
        budget, amount = share.claim.policy, share.claim.amount
        free = budget.limit_nanousd - share.spent
        if amount > budget.limit_nanousd > 0:
            never.append(budget)
        if amount > free:
            spent.append(share)
        elif amount > free - share.open:
            busy.append(budget.per_client)
    if never:
        return Refused("too_expensive", per_client=all(budget.per_client for budget in never), resets_at=None)
    if spent:
        per_client = all(share.claim.policy.per_client for share in spent)
        resets_at = latest_end([share.span for share in spent])
        return Refused("budget_exhausted", per_client=per_client, resets_at=resets_at)
    if full_rates:
        per_client = all(claim.partition for claim in full_rates)
        return Refused("rate_limited", per_client=per_client, resets_at=None, retry_ns=retry_ns)
    busy += [bool(claim.partition) for claim in full]
    if busy:
        return Refused("busy", per_client=all(busy), resets_at=None)
    return None


def latest_end(spans: Sequence[Span]) -> int | None:
    """The latest reset; None as soon as one of them never resets."""
    ends = [span.end for span in spans]
    return None if None in ends else max((end for end in ends if end is not None), default=None)
