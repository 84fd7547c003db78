"""What the guard says about itself: log lines, and the counts behind the status page.

No prompt, key or address is ever written; a client appears as its keyed hash. Rejections, and
the errors of a ledger behind them, are sampled (the first and then each hundredth of a kind and minute), so that an
attack does not fill the disk.
"""

import logging
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from routeguard.admitted import Admission
from routeguard.clock import Clock
from routeguard.ending import Charge
from routeguard.money import format_usd
from routeguard.policy import NANOSECONDS

logger = logging.getLogger("routeguard")

AnswerT = TypeVar("AnswerT")

#: Clients remembered for the status page, least recently seen out first.
TOP_CLIENTS_REMEMBERED = 10_000
REJECTED_SAMPLE = 100
#: A ledger that fails here has a request refused. An ending that it did not take is always told: that is money.
REFUSED_WHILE = frozenset({"refresh", "reserve"})


@dataclass(slots=True)
class ClientCounts:
    """One client since it was last forgotten."""

    admitted: int = 0
    rejected: int = 0
    spend_nanousd: int = 0


@dataclass(slots=True)
class Counts:
    """Of this process, since its start."""

    admitted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    would_reject: Counter[str] = field(default_factory=Counter)
    ledger_errors: int = 0
    unusable_reports: int = 0


class Listener(Protocol):
    """Told of every event as it happens, unsampled. Never blocks, never raises; a late bill comes from any thread."""

    def admitted(self, admission: Admission) -> None:
        """A reservation was made."""
        ...

    def refused(self, event: str, reason: str, *, path: str, client: str | None) -> None:
        """A request was refused (`rejected`), or would have been (`would_reject`)."""
        ...

    def ended(self, admission: Admission) -> None:
        """An admission has its charge."""
        ...

    def charged_above(self, admission: Admission, nanousd: int, *, late: bool) -> None:
        """A charge came out this much above its ceiling, or (`late`) was raised after the ending."""
        ...

    def charged_apart(
        self, admission: Admission, charge: Charge, *, model: str | None, over_nanousd: int, truncated: bool
    ) -> None:
        """A metered call that began after the ending has its own charge, this much above its ceiling.

        `truncated`: its answer was cut off at its output cap.
        """
        ...

    def happened(self, event: str, detail: str) -> None:
        """`ledger_error` while doing something, `paused`, `resumed`."""
        ...


def log_orphaned(reservation_id: str) -> None:
    """A reservation outlived its lease: its slot is free, its money stays charged."""
    fields = {**dict.fromkeys(FIELDS), "event": "orphaned", "admission_id": reservation_id, "ending": "orphaned"}
    logger.warning("orphaned: reservation %s outlived its lease; its money stays charged", reservation_id, extra=fields)


def log_overflow(clients_max: int) -> None:
    """The map of clients is full of money: whoever is new shares one budget."""
    logger.warning(
        "%d clients hold money in this window, as many as MAX_CLIENTS allows: newcomers share one client's budget",
        clients_max,
    )


class Telemetry:
    """Counts and log lines of one guard."""

    def __init__(self, *, clock: Clock, clients_max: int) -> None:
        self.counts = Counts()
        #: Who wants to know of every event.
        self.listeners: tuple[Listener, ...] = ()
        #: Told the nanoseconds of each question to the ledger; None: nobody measures.
        self.ledger_seconds: Callable[[int], None] | None = None
        self._clock = clock
        #: Least recently seen first. By hand, because each request is counted twice, and `cachetools` takes longer.
        self._clients: OrderedDict[str, ClientCounts] = OrderedDict()
        self._clients_max = min(clients_max, TOP_CLIENTS_REMEMBERED)
        self._rejected_this_minute: Counter[str] = Counter()
        self._minute = -1
        self._said_once: set[str] = set()
        # Late reports come from any thread, and an LRU map is not safe between them.
        self._lock = threading.Lock()

    def admitted(self, admission: Admission) -> None:
        self.counts.admitted += 1
        self._client(admission.client).admitted += 1
        for listener in self.listeners:
            listener.admitted(admission)
        if logger.isEnabledFor(logging.INFO):
            self._log(logging.INFO, "admitted", admission)

    def rejected(self, reason: str, *, request_id: str, path: str, client: str | None) -> None:
        self.counts.rejected[reason] += 1
        if client is not None:
            self._client(client).rejected += 1
        for listener in self.listeners:
            listener.refused("rejected", reason, path=path, client=client)
        self._log_refusal("rejected", reason, request_id=request_id, path=path, client=client)

    def would_reject(self, reason: str, *, request_id: str, path: str, client: str | None) -> None:
        self.counts.would_reject[reason] += 1
        for listener in self.listeners:
            listener.refused("would_reject", reason, path=path, client=client)
        self._log_refusal("would_reject", reason, request_id=request_id, path=path, client=client)

    def ended(self, admission: Admission) -> None:
        charge = admission.charge
        assert charge is not None, "an ending has a charge"
        self.counts.endings[charge.state] += 1
        self._client(admission.client).spend_nanousd += charge.total_nanousd
        for listener in self.listeners:
            listener.ended(admission)
        if logger.isEnabledFor(logging.INFO):
            self._log(logging.INFO, charge.state, admission)
        if charge.why == "no_usage":
            self.once(
                f"no-usage:{admission.path}",
                f"{admission.path}: nobody said what a call cost, so its whole ceiling stays charged; "
                "call admission(request).report(usage), or relay the provider's event stream",
            )
        if admission.truncated:
            self._log(logging.INFO, "truncated", admission)

    def overrun(self, admission: Admission, *, over_nanousd: int, remedy: str) -> None:
        for listener in self.listeners:
            listener.charged_above(admission, over_nanousd, late=False)
        logger.warning(
            "overrun: a call cost %s USD more than was reserved for it; %s",
            format_usd(over_nanousd),
            remedy,
            extra=self._fields("overrun", admission),
        )

    def late(self, admission: Admission, *, extra_nanousd: int, remedy: str | None) -> None:
        self._client(admission.client).spend_nanousd += extra_nanousd
        for listener in self.listeners:
            listener.charged_above(admission, extra_nanousd, late=True)
        logger.warning(
            "overrun: a report after the ending raised the bill by %s USD%s",
            format_usd(extra_nanousd),
            "" if remedy is None else f", and above what was reserved; {remedy}",
            extra={**self._fields("overrun", admission), "charged_usd": format_usd(admission.charged_nanousd)},
        )

    def charged_apart(
        self, admission: Admission, charge: Charge, *, model: str | None, over_nanousd: int, truncated: bool
    ) -> None:
        """A metered call that began after the ending was charged; who made it logs it."""
        self._client(admission.client).spend_nanousd += charge.total_nanousd
        for listener in self.listeners:
            listener.charged_apart(admission, charge, model=model, over_nanousd=over_nanousd, truncated=truncated)

    def unusable_report(self, admission: Admission, problem: str) -> None:
        self.counts.unusable_reports += 1
        self.once(f"report:{problem}", f"a report cannot be used ({problem}); its call counts at its worst case")

    def ledger_error(self, problem: BaseException, *, doing: str) -> None:
        self.counts.ledger_errors += 1
        for listener in self.listeners:
            listener.happened("ledger_error", doing)
        text = f"ledger_error: {doing}: {type(problem).__name__}"
        if doing not in REFUSED_WHILE or self._is_in_sample(text):
            self._plain(logging.ERROR, "ledger_error", text)

    def paused(self, *, paused: bool) -> None:
        event = "paused" if paused else "resumed"
        for listener in self.listeners:
            listener.happened(event, "")
        self._plain(logging.WARNING, event, event)

    def listen(self, listener: Listener) -> None:
        """Tell this listener of every event from now on."""
        self.listeners = (*self.listeners, listener)

    def timed(self, question: Awaitable[AnswerT]) -> Awaitable[AnswerT]:
        """A question to the ledger, whose time is told to whoever wants to know it, also when it fails."""
        return question if self.ledger_seconds is None else self._timed(question, self.ledger_seconds)

    def once(self, key: str, text: str) -> None:
        """A warning that is said once a process."""
        if key in self._said_once or len(self._said_once) > 1000:
            return
        self._said_once.add(key)
        logger.warning("%s", text)

    def started(self, line: str, warnings: tuple[str, ...]) -> None:
        """The start line, on the log or, where nobody listens to it, on stderr: it must be seen once."""
        for warning in warnings:
            logger.warning("%s", warning)
        if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
            logger.info("%s", line)
        else:
            sys.stderr.write(line + "\n")

    def top_clients(self, number: int) -> list[tuple[str, ClientCounts]]:
        """The clients that spent most, then those refused most."""
        with self._lock:
            remembered = list(self._clients.items())
        return sorted(remembered, key=lambda item: (item[1].spend_nanousd, item[1].rejected), reverse=True)[:number]

    async def _timed(self, question: Awaitable[AnswerT], tell: Callable[[int], None]) -> AnswerT:
        began_ns = self._clock.monotonic_ns()
        try:
            return await question
        finally:
            tell(self._clock.monotonic_ns() - began_ns)

    def _client(self, client: str) -> ClientCounts:
        with self._lock:
            counts = self._clients.get(client)
            if counts is not None:
                self._clients.move_to_end(client)
                return counts
            if len(self._clients) >= self._clients_max:
                self._clients.popitem(last=False)
            counts = self._clients[client] = ClientCounts()
            return counts

    def _log_refusal(self, event: str, reason: str, *, request_id: str, path: str, client: str | None) -> None:
        if not self._is_in_sample(f"{event} {reason}"):
            return
        known = {"event": event, "reason": reason, "request_id": request_id, "path": path, "client": client}
        fields: dict[str, str | None] = {**dict.fromkeys(FIELDS), **known}
        logger.info("%s: %s %s client %s", event, path, reason, client or "unknown", extra=fields)

    def _is_in_sample(self, kind: str) -> bool:
        """The first of a kind in each minute, and then each hundredth."""
        minute = self._clock.monotonic_ns() // (60 * NANOSECONDS)
        if minute != self._minute:
            self._minute = minute
            self._rejected_this_minute.clear()
        seen = self._rejected_this_minute[kind]
        self._rejected_this_minute[kind] = seen + 1
        return seen % REJECTED_SAMPLE == 0

    def _log(self, level: int, event: str, admission: Admission) -> None:
        fields = self._fields(event, admission)
        logger.log(
            level,
            "%s: %s ceiling %s USD charged %s client %s",
            event,
            admission.path,
            fields["ceiling_usd"],
            fields["charged_usd"],
            admission.client,
            extra=fields,
        )

    def _plain(self, level: int, event: str, text: str) -> None:
        logger.log(level, "%s", text, extra={**dict.fromkeys(FIELDS), "event": event})

    def _fields(self, event: str, admission: Admission) -> dict[str, str | int | None]:
        charge, usage = admission.charge, admission.usage
        return {
            "event": event,
            "request_id": admission.request_id,
            "admission_id": admission.id,
            "path": admission.path,
            "client": admission.client,
            "reason": None,
            "ending": charge.state if charge is not None else None,
            "why": charge.why if charge is not None else None,
            "ceiling_usd": format_usd(admission.ceiling_nanousd),
            "charged_usd": format_usd(charge.total_nanousd) if charge is not None else None,
            "model": admission.model,
            "input_tokens": usage.input_tokens if usage is not None else None,
            "output_tokens": usage.output_tokens if usage is not None else None,
        }


#: Every log record of ours has these, unknown ones as None.
FIELDS = (
    "event",
    "request_id",
    "admission_id",
    "path",
    "client",
    "reason",
    "ending",
    "why",
    "ceiling_usd",
    "charged_usd",
    "model",
    "input_tokens",
    "output_tokens",
)
