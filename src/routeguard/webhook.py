"""One POST when 80 % and when 100 % of a budget are charged: once a window, whichever process sees it.

Rules that live here:

- Nothing of this is waited for: a request looks at what its process knows anyway, and a task of its own does the rest.
- Who sends is decided by the ledger, before sending. An alert whose sending failed three times is logged and not sent
  by anybody else: a receiver that is away would otherwise be asked with every request.
- The URL may hold a secret: it is never logged. That is also why the standard library sends, and not an HTTP client
  that writes each address to its log.
"""

import asyncio
import contextvars
import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Final
from urllib.request import HTTPDefaultErrorHandler, HTTPErrorProcessor, HTTPHandler, HTTPSHandler, ProxyHandler

import anyio
from anyio import to_thread

from routeguard.admitted import Admission
from routeguard.clock import Clock
from routeguard.ending import Charge
from routeguard.money import ceil_div, format_usd
from routeguard.policy import NANOSECONDS, Balance, Budget, Ledger, LedgerUnavailable
from routeguard.telemetry import logger

#: Percent of a budget.
THRESHOLDS: Final = (80, 100)
SEND_SECONDS: Final = 5.0
#: Pauses before the second and the third try.
BACKOFF_SECONDS: Final = (1.0, 4.0)
#: How long shutdown waits for what is being sent.
CLOSE_SECONDS: Final = 5.0
#: Seconds until a threshold is looked at again that this process took for crossed and the ledger did not, and after
#: a ledger that did not say who sends.
DOUBT_SECONDS: Final = 1
AWAY_SECONDS: Final = 60


@dataclass(slots=True, eq=False)
class Threshold:
    """Part of one budget."""

    budget: Budget
    percent: int
    #: Unix seconds until which nobody looks at it; None for ever.
    quiet_until: int | None = 0

    @property
    def nanousd(self) -> int:
        """The least charge that reaches it."""
        return ceil_div(self.budget.limit_nanousd * self.percent, 100)


class Webhook:
    """Listens to the endings of one guard; see `telemetry.Listener`."""

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        budgets: Sequence[Budget],
        ledger: Ledger,
        clock: Clock,
        backoff_seconds: Sequence[float] = BACKOFF_SECONDS,
    ) -> None:
        """
        Args:
            url: Where to POST; `http` or `https`.
            namespace: What the receiver is told, so that it can tell guards apart.
            budgets: Those of everybody. A budget of 0 is a switch and not watched.
            ledger: Where they are counted.
            clock: Wall time.
            backoff_seconds: Pauses between the tries.
        """
        self._url = url
        self._namespace = namespace
        self._thresholds = [
            Threshold(budget, percent) for budget in budgets if budget.limit_nanousd for percent in THRESHOLDS
        ]
        self._ledger = ledger
        self._clock = clock
        self._backoff_seconds = backoff_seconds
        self._sending: set[anyio.Event] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def admitted(self, admission: Admission) -> None:
        """What is reserved is not charged yet."""

    def refused(self, event: str, reason: str, *, path: str, client: str | None) -> None:
        """A late bill or an orphan may have filled the budget; then no ending follows."""
        if reason == "budget_exhausted":
            self._look()

    def ended(self, admission: Admission) -> None:
        """Money was charged."""
        self._look()

    def charged_above(self, admission: Admission, nanousd: int, *, late: bool) -> None:
        """May come from a thread without an event loop: the next request looks."""

    def charged_apart(
        self, admission: Admission, charge: Charge, *, model: str | None, over_nanousd: int, truncated: bool
    ) -> None:
        """May come from a thread without an event loop: the next request looks."""

    def happened(self, event: str, detail: str) -> None:
        """Of no interest here."""

    async def aclose(self) -> None:
        """Wait for what is being sent, within a bound; what takes longer is given up."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            for sent in list(self._sending):
                await sent.wait()
        for task in self._tasks:
            if task.get_loop() is asyncio.get_running_loop():
                task.cancel()

    def _look(self) -> None:
        """Begin to tell of every threshold that, as far as this process knows, was crossed."""
        now = self._now()
        crossed = []
        for threshold in self._thresholds:
            if threshold.quiet_until is None or threshold.quiet_until > now:
                continue
            # Charged at least so much: no room for one more than what then is left.
            room = threshold.budget.limit_nanousd - threshold.nanousd + 1
            is_crossed, resets_at = self._ledger.exhausted_until((threshold.budget,), room)
            if is_crossed:
                threshold.quiet_until = resets_at
                crossed.append(threshold)
        if crossed:
            self._begin(crossed)

    def _begin(self, crossed: Sequence[Threshold]) -> None:
        """In a task of its own, which no request waits for and no cancel of one reaches."""
        sent = anyio.Event()
        self._sending.add(sent)

        async def tell() -> None:
            try:
                for threshold in crossed:
                    await self._tell(threshold)
            except Exception as problem:  # noqa: BLE001 - nobody waits for this task; what went wrong is logged
                logger.error("webhook: failed (%s)", type(problem).__name__)
            finally:
                self._sending.discard(sent)
                sent.set()

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio

            trio.lowlevel.spawn_system_task(tell, context=contextvars.Context())
            return
        task = loop.create_task(tell(), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, threshold: Threshold) -> None:
        try:
            balance = await self._claim(threshold)
        except LedgerUnavailable:
            threshold.quiet_until = self._now() + AWAY_SECONDS
            return
        if balance is not None:
            await self._send(threshold, _body(self._namespace, threshold, balance))

    async def _claim(self, threshold: Threshold) -> Balance | None:
        """Where the budget stands, if its threshold was crossed and this process is the one to say so."""
        by = os.urandom(8).hex()
        for tries_left in range(len(self._backoff_seconds), -1, -1):
            try:
                (balance,) = await self._ledger.balances((threshold.budget,))
                if _charged(balance) < threshold.nanousd:
                    # The window has turned, or an orphan was settled for less.
                    threshold.quiet_until = self._now() + DOUBT_SECONDS
                    return None
                window = f"{threshold.budget.name}|{threshold.budget.window.zone.key}|{balance.resets_at or ''}"
                name = f"webhook|{window}|{threshold.percent}"
                return balance if await self._ledger.first(name, by=by, until=balance.resets_at) else None
            except LedgerUnavailable:
                if not tries_left:
                    raise
                await anyio.sleep(self._backoff_seconds[-tries_left])
        raise AssertionError("the last try returns or raises")

    async def _send(self, threshold: Threshold, body: bytes) -> None:
        for tries_left in range(len(self._backoff_seconds), -1, -1):
            problem = await self._post(body)
            if problem is None:
                return
            if not tries_left:
                logger.error(
                    "webhook: budget %s at %d %% was not delivered (%s); it is not sent again in this window",
                    threshold.budget.name,
                    threshold.percent,
                    problem,
                )
                return
            await anyio.sleep(self._backoff_seconds[-tries_left])

    async def _post(self, body: bytes) -> str | None:
        """None when the receiver took it, else what was wrong in a word."""
        answer = "timeout"
        with anyio.move_on_after(SEND_SECONDS):
            answer = await to_thread.run_sync(_post, self._url, body, abandon_on_cancel=True)
        return answer or None

    def _now(self) -> int:
        return self._clock.wall_ns() // NANOSECONDS


def _post(url: str, body: bytes) -> str:
    """Send once, from a thread. Empty when the answer was 2xx, else what was wrong in a word, without the address."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310 - the setting admits http and https only
    opener = urllib.request.OpenerDirector()
    # No redirects: a redirected POST arrives as a GET without its body.
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    try:
        with opener.open(request, timeout=SEND_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"status {error.code}"
    except (OSError, HTTPException) as error:
        return type(getattr(error, "reason", None) or error).__name__


def _charged(balance: Balance) -> int:
    return balance.settled_nanousd + balance.kept_nanousd + balance.orphaned_nanousd


def _body(namespace: str, threshold: Threshold, balance: Balance) -> bytes:
    resets_at = None if balance.resets_at is None else datetime.fromtimestamp(balance.resets_at, UTC)
    return json.dumps(
        {
            "event": "budget",
            "namespace": namespace,
            "budget": threshold.budget.name,
            "threshold": threshold.percent,
            "limit_usd": format_usd(threshold.budget.limit_nanousd),
            "charged_usd": format_usd(_charged(balance)),
            "resets_at": None if resets_at is None else f"{resets_at:%Y-%m-%dT%H:%M:%SZ}",
        }
    ).encode()
