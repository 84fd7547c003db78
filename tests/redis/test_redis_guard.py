"""Guards of several processes, as their requests see the store."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from routeguard import RouteGuard
from routeguard.build import build_guard
from routeguard.clock import SystemClock
from routeguard.ledgers.redis.line import Timing
from routeguard.status import StatusRoutes
from tests.driver import Client
from tests.guarding import CEILING, TEN_CENTS, Counting, in_flight, parts, reporting
from tests.redis.calls import PATIENT, until
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.server import RedisServer
from tests.stopwatch import seconds


@pytest.fixture
def namespace() -> str:
    return fresh_namespace()


def guard_on(
    opens: Opens, url: str, namespace: str, app: Any, *, timing: Timing = PATIENT, **settings: Any
) -> RouteGuard:
    """A guard as another process has it: its own limiter and its own connection, the same counters."""
    wide = {"rate": "unlimited", "global_rate": "unlimited", "max_parallel": "unlimited"}
    given = {"paths": ["/chat"], "client_budget": "unlimited", "max_parallel_per_client": "unlimited", **wide}
    guard = RouteGuard(app, environ={}, **{**given, **TEN_CENTS, **settings})
    own = build_guard(guard.settings, clock=SystemClock(), ledger=opens(url, namespace=namespace, timing=timing))
    guard._guard, guard._status = own, StatusRoutes(guard.settings, own)
    return guard


async def test_two_guards_share_one_cap_whoever_is_asked(opens: Opens, redis_url: str, namespace: str) -> None:
    app = Counting()
    both = [guard_on(opens, redis_url, namespace, app, budget="1/total") for _ in range(2)]

    answers = await asyncio.gather(*[Client().call(both[number % 2]) for number in range(60)])

    assert app.calls == 10
    assert sum(answer.status == 200 for answer in answers) == 10
    assert {answer.status for answer in answers} <= {200, 429, 503}, "busy while they run, then exhausted"
    assert (await parts(both[0]))["kept"] == "1"
    assert (await parts(both[1]))["remaining"] == "0"
    assert await in_flight(both[0]) == 0


async def test_two_guards_share_one_rate(opens: Opens, redis_url: str, namespace: str) -> None:
    app = Counting(reporting(cost_usd="0.01"))
    both = [guard_on(opens, redis_url, namespace, app, budget="9/total", rate="5/minute") for _ in range(2)]

    statuses = [(await Client().call(both[number % 2])).status for number in range(8)]

    assert statuses == [200] * 5 + [429] * 3


async def test_a_store_that_is_away_is_a_503_within_a_second_and_the_application_is_not_called(
    own_server: RedisServer, opens: Opens, namespace: str
) -> None:
    app = Counting(reporting(cost_usd="0.01"))
    guard = guard_on(opens, own_server.url, namespace, app, timing=Timing(), budget="9/total")

    async def is_admitted() -> bool:
        return (await Client().call(guard)).status == 200

    await until(is_admitted)
    own_server.stop()

    began = seconds()
    answers = await asyncio.gather(*[Client().call(guard) for _ in range(10)])
    took = seconds() - began
    own_server.resume()

    assert {answer.status for answer in answers} == {503}
    assert took < 1.25
    assert app.calls == 1


async def test_an_answer_whose_ending_cannot_be_written_yet_is_a_good_answer(
    own_server: RedisServer, opens: Opens, namespace: str
) -> None:
    stopping = reporting(cost_usd="0.01", before=lambda _: own_server.stop())
    # An ending is waited for as long as a decision may take.
    timing = replace(PATIENT, decision=2.0)
    guard = guard_on(opens, own_server.url, namespace, stopping, timing=timing, budget="9/total")

    answer = await Client().call(guard)
    own_server.resume()

    assert answer.status == 200

    assert guard._guard is not None
    ledger, budgets = guard._guard.ledger, guard._guard.rules.budgets

    async def settled() -> bool:
        return (await ledger.balances(budgets))[0].settled_nanousd == CEILING // 10

    await until(settled)
    assert await in_flight(guard) == 0


async def test_a_pause_in_one_process_refuses_in_another_within_two_seconds(
    opens: Opens, redis_url: str, namespace: str
) -> None:
    app = Counting(reporting(cost_usd="0.01"))
    one, other = [guard_on(opens, redis_url, namespace, app, budget="9/total") for _ in range(2)]
    before = [(await Client().call(guard)).status for guard in (one, other)]
    assert one._guard is not None

    await one._guard.ledger.set_paused(paused=True)
    began = seconds()

    async def paused() -> bool:
        return (await Client().call(other)).status == 503

    await until(paused)
    assert seconds() - began < 2
    assert before == [200, 200]
