"""A ledger that does not answer: nothing is admitted, nothing breaks, and the status says so."""

import contextlib
from typing import Any

import pytest
from starlette.applications import Starlette

from routeguard.errors import ConfigError
from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import LedgerUnavailable
from routeguard.testing import FakeClock
from tests.driver import Client, lifespan
from tests.guarding import Counting, guarded, parts, reporting


class Sick(MemoryLedger):
    """Fails where it is told to."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.fails: set[str] = set()

    def _maybe(self, name: str) -> None:
        if name in self.fails:
            raise LedgerUnavailable("no answer")

    async def check(self) -> tuple[str, ...]:
        if "check" in self.fails:
            raise ConfigError(["ROUTEGUARD_LEDGER: it forgets budgets"])
        return ("ROUTEGUARD_LEDGER: look here",)

    async def refresh(self) -> None:
        self._maybe("refresh")

    async def reserve(self, *arguments: Any, **keywords: Any) -> Any:
        self._maybe("reserve")
        return await super().reserve(*arguments, **keywords)

    async def settle(self, *arguments: Any, **keywords: Any) -> bool:
        self._maybe("settle")
        return await super().settle(*arguments, **keywords)

    async def balances(self, *arguments: Any) -> Any:
        self._maybe("balances")
        return await super().balances(*arguments)

    async def set_paused(self, *, paused: bool) -> None:
        self._maybe("pause")
        await super().set_paused(paused=paused)


def sick_guard(app: Any, **settings: Any) -> tuple[Any, Sick]:
    guard = guarded(app, admin_token="token-for-tests-only", **settings)
    ledger = Sick()
    assert guard._guard is not None
    guard._guard.ledger = ledger
    guard._guard.clients._ledger = ledger
    return guard, ledger


@pytest.mark.parametrize("where", ["refresh", "reserve"])
async def test_nothing_is_admitted_and_the_rate_slot_comes_back(where: str) -> None:
    app = Counting()
    guard, ledger = sick_guard(app, rate="1/minute")
    ledger.fails = {where}

    refused = [await Client().call(guard) for _ in range(3)]
    ledger.fails = set()
    after = await Client().call(guard)

    assert {(client.status, client.reason) for client in refused} == {(503, "guard_unavailable")}
    assert refused[0].response_headers["retry-after"] == "5"
    assert (after.status, app.calls) == (200, 1)


@pytest.mark.parametrize("where", ["refresh", "reserve"])
async def test_observing_passes_an_application_that_relies_on_its_admission(where: str) -> None:
    app = reporting(cost_usd="0.01")
    guard, ledger = sick_guard(app, mode="observe")
    ledger.fails = {where}

    client = await Client().call(guard)
    ledger.fails = set()

    assert (client.status, client.complete, client.error) == (200, True, None)
    assert (await parts(guard))["settled"] == "0"


async def test_nothing_moves_money_for_a_request_that_observing_could_not_record() -> None:
    app = Counting()
    guard, ledger = sick_guard(app, mode="observe")
    ledger.fails = {"reserve"}
    await Client().call(guard)
    ledger.fails = set()
    (admission,) = app.admissions
    assert admission is not None

    admission.begin(max_usd="0.02").report(cost_usd="0.03")
    admission.report({"prompt_tokens": 1, "completion_tokens": 1})

    assert (admission.id != "", str(admission.ceiling_usd)) == (True, "0")
    assert set((await parts(guard)).values()) == {"0", "1"}
    assert guard._guard.telemetry.counts.admitted == 0


async def test_a_preflight_is_answered() -> None:
    guard, ledger = sick_guard(Counting())
    ledger.fails = {"reserve"}
    headers = [(b"origin", b"https://x"), (b"access-control-request-method", b"POST")]

    client = await Client(method="OPTIONS", headers=headers, body=[]).call(guard)

    assert client.status == 204


async def test_a_settlement_that_fails_leaves_the_answer_whole_and_the_charge_in_full() -> None:
    guard, ledger = sick_guard(reporting(cost_usd="0.01"))
    ledger.fails = {"settle"}

    client = await Client().call(guard)

    assert (client.status, client.complete, client.error) == (200, True, None)
    assert (await parts(guard))["open"] == "0.1"
    assert guard._guard.telemetry.counts.endings == {"settled": 1}, "it is decided, and will be written"


@pytest.mark.parametrize("where", ["refresh", "reserve"])
async def test_a_crowd_in_front_of_a_ledger_that_is_away_does_not_fill_the_log(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard, ledger = sick_guard(Counting(), rate="unlimited", global_rate="unlimited")
    ledger.fails = {where}

    for _ in range(201):
        await Client().call(guard)

    errors = [record for record in caplog.records if getattr(record, "event", "") == "ledger_error"]
    assert len(errors) == 3
    assert guard._guard.telemetry.counts.ledger_errors == 201


async def test_each_ending_that_the_ledger_did_not_take_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    guard, ledger = sick_guard(reporting(cost_usd="0.0001"), rate="unlimited", global_rate="unlimited")
    ledger.fails = {"settle"}

    for _ in range(3):
        await Client().call(guard)

    assert [record.message for record in caplog.records if getattr(record, "event", "") == "ledger_error"] == [
        "ledger_error: settle: LedgerUnavailable"
    ] * 3


async def test_the_status_says_that_it_does_not_know() -> None:
    guard, ledger = sick_guard(Counting())
    ledger.fails = {"refresh", "balances", "pause"}
    ledger.healthy = False
    bearer = [(b"authorization", b"Bearer token-for-tests-only")]

    status = await Client(method="GET", path="/_routeguard/status", headers=list(bearer), body=[]).call(guard)
    pause = await Client(path="/_routeguard/pause", headers=list(bearer), body=[]).call(guard)

    assert status.status == 200
    assert (status.json["ledger"]["healthy"], status.json["budgets"], status.json["in_flight"]) == (False, [], None)
    assert (pause.status, guard._guard.ledger.paused) == (503, False)


async def http_only(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("Django can only handle ASGI/HTTP connections")


@pytest.mark.parametrize("app", [http_only, Starlette()], ids=["without a lifespan", "with one"])
async def test_a_ledger_that_cannot_keep_money_fails_the_start(app: Any) -> None:
    guard, ledger = sick_guard(app)
    ledger.fails = {"check"}

    sent = await lifespan(guard)

    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "it forgets budgets" in sent[0]["message"]


class StopError(Exception):
    """How hypercorn stops: its `send` raises when it is told that the start has failed."""


async def catches_everything(scope: Any, receive: Any, send: Any) -> None:
    with contextlib.suppress(Exception):
        await receive()
        await send({"type": "lifespan.startup.complete"})


@pytest.mark.parametrize("app", [http_only, Starlette(), catches_everything], ids=["without", "with", "catching"])
async def test_a_server_that_stops_by_raising_is_not_kept_from_it(app: Any) -> None:
    guard, ledger = sick_guard(app)
    ledger.fails = {"check"}

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        if message["type"] == "lifespan.startup.failed":
            raise StopError(message["message"])

    with pytest.raises(StopError, match="it forgets budgets"):
        await guard({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


async def test_without_a_lifespan_it_refuses_every_guarded_request() -> None:
    app = Counting()
    guard, ledger = sick_guard(app)
    ledger.fails = {"check"}

    refused = [await Client().call(guard) for _ in range(2)]
    other = await Client(path="/other").call(guard)

    assert [(client.status, client.reason) for client in refused] == [(503, "guard_unavailable")] * 2
    assert (other.status, app.calls) == (200, 1)


async def test_what_a_ledger_warns_of_is_said_at_start(caplog: pytest.LogCaptureFixture) -> None:
    guard, _ = sick_guard(Starlette())

    await lifespan(guard)

    assert [record.message for record in caplog.records if "look here" in record.message] != []
