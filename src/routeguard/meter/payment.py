"""Who pays for one metered call: a share of the request's reservation, or a reservation of its own."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Protocol

from routeguard.admitted import TRUNCATED, Admission, Call
from routeguard.clock import Clock
from routeguard.ending import Charge
from routeguard.errors import BudgetExceeded
from routeguard.money import format_usd
from routeguard.policy import NANOSECONDS, Budget, Claim, Ledger, Parallel, Refused, Reservation
from routeguard.pricing import Tariff
from routeguard.records import NO_NOTE, Note
from routeguard.telemetry import FIELDS, Telemetry, logger
from routeguard.usage import Usage

#: A call whose process died is orphaned after this long: its money stays, and the ledger says whose it was.
LEASE_SECONDS = 3_600
#: Leases of metered calls are no streams of a guard: they count under a name of their own and limit nothing.
_LEASE = Claim(Parallel(None, LEASE_SECONDS * NANOSECONDS, per_client=True), "metered-calls", 1)


class Payment(Protocol):
    """What one call costs. `report` and `release` never raise and never wait."""

    @property
    def ledger(self) -> Ledger | None:
        """Where `reserve` and `close` have something to write; None: nowhere."""
        ...

    async def reserve(self) -> None:
        """Debit the worst case before the call is sent.

        Raises:
            BudgetExceeded: It was not debited; the call must not be sent.
        """
        ...

    def report(self, usage: Usage) -> None:
        """The provider said what the call used. Of several reports the largest counts."""
        ...

    def release(self) -> None:
        """Provably nothing was billed. Void after a report."""
        ...

    async def close(self) -> None:
        """The call is over: write its ending, once."""
        ...


class Prices(Protocol):
    """Where the price of a model is found by its name."""

    def of(self, model: str, *, dearer_tiers: bool) -> Tariff | None:
        """The tariff of a model, or None when nobody knows its price."""
        ...


@dataclass(frozen=True, slots=True)
class Quote:
    """The worst case of one call, and how its usage is priced."""

    tariff: Tariff
    model: str
    #: What stands in for counts that the provider does not report.
    input_tokens: int
    output_tokens: int
    ceiling_nanousd: int
    #: When the call was made, in nanoseconds since the Unix epoch.
    wall_ns: int
    #: It holds media, whose tokens no bytes stand in for.
    has_media: bool = False
    #: Prices of other models, should the answer name one; None: the tariff has all that are charged.
    others: Prices | None = None
    asks_dearer_tier: bool = False

    def is_told_by(self, usage: Usage) -> bool:
        """Whether a usage says what the call used. What was answered has read something, whatever fills in zeros."""
        if usage.cost_usd is not None:
            return True
        is_missing_media = usage.input_tokens is None and self.has_media
        return bool(usage.input_tokens or usage.output_tokens) and not is_missing_media

    def complete(self, usage: Usage) -> Usage:
        """The usage with nothing left unknown."""
        if usage.input_tokens is not None and usage.output_tokens is not None:
            return usage
        return replace(
            usage,
            input_tokens=self.input_tokens if usage.input_tokens is None else usage.input_tokens,
            output_tokens=self.output_tokens if usage.output_tokens is None else usage.output_tokens,
        )

    def cost(self, usage: Usage, *, wall_ns: int) -> int:
        """Nano-USD of a complete usage: the dearer of the prices at the call and now."""
        if usage.cost_usd is not None or not usage.other_models:
            return self._cost(usage, wall_ns=wall_ns)
        own = replace(usage, other_models=())
        return sum(self._cost(part, wall_ns=wall_ns) for part in (own, *usage.other_models))

    def _cost(self, usage: Usage, *, wall_ns: int) -> int:
        costs = [
            tariff.cost(usage, wall_ns=moment_ns, input_bytes=self.input_tokens, dearer_tiers=self.asks_dearer_tier)
            for moment_ns in {self.wall_ns, wall_ns}
            for tariff in self._tariffs_of(usage.model)
        ]
        return max(cost or 0 for cost in costs)

    def _tariffs_of(self, answered: str | None) -> Sequence[Tariff]:
        """The dearest holds: a deployment, an alias or a fallback may be another model than the one asked for."""
        if self.others is None or answered is None or self.tariff.configured_name(answered) is not None:
            return (self.tariff,)
        # Looked up here and now, which takes up to 30 ms once for each name that a provider has for its answers.
        other = self.others.of(answered, dearer_tiers=self.asks_dearer_tier)
        return (self.tariff,) if other is None else (self.tariff, other)


class Share:
    """A call that the request's reservation pays for."""

    ledger = None

    def __init__(self, call: Call, quote: Quote, clock: Clock, *, is_own_price: bool) -> None:
        self._call = call
        self._quote = quote
        self._clock = clock
        #: The guard prices it as it prices every report.
        self._is_own_price = is_own_price

    async def reserve(self) -> None:
        """The request has reserved already."""

    def report(self, usage: Usage) -> None:
        if not self._quote.is_told_by(usage):
            return
        usage = self._quote.complete(usage)
        if self._is_own_price:
            self._call.report(usage)
        else:
            self._call.report(usage, cost_usd=format_usd(self._quote.cost(usage, wall_ns=self._clock.wall_ns())))

    def release(self) -> None:
        self._call.release()

    async def close(self) -> None:
        """The request's ending is the guard's."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The ended request that a call was made in, and the guard that counts what it is charged."""

    admission: Admission
    telemetry: Telemetry
    #: The configured name of the model it asks for.
    model: str | None


class OwnReservation:
    """A call that reserves from budgets by itself: outside of a request, or after its ending."""

    def __init__(
        self,
        ledger: Ledger,
        quote: Quote,
        clock: Clock,
        *,
        budgets: Sequence[Budget],
        client: str | None = None,
        client_budgets: Sequence[Budget] = (),
        force: bool = False,
        heeds_pause: bool = False,
        origin: Origin | None = None,
    ) -> None:
        """
        Args:
            ledger: Where the budgets are counted.
            quote: What the call can cost.
            clock: Time.
            budgets: Debited for everybody.
            client: Whose `client_budgets` are debited too.
            client_budgets: The budgets of each client.
            force: Debit also what does not fit, and send the call even if the ledger does not answer.
            heeds_pause: The ledger's kill switch stops the call. A request that runs may finish what it began.
            origin: The request whose ending is over; None outside of a request.
        """
        self.ledger: Ledger | None = ledger
        self._ledger = ledger
        self._quote = quote
        self._clock = clock
        self._force = force
        self._heeds_pause = heeds_pause
        self._origin = origin
        amount = quote.ceiling_nanousd
        self._money = [Claim(budget, "", amount) for budget in budgets]
        if client is not None:
            self._money += [Claim(budget, client, amount) for budget in client_budgets]
        #: Of the call that may be sent; empty before, and once it has its ending.
        self._call_id = ""
        #: None where no budget bounds the call.
        self._reservation: Reservation | None = None
        self._usage: Usage | None = None
        self._cost_nanousd: int | None = None
        self._released = False
        self._truncated = False

    async def reserve(self) -> None:
        call_id = f"{self._clock.wall_ns():016x}{os.urandom(8).hex()}"
        try:
            if self._heeds_pause:
                await self._ledger.refresh()
                if self._ledger.paused:
                    raise BudgetExceeded(
                        "a provider call was not sent: the kill switch of its ledger is on", reason="service_paused"
                    )
            # A price of 0 claims no money, and so passes a spent budget.
            if self._quote.ceiling_nanousd and self._money:
                self._reservation = await self._ledger.reserve(
                    call_id, money=self._money, slots=[_LEASE], force=self._force
                )
            self._call_id = call_id
        except Refused as refused:
            raise self._refusal(refused) from None
        except BudgetExceeded:
            raise
        except Exception as problem:
            logger.error("ledger_error: reserve a call: %s", type(problem).__name__, extra=_fields("ledger_error"))
            if not self._force:
                raise BudgetExceeded(
                    "a provider call was not sent: the ledger does not answer", reason="guard_unavailable"
                ) from problem

    def report(self, usage: Usage) -> None:
        if not self._quote.is_told_by(usage):
            return
        self._usage = usage = self._quote.complete(usage)
        self._truncated = self._truncated or usage.finish in TRUNCATED
        cost_nanousd = self._quote.cost(usage, wall_ns=self._clock.wall_ns())
        self._cost_nanousd = max(self._cost_nanousd or 0, cost_nanousd)

    def release(self) -> None:
        self._released = True

    async def close(self) -> None:
        call_id, self._call_id = self._call_id, ""
        if not call_id:
            return
        charge = self._charge()
        try:
            await self._settle(charge)
        finally:
            # Whoever is cancelled here has charged all the same: the ledger goes on without them.
            self._tell(call_id, charge)

    def _tell(self, call_id: str, charge: Charge) -> None:
        over_nanousd = charge.total_nanousd - self._quote.ceiling_nanousd
        if (origin := self._origin) is not None:
            origin.telemetry.charged_apart(
                origin.admission, charge, model=origin.model, over_nanousd=over_nanousd, truncated=self._truncated
            )
            origin.admission.tell_outer_of(charge)
        self._log(call_id, charge, over_nanousd)

    def _charge(self) -> Charge:
        if self._cost_nanousd is not None:
            return Charge("settled", self._cost_nanousd, 0, "reported")
        if self._released:
            return Charge("released", 0, 0, "not_billed")
        return Charge("kept", 0, self._quote.ceiling_nanousd, "unreported_call")

    async def _settle(self, charge: Charge) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        try:
            await self._ledger.settle(
                reservation,
                state=charge.state,
                settled_nanousd=charge.settled_nanousd,
                kept_nanousd=charge.kept_nanousd,
                note=self._note(charge),
            )
        except Exception as problem:  # noqa: BLE001 - settling never spoils a good answer; the charge stands or is queued
            logger.error("ledger_error: settle a call: %s", type(problem).__name__, extra=_fields("ledger_error"))

    def _note(self, charge: Charge) -> Note:
        """What its row in the journal says besides its money."""
        if self._origin is None:
            return NO_NOTE
        made_in, usage = self._origin.admission, self._usage
        tokens = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        return Note(made_in.path, made_in.client, self._origin.model, *tokens, charge.why)

    def _refusal(self, refused: Refused) -> BudgetExceeded:
        needed = format_usd(self._quote.ceiling_nanousd)
        why = {
            "too_expensive": "that is more than the whole budget",
            "budget_exhausted": "the budget is spent",
            "busy": "open calls hold what is left of the budget",
            "rate_limited": "a rate is in the way",
        }[refused.cause]
        is_clients = refused.cause == "budget_exhausted" and refused.per_client
        return BudgetExceeded(
            f"a provider call was not sent: it can cost up to ${needed}, and {why}",
            reason="client_budget_exhausted" if is_clients else refused.cause,
            ceiling_usd=Decimal(needed),
            resets_at=when(refused.resets_at),
        )

    def _log(self, call_id: str, charge: Charge, over_nanousd: int) -> None:
        made_in = self._origin.admission if self._origin is not None else None
        known = {
            "request_id": made_in.request_id if made_in is not None else None,
            "admission_id": call_id,
            "path": made_in.path if made_in is not None else None,
            "client": made_in.client if made_in is not None else None,
            "ending": charge.state,
            "why": charge.why,
            "ceiling_usd": format_usd(self._quote.ceiling_nanousd),
            "charged_usd": format_usd(charge.total_nanousd),
            "model": self._quote.model or None,
            "input_tokens": self._usage.input_tokens if self._usage else None,
            "output_tokens": self._usage.output_tokens if self._usage else None,
        }
        if over_nanousd > 0:
            logger.warning(
                "overrun: a call cost %s USD more than was reserved for it",
                format_usd(over_nanousd),
                extra=_fields("overrun", **known),
            )
        elif logger.isEnabledFor(logging.INFO):
            logger.info(
                "%s: a metered call, ceiling %s USD charged %s",
                charge.state,
                known["ceiling_usd"],
                known["charged_usd"],
                extra=_fields(charge.state, **known),
            )
        if self._truncated:
            logger.info("truncated: a metered call, at its output cap", extra=_fields("truncated", **known))


def _fields(event: str, **known: str | int | None) -> dict[str, str | int | None]:
    return {**dict.fromkeys(FIELDS), "event": event, **known}


def when(resets_at: int | None) -> datetime | None:
    """A moment in Unix seconds, for people's code."""
    return None if resets_at is None else datetime.fromtimestamp(resets_at, UTC)
