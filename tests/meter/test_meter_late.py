"""A metered call after the ending of its request reserves by itself."""

import logging
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routeguard import BudgetExceeded, RouteGuard
from routeguard.metrics import SPEND, TRUNCATED, Tallies
from tests.driver import Client
from tests.guarding import ending, guarded, parts, status_of
from tests.journal.rows import select
from tests.meter.played import ASYNC, COMPLETION, ONE_CENT, Caller, Kind, calling, every_kind, whole
from tests.status.asking import TOKEN, history_of, watched

CUT_OFF = {**COMPLETION, "choices": [{"index": 0, "message": {"content": "hel"}, "finish_reason": "length"}]}


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


@pytest.mark.parametrize("usage", [ONE_CENT, {**ONE_CENT, "completion_tokens": 2000, "total_tokens": 2010}, None])
async def test_a_call_after_the_ending_is_counted_wherever_money_is(usage: Any) -> None:
    guard = watched(calling_late(Caller(ASYNC, whole({**COMPLETION, "usage": usage}))))

    await Client().call(guard)

    charged, (hour, *_) = await parts(guard), reversed(history_of(guard).hours())
    sums: Counter[str] = Counter()
    for (family, _), nanousd in tallies_of(guard).counts.items():
        sums[family.name] += nanousd
    assert sums["routeguard_spend_usd"] == nano(charged["settled"])
    assert sums["routeguard_kept_usd"] == nano(charged["kept"])
    assert sums["routeguard_overrun_usd"] == nano(charged["overrun"])
    status = await status_of(guard)
    assert [nano(one["spend_usd"]) for one in status["top_clients"]] == [hour.charged_nanousd]
    assert hour.charged_nanousd == nano(charged["settled"]) + nano(charged["kept"])
    assert sum(status["requests"]["endings"].values()) == 1, "it is no request that ends"


async def test_a_call_after_the_ending_is_logged_with_the_request_that_made_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="routeguard")
    guard = guarded(calling_late(Caller(ASYNC, whole())))

    await Client(headers=[(b"x-request-id", b"one-of-ours")]).call(guard)

    lines: list[Any] = [record for record in caplog.records if getattr(record, "event", None) in ("kept", "settled")]
    told = [(line.event, line.request_id, line.path, line.why, line.charged_usd) for line in lines]
    assert told == [
        ("kept", "one-of-ours", "/chat", "no_usage", "0.1"),
        ("settled", "one-of-ours", "/chat", "reported", "0.01"),
    ]
    assert len({line.client for line in lines}) == 1
    assert len({line.admission_id for line in lines}) == 2


async def test_a_call_after_the_ending_that_was_cut_off_at_its_cap_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="routeguard")
    guard = watched(calling_late(Caller(ASYNC, whole(CUT_OFF))))

    await Client().call(guard)

    assert tallies_of(guard).counts[TRUNCATED, ("/chat",)] == 1
    lines: list[Any] = [record for record in caplog.records if getattr(record, "event", None) == "truncated"]
    assert [(line.path, line.output_tokens) for line in lines] == [("/chat", 100)]


async def test_a_call_outside_of_a_request_that_was_cut_off_at_its_cap_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="routeguard")
    caller = Caller(ASYNC, whole(CUT_OFF), budget="1/day", price_in=0, price_out=100)

    await caller.post()

    ours: list[Any] = [record for record in caplog.records if record.name == "routeguard"]
    assert [record.event for record in ours] == ["settled", "truncated"]


@pytest.fixture
def named(tmp_path: Path) -> RouteGuard:
    """A guard with a journal that knows its model by name. The price table is looked into before any loop runs."""
    late = calling_late(Caller(ASYNC, whole()))
    return guarded(late, model="test-model", journal=f"sqlite:///{tmp_path / 'journal.db'}", admin_token=TOKEN)


async def test_a_call_after_the_ending_is_charged_to_its_route_client_and_model(
    named: RouteGuard, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    assert named._guard is not None

    await Client().call(named)
    await named._guard.aclose()

    spent = {labels: usd for (family, labels), usd in tallies_of(named).counts.items() if family is SPEND}
    assert spent == {("/chat", "test-model"): 10_000_000}
    columns = "event, path, model, input_tokens, output_tokens, settled_nanousd, why"
    assert select(path, f"SELECT {columns} FROM journal WHERE event = 'settle'") == [
        ("settle", "/chat", "test-model", 10, 100, 10_000_000, "reported")
    ]
    assert len(select(path, "SELECT DISTINCT client FROM journal WHERE event IN ('keep', 'settle')")) == 1


async def test_a_call_after_the_ending_is_charged_by_every_guard() -> None:
    inner = guarded(calling_late(Caller(ASYNC, whole()), calls=2, reported_usd="0.05"), namespace="inner")
    middle = guarded(inner, namespace="middle")
    outer = guarded(middle)

    await Client().call(outer)

    assert await ending(inner) == {"settled": "0.07"}
    assert await ending(middle) == await ending(outer) == {"settled": "0.07", "overrun": "0.02"}


async def test_a_call_after_the_ending_that_nobody_reports_is_charged_by_every_guard() -> None:
    late = calling_late(Caller(ASYNC, whole({**COMPLETION, "usage": None})), reported_usd="0.05")
    inner = guarded(late, namespace="inner")
    outer = guarded(inner)

    await Client().call(outer)

    assert await ending(inner) == {"settled": "0.05", "kept": "0.1"}
    assert await ending(outer) == {"settled": "0.15", "overrun": "0.1"}


async def test_a_call_after_the_ending_is_charged_by_every_guard_besides_what_was_kept() -> None:
    """What was kept stands for calls that nobody told of, and a late call is none of them."""
    inner = guarded(calling_late(Caller(ASYNC, whole()), calls=2), namespace="inner")
    middle = guarded(inner, namespace="middle")
    outer = guarded(middle)

    await Client().call(outer)

    assert await ending(inner) == {"kept": "0.1", "settled": "0.02"}
    assert await ending(middle) == await ending(outer) == {"kept": "0.1", "settled": "0.02", "overrun": "0.02"}


async def test_a_report_after_a_late_call_is_charged_where_it_exceeds_what_was_kept() -> None:
    """The late call's charge is not what the request's own bill is set off against."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await calling_late(Caller(ASYNC, whole()), calls=2)(scope, receive, send)
        scope["routeguard"].report(cost_usd="0.11")

    inner = guarded(app, namespace="inner")
    outer = guarded(inner)

    await Client().call(outer)

    assert (await parts(inner))["remaining"] == (await parts(outer))["remaining"] == "0.87"


async def test_a_call_after_the_ending_that_no_budget_of_its_guard_bounds_is_charged_by_the_others() -> None:
    late = calling_late(Caller(ASYNC, whole()), calls=2, reported_usd="0.05")
    inner = guarded(late, namespace="inner", budget="unlimited", admin_token=TOKEN)
    outer = guarded(inner)

    await Client().call(outer)

    assert await ending(outer) == {"settled": "0.07", "overrun": "0.02"}
    assert sum(nanousd for (family, _), nanousd in tallies_of(inner).counts.items() if family is SPEND) == 70_000_000


def nano(usd: str) -> int:
    return int(Decimal(usd) * 10**9)


def tallies_of(guard: RouteGuard) -> Tallies:
    assert guard._guard is not None
    (tallies,) = [one for one in guard._guard.telemetry.listeners if isinstance(one, Tallies)]
    return tallies


def calling_late(caller: Caller, *, calls: int = 1, reported_usd: str | None = None) -> Any:
    """An application that calls the provider after its last body message, as a background task does."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reported_usd is not None:
            scope["routeguard"].report(cost_usd=reported_usd)
        await calling(anyio.lowlevel.checkpoint)(scope, receive, send)
        for _ in range(calls):
            await caller.post()

    return app
