"""Budgets, rates and slots counted in one Redis or Valkey server, for every process that uses it.

Rules that live here:

- One script a reserve and one a settle; what they do stands in the `.lua` files.
- A reserve whose outcome nobody learns is released by its id as soon as the store answers again, and its places in the
  rates are given back: nobody was admitted by it.
- An ending is queued before the first await, and stays to be written when the store is away.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from redis.asyncio.connection import AbstractConnection

from routeguard.auditing import Adjustment, AdjustmentRefused, Statement
from routeguard.clock import Clock
from routeguard.ledgers.redis.audit import ONLY_ORPHANS, REFUSALS, adjust_arguments, ask_for_statement, read_statement
from routeguard.ledgers.redis.checks import check_store
from routeguard.ledgers.redis.claims import Claims, latest
from routeguard.ledgers.redis.debts import Debt
from routeguard.ledgers.redis.forgetting import forget_keys
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.line import Timing
from routeguard.ledgers.redis.reply import Reply
from routeguard.ledgers.redis.restoring import RedisReservation
from routeguard.ledgers.redis.scripts import ADJUST, FIRST, LATE, RESERVE, SETTLE
from routeguard.ledgers.redis.session import connection_for
from routeguard.ledgers.redis.store import ASKED_AGAIN_MAX, DUE_PER_LOOK, Store
from routeguard.ledgers.redis.switch import turn_switch
from routeguard.ledgers.redis.written import UNKNOWN, note_argument, parse_record, split_records
from routeguard.policy import (
    ENDED,
    Balance,
    Budget,
    Claim,
    LedgerUnavailable,
    Parallel,
    Rate,
    Refused,
    Reservation,
    State,
)
from routeguard.records import NO_NOTE, Journal, Note, Record, ledger_name
from routeguard.telemetry import log_overflow, logger

#: Answers to a reserve that debited nothing.
NOTHING_DEBITED = frozenset({"refused", "stale", "lost", "recovering"})


class RedisLedger:
    """See `policy.Ledger`. Building one opens nothing."""

    kind = "redis"
    scope = "store"
    counts_rates = True

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        clients_max: int = 50_000,
        timing: Timing | None = None,
        connect: Callable[[], AbstractConnection] | None = None,
        test_clock: Clock | None = None,
    ) -> None:
        """A ledger at `url`: `redis://`, `rediss://` or `unix://`, as redis-py reads it.

        Args:
            url: The `LEDGER` setting.
            namespace: Who shares these counters.
            clients_max: Clients with money a window.
            timing: Bounds of every wait.
            connect: Makes connections instead of `url`, for tests.
            test_clock: Time instead of the server's own, for tests.

        Raises:
            ValueError: The address cannot be read. The message does not repeat it: it may hold a password.
        """
        self._connect = connect or partial(connection_for, url)
        self._keyspace = Keyspace(namespace)
        self._clients_max = clients_max
        self._store = Store(
            self._connect,
            keyspace=self._keyspace,
            clients_max=clients_max,
            timing=timing or Timing(),
            test_clock=test_clock,
        )
        if connect is None:
            connection_for(url)
        #: Settlements of reservations that had ended already; each was a no-op.
        self.double_settlements = 0
        #: Settlements whose reservation the store did not know; its money stays where it is.
        self.unknown_settlements = 0
        #: Reservations that were charged to the overflow client.
        self.overflowed = 0
        self._pause_wanted = False

    @property
    def paused(self) -> bool:
        """The kill switch of the store, as last heard. Set, it is turned for everybody with the next `refresh`."""
        return self._pause_wanted or self._store.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._pause_wanted = paused

    @property
    def healthy(self) -> bool:
        """The last question was answered."""
        return self._store.healthy

    @property
    def client_salt(self) -> bytes:
        """Keys the hashes of clients; empty until the store has answered."""
        return self._store.salt

    @property
    def journal(self) -> Journal | None:
        """Gets a record of whatever changes what is charged."""
        return self._store.hand_over.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._store.hand_over.journal = journal

    async def check(self) -> tuple[str, ...]:
        """What an operator should know before the first request, as warnings.

        Raises:
            ConfigError: This store cannot keep money safe, or may not be used; each problem names its remedy.
        """
        return await check_store(self._connect, self._keyspace, seconds_max=self._store.timing.decision)

    async def refresh(self) -> None:
        """Look at the kill switch again; see `policy.Ledger`."""
        await self._store.refresh()
        if self._pause_wanted:
            await self.set_paused(paused=True)

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
        store = self._store
        claims = Claims(reservation_id, money, slots, rates, force)
        claims.check()
        store.watch_for([claim.policy for claim in money])
        reply = await self._ask(claims)
        if store.is_restoring and reply.status in {"ok", "known"}:
            # This very answer may have shown that the store forgot; nothing is admitted on its word.
            self._release(claims)
            raise LedgerUnavailable("the store lost what it had acknowledged")
        if reply.status == "known":
            return self._known(claims, reply)
        if reply.status not in {"ok", "refused"}:
            raise LedgerUnavailable(f"the store makes no reservations now ({reply.status})")
        wall_seconds = reply.wall_seconds
        ends = [store.calendar.windows(claim.policy, wall_seconds).span.end for claim in money]
        refused = claims.verdict(reply, ends)
        if reply.status == "refused":
            assert refused is not None, "a refusal has a reason"
            raise refused
        return self._hold(claims, "open", [account.field for account in reply.accounts], refused)

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
            LedgerUnavailable: The store did not take it yet; it will be written once the store answers.
        """
        assert isinstance(reservation, RedisReservation), "settle takes what reserve of this ledger returned"
        assert state in ENDED, "a settlement ends the reservation"
        assert min(settled_nanousd, kept_nanousd) >= 0, "a charge is never negative"
        if reservation.state in ENDED:
            self.double_settlements += 1
            return False
        reservation.state = state
        self._store.unwritten[reservation.id] = reservation
        keys = self._keys_of_settle(reservation.slot_partitions)
        arguments = [reservation.id, state, str(settled_nanousd), str(kept_nanousd), note_argument(note, self.journal)]
        debt = Debt(SETTLE, keys, arguments, ends=reservation, owed_us=self._store.clock.now_us())
        request = self._store.request(SETTLE, lambda: (keys, arguments), debt=debt)
        reply = await self._store.wait(request)
        if reply.status == "ok":
            return True
        if reply.status == "ended":
            self.double_settlements += 1
            return False
        if reply.status == "unknown":
            self.unknown_settlements += 1
            logger.error("ledger_error: the store does not know reservation %s; its money stays", reservation.id)
            return False
        raise LedgerUnavailable(f"the ending will be written later ({reply.status})")

    def charge_late(
        self, reservation: Reservation, *, charge_id: str, extra_nanousd: int, note: Note = NO_NOTE
    ) -> None:
        """Charge a late bill to the windows of its reservation; see `policy.Ledger`."""
        assert isinstance(reservation, RedisReservation), "charge_late takes what reserve of this ledger returned"
        assert extra_nanousd >= 0, "a late bill never moves money back"
        fields, knowledge = reservation.fields, self._store.knowledge
        said = note_argument(note, self.journal)
        arguments = [charge_id, str(extra_nanousd), str(self._clients_max), said, *fields]
        knowledge.expect(fields, extra_nanousd)
        on_paid = partial(knowledge.expect, fields, -extra_nanousd)
        self._store.owe(Debt(LATE, list(self._keyspace.common), arguments, on_paid))

    def exhausted_until(self, budgets: Sequence[Budget], amount_nanousd: int) -> tuple[bool, int | None]:
        """Whether one of these budgets is known to have no room; see `policy.Ledger`."""
        self._store.watch_for(budgets)
        return self._exhausted(budgets, "", amount_nanousd)

    def client_exhausted_until(
        self, budgets: Sequence[Budget], client: str, amount_nanousd: int
    ) -> tuple[bool, int | None]:
        """The same for one client's budgets; see `policy.Ledger`."""
        return self._exhausted(budgets, client, amount_nanousd)

    async def balances(self, budgets: Sequence[Budget]) -> list[Balance]:
        """Where each of these budgets stands; see `policy.Ledger`."""
        reply = await self._store.look(budgets)
        found = []
        for budget, account in zip(budgets, reply.accounts, strict=True):
            parts, end = account.parts, self._store.calendar.windows(budget, reply.wall_seconds).span.end
            found.append(
                Balance(budget, end, parts.settled, parts.open, parts.kept, parts.orphaned, parts.overrun),
            )
        return found

    async def in_flight(self) -> int:
        """Streams holding a slot."""
        while True:
            reply = await self._store.look(())
            if len(reply.orphans) < DUE_PER_LOOK:
                return int(split_records(reply.second)[0])

    async def set_paused(self, *, paused: bool) -> None:
        """Turn the kill switch of everybody who shares the store; see `policy.Ledger`.

        Raises:
            LedgerUnavailable: It is not known to stand as asked.
        """
        await turn_switch(self._store, paused=paused)
        self._pause_wanted = False

    async def statement(self) -> Statement:
        """Where everything stands; see `records.AuditedLedger`."""
        store = self._store
        # Whose statement it is: a process that has not asked anything yet does not know the epoch.
        await store.refresh()
        reply = await ask_for_statement(
            self._connect, self._keyspace.common, epoch=store.epoch, moment=store.clock.argument
        )
        if reply.status != "ok":
            raise LedgerUnavailable(f"the store has no answer ({reply.status})")
        return read_statement(reply, ledger_name(store.salt))

    async def adjust(self, adjustment: Adjustment) -> Record:
        """Change what is charged by hand; see `records.AuditedLedger`."""
        assert adjustment.id.split() == [adjustment.id], "an id is a word"
        store, keys = self._store, list(self._keyspace.common)

        def build() -> tuple[list[str], list[str]]:
            return keys, adjust_arguments(adjustment, store.calendar, store.clock.wall_seconds())

        reply = await store.wait(store.request(ADJUST, build))
        for _ in range(ASKED_AGAIN_MAX):
            if reply.status == "stale":
                reply = await store.wait(store.request(ADJUST, build))
        if reply.status == "refused":
            raise AdjustmentRefused(REFUSALS.get(reply.first, f"the reservation is {reply.first}: {ONLY_ORPHANS}"))
        if reply.status != "ok":
            raise LedgerUnavailable(f"the store has no answer ({reply.status})")
        store.hand_over.take([reply.first], salt=store.salt)
        return parse_record(reply.first)

    async def first(self, name: str, *, by: str, until: int | None) -> bool:
        """Whether `by` is the first to ask for `name`; see `policy.Ledger`."""
        keys, arguments = list(self._keyspace.common), [name, by, "" if until is None else str(until)]
        reply = await self._store.wait(self._store.request(FIRST, lambda: (keys, arguments)))
        if reply.status != "ok":
            raise LedgerUnavailable(f"nobody knows who was first ({reply.status})")
        return reply.first == by

    async def forget(self) -> None:
        """Remove the keys of this namespace; see `policy.Ledger`. Needs SCAN and UNLINK besides.

        Raises:
            LedgerUnavailable: The store did not remove them.
        """
        await forget_keys(self._connect, self._keyspace.pattern)

    async def aclose(self) -> None:
        """Finish pending writes, within a bound, and close what this event loop opened."""
        await self._store.aclose()

    async def _ask(self, claims: Claims) -> Reply:
        store, keys = self._store, claims.keys(self._keyspace)
        until = store.decided_by()
        asked = unanswered = 0

        def build() -> tuple[list[str], list[str]]:
            arguments = claims.arguments(clock=store.clock, calendar=store.calendar, clients_max=self._clients_max)
            return keys, arguments

        while True:
            request = store.request(RESERVE, build)
            try:
                reply = await store.wait(request, until=until)
            except (asyncio.CancelledError, LedgerUnavailable):
                # Never sent, it never will be.
                if request.sends + unanswered:
                    self._release(claims)
                raise
            asked += 1
            unanswered += request.sends - 1
            if reply.status != "stale" or asked > ASKED_AGAIN_MAX:
                break
        if unanswered and reply.status in NOTHING_DEBITED:
            # What was sent before may have debited all the same, or arrive yet.
            self._release(claims)
        return reply

    def _hold(self, claims: Claims, state: State, fields: Sequence[str], refused: Refused | None) -> RedisReservation:
        reservation = RedisReservation(
            claims.id,
            claims.amount_nanousd,
            state,
            refused,
            fields=tuple(fields),
            slot_partitions=claims.slot_partitions,
            lease_us=claims.lease_us,
        )
        self._store.held[claims.id] = reservation
        if any(field.endswith("|o") for field in fields):
            if not self.overflowed:
                log_overflow(self._clients_max)
            self.overflowed += 1
        return reservation

    def _known(self, claims: Claims, reply: Reply) -> RedisReservation:
        """The reservation that a reserve with the same id made before."""
        word, amount, *fields = [part for part in reply.first.split() if not part.startswith("@")]
        if word not in {"open", "orphaned"}:
            raise LedgerUnavailable(f"this reservation has ended already ({word})")
        state: State = "open" if word == "open" else "orphaned"
        held = self._store.held.get(claims.id)
        if held is not None:
            held.state = state
            return held
        assert int(amount) == claims.amount_nanousd, "an id stands for one reservation"
        return self._hold(claims, state, fields, None)

    def _release(self, claims: Claims) -> None:
        """By its id, whether or not there is anything: a reserve that arrives later finds that it has ended.

        Nobody was admitted by it, so its places in the rates go back with its money and its slots.
        """
        places = claims.places(self._keyspace)
        keys = [*self._keys_of_settle(claims.slot_partitions), *places]
        note = UNKNOWN if self.journal is not None else ""
        arguments = [claims.id, "released", "0", "0", note, *places.values()]
        self._store.owe(Debt(SETTLE, keys, arguments))

    def _keys_of_settle(self, slot_partitions: Sequence[str]) -> list[str]:
        clients = [self._keyspace.slots_of(partition) for partition in slot_partitions if partition]
        return [*self._keyspace.common, *clients]

    def _exhausted(self, budgets: Sequence[Budget], client: str, amount_nanousd: int) -> tuple[bool, int | None]:
        store = self._store
        wall_seconds = store.clock.wall_seconds()
        ends: list[int | None] = []
        for budget in budgets:
            windows = store.calendar.windows(budget, wall_seconds)
            spent = store.knowledge.spent(windows, client if budget.per_client else "")
            if spent + amount_nanousd > budget.limit_nanousd:
                ends.append(windows.span.end)
        return bool(ends), latest(ends)
