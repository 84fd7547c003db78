"""Which money a call is paid from, and what it may produce.

Rules that live here:

- Inside a guarded request the request's reservation pays, of which all its calls have a share. After the request's
  ending a call reserves from the guard's budgets by itself.
- Outside of one the client's own budget pays. Without one the call passes unmetered, is counted, and is warned about
  once.
- A call whose price nobody knows is never sent.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from routeguard.admitted import Admission, Call, NoRoom, admission
from routeguard.clock import Clock
from routeguard.errors import BudgetExceeded
from routeguard.guard import Guard
from routeguard.meter.payment import Origin, OwnReservation, Payment, Prices, Quote, Share
from routeguard.meter.provider_call import Outgoing, ProviderCall, write_call
from routeguard.meter.tariffs import Tariffs
from routeguard.money import format_usd
from routeguard.policy import Budget, Ledger
from routeguard.pricing import Tariff
from routeguard.telemetry import logger

#: Input tokens that a guard reserves for what a provider adds unseen, and that the text of a call leaves to the
#: application: instructions the guard was not told about. No recorded call without tools came within 24 tokens of its
#: bytes, and none with tools used the rest of its model's overhead.
UNTOLD_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Ticket:
    """A call that may be sent once its payment has reserved."""

    outgoing: Outgoing
    payment: Payment


class Unmetered:
    """Calls that nobody paid for."""

    def __init__(self) -> None:
        #: Since the start of the process.
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1
            is_first = self.count == 1
        if is_first:
            logger.warning(
                "a metered client was used outside of a guarded request and without a budget of its own: "
                "its calls are not counted; write metered(budget='2/day') for scripts and jobs"
            )


#: Of this process.
unmetered = Unmetered()
#: Of models that a guarded request calls and its guard was not configured with; shared by all clients.
_foreign = Tariffs()


@dataclass(frozen=True, slots=True)
class Allowance:
    """The budget of a client's own, for calls outside of a request."""

    ledger: Ledger
    budgets: Sequence[Budget]
    tariffs: Tariffs
    clock: Clock
    #: Sent as the cap where the caller gives none.
    output_tokens_default: int
    #: Larger caps are lowered to it; None leaves them to the budget.
    output_tokens_max: int | None
    #: Flat price of one media part; None refuses them.
    media_nanousd: int | None

    def ticket(self, call: ProviderCall) -> Ticket:
        """What pays for a call.

        Raises:
            BudgetExceeded: Nobody knows what it costs.
        """
        most = self.output_tokens_max
        outgoing = write_call(call, default=most or self.output_tokens_default, most=most)
        tariff = self.tariffs.of(call.model, dearer_tiers=call.asks_dearer_tier)
        if tariff is None:
            raise _unpriced(call, "give its price: metered(budget=…, price_in=…, price_out=…)")
        if call.media_parts and self.media_nanousd is None:
            raise _media("metered(budget=…, media_usd=…)")
        quote = _quote(call, outgoing, tariff, self.clock, media_nanousd=self.media_nanousd or 0, others=self.tariffs)
        own = OwnReservation(self.ledger, quote, self.clock, budgets=self.budgets, heeds_pause=True)
        return Ticket(outgoing, own)


def is_paid(allowance: Allowance | None) -> bool:
    """Whether anybody pays for a call that is made here and now. One that nobody pays for is counted."""
    if admission() is not None or allowance is not None:
        return True
    unmetered.add()
    return False


def passes_unread() -> bool:
    """Whether a call that cannot be read is sent all the same: while observing, which refuses nothing."""
    admitted = admission()
    if admitted is None or refuses():
        return False
    admitted.begin()
    return True


def refuses() -> bool:
    """Whether a call that nobody can pay for is refused here and now."""
    admitted = admission()
    return admitted is None or not _guard_of(admitted).rules.observe


def ticket_for(call: ProviderCall, allowance: Allowance | None) -> Ticket:
    """What pays for a call that is made here and now.

    Raises:
        BudgetExceeded: The call must not be sent.
    """
    admitted = admission()
    if admitted is not None:
        return _in_request(admitted, call)
    assert allowance is not None, "only what somebody pays for has a ticket"
    return allowance.ticket(call)


def price_look_up(call: ProviderCall, allowance: Allowance | None) -> Callable[[], object] | None:
    """What has to run before `ticket_for` answers at once, and must not run on an event loop; None: nothing."""
    admitted = admission()
    if admitted is None:
        assert allowance is not None, "only what somebody pays for has a price"
        tariffs = allowance.tariffs
    elif _is_own_model(guard := _guard_of(admitted), call) or _stated(guard, call.model) is not None:
        return None
    else:
        tariffs = _foreign
    if tariffs.remembers(call.model, dearer_tiers=call.asks_dearer_tier):
        return None
    return partial(tariffs.of, call.model, dearer_tiers=call.asks_dearer_tier)


def _is_own_model(guard: Guard, call: ProviderCall) -> bool:
    """Whether the guard was configured with its price. Prices without a model hold for every model."""
    return guard.rules.body.models is None or guard.tariff.configured_name(call.model) is not None


def _guard_of(admitted: Admission) -> Guard:
    guard = admitted.watcher
    assert isinstance(guard, Guard), "a guard admits its requests itself"
    return guard


def _in_request(admitted: Admission, call: ProviderCall) -> Ticket:
    guard = _guard_of(admitted)
    observes, cap = guard.rules.observe, guard.tariff.max_output_tokens
    outgoing = write_call(call, default=cap, most=cap, clamps=not observes)
    is_own_model = _is_own_model(guard, call)
    tariff = _tariff_in_request(guard, call, is_own_model=is_own_model)
    if tariff is None:
        if not observes:
            raise _unpriced(call, "add it to ROUTEGUARD_MODEL, or its price to ROUTEGUARD_PRICES")
        tariff, is_own_model = guard.tariff, True
    if call.media_parts and not (guard.rules.body.media_allowed or observes):
        raise _media("ROUTEGUARD_MEDIA_USD")
    # What the operator says of a model wins over what the table says of another name for it.
    others = None if is_own_model or _stated(guard, call.model) is not None else _OtherPrices(guard)
    quote = _quote(call, outgoing, tariff, guard.clock, media_nanousd=guard.tariff.media_nanousd, others=others)
    begun = admitted.begin_metered(quote.ceiling_nanousd, force=observes)
    if isinstance(begun, Call):
        return Ticket(
            outgoing, Share(begun, quote, guard.clock, is_own_price=is_own_model and not call.asks_dearer_tier)
        )
    if isinstance(begun, NoRoom):
        raise _no_room(begun, quote)
    late = OwnReservation(
        guard.ledger,
        quote,
        guard.clock,
        budgets=guard.rules.budgets,
        client=None if admitted.exempt else admitted.client,
        client_budgets=guard.rules.client_budgets,
        force=observes,
        origin=Origin(admitted, guard.telemetry, guard.tariff.configured_name(call.model)),
    )
    return Ticket(outgoing, late)


def _tariff_in_request(guard: Guard, call: ProviderCall, *, is_own_model: bool) -> Tariff | None:
    """The price of a call; None where nobody knows it."""
    if not is_own_model:
        return _OtherPrices(guard).of(call.model, dearer_tiers=call.asks_dearer_tier)
    return guard.tariff if guard.tariff.knows_tiers_of(call.model) or not call.asks_dearer_tier else None


@dataclass(frozen=True, slots=True)
class _OtherPrices:
    """Prices of models that are not in MODEL: what the operator's file says, else the table."""

    guard: Guard

    def of(self, model: str, *, dearer_tiers: bool) -> Tariff | None:
        return _stated(self.guard, model) or _foreign.of(model, dearer_tiers=dearer_tiers)


def _stated(guard: Guard, model: str) -> Tariff | None:
    """The price file's tariff of a model or, as for those in MODEL, of a snapshot of it."""
    exact = guard.other_tariffs.get(model.lower())
    if exact is not None:
        return exact
    # A name with a provider is another name than one without.
    has_provider = "/" in model.removeprefix("models/")
    named = (tariff for name, tariff in guard.other_tariffs.items() if ("/" in name) == has_provider)
    return next((tariff for tariff in named if tariff.configured_name(model) is not None), None)


def _quote(
    call: ProviderCall,
    outgoing: Outgoing,
    tariff: Tariff,
    clock: Clock,
    *,
    media_nanousd: int,
    others: Prices | None,
) -> Quote:
    wall_ns = clock.wall_ns()
    input_tokens = call.input_tokens + max(tariff.overhead_tokens - UNTOLD_TOKENS, 0)
    ceiling_nanousd = tariff.call_ceiling(
        input_tokens=input_tokens,
        output_tokens=outgoing.output_tokens,
        wall_ns=wall_ns,
        dearer_tiers=call.asks_dearer_tier,
    )
    ceiling_nanousd += call.media_parts * media_nanousd
    return Quote(
        tariff,
        call.model,
        input_tokens,
        outgoing.output_tokens,
        ceiling_nanousd,
        wall_ns,
        has_media=call.media_parts > 0,
        others=others,
        asks_dearer_tier=call.asks_dearer_tier,
    )


def _no_room(found: NoRoom, quote: Quote) -> BudgetExceeded:
    needed = format_usd(quote.ceiling_nanousd)
    if found.calls_left < 1:
        return BudgetExceeded(
            "a provider call was not sent: this request has made as many as ROUTEGUARD_CALLS_PER_REQUEST allows "
            "(retries of an SDK count; max_retries=0 switches them off)",
            reason="calls_per_request",
            ceiling_usd=Decimal(needed),
        )
    tier = "; ROUTEGUARD_ALLOW_FIELDS=service_tier reserves for service tiers" if quote.asks_dearer_tier else ""
    return BudgetExceeded(
        f"a provider call was not sent: it can cost up to ${needed}, and ${format_usd(max(found.left_nanousd, 0))} is "
        "left of what this request reserved; tell the guard what your code adds with ROUTEGUARD_SYSTEM_PROMPT, "
        f"ROUTEGUARD_EXTRA_INPUT_BYTES or ROUTEGUARD_CALLS_PER_REQUEST, or ask for less output{tier}",
        reason="reservation",
        ceiling_usd=Decimal(needed),
    )


def _unpriced(call: ProviderCall, remedy: str) -> BudgetExceeded:
    named = "its model" if call.model else "it names no model, and that"
    tier = " at the service tier or speed it asks for" if call.asks_dearer_tier else ""
    return BudgetExceeded(
        f"a provider call was not sent: {named} has no known price{tier}; {remedy}", reason="unknown_price"
    )


def _media(remedy: str) -> BudgetExceeded:
    return BudgetExceeded(
        f"a provider call was not sent: it holds a file, an image or sound, and bytes do not bound what those cost; "
        f"say what one costs with {remedy}",
        reason="media",
    )
