"""The order of the checks, and nothing else: screen, reserve, the call, end.

`screen` is local: no store, no provider. `reserve` is one atomic step of the ledger. A refusal for money, slots or
a sick ledger changes no counter, and gives the slot of the rate back; every other one keeps that slot.
"""

import hmac
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from routeguard.admitted import Admission
from routeguard.attempt import Attempt
from routeguard.body import NO_BODY, BodyHead, check_body, check_headers
from routeguard.clients import UNKNOWN, Clients
from routeguard.clock import Clock
from routeguard.ending import EndingRules, Failure, decide
from routeguard.errors import Rejected
from routeguard.journal import Books, SqliteJournal
from routeguard.limiter import RateLimiter, RateRefused
from routeguard.policy import NANOSECONDS, Budget, Claim, Ledger, LedgerUnavailable, Parallel, Rate, Refused
from routeguard.pricing import Tariff
from routeguard.refusals import Refusals
from routeguard.replay import BodyTooLarge, Receive, Replay, Scope, read_body
from routeguard.rules import GuardRules
from routeguard.telemetry import Telemetry
from routeguard.usage import Usage

#: A call this short is priced at its end alone: prices change on the hour or the half hour.
PRICE_MOMENT_NS = NANOSECONDS


@dataclass(slots=True)
class Guard:
    """The engine behind the middleware. Awaits its ledger and nothing else of its own."""

    rules: GuardRules
    clients: Clients
    refusals: Refusals
    ledger: Ledger
    limiter: RateLimiter
    tariff: Tariff
    clock: Clock
    telemetry: Telemetry
    #: Tariffs of models that only a metered client is asked for, by their names in lower case.
    other_tariffs: Mapping[str, Tariff] = field(default_factory=dict)
    #: Rows of every ending, where one is kept.
    journal: SqliteJournal | None = None
    #: What is waited for at shutdown before the ledger closes, each within a bound of its own.
    closing: tuple[Callable[[], Awaitable[None]], ...] = ()
    #: Dearest call seen above its ceiling in this process; ceilings never fall below it.
    seen_nanousd: int = field(default=0, init=False)

    @property
    def books(self) -> Books:
        """Ledger and journal, to be opened, watched and closed together."""
        return Books(self.ledger, self.journal)

    def open(self, scope: Scope, path: str) -> Attempt:
        """Begin to look at a request that `path` guards. Checks nothing."""
        return Attempt.of(scope, path, reservation_id=self._new_id())

    async def screen(self, attempt: Attempt, receive: Receive) -> None:
        """The local checks, in their order; fills in the attempt.

        Raises:
            Rejected: 400, 403, 413, 415, 429, or 503 while paused or when the budget is known to be spent.
            ClientGone: The client left before its body was complete.

        A body that takes too long cancels the attempt's time limit, and with it this coroutine.
        """
        rules, scope = self.rules, attempt.scope
        self.check_edge(attempt)
        await self.check_paused()
        head = check_headers(scope["headers"], target_bytes=attempt.target_bytes, rules=rules.body)
        for check in (self._check_not_exhausted, self._identify, self._claim_rate):
            check(attempt)
        await self.check_admit(scope)
        attempt.body_begun = True
        attempt.time_limit.set(rules.body_timeout_seconds)
        try:
            body, messages = await read_body(receive, bytes_max=rules.body.bytes_max - attempt.target_bytes)
        except BodyTooLarge as problem:
            attempt.body_complete = problem.is_complete
            raise self.refusals.too_large() from None
        attempt.time_limit.lift()
        attempt.body_complete, attempt.receive = True, Replay(receive, messages)
        self.check_body(attempt, body, head)

    async def reserve(self, attempt: Attempt, outer: Admission | None) -> Admission:
        """Debit the ceiling of this request from every budget, and take its slots, all or nothing.

        Raises:
            Rejected: 413, 429, or 503 for a spent budget or a ledger that does not answer.
        """
        rules = self.rules
        ceiling_nanousd = self.ceiling(attempt.input_bytes, attempt.media_parts)
        client = attempt.client or UNKNOWN
        money: list[Claim[Budget]] = []
        if ceiling_nanousd:
            # A price of 0 claims no money, and so passes a spent budget.
            money = [Claim(budget, "", ceiling_nanousd) for budget in rules.budgets]
            if not attempt.exempt:
                money += [Claim(budget, client, ceiling_nanousd) for budget in rules.client_budgets]
        slots = [Claim(rules.parallel, "", 1)]
        rates: list[Claim[Rate]] = []
        if self.ledger.counts_rates:
            rates = [Claim(rate, "", 1) for rate in rules.global_rates]
        if not attempt.exempt:
            slots.append(Claim(rules.client_parallel, client, 1))
            if self.ledger.counts_rates:
                rates += [Claim(rate, client, 1) for rate in rules.rates]
        return await self._reserve(attempt, money, slots, rates, outer)

    async def reserve_preflight(self, attempt: Attempt, outer: Admission | None) -> Admission:
        """One ceiling for a preflight, of nobody's share.

        Raises:
            Rejected: Not to be had, or path and query ask for what no request may; the guard answers it itself.
        """
        rules = self.rules
        await self.check_paused()
        attempt.input_bytes = rules.body.bytes_max
        for check in (partial(self.check_body, body=b"", head=NO_BODY), self._claim_global_rate):
            try:
                check(attempt)
            except Rejected as rejected:
                if not rules.observe:
                    raise
                attempt.would_reject = attempt.would_reject or rejected.reason
        ceiling_nanousd = self.ceiling(attempt.input_bytes, attempt.media_parts)
        money = [Claim(budget, "", ceiling_nanousd) for budget in rules.budgets] if ceiling_nanousd else []
        rates = [Claim(rate, "", 1) for rate in rules.global_rates] if self.ledger.counts_rates else []
        return await self._reserve(attempt, money, [Claim(rules.parallel, "", 1)], rates, outer)

    async def end(
        self,
        admission: Admission,
        *,
        failure: Failure | None,
        status: int | None,
        read: Usage | None = None,
        provider_seen: bool = False,
        preflight_is_free: bool | None = None,
    ) -> None:
        """Decide the ending of an admission and write it down; once, later calls do nothing.

        Args:
            admission: What `reserve` returned.
            failure: Why the request failed, or None.
            status: Status of the answer, None when there was none.
            read: Usage read from the answer.
            provider_seen: A provider's answer was recognised in the response.
            preflight_is_free: For a preflight, whether its answer had no body. None for every other request.
        """
        if admission.ended:
            return
        read_nanousd = None if read is None else self._price(read, admission, model=None)
        bill = admission.bill(read_nanousd=read_nanousd, provider_seen=provider_seen)
        if read is not None and not bill.any_call:
            admission.note(read)
        rules = self.rules.ending
        if preflight_is_free is not None:
            rules = EndingRules("keep", "release" if preflight_is_free else "keep", rules.release_statuses)
        charge = decide(bill, ceiling_nanousd=admission.ceiling_nanousd, failure=failure, status=status, rules=rules)
        if not admission.end(charge):
            return
        try:
            settlement = self.ledger.settle(
                admission.reservation,
                state=charge.state,
                settled_nanousd=charge.settled_nanousd,
                kept_nanousd=charge.kept_nanousd,
                note=admission.row_note(charge.why),
            )
            await self.telemetry.timed(settlement)
        except LedgerUnavailable as problem:
            # The ending is decided and will be written once the ledger answers.
            self.telemetry.ledger_error(problem, doing="settle")
        except Exception as problem:  # noqa: BLE001 - a bug in settling never spoils a good answer; the charge stands in full
            self.telemetry.ledger_error(problem, doing="settle")
            return
        self.telemetry.ended(admission)
        over_nanousd = charge.total_nanousd - admission.ceiling_nanousd
        if over_nanousd > 0:
            remedy = self._learn_overrun(admission)
            self.telemetry.overrun(admission, over_nanousd=over_nanousd, remedy=remedy)

    async def aclose(self) -> None:
        """Finish what is pending, and close ledger and journal."""
        for close in self.closing:
            await close()
        await self.books.aclose()

    def charge_late(self, admission: Admission, *, extra_nanousd: int) -> None:
        """A bill came in above the charge, after the ending."""
        try:
            self.ledger.charge_late(
                admission.reservation,
                charge_id=self._new_id(),
                extra_nanousd=extra_nanousd,
                note=admission.row_note("late"),
            )
        except Exception as problem:  # noqa: BLE001 - reporting never raises; counted and logged
            self.telemetry.ledger_error(problem, doing="charge late")
            return
        is_over = admission.charged_nanousd > admission.ceiling_nanousd
        remedy = self._learn_overrun(admission) if is_over else None
        self.telemetry.late(admission, extra_nanousd=extra_nanousd, remedy=remedy)

    def unusable_report(self, admission: Admission, problem: str) -> None:
        """A report had no usable number."""
        self.telemetry.unusable_report(admission, problem)

    def check_edge(self, attempt: Attempt) -> None:
        """Refuse what did not come through the edge; constant-time, and also while observing."""
        secret = self.rules.edge_secret
        if secret is None:
            return
        name, value = secret
        found = [given for header, given in attempt.scope["headers"] if header == name]
        if len(found) != 1 or not hmac.compare_digest(found[0], value):
            raise Rejected("edge_secret", "This address cannot be used directly.", status=403)

    async def check_paused(self) -> None:
        """Refuse everything while the kill switch is on; also while observing."""
        try:
            await self.ledger.refresh()
        except LedgerUnavailable as problem:
            self.telemetry.ledger_error(problem, doing="refresh")
            raise self.refusals.unavailable() from problem
        if self.ledger.paused:
            raise self.refusals.paused()

    def admitted(self, attempt: Attempt) -> None:
        """Count an admission, and what observing would have refused it for."""
        assert attempt.admission is not None, "it was reserved for"
        self.telemetry.admitted(attempt.admission)
        if (reason := attempt.would_reject) is not None:
            self.telemetry.would_reject(reason, request_id=attempt.request_id, path=attempt.path, client=attempt.client)

    def rejected(self, attempt: Attempt, rejected: Rejected) -> None:
        """Count a refusal that is about to be answered."""
        if attempt.client is not None and not attempt.exempt and rejected.reason != "rate_limited":
            self.limiter.count_refusal(attempt.client, self.rules.rates)
        self.telemetry.rejected(
            rejected.reason, request_id=attempt.request_id, path=attempt.path, client=attempt.client
        )

    def observed_checks(self, attempt: Attempt) -> list[Callable[[], None]]:
        """The local checks between the headers and the body, to be tried one by one."""
        checks = (self._check_not_exhausted, self._identify, self._claim_rate)
        return [partial(check, attempt) for check in checks]

    def ceiling(self, input_bytes: int, media_parts: int) -> int:
        """Worst case of one request in nano-USD, never below the dearest overrun seen."""
        computed = self.tariff.ceiling(input_bytes=input_bytes, media_parts=media_parts, wall_ns=self.clock.wall_ns())
        return max(computed, self.seen_nanousd)

    def smallest_ceiling(self) -> int:
        """Worst case of the smallest possible request, in nano-USD."""
        return max(self.tariff.smallest(self.clock.wall_ns()), self.seen_nanousd)

    def is_open(self) -> tuple[bool, int | None]:
        """Whether the smallest request would find money, and when the budgets in the way reset."""
        exhausted, resets_at = self._exhausted()
        return (not exhausted and not self.ledger.paused, resets_at)

    def _exhausted(self) -> tuple[bool, int | None]:
        smallest = self.smallest_ceiling()
        return self.ledger.exhausted_until(self.rules.budgets, smallest) if smallest else (False, None)

    def _check_not_exhausted(self, attempt: Attempt) -> None:
        exhausted, resets_at = self._exhausted()
        if exhausted:
            raise self.refusals.budget_exhausted(resets_at, per_client=False)

    def _identify(self, attempt: Attempt) -> None:
        attempt.client, attempt.exempt = self.clients.identify(attempt.scope)

    def _claim_rate(self, attempt: Attempt) -> None:
        rules = self.rules
        client = attempt.client or UNKNOWN
        rates = () if attempt.exempt else rules.rates
        try:
            attempt.ticket = self.limiter.claim(client, rates=rates, global_rates=rules.global_rates)
        except RateRefused as refused:
            smallest = self.smallest_ceiling()
            if smallest and not attempt.exempt:
                # The most final reason wins: waiting for the rate would not help this client.
                spent, resets_at = self.ledger.client_exhausted_until(rules.client_budgets, client, smallest)
                if spent:
                    raise self.refusals.budget_exhausted(resets_at, per_client=True) from None
            raise self.refusals.rate_limited(refused.retry_ns) from None

    def _claim_global_rate(self, attempt: Attempt) -> None:
        try:
            attempt.ticket = self.limiter.claim(UNKNOWN, rates=(), global_rates=self.rules.global_rates)
        except RateRefused as refused:
            raise self.refusals.rate_limited(refused.retry_ns) from None

    async def check_admit(self, scope: Scope) -> None:
        """The application's own check, bounded in time; a bug in it refuses."""
        if self.rules.admit_hook is None:
            return
        admitted = False
        try:
            with anyio.move_on_after(self.rules.body_timeout_seconds):
                admitted = await self.rules.admit_hook(scope) is True
        except Exception as problem:  # noqa: BLE001 - a bug in a check refuses the request
            self.telemetry.once("admit-hook", f"the admit= hook raised {type(problem).__name__}; it refuses")
        if not admitted:
            raise Rejected("not_admitted", "This request was not admitted.", status=403)

    def check_body(self, attempt: Attempt, body: bytes, head: BodyHead) -> None:
        """The checks of a whole body; fills in what the ceiling is computed from."""
        path, query = attempt.scope["path"], attempt.scope.get("query_string", b"")
        path_bytes = attempt.target_bytes - len(query)
        facts = check_body(body, head, query=query, path_bytes=path_bytes, rules=self.rules.body, path=path)
        attempt.input_bytes, attempt.media_parts = facts.input_bytes, facts.media_parts

    async def _reserve(
        self,
        attempt: Attempt,
        money: Sequence[Claim[Budget]],
        slots: Sequence[Claim[Parallel]],
        rates: Sequence[Claim[Rate]],
        outer: Admission | None,
    ) -> Admission:
        try:
            if self.journal is not None and self.journal.is_full:
                raise LedgerUnavailable("too many rows wait for the journal")
            reservation = await self.telemetry.timed(
                self.ledger.reserve(attempt.id, money=money, slots=slots, rates=rates, force=self.rules.observe)
            )
        except Refused as refused:
            raise self._refusal(attempt, refused) from None
        except Exception as problem:
            self.telemetry.ledger_error(problem, doing="reserve")
            self._give_back(attempt)
            raise self.refusals.unavailable() from problem
        if reservation.refused is not None and attempt.would_reject is None:
            attempt.would_reject = self._refusal(attempt, reservation.refused).reason
        input_bytes = attempt.input_bytes
        return Admission(
            reservation,
            client=attempt.client or UNKNOWN,
            path=attempt.path,
            request_id=attempt.request_id,
            namespace=self.rules.namespace,
            calls_per_request=self.rules.calls_per_request,
            price=self._price,
            watcher=self,
            input_bytes=input_bytes,
            wall_ns=self.clock.wall_ns(),
            outer=outer,
            exempt=attempt.exempt,
        )

    def _price(self, usage: Usage, admission: Admission, *, model: str | None) -> int | None:
        """Nano-USD of a usage, at the model it names if that is one of MODEL, else at the dearest."""
        wall_ns, input_bytes = self.clock.wall_ns(), admission.input_bytes
        cost = self.tariff.cost(usage, model=model, wall_ns=wall_ns, input_bytes=input_bytes)
        if cost is None:
            return None
        named = usage.model if model is None else model
        admission.model = None if named is None else self.tariff.configured_name(named)
        if abs(wall_ns - admission.wall_ns) < PRICE_MOMENT_NS:
            return cost
        # The price may have changed since the call was made; which one the provider bills is its own affair.
        at_admission = self.tariff.cost(usage, model=model, wall_ns=admission.wall_ns, input_bytes=input_bytes)
        return cost if at_admission is None else max(cost, at_admission)

    def _refusal(self, attempt: Attempt, refused: Refused) -> Rejected:
        if refused.cause != "too_expensive":
            self._give_back(attempt)
        return self.refusals.of_ledger(refused)

    def _give_back(self, attempt: Attempt) -> None:
        """Refused for money, slots or the ledger: the rate slot was not used."""
        if attempt.ticket is not None and not self.rules.observe:
            self.limiter.give_back(attempt.ticket)
            attempt.ticket = None

    def _learn_overrun(self, admission: Admission) -> str:
        """A request above its ceiling: reserve at least as much for every later one. What to change, for the log."""
        self.seen_nanousd = max(self.seen_nanousd, admission.charged_nanousd)
        usage = admission.usage
        if usage is not None and (usage.output_tokens or 0) > self.tariff.max_output_tokens:
            return "send MAX_OUTPUT_TOKENS to the provider as the output cap, or raise it"
        return "raise CALLS_PER_REQUEST, EXTRA_INPUT_BYTES or EXTRA_USD"

    def _new_id(self) -> str:
        """Time-ordered and unique: nanoseconds, then 64 random bits."""
        return f"{self.clock.wall_ns():016x}{os.urandom(8).hex()}"
