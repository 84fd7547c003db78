"""One POST at 80 % and one at 100 % of a budget, once a window, whatever the receiver does."""

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from routeguard import ConfigError, RouteGuard, Settings, webhook
from routeguard.build import build_guard
from routeguard.policy import LedgerUnavailable
from routeguard.testing import FakeClock
from routeguard.webhook import Webhook
from tests.driver import Client
from tests.guarding import TEN_CENTS, Counting, guarded, reporting
from tests.patience import PATIENT_SECONDS
from tests.status.receiver import Receiver
from tests.test_guard_ledger_trouble import Sick

ROOT = Path(__file__).resolve().parents[2]
DAY = 24 * 3600


@pytest.fixture(autouse=True)
def _no_proxy_and_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for bound in ("SEND_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(webhook, bound, PATIENT_SECONDS)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def hooked(receiver: Receiver, *, costs: str = "0.1", clock: FakeClock | None = None, **settings: Any) -> RouteGuard:
    """A guard whose requests cost so much, of a dollar a day."""
    settings.setdefault("budget", "1/day")
    guard = guarded(Counting(reporting(cost_usd=costs)), clock=clock, webhook_url=receiver.url, **settings)
    hook_of(guard)._backoff_seconds = (0, 0)
    return guard


def hook_of(guard: RouteGuard) -> Webhook:
    assert guard._guard is not None
    (found,) = [one for one in guard._guard.telemetry.listeners if isinstance(one, Webhook)]
    return found


async def spend(guard: RouteGuard, requests: int) -> None:
    for _ in range(requests):
        await Client().call(guard)


async def drain(guard: RouteGuard) -> None:
    assert guard._guard is not None
    await guard._guard.aclose()


async def test_the_body_is_that_of_the_contract(receiver: Receiver) -> None:
    guard = hooked(receiver, namespace="shop")
    await spend(guard, 8)
    await drain(guard)

    assert receiver.bodies == [
        {
            "event": "budget",
            "namespace": "shop",
            "budget": "day",
            "threshold": 80,
            "limit_usd": "1",
            "charged_usd": "0.8",
            "resets_at": "2026-12-01T00:00:00Z",
        }
    ]
    assert receiver.requests == [("POST", "/hook?key=hunter2", "application/json")]


async def test_nothing_is_sent_below_80_percent_and_nothing_for_open_money(receiver: Receiver) -> None:
    guard = hooked(receiver, costs="0.0799999")
    await spend(guard, 10)
    await drain(guard)

    assert receiver.bodies == []


async def test_each_threshold_is_told_once_a_window(receiver: Receiver) -> None:
    clock = FakeClock()
    guard = hooked(receiver, clock=clock)
    for _ in range(3):
        await spend(guard, 12)
        await drain(guard)
        clock.advance(DAY)

    told = sorted((body["resets_at"][8:10], body["threshold"]) for body in receiver.bodies)
    assert told == [("01", 80), ("01", 100), ("02", 80), ("02", 100), ("03", 80), ("03", 100)]


async def test_a_jump_over_both_thresholds_tells_both(receiver: Receiver) -> None:
    guard = hooked(receiver, costs="1.5")
    await spend(guard, 1)
    await drain(guard)

    assert [(body["threshold"], body["charged_usd"]) for body in receiver.bodies] == [(80, "1.5"), (100, "1.5")]


async def test_every_budget_is_told_of_and_one_of_nothing_is_not(receiver: Receiver) -> None:
    guard = hooked(receiver, budget="1/day, 1.2/month, 1/total", costs="0.96")
    nothing = hooked(receiver, budget="0/day")
    await spend(guard, 1)
    await spend(nothing, 1)
    await drain(guard)

    assert {(body["budget"], body["threshold"]) for body in receiver.bodies} == {
        ("day", 80),
        ("month", 80),
        ("total", 80),
    }
    assert [body["resets_at"] for body in receiver.bodies if body["budget"] == "total"] == [None]


async def test_kept_money_counts_as_charged(receiver: Receiver) -> None:
    guard = guarded(Counting(), webhook_url=receiver.url)
    await spend(guard, 8)
    await drain(guard)

    assert [body["charged_usd"] for body in receiver.bodies] == ["0.8"]


async def test_a_late_bill_is_told_with_the_next_refusal(receiver: Receiver) -> None:
    admissions: list[Any] = []
    app = Counting(reporting(before=admissions.append, cost_usd="0.01"))
    guard = guarded(app, webhook_url=receiver.url)
    await spend(guard, 1)
    admissions[0].report(cost_usd="2")

    refused = await Client().call(guard)
    await drain(guard)

    assert refused.reason == "budget_exhausted"
    assert [body["threshold"] for body in receiver.bodies] == [80, 100]


async def test_guards_that_share_a_ledger_tell_once(receiver: Receiver) -> None:
    one, two = hooked(receiver), hooked(receiver)
    assert one._guard is not None
    assert two._guard is not None
    two._guard.ledger = hook_of(two)._ledger = one._guard.ledger
    await spend(one, 8)
    await spend(two, 1)
    await drain(one)
    await drain(two)

    assert [body["threshold"] for body in receiver.bodies] == [80]


def test_processes_that_share_a_file_tell_once(receiver: Receiver, tmp_path: Path) -> None:
    worker = [sys.executable, "-m", "tests.status.spender", f"sqlite:///{tmp_path}/ledger.db", receiver.url, "6"]
    workers = [subprocess.Popen(worker, cwd=ROOT) for _ in range(4)]

    codes = [worker.wait(PATIENT_SECONDS) for worker in workers]

    assert codes == [0] * 4
    assert sorted(body["threshold"] for body in receiver.bodies) == [80, 100]


@pytest.mark.parametrize("answers", [(500, 503), ("hang up", "hang up"), (302, 429), (500,)])
async def test_a_receiver_that_fails_is_asked_three_times(answers: tuple[Any, ...]) -> None:
    with Receiver(*answers) as receiver:
        guard = hooked(receiver)
        await spend(guard, 8)
        await drain(guard)

    assert [body["threshold"] for body in receiver.bodies] == [80] * (len(answers) + 1)
    assert {method for method, _, _ in receiver.requests} == {"POST"}
    assert {path for _, path, _ in receiver.requests} == {"/hook?key=hunter2"}


async def test_after_three_failures_it_is_logged_and_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(500, 500, 500) as receiver:
        guard = hooked(receiver)
        await spend(guard, 9)
        await drain(guard)

    assert len(receiver.bodies) == 3
    (message,) = [record.getMessage() for record in caplog.records if "webhook" in record.getMessage()]
    assert "budget day at 80 % was not delivered (status 500)" in message


async def test_neither_log_nor_settings_name_the_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Receiver(500, 302, "hang up") as receiver:
        guard = hooked(receiver)
        await spend(guard, 8)
        await drain(guard)

    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(guard.settings)
    assert guard.settings.written["WEBHOOK_URL"] == "***"


async def test_a_receiver_that_is_not_there_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    guard = guarded(Counting(reporting(cost_usd="0.1")), webhook_url=f"http://127.0.0.1:{port}/hunter2")
    hook_of(guard)._backoff_seconds = (0, 0)
    clients = [await Client().call(guard) for _ in range(8)]
    await drain(guard)

    assert {(client.status, client.complete, client.error) for client in clients} == {(200, True, None)}
    assert "ConnectionRefusedError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_no_request_waits_for_a_receiver_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "CLOSE_SECONDS", 0.05)
    with Receiver("never") as receiver:
        guard = hooked(receiver)
        await spend(guard, 9)
        await anyio.to_thread.run_sync(receiver.wait, 1)
        after = await Client().call(guard)
        with anyio.fail_after(4):
            await drain(guard)
        receiver.released.set()

    assert (after.status, receiver.bodies[0]["threshold"]) == (200, 80)


async def test_shutdown_waits_for_what_is_being_sent() -> None:
    drained = anyio.Event()

    async def shut_down(guard: RouteGuard) -> None:
        await drain(guard)
        drained.set()

    with Receiver("late") as receiver:
        guard = hooked(receiver)
        await spend(guard, 8)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shut_down, guard)
            await anyio.to_thread.run_sync(receiver.wait, 1)
            while_sending = drained.is_set()
            receiver.released.set()

    assert (while_sending, len(receiver.bodies)) == (False, 1)


async def test_a_cancelled_request_does_not_cancel_the_alert(receiver: Receiver) -> None:
    guard = hooked(receiver)
    await spend(guard, 7)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            scope.cancel()
            await anyio.lowlevel.checkpoint()

    client = Client()
    with anyio.CancelScope() as scope:
        await guard(client.scope(), client.receive, send)
    await drain(guard)

    assert [body["threshold"] for body in receiver.bodies] == [80]


class Forgetful(Sick):
    """Loses its first answer to each question."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self.questions = 0

    async def first(self, name: str, *, by: str, until: int | None) -> bool:
        answer = await super().first(name, by=by, until=until)
        self.questions += 1
        if name not in self.asked:
            self.asked.add(name)
            raise LedgerUnavailable("the reply was lost")
        return answer


async def test_the_ledger_is_asked_once_for_each_threshold(receiver: Receiver) -> None:
    guard, ledger = hooked(receiver), Forgetful()
    assert guard._guard is not None
    guard._guard.ledger = hook_of(guard)._ledger = guard._guard.clients._ledger = ledger
    for _ in range(12):
        await Client().call(guard)
        await drain(guard)

    assert ledger.questions == 2 * 2, "and once more, since each first reply was lost"


async def test_a_lost_reply_of_the_ledger_loses_no_alert(receiver: Receiver) -> None:
    guard = hooked(receiver)
    assert guard._guard is not None
    guard._guard.ledger = hook_of(guard)._ledger = guard._guard.clients._ledger = Forgetful()
    await spend(guard, 10)
    await drain(guard)

    assert sorted(body["threshold"] for body in receiver.bodies) == [80, 100]


async def test_a_ledger_that_does_not_say_who_sends_is_asked_again_a_minute_later(receiver: Receiver) -> None:
    clock = FakeClock()
    guard = hooked(receiver, clock=clock, budget="1/month")
    ledger = Sick()
    assert guard._guard is not None
    guard._guard.ledger = hook_of(guard)._ledger = guard._guard.clients._ledger = ledger
    ledger.fails = {"balances"}
    await spend(guard, 8)
    await drain(guard)
    ledger.fails = set()

    await spend(guard, 1)
    await drain(guard)
    too_early = len(receiver.bodies)
    clock.advance(60)
    await spend(guard, 1)
    await drain(guard)

    assert (too_early, sorted(body["threshold"] for body in receiver.bodies)) == (0, [80, 100])


async def test_an_orphan_that_was_settled_for_less_is_not_told_of(receiver: Receiver) -> None:
    """This process took the threshold for crossed, and the ledger knows better."""
    guard = hooked(receiver)
    assert guard._guard is not None
    hook = hook_of(guard)
    (threshold, _) = hook._thresholds
    hook._begin([threshold])
    await drain(guard)

    assert receiver.bodies == []
    await spend(guard, 8)
    await drain(guard)
    assert receiver.bodies == [], "it looks again a second later"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000",
        "https://hooks.example.com/services/T0/B0/hunter2?x=%20y",
        "HTTPS://[::1]:8443/a",
    ],
)
def test_an_address_may_be_http_or_https(url: str) -> None:
    settings = Settings(paths=["/chat"], webhook_url=url, environ={}, **TEN_CENTS)

    assert settings.webhook_url == url
    assert "hunter2" not in repr(settings)
    assert build_guard(settings, clock=FakeClock()).closing


@pytest.mark.parametrize(
    "url",
    [
        "hunter2",
        "file:///etc/hunter2",
        "ftp://h/hunter2",
        "https://",
        "https:///hunter2",
        "https://h/ hunter2",
        "https://h/#hunter2",
        "https://h/hunter2\nX: y",
        "https://u:hunter2@h/",
        "https://h/\u00e9hunter2",
        "https://[::1/hunter2",
        "https://h:hunter2/",
        "https://h:70000/hunter2",
        "https://h:0/hunter2",
        "https://:443/hunter2",
    ],
)
def test_another_address_stops_the_server_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as found:
        Settings(paths=["/chat"], webhook_url=url, environ={}, **TEN_CENTS)

    assert "webhook_url=" in str(found.value)
    assert "hunter2" not in str(found.value)
