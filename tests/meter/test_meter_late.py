"""A metered call after the ending of its request reserves by itself."""

from typing import Any

import anyio
import anyio.lowlevel

from routeguard import BudgetExceeded
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.played import ASYNC, COMPLETION, Caller, Kind, calling, every_kind, whole


@every_kind
async def test_a_call_after_the_ending_reserves_by_itself(kind: Kind) -> None:
    caller = Caller(kind, whole())
    late = calling_late(caller)
    guard = guarded(late, budget="0.25/day")

    await Client().call(guard)

    charged = await parts(guard)
    assert (charged["kept"], charged["settled"], charged["open"]) == ("0.1", "0.01", "0")


@every_kind
async def test_a_call_after_the_ending_is_refused_when_the_budget_is_spent(kind: Kind) -> None:
    caller = Caller(kind, whole())
    guard = guarded(calling_late(caller), budget="0.15/day")

    client = await Client().call(guard)

    assert isinstance(client.error, BudgetExceeded)
    assert (client.error.reason, caller.sent) == ("budget_exhausted", [])
    assert client.error.resets_at is not None


async def test_a_call_after_the_ending_is_debited_from_the_client_as_well() -> None:
    caller = Caller(ASYNC, whole())
    guard = guarded(calling_late(caller), client_budget="0.15/day")

    client = await Client().call(guard)

    assert isinstance(client.error, BudgetExceeded)
    assert client.error.reason == "client_budget_exhausted"


async def test_an_exempt_client_has_no_budget_that_late_calls_could_exceed() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    guard = guarded(calling_late(caller, calls=3), client_budget="0.15/day", exempt_clients="203.0.113.0/24")

    client = await Client().call(guard)

    assert (client.error, len(caller.sent)) == (None, 3)


def calling_late(caller: Caller, *, calls: int = 1) -> Any:
    """An application that calls the provider after its last body message, as a background task does."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await calling(anyio.lowlevel.checkpoint)(scope, receive, send)
        for _ in range(calls):
            await caller.post()

    return app
