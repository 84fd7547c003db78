"""The reference ledger: counters in this process.

Rules that live here:

- There is no await between check and debit. The lock is for applications with an event loop in more than one
  thread; nothing is awaited while it is held.
- Money of everybody lives in one account a window and is never evicted. Money of clients lives in a map of at
  most `clients_max` accounts a window; an account is dropped when its money is zero or its window is over, and
  whoever finds the map full of money shares the overflow client's account.
- A past window is dropped a few accounts at a time: freeing 50,000 at once would stall the event loop.
- A window never moves backwards: a clock that jumps back must not reopen a window that was counted already.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

from routeguard.clock import Clock
from routeguard.ledgers.memory.accounts import Account, Book, HeldReservation, latest_end
from routeguard.policy import (
    ENDED,
    NANOSECONDS,
    Balance,
    Budget,
    Claim,
    Parallel,
    Rate,
    Refused,
    Reservation,
    Span,
    State,
)
from routeguard.records import (
    NO_NOTE,
    Journal,
    Note,
    Record,
    late_record,
    ledger_name,
    orphan_record,
    settled_record,
)
from routeguard.telemetry import log_orphaned, log_overflow

#: Accounts of past windows freed with each reservation.
RETIRED_PER_RESERVE = 4


class MemoryLedger:
    """Budgets and slots of one process, forgotten at restart."""

    kind = "memory"
    scope = "process"
    healthy = True
    counts_rates = False

    def __init__(self, *, clock: Clock, clients_max: int = 50_000) -> None:
        self.paused = False
        self.journal: Journal | None = None
        self.client_salt = os.urandom(32)
        self._name = ledger_name(self.client_salt)
        #: Settlements of reservations that had ended already; each was a no-op.
        self.double_settlements = 0
        #: Reservations that were charged to the overflow client.
        self.overflowed = 0
        self._clock = clock
        self._clients_max = clients_max
        self._lock = threading.Lock()
        self._books: dict[tuple[str, str, bool], Book] = {}
        self._open: dict[str, HeldReservation] = {}
        self._slots_in_use: dict[str, int] = {}
        #: Open leases by their length, so that the first to end is in front: id to (end, reservation).
        self._leases: dict[int, OrderedDict[str, tuple[int, HeldReservation]]] = {}
        self._retired: list[dict[str, Account]] = []
        #: Who was first to ask for a name, and until when in Unix seconds that is remembered.
        self._firsts: dict[str, tuple[str, int | None]] = {}

    async def check(self) -> tuple[str, ...]:
        """Nothing can be wrong with a process's own memory."""
        return ()

    async def refresh(self) -> None:
        """Nobody else can turn the kill switch of a process."""

    async def reserve(
        self,
        reservation_id: str,
        *,
        money: Sequence[Claim[Budget]],
        slots: Sequence[Claim[Parallel]],
        rates: Sequence[Claim[Rate]] = (),
        force: bool = False,
    ) -> Reservation:
        """Debit every claim, or none; see `policy.Ledger`."""
        amount = money[0].amount if money else 0
        assert not rates, "the limiter in front of the body counts the rates of a process"
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            self._orphan_ended_leases(now_ns)
            known = self._open.get(reservation_id)
            if known is not None:
                return known
            if self._retired:
                self._free_some_retired()
            wall_seconds = self._clock.wall_ns() // NANOSECONDS
            full: list[Parallel] = []
            lease_ns, in_use = 0, self._slots_in_use
            for parallel, partition, claimed in slots:
                lease_ns = max(lease_ns, parallel.lease_ns)
                if parallel.quota is not None and in_use.get(partition, 0) + claimed > parallel.quota:
                    full.append(parallel)
            accounts: list[tuple[Account, Book, str]] = []
            fits = True
            for budget, partition, claimed in money:
                assert claimed == amount > 0, "every budget is debited the same amount"
                book = self._book(budget, wall_seconds)
                account = self._client_account(book, partition) if budget.per_client else book.everybody
                accounts.append((account, book, partition))
                if account.settled + account.kept + account.orphaned + account.open + amount > budget.limit_nanousd:
                    fits = False
            # The usual case is decided without naming what stands in the way.
            refused = None if fits and not full else self._verdict(money, accounts, full)
            if refused is not None and not force:
                raise refused
            debited: list[tuple[Account, Book, str]] = []
            for account, book, partition in accounts:
                account.open += amount
                kept_as = self._keep(account, book, partition) if book.budget.per_client else ""
                debited.append((account, book, kept_as))
            held = HeldReservation(reservation_id, amount, "open", refused, debited, slots, lease_ns)
            if slots:
                self._lease(held, ends_ns=now_ns + lease_ns)
            self._open[reservation_id] = held
            return held

    async def settle(
        self,
        reservation: Reservation,
        *,
        state: State,
        settled_nanousd: int,
        kept_nanousd: int,
        note: Note = NO_NOTE,
    ) -> bool:
        """End a reservation in the counters it debited; see `policy.Ledger`."""
        assert isinstance(reservation, HeldReservation), "settle takes what reserve of this ledger returned"
        assert state in ENDED, "a settlement ends the reservation"
        assert settled_nanousd >= 0 <= kept_nanousd, "a charge is never negative"
        with self._lock:
            if reservation.state in ENDED:
                self.double_settlements += 1
                return False
            was_orphaned = reservation.state == "orphaned"
            reservation.state = state
            amount = reservation.amount_nanousd
            overrun = max(0, settled_nanousd + kept_nanousd - amount)
            for account, book, partition in reservation.accounts:
                if was_orphaned:
                    account.orphaned -= amount
                else:
                    account.open -= amount
                account.settled += settled_nanousd
                account.kept += kept_nanousd
                account.overrun += overrun
                if partition and not (account.settled or account.kept or account.orphaned or account.open):
                    book.clients.pop(partition, None)
            self._open.pop(reservation.id, None)
            self._free_slots(reservation)
        if self.journal is not None:
            record = settled_record(
                (reservation.id, amount, reservation.counters),
                state=state,
                was_orphaned=was_orphaned,
                charged=(settled_nanousd, kept_nanousd),
                wall_ns=self._clock.wall_ns(),
                note=note,
            )
            self._tell(record)
        return True

    def charge_late(
        self, reservation: Reservation, *, charge_id: str, extra_nanousd: int, note: Note = NO_NOTE
    ) -> None:
        """Charge a late bill to the windows of its reservation; see `policy.Ledger`."""
        assert isinstance(reservation, HeldReservation), "charge_late takes what reserve of this ledger returned"
        assert extra_nanousd >= 0, "a late bill never moves money back"
        counters = []
        with self._lock:
            for account, book, partition in reservation.accounts:
                charged = account
                if partition and book.clients.get(partition) is not account:
                    # Its account was dropped while its money was zero: the client may have a new one by now.
                    charged = self._client_account(book, partition)
                    if charged is not book.overflow:
                        book.clients[partition] = charged
                charged.settled += extra_nanousd
                charged.overrun += extra_nanousd
                counters.append(book.name_of("" if charged is book.overflow else partition))
        if self.journal is not None:
            wall_ns = self._clock.wall_ns()
            record = late_record(charge_id, extra_nanousd, tuple(counters), wall_ns=wall_ns, note=note)
            self._tell(record)

    def exhausted_until(self, budgets: Sequence[Budget], amount_nanousd: int) -> tuple[bool, int | None]:
        """Whether one of these budgets has no room for `amount_nanousd` in its window; see `policy.Ledger`."""
        return self._exhausted(budgets, "", amount_nanousd)

    def client_exhausted_until(
        self, budgets: Sequence[Budget], client: str, amount_nanousd: int
    ) -> tuple[bool, int | None]:
        """The same for one client's budgets; see `policy.Ledger`."""
        return self._exhausted(budgets, client, amount_nanousd)

    async def balances(self, budgets: Sequence[Budget]) -> list[Balance]:
        """Where each of these budgets stands; see `policy.Ledger`."""
        with self._lock:
            self._orphan_ended_leases(self._clock.monotonic_ns())
            wall_seconds = self._clock.wall_ns() // NANOSECONDS
            found = [(budget, self._book(budget, wall_seconds)) for budget in budgets]
            return [
                Balance(
                    budget,
                    book.span.end,
                    book.everybody.settled,
                    book.everybody.open,
                    book.everybody.kept,
                    book.everybody.orphaned,
                    book.everybody.overrun,
                )
                for budget, book in found
            ]

    async def in_flight(self) -> int:
        """Streams holding a slot."""
        with self._lock:
            self._orphan_ended_leases(self._clock.monotonic_ns())
            return self._slots_in_use.get("", 0)

    async def set_paused(self, *, paused: bool) -> None:
        """Turn the kill switch of this process."""
        self.paused = paused

    async def first(self, name: str, *, by: str, until: int | None) -> bool:
        """Whether `by` is the first to ask for `name`; see `policy.Ledger`."""
        with self._lock:
            wall_seconds = self._clock.wall_ns() // NANOSECONDS
            for known, (_, end) in list(self._firsts.items()):
                if end is not None and end <= wall_seconds:
                    del self._firsts[known]
            return self._firsts.setdefault(name, (by, until))[0] == by

    async def forget(self) -> None:
        """Forget every counter; see `policy.Ledger`."""
        with self._lock:
            for counters in (self._books, self._open, self._slots_in_use, self._leases):
                counters.clear()
            self._retired.clear()
            self._firsts.clear()

    async def aclose(self) -> None:
        """Nothing is open."""

    def _verdict(
        self,
        money: Sequence[Claim[Budget]],
        accounts: Sequence[tuple[Account, Book, str]],
        full: Sequence[Parallel],
    ) -> Refused | None:
        """What stands in the way, the most final thing first: never fits, spent, spent by this client, busy."""
        never: list[Budget] = []
        spent: list[tuple[Budget, Span]] = []
        busy: list[Budget] = []
        for claim, (account, book, _) in zip(money, accounts, strict=True):
            budget, limit = claim.policy, claim.policy.limit_nanousd
            free = limit - account.spent
            if claim.amount > limit > 0:
                never.append(budget)
            if claim.amount > free:
                spent.append((budget, book.span))
            elif claim.amount > free - account.open:
                busy.append(budget)
        if never:
            return Refused("too_expensive", per_client=all(budget.per_client for budget in never), resets_at=None)
        if spent:
            per_client = all(budget.per_client for budget, _ in spent)
            return Refused("budget_exhausted", per_client=per_client, resets_at=latest_end(spent))
        if busy or full:
            in_the_way: list[Budget | Parallel] = [*busy, *full]
            return Refused("busy", per_client=all(policy.per_client for policy in in_the_way), resets_at=None)
        return None

    def _book(self, budget: Budget, wall_seconds: int) -> Book:
        book = self._books.get(budget.counter)
        if book is None:
            book = self._books[budget.counter] = Book(budget, budget.window.span(wall_seconds))
        elif book.span.end is not None and wall_seconds >= book.span.end:
            # Open reservations keep their accounts; the map is freed a little with each reservation.
            self._retired.append(book.clients)
            book = self._books[budget.counter] = Book(budget, budget.window.span(wall_seconds))
        return book

    def _client_account(self, book: Book, client: str) -> Account:
        """The account a client would be debited from; a new one is only kept when it is debited."""
        account = book.clients.get(client)
        if account is not None:
            return account
        return Account() if len(book.clients) < self._clients_max else book.overflow

    def _keep(self, account: Account, book: Book, client: str) -> str:
        """Keep the account of a client, which is debited. Under which name: none if it is the overflow client's."""
        if account is not book.overflow:
            book.clients[client] = account
            return client
        self.overflowed += 1
        if self.overflowed.bit_count() == 1:
            # At the first, second, fourth, …: an attack with many addresses must not fill the log.
            log_overflow(self._clients_max)
        return ""

    def _exhausted(self, budgets: Sequence[Budget], client: str, amount_nanousd: int) -> tuple[bool, int | None]:
        wall_seconds = self._clock.wall_ns() // NANOSECONDS
        in_the_way: list[tuple[Budget, Span]] = []
        with self._lock:
            for budget in budgets:
                book = self._book(budget, wall_seconds)
                account = self._client_account(book, client) if budget.per_client else book.everybody
                if account.settled + account.kept + account.orphaned + amount_nanousd > budget.limit_nanousd:
                    in_the_way.append((budget, book.span))
        return (True, latest_end(in_the_way)) if in_the_way else (False, None)

    def _lease(self, held: HeldReservation, *, ends_ns: int) -> None:
        in_use = self._slots_in_use
        for _, partition, _ in held.slots:
            in_use[partition] = in_use.get(partition, 0) + 1
        leases = self._leases.get(held.lease_ns)
        if leases is None:
            leases = self._leases[held.lease_ns] = OrderedDict()
        leases[held.id] = (ends_ns, held)

    def _orphan_ended_leases(self, now_ns: int) -> None:
        """Free the slots whose lease is over. The money of their owners stays: it is orphaned, not given back."""
        for leases in self._leases.values():
            while leases:
                ends_ns, reservation = next(iter(leases.values()))
                if ends_ns > now_ns:
                    break
                self._free_slots(reservation)
                reservation.state = "orphaned"
                log_orphaned(reservation.id)
                amount = reservation.amount_nanousd
                for account, _, _ in reservation.accounts:
                    account.open -= amount
                    account.orphaned += amount
                if self.journal is not None:
                    entry = (reservation.id, amount, reservation.counters)
                    self._tell(orphan_record(entry, wall_ns=self._clock.wall_ns()))

    def _tell(self, record: Record) -> None:
        assert self.journal is not None, "a record is made for a journal"
        self.journal.take([record], ledger=self._name, written=_forget)

    def _free_slots(self, reservation: HeldReservation) -> None:
        leases = self._leases.get(reservation.lease_ns)
        if leases is None or leases.pop(reservation.id, None) is None:
            return
        in_use = self._slots_in_use
        for _, partition, _ in reservation.slots:
            left = in_use[partition] - 1
            if left:
                in_use[partition] = left
            else:
                del in_use[partition]

    def _free_some_retired(self) -> None:
        for _ in range(RETIRED_PER_RESERVE):
            if not self._retired:
                return
            accounts = self._retired[-1]
            if accounts:
                accounts.popitem()
            else:
                self._retired.pop()


def _forget(records: Sequence[Record]) -> None:
    """A process's memory keeps no second copy of a record."""
