"""The ledger as the guard sees it: questions go to the writer's thread, and what comes back in time is the answer.

Rules that live here:

- Every decision within a second, whatever the file does: `refresh` and `reserve` of one request share it.
- What ends a reservation or charges a late bill is queued before the first await. No cancel loses it.
- A reservation whose answer nobody takes any more is released by its id, and its places in the rates are given back.
- What is known without asking is what this process saw last. `refresh` looks at the budgets of everybody again, so
  that neither money that others spent nor an orphan settled to less is overlooked for long.
"""

import os
import sqlite3
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, TypeVar

import anyio

from routeguard.auditing import Adjustment, AdjustmentRefused, Statement
from routeguard.clock import Clock
from routeguard.errors import ConfigError
from routeguard.ledgers.sqlite.audit import path_of
from routeguard.ledgers.sqlite.book import Debited, SqliteBook
from routeguard.ledgers.sqlite.counters import Debit, Share
from routeguard.ledgers.sqlite.entries import Entry
from routeguard.ledgers.sqlite.seen import Seen
from routeguard.policy import (
    ENDED,
    NANOSECONDS,
    Balance,
    Budget,
    Claim,
    LedgerUnavailable,
    Parallel,
    Rate,
    Reservation,
    State,
)
from routeguard.records import NO_NOTE, Journal, Note, Record
from routeguard.sqlite_file.file import NotOurFile, Synchronous
from routeguard.sqlite_file.operation import Operation, wake_here
from routeguard.sqlite_file.writer import Writer, writer_of
from routeguard.telemetry import log_orphaned

ResultT = TypeVar("ResultT")

#: The contract: every decision within 1 s. A request asks for the kill switch and then for money.
REFRESH_SECONDS: Final = 0.3
RESERVE_SECONDS: Final = 0.6
ANSWER_SECONDS: Final = 0.9
#: A last body message waits for its settlement; that is written whether or not anyone waits.
SETTLE_SECONDS: Final = 0.25
#: How long `aclose` waits for what is still to be written.
CLOSE_SECONDS: Final = 2.0
#: Age at which the kill switch is asked for again, and at which not knowing it refuses: a pause holds within 2 s.
REFRESH_NS: Final = NANOSECONDS
STALE_NS: Final = 2 * NANOSECONDS


class SqliteReservation(Reservation):
    """A reservation with the counters it debited."""

    __slots__ = ("debits",)

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.id, entry.amount_nanousd, entry.state)
        self.debits: tuple[Debit, ...] = entry.debits


class SqliteLedger:
    """Budgets, rates and slots in a file that all processes of a host share."""

    kind = "sqlite"
    scope = "host"
    counts_rates = True

    def __init__(
        self, path: str, *, namespace: str, clock: Clock, clients_max: int = 50_000, synchronous: Synchronous = "normal"
    ) -> None:
        """
        Args:
            path: The file, made with the first operation; on a local disk.
            namespace: Ledgers of the same file and namespace share their counters.
            clock: Its monotonic time is the same for all processes of the host.
            clients_max: Most clients with money a window, and most with rates.
            synchronous: `full` also survives a loss of power.
        """
        self.healthy = True
        # Until the file says what all use, nobody is named by something that could be guessed.
        self.client_salt = os.urandom(32)
        #: Settlements of reservations that had ended already; each was a no-op.
        self.double_settlements = 0
        #: Reservations that were charged to the overflow client.
        self.overflowed = 0
        self._path = path
        self._synchronous: Synchronous = synchronous
        self._clock = clock
        self._book = SqliteBook(
            namespace, clock=clock, clients_max=clients_max, on_orphans=self._saw_orphans, on_records=self._hand_over
        )
        self._seen = Seen(clients_max=clients_max)
        self._journal: Journal | None = None
        self._paused = False
        self._started_paused_ns: int | None = None
        #: When the kill switch was asked for last; None until it was answered.
        self._refreshed_ns: int | None = None
        #: Reservations of this process whose lease may still end.
        self._leased: dict[str, SqliteReservation] = {}

    @property
    def paused(self) -> bool:
        """The kill switch, as last known to this process."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        """Start paused: turns the switch of everybody with the first question, unless somebody was faster."""
        self._paused = paused
        self._started_paused_ns = self._clock.monotonic_ns() if paused else None
        self._refreshed_ns = None

    @property
    def journal(self) -> Journal | None:
        """Gets a record of whatever changes what is charged."""
        return self._journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._journal = journal
        self._book.journal_name = (lambda: journal.name) if journal is not None else str

    async def check(self) -> tuple[str, ...]:
        """Open the file, and say what keeps it from answering; see `policy.Ledger`."""
        try:
            await self.refresh()
        except NotOurFile as problem:
            raise ConfigError([f"ROUTEGUARD_LEDGER: {problem}"]) from problem
        except LedgerUnavailable as problem:
            return (f"{problem}; requests get 503 until it answers",)
        return ()

    async def refresh(self) -> None:
        """Look at the kill switch and at the budgets of everybody, at most once a second; see `policy.Ledger`."""
        now_ns = self._clock.monotonic_ns()
        known_ns = self._refreshed_ns
        if known_ns is not None and now_ns - known_ns < REFRESH_NS:
            return
        operation = Operation(self._book, self._look, seconds=REFRESH_SECONDS, then=self._saw)
        try:
            await self._ask(operation, REFRESH_SECONDS)
        except LedgerUnavailable:
            if known_ns is None or now_ns - known_ns > STALE_NS:
                raise

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
        assert all(claim.amount == money[0].amount > 0 for claim in money), "every budget is debited the same amount"
        run = partial(
            self._book.reserve,
            reservation_id=reservation_id,
            money=money,
            slots=slots,
            rates=rates,
            force=force,
        )
        undo = partial(self._book.take_back, entry_id=reservation_id, rates=rates)
        operation = Operation(self._book, run, seconds=RESERVE_SECONDS, then=self._saw_debited, undo=undo)
        try:
            debited = await self._ask(operation, RESERVE_SECONDS)
        except BaseException:
            self._writer().abandon(operation)
            raise
        entry = debited.entry
        if entry is None:
            assert debited.refused is not None, "what is not debited was refused"
            raise debited.refused
        if entry.state in ENDED:
            raise LedgerUnavailable("the reservation of this id has ended")
        reservation = self._leased.get(reservation_id) or SqliteReservation(entry)
        # Another process may have seen its lease end.
        reservation.state, reservation.refused = entry.state, debited.refused
        if entry.lease_ends_ns is not None:
            self._leased[reservation_id] = reservation
        return reservation

    async def settle(
        self,
        reservation: Reservation,
        *,
        state: State,
        settled_nanousd: int,
        kept_nanousd: int,
        note: Note = NO_NOTE,
    ) -> bool:
        """End a reservation in the counters it debited; see `policy.Ledger`.

        Raises:
            LedgerUnavailable: It is queued, and written as soon as the file answers.
        """
        assert isinstance(reservation, SqliteReservation), "settle takes what reserve of this ledger returned"
        assert state in ENDED, "a settlement ends the reservation"
        assert min(settled_nanousd, kept_nanousd) >= 0, "a charge is never negative"
        if reservation.state in ENDED:
            self.double_settlements += 1
            return False
        run = partial(
            self._book.settle,
            entry_id=reservation.id,
            state=state,
            settled_nanousd=settled_nanousd,
            kept_nanousd=kept_nanousd,
            note=note,
        )
        then = partial(self._saw_ending, reservation, state, settled_nanousd + kept_nanousd)
        operation = Operation(self._book, run, seconds=None, then=then)
        # Shielded, because the caller counts and logs the ending after it; and bounded all the same.
        entry = await self._ask(operation, SETTLE_SECONDS, shield=True)
        if entry is None:
            self.double_settlements += 1
        return entry is not None

    def charge_late(
        self, reservation: Reservation, *, charge_id: str, extra_nanousd: int, note: Note = NO_NOTE
    ) -> None:
        """Charge a late bill to the windows of its reservation; see `policy.Ledger`."""
        assert isinstance(reservation, SqliteReservation), "charge_late takes what reserve of this ledger returned"
        assert extra_nanousd >= 0, "a late bill never moves money back"
        run = partial(
            self._book.charge_late,
            charge_id=charge_id,
            debits=reservation.debits,
            extra_nanousd=extra_nanousd,
            note=note,
        )
        self._seen.add(reservation.debits, extra_nanousd)
        self._writer().submit(Operation(self._book, run, seconds=None, then=self._seen.see_charged))

    def exhausted_until(self, budgets: Sequence[Budget], amount_nanousd: int) -> tuple[bool, int | None]:
        """Whether, as last seen, one of these budgets has no room; see `policy.Ledger`."""
        return self._seen.exhausted(budgets, "", amount_nanousd, self._clock.wall_ns() // NANOSECONDS)

    def client_exhausted_until(
        self, budgets: Sequence[Budget], client: str, amount_nanousd: int
    ) -> tuple[bool, int | None]:
        """The same for one client's budgets; see `policy.Ledger`."""
        return self._seen.exhausted(budgets, client, amount_nanousd, self._clock.wall_ns() // NANOSECONDS)

    async def balances(self, budgets: Sequence[Budget]) -> list[Balance]:
        """Where each of these budgets stands; see `policy.Ledger`."""
        run = partial(self._book.shares, budgets=budgets)
        operation = Operation(self._book, run, seconds=ANSWER_SECONDS, then=self._saw_shares)
        return [share.balance for share in await self._ask(operation, ANSWER_SECONDS)]

    async def in_flight(self) -> int:
        """Streams holding a slot."""
        return await self._ask(Operation(self._book, self._book.in_flight, seconds=ANSWER_SECONDS), ANSWER_SECONDS)

    async def set_paused(self, *, paused: bool) -> None:
        """Turn the kill switch of everybody who shares the namespace; they see it within 2 s."""
        run = partial(self._book.set_paused, paused=paused)
        await self._ask(Operation(self._book, run, seconds=ANSWER_SECONDS), ANSWER_SECONDS)
        self._paused = paused
        self._started_paused_ns = None

    async def statement(self) -> Statement:
        """Where everything stands; see `records.AuditedLedger`."""
        path = await self._ask(Operation(self._book, path_of, seconds=ANSWER_SECONDS), ANSWER_SECONDS)
        return await anyio.to_thread.run_sync(self._book.statement, path)

    async def adjust(self, adjustment: Adjustment) -> Record:
        """Change what is charged by hand; see `records.AuditedLedger`."""
        run = partial(self._book.adjust, adjustment=adjustment)
        done = await self._ask(Operation(self._book, run, seconds=ANSWER_SECONDS), ANSWER_SECONDS)
        if isinstance(done, AdjustmentRefused):
            raise done
        return done

    async def first(self, name: str, *, by: str, until: int | None) -> bool:
        """Whether `by` is the first to ask for `name`; see `policy.Ledger`."""
        run = partial(self._book.first, name=name, by=by, until=until)
        return await self._ask(Operation(self._book, run, seconds=ANSWER_SECONDS), ANSWER_SECONDS)

    async def forget(self) -> None:
        """Remove the rows of this namespace; see `policy.Ledger`."""
        await self._ask(Operation(self._book, self._book.forget, seconds=ANSWER_SECONDS), ANSWER_SECONDS)

    async def aclose(self) -> None:
        """Write what is queued, within 2 s, and close the file; the next operation opens it again."""
        writer = self._writer()
        if not writer.is_open:
            return
        closed = anyio.Event()
        writer.close(partial(wake_here(), closed.set))
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await closed.wait()

    def _writer(self) -> Writer:
        # Looked up each time: after a fork the child has another.
        return writer_of(self._path, self._synchronous)

    async def _ask(self, operation: Operation[ResultT], seconds: float, *, shield: bool = False) -> ResultT:
        operation.expect()
        self._writer().submit(operation)
        try:
            result = await operation.wait(seconds, shield=shield)
        except LedgerUnavailable:
            self.healthy = False
            raise
        self.healthy = True
        return result

    def _look(self, db: sqlite3.Connection) -> tuple[bool, list[Share], list[Record]]:
        paused = self._book.paused(db, started_paused_ns=self._started_paused_ns)
        may_take = self._journal is not None and self._journal.is_idle
        left_behind = self._book.left_behind(db) if may_take else []
        return paused, self._book.shares(db, self._seen.shared), left_behind

    def _saw(self, looked: tuple[bool, list[Share], list[Record]]) -> None:
        self._paused, shares, left_behind = looked
        if left_behind:
            self._hand_over(left_behind)
        self.client_salt = self._book.client_salt
        self._started_paused_ns = None
        self._refreshed_ns = self._clock.monotonic_ns()
        self._saw_shares(shares)

    def _saw_shares(self, shares: Sequence[Share]) -> None:
        for share in shares:
            self._seen.see(share, None)

    def _saw_debited(self, debited: Debited) -> None:
        debits: Sequence[Debit | None] = debited.entry.debits if debited.is_new and debited.entry else ()
        for share, debit in zip_longest(debited.shares, debits):
            self._seen.see(share, debit)
            if debit is not None and share.claim.policy.per_client and not debit.partition:
                self.overflowed += 1

    def _saw_ending(self, reservation: SqliteReservation, state: State, nanousd: int, entry: Entry | None) -> None:
        reservation.state = state
        self._leased.pop(reservation.id, None)
        if entry is not None:
            # An orphan's money was spent already, as a whole.
            self._seen.add(entry.debits, nanousd - (entry.amount_nanousd if entry.state == "orphaned" else 0))

    def _saw_orphans(self, orphans: Sequence[Entry]) -> None:
        for entry in orphans:
            log_orphaned(entry.id)
            self._seen.add(entry.debits, entry.amount_nanousd)
            reservation = self._leased.pop(entry.id, None)
            if reservation is not None:
                reservation.state = "orphaned"

    def _hand_over(self, records: Sequence[Record]) -> None:
        if self._journal is not None:
            self._journal.take(records, ledger=self._book.name, written=self._written)

    def _written(self, records: Sequence[Record]) -> None:
        run = partial(self._drop, records=records)
        self._writer().submit(Operation(self._book, run, seconds=None))

    def _drop(self, db: sqlite3.Connection, records: Sequence[Record]) -> None:
        self._book.unwritten.drop(db, records)
