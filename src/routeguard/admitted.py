"""One admitted request: what its provider calls cost, and its one ending.

Rules that live here:

- Reporting never raises and may come from any thread.
- The ending happens once; the flag flips before anything is awaited.
- After the ending nothing moves money back. A bill above the charge is charged as overrun.

Above 400 lines, because all that a request is charged by stands behind one lock.
"""

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from decimal import Decimal
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from routeguard.ending import Bill, Charge
from routeguard.money import ceil_div, format_usd, parse_cost_usd
from routeguard.policy import Reservation
from routeguard.records import Note
from routeguard.usage import Usage, usage_from

ParamsT = ParamSpec("ParamsT")
ReturnT = TypeVar("ReturnT")

#: Finish reasons that mean the answer was cut off at its output cap.
TRUNCATED = frozenset({"length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "model_length"})

Money = str | int | float | Decimal

#: The admission of the request this code runs in; a None is set for every unguarded request, because servers
#: start a pipelined request in the context of its predecessor.
current: ContextVar["Admission | None"] = ContextVar("routeguard_admission", default=None)

#: Key of the admission in the scope that the application gets.
SCOPE_KEY = "routeguard"


def admission(request: object = None) -> "Admission | None":
    """The admission of a request: where the application reports what its provider calls cost.

    Args:
        request: A Starlette or FastAPI `Request`, a Django `ASGIRequest`, or an ASGI scope. Without one the
            admission is found from context, where the framework carries context.

    Returns:
        None when the request is not guarded.
    """
    if request is None:
        return current.get()
    scope = request if isinstance(request, Mapping) else getattr(request, "scope", None)
    found = scope.get(SCOPE_KEY) if isinstance(scope, Mapping) else None
    return found if isinstance(found, Admission) else None


class Pricer(Protocol):
    """Nano-USD of a usage; None when `model` is given and not one of the configured names."""

    def __call__(self, usage: Usage, admission: "Admission", *, model: str | None) -> int | None: ...


class Watcher(Protocol):
    """The guard, as an admission sees it."""

    def charge_late(self, admission: "Admission", *, extra_nanousd: int) -> None:
        """A bill came in above the charge, after the ending."""
        ...

    def unusable_report(self, admission: "Admission", problem: str) -> None:
        """A report had no usable number."""
        ...


class Call:
    """One provider call that was begun. Until it is reported it counts at its worst case."""

    __slots__ = ("_admission", "cost_nanousd", "max_nanousd", "metered", "released", "unreported_nanousd")

    def __init__(self, admission: "Admission", max_nanousd: int, *, metered: bool = False) -> None:
        self._admission = admission
        #: Worst case of the call in nano-USD.
        self.max_nanousd = max_nanousd
        #: What it cost in nano-USD; None until reported.
        self.cost_nanousd: int | None = None
        #: What of it is the worst case of calls that nobody reported, where it stands for those of a guard further in.
        self.unreported_nanousd = 0
        #: The meter reports it, hence nobody else does.
        self.metered = metered
        #: Provably nothing was billed for it; it does not count towards the calls of the request.
        self.released = False

    def report(self, usage: object = None, *, model: str | None = None, cost_usd: Money | None = None) -> None:
        """Say what the call cost; see `Admission.report`. Of several reports of one call the largest counts."""
        self._admission._record(self, self._admission._cost(usage, model, cost_usd))  # noqa: SLF001 - a part of it

    def release(self) -> None:
        """Say that provably nothing was billed. Void once it was reported."""
        self._admission._release(self)  # noqa: SLF001 - a call is a part of its admission


class NoRoom(NamedTuple):
    """What a metered call found in its way."""

    #: What is left of the reservation, in nano-USD.
    left_nanousd: int
    #: Calls the request may still make.
    calls_left: int


class Admission:
    """One admitted request, for the application to report into. Thread-safe; no method raises."""

    __slots__ = (
        "_apart_nanousd",
        "_calls",
        "_lock",
        "_nothing_sent",
        "_price",
        "_reported_any",
        "_told_outer",
        "_watcher",
        "_whole_nanousd",
        "calls_per_request",
        "charge",
        "charged_nanousd",
        "client",
        "ended",
        "exempt",
        "input_bytes",
        "late_charges",
        "model",
        "namespace",
        "outer",
        "path",
        "request_id",
        "reservation",
        "truncated",
        "usage",
        "wall_ns",
    )

    def __init__(
        self,
        reservation: Reservation,
        *,
        client: str,
        path: str,
        request_id: str,
        namespace: str,
        calls_per_request: int,
        price: Pricer,
        watcher: Watcher,
        input_bytes: int,
        wall_ns: int,
        outer: "Admission | None" = None,
        exempt: bool = False,
    ) -> None:
        self.reservation = reservation
        #: Keyed hash of the client, never its address.
        self.client = client
        self.path = path
        self.request_id = request_id
        self.namespace = namespace
        self.calls_per_request = calls_per_request
        #: Input bound of the request, for a usage that does not say its input.
        self.input_bytes = input_bytes
        #: When it was admitted, in nanoseconds since the Unix epoch.
        self.wall_ns = wall_ns
        #: Admission of a guard further out, of another namespace.
        self.outer = outer
        #: The client has no budget of its own.
        self.exempt = exempt
        #: The ending has been decided.
        self.ended = False
        #: The ending, once decided.
        self.charge: Charge | None = None
        #: Last usage and model reported or read, for the log.
        self.usage: Usage | None = None
        self.model: str | None = None
        #: An answer was cut off at its output cap.
        self.truncated = False
        self.late_charges = 0
        self._price = price
        self._watcher = watcher
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._whole_nanousd = 0
        self._reported_any = False
        self._nothing_sent = False
        #: What it was charged, late bills included.
        self.charged_nanousd = 0
        #: What of it is of calls that began after the ending, and hence is no part of the bill.
        self._apart_nanousd = 0
        self._told_outer: Call | None = None

    @property
    def watcher(self) -> Watcher:
        """The guard that admitted it."""
        return self._watcher

    @property
    def id(self) -> str:
        """Id of the reservation; the journal and the log carry the same."""
        return self.reservation.id

    @property
    def ceiling_nanousd(self) -> int:
        """What was reserved, in nano-USD."""
        return self.reservation.amount_nanousd

    @property
    def ceiling_usd(self) -> Decimal:
        """What was reserved, in USD."""
        # Through text: a division rounds as the application's decimal context says.
        return Decimal(format_usd(self.reservation.amount_nanousd))

    def begin(self, max_usd: Money | None = None) -> Call:
        """Mark a provider call as begun, before it is sent.

        Args:
            max_usd: Worst case of this call in USD. By default the request's ceiling divided by
                `CALLS_PER_REQUEST`; an unusable value counts as the whole ceiling.
        """
        call = Call(self, self._call_ceiling(max_usd))
        with self._lock:
            self._calls.append(call)
        return call

    def begin_metered(self, max_nanousd: int, *, force: bool) -> "Call | NoRoom | None":
        """Begin a call of the meter's that can cost at most `max_nanousd`, if the reservation can pay for it.

        One step: of calls that begin at once, only those that fit together are begun. With `force` (the observe
        mode) it is begun in any case. None after the ending: the reservation is spent then.
        """
        call = Call(self, max_nanousd, metered=True)
        with self._lock:
            if self.ended:
                return None
            left_nanousd = self.reservation.amount_nanousd - self._bill().total_nanousd
            calls_left = self.calls_per_request - sum(not begun.released for begun in self._calls)
            if not force and (max_nanousd > left_nanousd or calls_left < 1):
                return NoRoom(left_nanousd, calls_left)
            self._calls.append(call)
        return call

    def report(self, usage: object = None, *, model: str | None = None, cost_usd: Money | None = None) -> None:
        """Say what the oldest begun call cost, or, with none outstanding, what the request cost as a whole.

        Reports about the whole request add up. Numbers that cannot be used (negative, NaN, no token count at
        all, an unknown model, no arguments) leave the call at its worst case.

        Args:
            usage: An OpenAI, Anthropic or Gemini usage or response object, a mapping of that shape, or a `Usage`.
            model: Name of the model, one of `MODEL`. Default: the model the usage names, else the dearest.
            cost_usd: The cost itself in USD; wins over `usage`. 0 is an answer.
        """
        self._record(None, self._cost(usage, model, cost_usd))

    def nothing_sent(self) -> None:
        """Say that no provider call was made: the reservation is released at the end.

        Void once a call was begun, reported or metered.
        """
        with self._lock:
            self._nothing_sent = True

    def bind(self, function: Callable[ParamsT, ReturnT]) -> Callable[ParamsT, ReturnT]:
        """`function` with this admission in its context, for executors and threads of your own."""
        context = copy_context()
        context.run(current.set, self)

        def bound(*args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ReturnT:
            # A copy each, because one context cannot be entered by two threads at once.
            return context.copy().run(function, *args, **kwargs)

        return bound

    def bill(self, *, read_nanousd: int | None = None, provider_seen: bool = False) -> Bill:
        """What is known of the calls so far."""
        with self._lock:
            return self._bill(read_nanousd=read_nanousd, provider_seen=provider_seen)

    def has_unreported_calls(self) -> bool:
        """Whether a call was begun that nobody has reported yet."""
        with self._lock:
            return any(call.cost_nanousd is None or call.unreported_nanousd for call in self._calls)

    def end(self, charge: Charge) -> bool:
        """Take the ending. False when it was taken before; then nothing changes."""
        with self._lock:
            if self.ended:
                return False
            self.ended = True
            self.charge = charge
            self.charged_nanousd = charge.total_nanousd
            # A thread may have reported after the bill was drawn up that this charge was decided by.
            extra_nanousd = self._charge_excess()
        if extra_nanousd > 0:
            self._watcher.charge_late(self, extra_nanousd=extra_nanousd)
        self._tell_outer()
        return True

    def tell_outer_of(self, charge: Charge) -> None:
        """A call that began after the ending was charged apart; the guards further out charge it too."""
        if self.outer is not None and charge.total_nanousd:
            self.outer._take_apart(charge)  # noqa: SLF001 - its own class

    def _take_apart(self, charge: Charge) -> None:
        """Charge what a guard further in charged apart: a call like others, or on top of the ending that was."""
        extra_nanousd = charge.total_nanousd
        with self._lock:
            if self.ended:
                # Never set off against what was kept of the request: that stands for the request's own calls.
                self._apart_nanousd += extra_nanousd
                self.charged_nanousd += extra_nanousd
                self.late_charges += 1
            else:
                call = Call(self, 0, metered=True)
                call.cost_nanousd, call.unreported_nanousd = extra_nanousd, charge.kept_nanousd
                self._calls.append(call)
                return
        self._watcher.charge_late(self, extra_nanousd=extra_nanousd)
        self.tell_outer_of(charge)

    def row_note(self, why: str) -> Note:
        """What its row in the journal says besides its money."""
        usage = self.usage
        if usage is None:
            return Note(self.path, self.client, self.model, why=why)
        return Note(self.path, self.client, self.model, usage.input_tokens, usage.output_tokens, why)

    def _record(self, call: Call | None, cost_nanousd: int | None, *, unreported_nanousd: int | None = None) -> None:
        """Take in a report. With `unreported_nanousd`: the calls of an admission further in, which count as one."""
        with self._lock:
            if call is None:
                own = (begun for begun in self._calls if begun.cost_nanousd is None and not begun.metered)
                call = next(own, None)
            elif unreported_nanousd is not None:
                if call.cost_nanousd is None:
                    self._calls.append(call)
                call.unreported_nanousd = unreported_nanousd
            if cost_nanousd is None:
                if call is None:
                    self._calls.append(Call(self, self._call_ceiling(None)))
                return
            if call is None:
                self._whole_nanousd += cost_nanousd
                self._reported_any = True
            else:
                # Providers repeat cumulative numbers, and a repeated report is one bill: the largest counts.
                call.cost_nanousd = max(call.cost_nanousd or 0, cost_nanousd)
            extra_nanousd = self._charge_excess() if self.ended else 0
        if extra_nanousd > 0:
            self._watcher.charge_late(self, extra_nanousd=extra_nanousd)
        if self.ended:
            self._tell_outer()

    def _tell_outer(self) -> None:
        """Pass on what was reported. Applications report into the innermost admission; each guard is to charge it."""
        if self.outer is None:
            return
        with self._lock:
            bill = self._bill()
            if bill.any_call and self._told_outer is None:
                self._told_outer = Call(self.outer, 0, metered=True)
        if self._told_outer is not None:
            unreported = bill.unreported_nanousd
            self.outer._record(self._told_outer, bill.total_nanousd, unreported_nanousd=unreported)  # noqa: SLF001 - its own class
        elif bill.nothing_sent:
            self.outer.nothing_sent()

    def _release(self, call: Call) -> None:
        with self._lock:
            if call.cost_nanousd is None:
                call.cost_nanousd = 0
                call.released = True

    def _charge_excess(self) -> int:
        """What the bill exceeds the charge by, now charged; 0 or less when it does not."""
        if not self._calls and not self._reported_any:
            return 0
        extra_nanousd = self._bill().total_nanousd + self._apart_nanousd - self.charged_nanousd
        if extra_nanousd > 0:
            self.charged_nanousd += extra_nanousd
            self.late_charges += 1
        return extra_nanousd

    def _cost(self, usage: object, model: str | None, cost_usd: Money | None) -> int | None:
        """Nano-USD of a report; None when it cannot be used."""
        try:
            found = usage_from(usage) if usage is not None else None
            if found is not None:
                self.note(found)
            if cost_usd is not None:
                return parse_cost_usd(cost_usd)
            if found is None:
                self._watcher.unusable_report(self, "no usable number in it")
                return None
            cost_nanousd = self._price(found, self, model=model)
            if cost_nanousd is None:
                self._watcher.unusable_report(self, "its model is not one of MODEL")
            return cost_nanousd
        except Exception as problem:  # noqa: BLE001 - an object of the application's may raise anything; it is counted and logged
            self._watcher.unusable_report(self, type(problem).__name__)
            return None

    def note(self, usage: Usage) -> None:
        """Remember a usage for the log."""
        self.usage = usage
        if usage.finish in TRUNCATED:
            self.truncated = True

    def _bill(self, *, read_nanousd: int | None = None, provider_seen: bool = False) -> Bill:
        reported = unreported = 0
        for call in self._calls:
            if call.cost_nanousd is None:
                unreported += call.max_nanousd
            else:
                unreported += call.unreported_nanousd
                reported += call.cost_nanousd - call.unreported_nanousd
        any_call = bool(self._calls) or self._reported_any
        return Bill(
            reported, unreported, self._whole_nanousd, any_call, read_nanousd, provider_seen, self._nothing_sent
        )

    def _call_ceiling(self, max_usd: Money | None) -> int:
        if max_usd is None:
            return ceil_div(self.reservation.amount_nanousd, self.calls_per_request)
        try:
            return parse_cost_usd(max_usd)
        except Exception as problem:  # noqa: BLE001 - begin never raises; the worst case is the whole reservation
            self._watcher.unusable_report(self, type(problem).__name__)
            return self.reservation.amount_nanousd
