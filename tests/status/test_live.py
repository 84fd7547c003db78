"""What the page polls: the numbers add up, many viewers cost no more than one, and a silent ledger holds nobody up."""

import json
import math
from decimal import Decimal
from typing import Any

import anyio
import pytest

from routeguard import RouteGuard
from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import Balance, LedgerUnavailable
from routeguard.status import live
from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, guarded, reporting
from tests.status.asking import BEARER, SAME_ORIGIN, ask, cookie_of, get_json, watched


class Counted(MemoryLedger):
    """Counts how often it is asked where the budgets stand, and fails or hangs when told to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked = 0
        self.is_sick = False
        self.hangs = False

    async def balances(self, budgets: Any) -> list[Balance]:
        self.asked += 1
        if self.hangs:
            await anyio.sleep(math.inf)
        if self.is_sick:
            raise LedgerUnavailable("no answer")
        await anyio.lowlevel.checkpoint()
        return await super().balances(budgets)


def counted(clock: FakeClock, **settings: Any) -> tuple[RouteGuard, Counted]:
    guard, ledger = watched(Counting(reporting(cost_usd="0.05")), clock=clock, **settings), Counted(clock)
    assert guard._guard is not None
    guard._guard.ledger = ledger
    guard._guard.clients._ledger = ledger
    return guard, ledger


async def test_the_parts_of_every_budget_add_up_to_its_limit() -> None:
    guard = watched(Counting(reporting(cost_usd="0.15")), budget="0.4/day, 5/month")
    for _ in range(5):
        await Client().call(guard)

    for route in ("/status", "/live"):
        for budget in (await get_json(guard, route))["budgets"]:
            parts = [Decimal(budget[f"{part}_usd"]) for part in ("settled", "open", "kept", "orphaned", "remaining")]
            assert sum(parts) == Decimal(budget["limit_usd"])
            assert Decimal(budget["overrun_usd"]) == Decimal("0.05"), "later ceilings are as high as the dearest call"


async def test_the_page_gets_the_status_and_more() -> None:
    guard = watched(Counting(reporting(cost_usd="0.05")))
    await Client().call(guard)

    status, page = await get_json(guard, "/status"), await get_json(guard, "/live")

    assert {name: page[name] for name in status} == status
    assert (page["settle_ratio"], page["open"], page["trusted"]) == ("0.500", True, "the peer address")
    assert page["hours"][-1]["charged_usd"] == "0.05"
    assert [line["event"] for line in page["events"]] == ["settled", "admitted"]


async def test_fifty_viewers_ask_the_ledger_once_a_second() -> None:
    clock = FakeClock()
    guard, ledger = counted(clock)

    bodies: set[bytes] = set()

    async def view() -> None:
        bodies.add(b"".join((await ask(guard, "/live", BEARER)).chunks))

    for _ in range(3):
        async with anyio.create_task_group() as viewers:
            for _ in range(50):
                viewers.start_soon(view)
    first = ledger.asked
    clock.advance(1)
    async with anyio.create_task_group() as viewers:
        for _ in range(50):
            viewers.start_soon(view)

    # Nobody has an answer when the very first fifty ask.
    assert (first, ledger.asked) == (50, 51)
    assert len(bodies) == 2


async def test_a_viewer_that_leaves_in_mid_question_does_not_keep_the_others_from_asking() -> None:
    clock = FakeClock()
    guard, ledger = counted(clock)
    await get_json(guard, "/live")
    clock.advance(1)
    ledger.hangs = True
    async with anyio.create_task_group() as viewers:
        viewers.start_soon(get_json, guard, "/live")
        await anyio.wait_all_tasks_blocked()
        viewers.cancel_scope.cancel()
    ledger.hangs = False
    clock.advance(1)

    page = await get_json(guard, "/live")

    assert (ledger.asked, page["numbers_age_seconds"]) == (3, 0)


@pytest.mark.parametrize("trouble", ["is_sick", "hangs"])
async def test_a_ledger_that_does_not_answer_leaves_the_last_numbers_with_their_age(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    guard, ledger = counted(clock)
    await Client().call(guard)
    before = await get_json(guard, "/live")
    clock.advance(7)
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    setattr(ledger, trouble, True)
    ledger.healthy = False

    after, status = await get_json(guard, "/live"), await get_json(guard, "/status")

    assert after["budgets"] == before["budgets"]
    assert (after["numbers_age_seconds"], after["ledger"]["healthy"]) == (7, False)
    assert (status["budgets"], status["in_flight"]) == ([], None), "the status does not show what may be wrong"


async def test_a_ledger_that_never_answered_has_no_age() -> None:
    guard, ledger = counted(FakeClock())
    ledger.is_sick = True

    page = await get_json(guard, "/live")

    assert (page["budgets"], page["in_flight"], page["numbers_age_seconds"]) == ([], None, None)


async def test_the_page_shows_a_pause_at_once() -> None:
    guard = watched()
    await get_json(guard, "/live")

    await ask(guard, "/pause", await cookie_of(guard), SAME_ORIGIN, method="POST")

    page = await get_json(guard, "/live")
    assert (page["paused"], page["open"], page["events"][0]["event"]) == (True, False, "paused")


async def test_a_spent_budget_is_not_open() -> None:
    guard = watched(budget="0.1/day")
    await Client().call(guard)

    assert (await get_json(guard, "/live"))["open"] is False


async def test_no_number_of_the_page_names_an_address_or_a_prompt() -> None:
    guard = watched()
    await Client(body=[b'{"messages":[{"role":"user","content":"my secret wish"}]}']).call(guard)
    await Client(body=[b"{"], query=b"q=my-secret-wish").call(guard)

    text = json.dumps([await get_json(guard, "/live"), await get_json(guard, "/status")])

    assert "203.0.113" not in text
    assert "secret" not in text


async def test_status_and_page_do_not_touch_what_a_guarded_request_needs() -> None:
    guard = watched(Counting(), budget="0.1/day", rate="1/minute", global_rate="1/minute")
    for _ in range(20):
        await get_json(guard, "/status")

    assert (await Client().call(guard)).status == 200


def test_nothing_listens_where_there_is_no_token() -> None:
    guard = guarded(Counting())

    assert guard._guard is not None
    assert guard._guard.telemetry.listeners == ()
    assert guard._guard.telemetry.ledger_seconds is None
