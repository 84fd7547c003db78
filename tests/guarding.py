"""A guard around a small application, priced so that every ceiling is exactly ten cents."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from routeguard import Admission, RouteGuard
from routeguard.build import build_guard
from routeguard.status import StatusRoutes
from routeguard.testing import FakeClock
from tests.driver import App, stream_app

#: $0 per input token and $100 per million output tokens, 1000 of them at most: a ceiling of $0.10 for any request.
TEN_CENTS: Any = {"price_in": 0, "price_out": 100, "max_output_tokens": 1000, "system_prompt_bytes": 0}
CEILING = 100_000_000
USAGE = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}


class Counting:
    """An application that counts its calls and answers with a short event stream."""

    def __init__(self, app: App | None = None) -> None:
        self.calls = 0
        self.admissions: list[Admission | None] = []
        self._app = app or stream_app([b"data: hello\n\n"])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        self.admissions.append(scope.get("routeguard"))
        await self._app(scope, receive, send)


def guarded(app: App, *, clock: FakeClock | None = None, **settings: Any) -> RouteGuard:
    """A guard on `/chat` with counters and a clock of its own."""
    settings = {"paths": ["/chat"], "budget": "1/day", "client_budget": "unlimited", **TEN_CENTS, **settings}
    settings.setdefault("environ", {})
    guard = RouteGuard(app, **settings)
    own = build_guard(guard.settings, clock=clock or FakeClock())
    guard._guard = own
    guard._status = StatusRoutes(guard.settings, own)
    return guard


async def status_of(guard: RouteGuard) -> Any:
    assert guard._status is not None
    return await guard._status.status()


async def parts(guard: RouteGuard) -> dict[str, str]:
    """The first budget as the status shows it."""
    assert guard._status is not None
    status: Any = await guard._status.status()
    return {name.removesuffix("_usd"): status["budgets"][0][name] for name in status["budgets"][0] if "_usd" in name}


async def ending(guard: Any) -> dict[str, str]:
    """The parts of the day's budget that are not zero, `remaining` and `limit` left out."""
    found = await parts(guard)
    total = sum(Decimal(found[name]) for name in ("settled", "open", "kept", "orphaned", "remaining"))
    assert total == Decimal(found["limit"]), "the parts explain the counter"
    return {name: value for name, value in found.items() if value != "0" and name not in {"remaining", "limit"}}


async def in_flight(guard: RouteGuard) -> int:
    assert guard._guard is not None
    return await guard._guard.ledger.in_flight()


def reporting(*, before: Callable[[Admission], None] | None = None, chunks: int = 2, **report: Any) -> App:
    """An application that reports into its admission and then streams."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        admission: Admission = scope["routeguard"]
        if before is not None:
            before(admission)
        if report:
            admission.report(**report)
        await stream_app([b"data: x\n\n"] * chunks)(scope, receive, send)

    return app
