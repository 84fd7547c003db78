"""The ASGI face: `RouteGuard(app, …)`, for FastAPI, Starlette, Django and anything else that speaks ASGI."""

import os
from collections.abc import MutableMapping
from secrets import token_hex
from typing import TYPE_CHECKING

from routeguard.admitted import SCOPE_KEY, Admission, current
from routeguard.answers import answer, cors_headers, policy_header, preflight_headers, rate_header
from routeguard.attempt import Attempt
from routeguard.build import build_guard
from routeguard.config import Settings, start_line
from routeguard.ending import Failure
from routeguard.errors import ConfigError, Rejected
from routeguard.guard import Guard
from routeguard.lifespan import Lifespan, Running, is_built_lazily, refuse_startup
from routeguard.observe import observe, unrecorded
from routeguard.paths import PathPatterns
from routeguard.replay import ClientGone, Receive, Replay, Scope, Send
from routeguard.respond import refuse_websocket, respond
from routeguard.settings import names
from routeguard.status import StatusRoutes
from routeguard.tap import Tap
from routeguard.telemetry import logger
from routeguard.wrappers import prefixes

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from typing_extensions import Unpack

    from routeguard.config import SettingsKeywords


class RouteGuard:
    """ASGI middleware that caps what a public AI route can cost, before the call is made.

    Args:
        app: The application to guard.
        keywords: The settings of `docs/settings.md`, in lower case without prefix; what is not given comes from the
            environment, then from Django's settings, then from the default.

    Raises:
        ConfigError: The settings cannot be used; every problem is listed. Built by Starlette inside `lifespan`,
            where an exception would be swallowed, the guard fails the server's start instead.
    """

    def __init__(self, app: "ASGIApp", **keywords: "Unpack[SettingsKeywords]") -> None:
        self.app = app
        self._config_error: ConfigError | None = None
        self._started = False
        self._running = Running()
        try:
            settings = Settings(**keywords)
            guard = build_guard(settings) if settings.mode != "off" else None
        except ConfigError as error:
            if not is_built_lazily():
                raise
            self._config_error = error
            self._guard: Guard | None = None
            self._paths = PathPatterns(_paths_of(keywords), prefixes(app))
            logger.error("%s", error)
            return
        self._enforce(settings, guard)

    @classmethod
    def around(cls, app: "ASGIApp", settings: Settings, guard: Guard) -> "RouteGuard":
        """The face of a guard with a clock or a ledger of its own, which has said what is in force."""
        face = cls.__new__(cls)
        face.__dict__.update(app=app, _config_error=None, _started=True, _running=Running())
        face._enforce(settings, guard)  # noqa: SLF001 - its own class
        return face

    def _enforce(self, settings: Settings, guard: Guard | None) -> None:
        self.settings = settings
        self._guard = guard
        self._paths = PathPatterns(settings.paths, prefixes(self.app))
        self._status = StatusRoutes(settings, guard) if guard is not None else None
        self._policy_header = policy_header(settings.rates)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if self._config_error is not None:
            await self._refuse_all(self._config_error, scope, receive, send)
        elif self._guard is None:
            if kind != "lifespan" and SCOPE_KEY not in scope:
                current.set(None)
            await self.app(scope, receive, send)
        elif kind == "http":
            await self._http(self._guard, scope, receive, send)
        elif kind == "websocket":
            await self._websocket(self._guard, scope, receive, send)
        elif kind == "lifespan":
            lifespan = Lifespan(receive, send, on_startup=self._start, on_shutdown=self._stop)
            await lifespan.run(self.app, scope)
        else:
            await self.app(scope, receive, send)

    async def _http(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        if self._status is not None and self._status.covers(scope):
            await self._status(scope, receive, send)
            return
        path = self._paths.match(scope["path"], scope.get("root_path", ""))
        methods = self.settings.methods
        outer: Admission | None = scope.get(SCOPE_KEY)
        # In any case: uvicorn with h11 lets `post` through, and Django takes it for a POST.
        if path is None or (methods is not None and scope["method"].upper() not in methods):
            if outer is None:
                # For every request: servers start a pipelined one in the context of its predecessor.
                current.set(None)
            await self.app(scope, receive, send)
        elif self._already_reserved(guard, outer):
            await self.app(scope, receive, send)
        else:
            if not self._started and (error := await self._cannot_start()):
                await self._refuse_all(error, scope, receive, send)
                return
            await self._guarded(guard, guard.open(scope, path), receive, send, outer)

    async def _guarded(
        self, guard: Guard, attempt: Attempt, receive: Receive, send: Send, outer: Admission | None
    ) -> None:
        # One scope for both waits, because entering one costs as much as a check: `screen` gives it the time of
        # the body, `_run` the time of the stream, and the last body message lifts it.
        rejected: Rejected | None = None
        with attempt.time_limit:
            rejected = await self._serve(guard, attempt, receive, send, outer)
        if attempt.time_limit.passed:
            rejected = guard.refusals.too_slow() if attempt.admission is None else guard.refusals.timed_out()
        if rejected is None:
            return
        if attempt.response_started:
            # Raising is what makes every server close the connection without the chunk that would end it well.
            raise rejected
        if attempt.admission is None:
            guard.rejected(attempt, rejected)
            if outer is not None:
                outer.nothing_sent()
        await self._answer(guard, attempt, rejected, receive, send)

    async def _serve(
        self, guard: Guard, attempt: Attempt, receive: Receive, send: Send, outer: Admission | None
    ) -> Rejected | None:
        """Admit the request and call the application. A refusal is returned, to be answered without a time limit."""
        scope = attempt.scope
        is_preflight = _is_preflight(scope)
        try:
            admission = await self._admit(guard, attempt, receive, outer, is_preflight=is_preflight)
        except ClientGone:
            return None
        except Rejected as rejected:
            if is_preflight and rejected.reason != "edge_secret":
                headers = preflight_headers(self.settings.cors_origins, scope["headers"])
                await respond(scope, receive, send, status=204, headers=headers, body=b"", drain=False)
                return None
            return rejected
        replay = attempt.receive or Replay(receive, [])
        if admission is None:
            admission = outer or unrecorded(guard, attempt)
            current.set(admission)
            await self.app(_scope_with(admission, scope), replay, send)
            return None
        attempt.admission = admission
        current.set(admission)
        left = attempt.ticket.left if attempt.ticket is not None and not is_preflight else None
        tap = Tap(
            send,
            replay,
            guard,
            attempt,
            admission,
            extra_headers=[] if left is None else [self._policy_header, rate_header(left)],
            read_response=self.settings.read_response,
            is_preflight=is_preflight,
        )
        await self._run(guard, attempt, _scope_with(admission, scope), replay, tap)
        return None

    async def _admit(
        self, guard: Guard, attempt: Attempt, receive: Receive, outer: Admission | None, *, is_preflight: bool
    ) -> Admission | None:
        """Screen and reserve. None: pass with nothing reserved, because observing met a sick ledger or a bug."""
        observing = guard.rules.observe
        try:
            if is_preflight:
                guard.check_edge(attempt)
                # Whatever a peer sends behind a preflight without a length is not delivered.
                attempt.receive = Replay(receive, [{"type": "http.request", "body": b"", "more_body": False}])
                return await guard.reserve_preflight(attempt, outer)
            if not observing:
                await guard.screen(attempt, receive)
            else:
                await observe(guard, attempt, receive)
            return await guard.reserve(attempt, outer)
        except Rejected as rejected:
            if observing and rejected.reason not in {"edge_secret", "service_paused"}:
                guard.telemetry.would_reject(
                    rejected.reason, request_id=attempt.request_id, path=attempt.path, client=attempt.client
                )
                return None
            raise
        except (ClientGone, ConfigError):
            raise
        except Exception as problem:
            # A bug in the guard refuses the request; while observing it lets it pass.
            logger.exception("the guard failed; the request is %s", "passed" if observing else "refused")
            guard.telemetry.counts.ledger_errors += 1
            if observing:
                return None
            raise guard.refusals.unavailable() from problem

    async def _run(self, guard: Guard, attempt: Attempt, inner: Scope, receive: Replay, tap: Tap) -> None:
        """Call the application, and end the admission whatever happens."""
        time_limit = attempt.time_limit
        failure: Failure | None = None
        self._running.begin()
        try:
            # In here, because also what a log filter of the application's raises must not leave a slot behind.
            guard.admitted(attempt)
            if not guard.rules.observe:
                time_limit.set(guard.rules.stream_timeout_seconds)
            await self.app(inner, receive, tap.sender())
        except Exception:
            failure = "exception"
            if not time_limit.passed:
                raise
            logger.exception("the application failed while it was stopped after MAX_STREAM")
        except BaseException:
            failure = "cancelled"
            raise
        finally:
            if time_limit.passed:
                failure = "stream_timeout"
            try:
                await tap.end(failure, complete=False)
            finally:
                self._running.end()

    async def _answer(self, guard: Guard, attempt: Attempt, rejected: Rejected, receive: Receive, send: Send) -> None:
        settings, scope = self.settings, attempt.scope
        headers, body = answer(rejected, request_id=attempt.request_id, error_format=settings.error_format)
        if rejected.reason == "rate_limited" and attempt.client is not None:
            left = guard.limiter.left(attempt.client, guard.rules.rates)
            if left is not None:
                headers += [self._policy_header, rate_header(left)]
        headers += cors_headers(settings.cors_origins, scope["headers"])
        # A `receive` that was given up on is not used again: some servers then answer a false disconnect.
        # Without a close the server would go on reading what a slow client sends, for as long as it likes.
        is_slow = rejected.reason == "body_timeout"
        await respond(
            scope,
            receive,
            send,
            status=rejected.status,
            headers=headers,
            body=body,
            drain=not attempt.body_complete and not is_slow,
            begun=attempt.body_begun,
            close=is_slow,
        )

    async def _websocket(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._paths.match(scope["path"], scope.get("root_path", ""))
        if SCOPE_KEY not in scope:
            current.set(None)
        if path is None or self.settings.websocket == "ignore":
            await self.app(scope, receive, send)
            return
        if not self._started and (error := await self._cannot_start()):
            await self._refuse_all(error, scope, receive, send)
            return
        attempt = guard.open(scope, path)
        if guard.rules.observe:
            guard.telemetry.would_reject("websocket_refused", request_id=attempt.request_id, path=path, client=None)
            await self.app(scope, receive, send)
            return
        rejected = Rejected("websocket_refused", "This route does not accept websockets.", status=403)
        guard.rejected(attempt, rejected)
        headers, body = answer(rejected, request_id=attempt.request_id, error_format=self.settings.error_format)
        headers += cors_headers(self.settings.cors_origins, scope["headers"])
        await refuse_websocket(
            scope, receive, send, status=rejected.status, reason=rejected.reason, headers=headers, body=body
        )

    def _already_reserved(self, guard: Guard, outer: Admission | None) -> bool:
        admission = outer
        while admission is not None:
            if admission.namespace == guard.rules.namespace:
                guard.telemetry.once(
                    "installed-twice",
                    "a second RouteGuard with the same NAMESPACE met the same request and was skipped; "
                    "install it once, or give it a NAMESPACE of its own",
                )
                return True
            admission = admission.outer
        return False

    async def _cannot_start(self) -> ConfigError | None:
        """Start with the first request, where no lifespan came before it; or why that cannot be."""
        try:
            await self._start()
        except ConfigError as error:
            # From now on every guarded request is refused, and the log says why.
            if self._config_error is None:
                self._config_error = error
                logger.error("%s", error)
        return self._config_error

    async def _start(self) -> None:
        """Say once what is in force.

        First requests that come together all ask whether the books can be used: one that went on meanwhile would be
        served by a guard that cannot start, and they need not run in the same event loop to wait for each other.
        """
        if self._started or self._guard is None:
            return
        warnings = await self._guard.books.check()
        if not self._started:
            self._started = True
            self._guard.telemetry.started(start_line(self.settings), (*self.settings.warnings, *warnings))

    async def _stop(self) -> None:
        """Let the requests that the server has cancelled end, then write and close what is open."""
        assert self._guard is not None, "without a guard nothing was started"
        await self._running.drained()
        await self._guard.aclose()

    async def _refuse_all(self, error: ConfigError, scope: Scope, receive: Receive, send: Send) -> None:
        """The configuration is broken: fail the start, or without a lifespan refuse every request."""
        if scope["type"] == "lifespan":
            await refuse_startup(receive, send, str(error))
        elif (path := self._paths.match(scope["path"], scope.get("root_path", ""))) is None:
            current.set(None)
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            attempt = Attempt.of(scope, path, reservation_id=token_hex(16))
            rejected = Rejected(
                "guard_unavailable", "The assistant is not available right now.", status=503, retry_after=5
            )
            if self._guard is not None:
                await self._answer(self._guard, attempt, rejected, receive, send)
                return
            # Nobody knows which format was meant, or who may read it.
            headers, body = answer(rejected, request_id=attempt.request_id, error_format="openai")
            await respond(scope, receive, send, status=503, headers=headers, body=body, drain=True)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1011, "reason": "guard_unavailable"})


def _paths_of(keywords: "SettingsKeywords") -> tuple[str, ...]:
    """The guarded paths of settings that cannot be used; everything where even they cannot be read."""
    environ = keywords.get("environ")
    written = keywords.get("paths") or (os.environ if environ is None else environ).get("ROUTEGUARD_PATHS")
    try:
        return names.paths(written or "**")
    except ValueError:
        return ("**",)


def _scope_with(admission: Admission, scope: Scope) -> Scope:
    """The scope as the application gets it. Its state stays the same object, which lifespan and frameworks share."""
    state = scope.get("state")
    if state is None:
        state = {}
    # A reservation was made, so nothing may fail from here to the application: a state of any other kind is left alone.
    # The usual kind by its type, because asking an abstract class takes longer than all of the rest here.
    if type(state) is dict or isinstance(state, MutableMapping):
        state["routeguard"] = admission
    return {**scope, SCOPE_KEY: admission, "state": state}


def _is_preflight(scope: Scope) -> bool:
    """A real preflight: OPTIONS with Origin and Access-Control-Request-Method, and no body announced."""
    if scope["method"] != "OPTIONS":
        return False
    has_origin = asks_method = False
    for name, value in scope["headers"]:
        if name == b"origin":
            has_origin = True
        elif name == b"access-control-request-method":
            asks_method = True
        elif name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            return False
    return has_origin and asks_method
