"""Seeing and steering a running guard over HTTP: status, open, pause and resume.

Without `ADMIN_TOKEN` none of these routes exists, and the application answers for itself.
"""

import hmac
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from routeguard.answers import cors_headers, rfc3339
from routeguard.money import format_usd
from routeguard.policy import Balance, LedgerUnavailable

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from routeguard.config import Settings
    from routeguard.guard import Guard

TOP_CLIENTS = 10
NO_STORE = {"Cache-Control": "no-store"}


class StatusRoutes:
    """The routes below `STATUS_PATH`."""

    def __init__(self, settings: "Settings", guard: "Guard") -> None:
        self._settings = settings
        self._guard = guard
        self._started_at = datetime.now(UTC)

    def covers(self, scope: "Scope") -> bool:
        """Whether this request is for one of these routes."""
        if self._settings.admin_token is None:
            return False
        path = self._path(scope)
        return path == self._settings.status_path or path.startswith(self._settings.status_path + "/")

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        route = self._path(scope)[len(self._settings.status_path) :]
        method = scope["method"]
        with suppress(LedgerUnavailable):  # what was known last is shown, with `healthy` false beside it
            await self._guard.ledger.refresh()
        if route == "/open" and method in {"GET", "HEAD"}:
            response = self._open(scope)
        elif not self._is_authorized(scope):
            response = _error(401, "unauthorized", "Send the admin token as Authorization: Bearer.")
            response.headers["WWW-Authenticate"] = "Bearer"
        elif route == "/status" and method in {"GET", "HEAD"}:
            response = JSONResponse(await self.status(), headers=NO_STORE)
        elif route in {"/pause", "/resume"}:
            response = await self._steer(route, method)
        elif route in {"/status", "/open"}:
            response = _error(405, "method_not_allowed", "Use GET.")
        else:
            response = _error(404, "not_found", "There is no such status route.")
        await response(scope, receive, send)

    async def status(self) -> dict[str, object]:
        """What the guard knows: budgets, flight and pause of the ledger, the rest of this process."""
        from routeguard import __version__

        settings, guard = self._settings, self._guard
        counts = guard.telemetry.counts
        balances: list[Balance] = []
        in_flight: int | None = None
        with suppress(LedgerUnavailable):
            balances = await guard.ledger.balances(guard.rules.budgets)
            in_flight = await guard.ledger.in_flight()
        return {
            "version": __version__,
            "mode": settings.mode,
            "paused": guard.ledger.paused,
            "ledger": {"kind": guard.ledger.kind, "scope": guard.ledger.scope, "healthy": guard.books.healthy},
            "budgets": [_budget(balance) for balance in balances],
            "in_flight": in_flight,
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

    def _open(self, scope: "Scope") -> Response:
        is_open, resets_at = self._guard.is_open()
        moment = None if resets_at is None else datetime.fromtimestamp(resets_at, UTC)
        response = JSONResponse({"open": is_open, "resets_at": rfc3339(moment)}, headers=NO_STORE)
        for name, value in cors_headers(self._settings.cors_origins, scope["headers"]):
            response.headers.append(name.decode("latin-1"), value.decode("latin-1"))
        return response

    async def _steer(self, route: str, method: str) -> Response:
        if method != "POST":
            return _error(405, "method_not_allowed", "Use POST.")
        paused = route == "/pause"
        try:
            await self._guard.ledger.set_paused(paused=paused)
        except LedgerUnavailable:
            return _error(503, "ledger_unavailable", "The ledger does not answer; nothing was changed.")
        self._guard.telemetry.paused(paused=paused)
        return JSONResponse({"paused": paused, "scope": self._guard.ledger.scope}, headers=NO_STORE)

    def _is_authorized(self, scope: "Scope") -> bool:
        token = self._settings.admin_token
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if token is None or len(given) != 1:
            return False
        scheme, _, bearer = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(bearer.strip(), token.encode())

    def _path(self, scope: "Scope") -> str:
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "").rstrip("/")
        if root_path and path.startswith(root_path + "/"):
            return path[len(root_path) :]
        return path


def _budget(balance: Balance) -> dict[str, object]:
    resets_at = None if balance.resets_at is None else datetime.fromtimestamp(balance.resets_at, UTC)
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
        "resets_at": rfc3339(resets_at),
    }


def _error(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, status, headers=NO_STORE)
