"""The numbers behind the page and the JSON: what the ledger says, and what this process counted.

Rules that live here:

- Whoever asks waits a bounded time. A ledger that does not answer leaves what was known last, with its age.
- However many look at the page, the ledger is asked once a second, and the answer is written once a second.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import anyio

from routeguard.answers import rfc3339
from routeguard.money import format_usd
from routeguard.policy import NANOSECONDS, Balance, LedgerUnavailable

if TYPE_CHECKING:
    from routeguard.config import Settings
    from routeguard.guard import Guard
    from routeguard.history import History, Hour, Line

TOP_CLIENTS: Final = 10
#: How old an answer of the ledger may be that the page shows.
FRESH_NS: Final = NANOSECONDS
#: How long a question to the ledger may take.
LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """One answer of the ledger. The balances are of one moment, so that their parts add up."""

    balances: Sequence[Balance]
    in_flight: int | None
    #: On the monotonic clock.
    at_ns: int


class LiveNumbers:
    """What one guard can say about itself."""

    def __init__(self, settings: "Settings", guard: "Guard", history: "History") -> None:
        self._settings = settings
        self._guard = guard
        self._history = history
        self._started_at = datetime.now(UTC)
        #: The last answer of the ledger, and when it was last asked.
        self._last: Look | None = None
        self._asked_ns: int | None = None
        #: How many wait for the ledger.
        self._looking = 0
        #: What the page was given last, and when.
        self._page: tuple[int, bytes] | None = None

    async def look(self) -> Look | None:
        """Ask the ledger now; None when it does not answer in time."""
        guard = self._guard
        self._asked_ns = guard.clock.monotonic_ns()
        look = None
        with suppress(LedgerUnavailable), anyio.move_on_after(LOOK_SECONDS):
            balances = await guard.ledger.balances(guard.rules.budgets)
            in_flight = await guard.ledger.in_flight()
            look = self._last = Look(balances, in_flight, guard.clock.monotonic_ns())
        return look

    async def status(self) -> dict[str, object]:
        """The status JSON: budgets, flight and pause of the ledger as they are now, the rest of this process."""
        return self._status(await self.look())

    async def page(self) -> bytes:
        """What the page polls, as JSON: the status and the history, at most a second old."""
        if self._looking and self._page is not None:
            return self._page[1]
        now_ns, asked_ns = self._guard.clock.monotonic_ns(), self._asked_ns
        # While the very first question is on its way there is nothing to show, so that everybody asks.
        if self._looking or asked_ns is None or now_ns - asked_ns >= FRESH_NS:
            self._looking += 1
            try:
                await self.look()
            finally:
                self._looking -= 1
            self._page = None
        if self._page is None or now_ns - self._page[0] >= FRESH_NS:
            self._page = now_ns, json.dumps(self._live(), separators=(",", ":")).encode()
        return self._page[1]

    def forget(self) -> None:
        """Something was changed that the page must not show as it was."""
        self._page = None

    def _live(self) -> dict[str, object]:
        history, last, counts = self._history, self._last, self._guard.telemetry.counts
        status = self._status(last)
        now_ns = self._guard.clock.monotonic_ns()
        ceiling = history.settled_ceiling_nanousd
        return {
            **status,
            "open": self._guard.is_open()[0],
            "now": rfc3339(_moment(self._guard.clock.wall_ns() // NANOSECONDS)),
            "numbers_age_seconds": None if last is None else (now_ns - last.at_ns) // NANOSECONDS,
            "ledger_errors": counts.ledger_errors,
            "unusable_reports": counts.unusable_reports,
            "settle_ratio": f"{history.settled_nanousd / ceiling:.3f}" if ceiling else None,
            "namespace": self._settings.namespace,
            "trusted": self._settings.client_source,
            "hours": [_hour(hour) for hour in history.hours()],
            "events": [_line(line) for line in history.lines()],
        }

    def _status(self, look: Look | None) -> dict[str, object]:
        from routeguard import __version__

        settings, guard = self._settings, self._guard
        ledger, counts = guard.ledger, guard.telemetry.counts
        return {
            "version": __version__,
            "mode": settings.mode,
            "paused": ledger.paused,
            "ledger": {"kind": ledger.kind, "scope": ledger.scope, "healthy": guard.books.healthy},
            "budgets": [] if look is None else [_budget(balance) for balance in look.balances],
            "in_flight": None if look is None else look.in_flight,
            "requests": {
                "admitted": counts.admitted,
                "rejected": dict(counts.rejected),
                "endings": dict(counts.endings),
            },
            "would_reject": dict(counts.would_reject),
            "top_clients": [
                {
                    "client": client,
                    "admitted": seen.admitted,
                    "rejected": seen.rejected,
                    "spend_usd": format_usd(seen.spend_nanousd),
                }
                for client, seen in guard.telemetry.top_clients(TOP_CLIENTS)
            ],
            "trust": {"platform": settings.platform, "source": guard.rules.strategy.name},
            "process": {"pid": os.getpid(), "started_at": rfc3339(self._started_at)},
        }


def _budget(balance: Balance) -> dict[str, object]:
    return {
        "name": balance.budget.name,
        "window": balance.budget.window.unit,
        "limit_usd": format_usd(balance.budget.limit_nanousd),
        "settled_usd": format_usd(balance.settled_nanousd),
        "open_usd": format_usd(balance.open_nanousd),
        "kept_usd": format_usd(balance.kept_nanousd),
        "orphaned_usd": format_usd(balance.orphaned_nanousd),
        "overrun_usd": format_usd(balance.overrun_nanousd),
        "remaining_usd": format_usd(balance.remaining_nanousd),
        "resets_at": rfc3339(_moment(balance.resets_at)),
    }


def _hour(hour: "Hour") -> dict[str, object]:
    return {
        "starts_at": rfc3339(_moment(hour.starts_at)),
        "admitted": hour.admitted,
        "refused": hour.refused,
        "charged_usd": format_usd(hour.charged_nanousd),
    }


def _line(line: "Line") -> dict[str, object]:
    return {
        "at": rfc3339(_moment(line.began_ns // NANOSECONDS)),
        "event": line.event,
        "detail": line.detail,
        "path": line.path,
        "client": line.client,
        "times": line.times,
        "usd": format_usd(line.nanousd),
    }


def _moment(unix_seconds: int | None) -> datetime | None:
    return None if unix_seconds is None else datetime.fromtimestamp(unix_seconds, UTC)
