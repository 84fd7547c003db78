"""The routes below `STATUS_PATH`: who gets which answer."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import anyio
from anyio import to_thread
from starlette.responses import JSONResponse, RedirectResponse, Response

from routeguard.answers import Headers, cors_headers, preflight_headers, rfc3339
from routeguard.history import History
from routeguard.metrics import Tallies
from routeguard.policy import LedgerUnavailable
from routeguard.replay import BodyTooLarge, ClientGone, read_body
from routeguard.status.exposition import MULTIPROCESS_DIR, Exposition, Gauges, is_installed
from routeguard.status.live import LiveNumbers
from routeguard.status.login import Login, is_cross_site
from routeguard.status.page import FILES, login_form, static

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from routeguard.config import Settings
    from routeguard.guard import Guard
    from routeguard.status.login import Proof

NO_STORE = {"Cache-Control": "no-store"}
#: A form with one field.
LOGIN_BYTES_MAX = 4096
LOGIN_SECONDS = 10.0
METHODS = {
    **dict.fromkeys(("", "/", "/status", "/live", "/metrics", *FILES), ("GET", "HEAD")),
    "/open": ("GET", "HEAD", "OPTIONS"),
    **dict.fromkeys(("/login", "/logout", "/pause", "/resume"), ("POST",)),
}
#: Routes that hold nothing worth a token.
FOR_EVERYBODY = frozenset({"", "/open", "/login", "/logout", *FILES})


class StatusRoutes:
    """Seeing and steering one guard over HTTP. Without `ADMIN_TOKEN` no route exists, and nothing is counted for it."""

    def __init__(self, settings: "Settings", guard: "Guard") -> None:
        self._settings = settings
        self._guard = guard
        self._exposition: Exposition | None = None
        history = History(guard.clock)
        self._live = LiveNumbers(settings, guard, history)
        # Without a token nothing gets here; and if it did, nobody would know this one.
        self._login = Login(settings.admin_token or os.urandom(32).hex(), guard)
        if settings.admin_token is None:
            return
        guard.telemetry.listen(history)
        if is_installed():
            tallies = Tallies()
            self._exposition = Exposition(tallies)
            guard.telemetry.listen(tallies)
            guard.telemetry.ledger_seconds = tallies.took
            guard.closing = (*guard.closing, self._exposition.aclose)

    def covers(self, scope: "Scope") -> bool:
        """Whether this request is for one of these routes."""
        if self._settings.admin_token is None:
            return False
        path = self._path(scope)
        return path == self._settings.status_path or path.startswith(self._settings.status_path + "/")

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        response = await self._respond(scope, receive)
        await response(scope, receive, send)

    async def status(self) -> dict[str, object]:
        """What the guard knows: budgets, flight and pause of the ledger, the rest of this process."""
        return await self._live.status()

    async def _respond(self, scope: "Scope", receive: "Receive") -> Response:
        route = self._path(scope)[len(self._settings.status_path) :]
        proof = None
        if route not in FOR_EVERYBODY:
            proof = self._login.proof(scope)
            if proof is None:
                return _not_let_in(route, scope)
        if route not in METHODS:
            return _error(404, "not_found", "There is no such status route.")
        if scope["method"] not in METHODS[route]:
            return _error(405, "method_not_allowed", f"Use {METHODS[route][0]}.", {"Allow": ", ".join(METHODS[route])})
        if route in {"/pause", "/resume"}:
            return await self._steer(route, scope, proof)
        if route == "/login":
            return await self._log_in(scope, receive)
        if route in {"/open", "/status", "/live", "/metrics"}:
            return await self._show(route, scope)
        return self._page(route, scope)

    def _page(self, route: str, scope: "Scope") -> Response:
        if route == "/logout":
            return RedirectResponse("./", 303, {"Set-Cookie": self._login.no_cookie(scope), **NO_STORE})
        if route == "":
            # Relative, because a proxy in front may call the folder something else.
            return RedirectResponse(f"{self._settings.status_path.rpartition('/')[2]}/", 307, NO_STORE)
        return static("/page.html" if route == "/" else route, scope)

    async def _show(self, route: str, scope: "Scope") -> Response:
        with suppress(LedgerUnavailable):  # what was known last is shown, with `healthy` false beside it
            await self._guard.ledger.refresh()
        if route == "/open":
            return self._open(scope)
        if route == "/status":
            return JSONResponse(await self.status(), headers=NO_STORE)
        if route == "/live":
            return Response(await self._live.page(), media_type="application/json", headers=NO_STORE)
        return await self._metrics(scope)

    def _open(self, scope: "Scope") -> Response:
        if scope["method"] == "OPTIONS":
            # A widget whose requests all carry a header of its own makes its browser ask first.
            headers = preflight_headers(self._settings.cors_origins, scope["headers"])
            return _with(Response(status_code=204), headers)
        is_open, resets_at = self._guard.is_open()
        moment = None if resets_at is None else datetime.fromtimestamp(resets_at, UTC)
        response = JSONResponse({"open": is_open, "resets_at": rfc3339(moment)}, headers=NO_STORE)
        return _with(response, cors_headers(self._settings.cors_origins, scope["headers"]))

    async def _metrics(self, scope: "Scope") -> Response:
        if self._exposition is None:
            return _error(501, "not_installed", "Metrics need prometheus-client: pip install 'routeguard[prometheus]'.")
        look = await self._live.look()
        gauges = Gauges(look.balances, look.in_flight) if look is not None else Gauges((), None)
        accept = ", ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept")
        try:
            # It may read the files of every process.
            body, content_type = await to_thread.run_sync(self._exposition.render, gauges, accept)
        except (ValueError, OSError):
            return _error(
                503, "metrics_unreadable", f"{MULTIPROCESS_DIR} names no folder that can be read and written."
            )
        return Response(body, headers={"Content-Type": content_type, **NO_STORE})

    async def _steer(self, route: str, scope: "Scope", proof: "Proof | None") -> Response:
        if proof == "cookie" and is_cross_site(scope):
            return _error(403, "cross_site", "A page of another site cannot steer this one.")
        paused = route == "/pause"
        try:
            await self._guard.ledger.set_paused(paused=paused)
        except LedgerUnavailable:
            return _error(503, "ledger_unavailable", "It is not known to be turned. See how it stands, and ask again.")
        self._guard.telemetry.paused(paused=paused)
        self._live.forget()
        return JSONResponse({"paused": paused, "scope": self._guard.ledger.scope}, headers=NO_STORE)

    async def _log_in(self, scope: "Scope", receive: "Receive") -> Response:
        body = b""
        with suppress(BodyTooLarge, ClientGone), anyio.move_on_after(LOGIN_SECONDS):
            body, _ = await read_body(receive, bytes_max=LOGIN_BYTES_MAX)
        fields = parse_qs(body.decode("latin-1"))
        token = fields.get("token", [""])[0].strip()
        if not self._login.is_right(token.encode("utf-8", "surrogateescape"), scope):
            return login_form("wrong")
        return RedirectResponse("./", 303, {"Set-Cookie": self._login.cookie(scope), **NO_STORE})

    def _path(self, scope: "Scope") -> str:
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "").rstrip("/")
        if root_path and path.startswith(root_path + "/"):
            return path[len(root_path) :]
        return path


def _with(response: Response, headers: Headers) -> Response:
    for name, value in headers:
        response.headers.append(name.decode("latin-1"), value.decode("latin-1"))
    return response


def _not_let_in(route: str, scope: "Scope") -> Response:
    if route == "/" and scope["method"] in METHODS["/"]:
        return login_form("missing")
    bearer = {"WWW-Authenticate": "Bearer"}
    return _error(401, "unauthorized", "Send the admin token as Authorization: Bearer.", bearer)


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, status, {**NO_STORE, **(headers or {})})
