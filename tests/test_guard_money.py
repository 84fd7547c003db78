"""What each request is charged: the stampede, the three endings by cause, and every tail of a response."""

import random
from decimal import Decimal
from typing import Any

import anyio
import genai_prices.data  # noqa: F401 - read now, because reading files inside an event loop is trapped
import pytest

import routeguard
from routeguard import Admission, Usage
from routeguard.testing import FakeClock
from tests.driver import Client, chat_chunks, stream_app
from tests.guarding import Counting, guarded, in_flight, parts, reporting

USAGE = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}


async def ending(guard: Any) -> dict[str, str]:
    """The parts of the day's budget that are not zero, `remaining` and `limit` left out."""
    found = await parts(guard)
    total = sum(Decimal(found[name]) for name in ("settled", "open", "kept", "orphaned", "remaining"))
    assert total == Decimal(found["limit"]), "the parts explain the counter"
    return {name: value for name, value in found.items() if value != "0" and name not in {"remaining", "limit"}}


@pytest.mark.parametrize("seed", range(100))
async def test_exactly_ten_of_two_hundred_simultaneous_requests_are_admitted(seed: int) -> None:
    """Real clients, a real body, an application that waits: ten ceilings fit, whatever the interleaving."""
    rng = random.Random(seed)
    release = anyio.Event()
    app = Counting()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        scope["routeguard"].report(cost_usd="0.04")
        await stream_app([b"data: x\n\n"])(scope, receive, send)

    app._app = waiting
    guard = guarded(app, rate="unlimited", global_rate="unlimited", max_parallel=500, max_parallel_per_client=500)
    clients = [Client(peer=(f"198.51.{number // 100}.{number % 100}", 1)) for number in range(200)]
    delays = [rng.randrange(4) for _ in clients]

    async def one(client: Client, delay: int) -> None:
        for _ in range(delay):
            await anyio.lowlevel.checkpoint()
        await client.call(guard)

    async with anyio.create_task_group() as tasks:
        for number in rng.sample(range(200), 200):
            tasks.start_soon(one, clients[number], delays[number])
        await anyio.wait_all_tasks_blocked()
        assert await ending(guard) == {"open": "1"}
        release.set()

    assert app.calls == 10
    assert sorted(client.status or 0 for client in clients) == [200] * 10 + [429] * 190
    assert {client.reason for client in clients if client.status == 429} == {"busy"}
    assert await ending(guard) == {"settled": "0.4"}
    assert await in_flight(guard) == 0


async def test_a_reported_cost_is_charged_exactly() -> None:
    guard = guarded(reporting(cost_usd="0.0123456789"))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.012345679"}


async def test_a_reported_usage_is_priced() -> None:
    guard = guarded(reporting(usage=USAGE))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.01"}


async def test_reports_about_the_whole_request_add_up() -> None:
    def twice(admission: Admission) -> None:
        admission.report(cost_usd="0.01")
        admission.report(cost_usd=Decimal("0.02"))

    guard = guarded(reporting(before=twice))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.03"}


async def test_of_two_begun_calls_and_one_report_the_other_is_kept() -> None:
    def two(admission: Admission) -> None:
        admission.begin()
        admission.begin()
        admission.report(cost_usd="0.01")

    guard = guarded(reporting(before=two), calls_per_request=2, price_out=50)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.01", "kept": "0.05"}


async def test_a_begun_call_is_kept_at_its_own_maximum_even_beyond_the_reservation() -> None:
    guard = guarded(reporting(before=lambda admission: void(admission.begin(max_usd="0.3"))))

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.3", "overrun": "0.2"}


async def test_the_larger_of_the_whole_and_the_calls_is_charged() -> None:
    def mixed(admission: Admission) -> None:
        admission.report(cost_usd="0.03")
        admission.begin().report(cost_usd="0.01")
        admission.begin().report(cost_usd="0.015")

    guard = guarded(reporting(before=mixed))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.03"}


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"usage": {"prompt_tokens": -1, "completion_tokens": 5}},
        {"usage": {"prompt_tokens": float("nan"), "completion_tokens": 5}},
        {"usage": {"prompt_tokens": True, "completion_tokens": 5}},
        {"usage": {}},
        {"usage": "tokens"},
        {"usage": USAGE, "model": "nobody-knows-this"},
        {"cost_usd": "-0.01"},
        {"cost_usd": float("nan")},
        {"cost_usd": "free"},
    ],
    ids=repr,
)
async def test_a_report_without_usable_numbers_is_a_begun_unreported_call(report: dict[str, Any]) -> None:
    guard = guarded(reporting(before=lambda admission: admission.report(**report)), model="gpt-4o-mini")

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_a_cost_of_nothing_is_an_answer() -> None:
    guard = guarded(reporting(cost_usd=0))

    await Client().call(guard)

    assert await ending(guard) == {}


async def test_a_bill_above_the_ceiling_is_charged_counted_and_raises_later_ceilings() -> None:
    guard = guarded(reporting(cost_usd="0.25"))

    await Client().call(guard)
    after = Counting(reporting(cost_usd="0.01"))
    guard.app = after
    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.26", "overrun": "0.15"}
    assert after.admissions[0] is not None
    assert after.admissions[0].ceiling_usd == Decimal("0.25")


async def test_without_any_word_the_reservation_stands() -> None:
    guard = guarded(stream_app([b"data: x\n\n"]))

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_what_nobody_reported_is_said_once_with_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    guard = guarded(stream_app([b"data: x\n\n"]))

    for _ in range(3):
        await Client().call(guard)

    said = [record.message for record in caplog.records if "nobody said what a call cost" in record.message]
    assert len(said) == 1
    assert "report(usage)" in said[0]


async def test_no_call_may_release_for_applications_that_begin_every_call() -> None:
    guard = guarded(stream_app([b"data: x\n\n"]), no_call="release")

    await Client().call(guard)

    assert await ending(guard) == {}


@pytest.mark.parametrize(("status", "found"), [(404, {}), (405, {}), (422, {"kept": "0.1"}), (500, {"kept": "0.1"})])
async def test_only_release_statuses_release(status: int, found: dict[str, str]) -> None:
    guard = guarded(stream_app([], status=status))

    await Client().call(guard)

    assert await ending(guard) == found


@pytest.mark.parametrize(("usage", "charged"), [(USAGE, "settled"), (None, "kept")])
async def test_no_status_releases_once_a_provider_was_seen(usage: dict[str, int] | None, charged: str) -> None:
    guard = guarded(stream_app(chat_chunks(usage=usage), status=404))

    await Client().call(guard)

    assert list(await ending(guard)) == [charged]


async def test_nothing_sent_releases() -> None:
    guard = guarded(reporting(before=lambda admission: admission.nothing_sent()))

    await Client().call(guard)

    assert await ending(guard) == {}


async def test_nothing_sent_is_void_once_a_call_was_begun() -> None:
    def both(admission: Admission) -> None:
        admission.nothing_sent()
        admission.begin()

    guard = guarded(reporting(before=both))

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_usage_is_read_from_a_provider_stream() -> None:
    guard = guarded(stream_app(chat_chunks(usage=USAGE)))

    client = await Client().call(guard)

    assert client.chunks == [*chat_chunks(usage=USAGE), b""]
    assert await ending(guard) == {"settled": "0.01"}


@pytest.mark.parametrize(
    ("label", "chunks"),
    [
        ("no usage", chat_chunks()),
        ("plain text events", [b'data: {"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n', b"data: [DONE]\n\n"]),
        ("a foreign event", [b"data: hello\n\n", *chat_chunks(usage=USAGE)]),
        (
            "a usage object that the model printed",
            [*chat_chunks()[:-1], b'data: {"text":"{\\"usage\\":{\\"prompt_tokens\\":0}}"}\n\n', b"data: [DONE]\n\n"],
        ),
    ],
)
async def test_a_stream_that_is_not_wholly_a_providers_is_not_read(label: str, chunks: list[bytes]) -> None:
    guard = guarded(stream_app(chunks))

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}, label


async def test_a_report_wins_over_what_the_answer_says() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app(chat_chunks(usage=USAGE))(scope, receive, send)

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.02"}


async def test_a_json_answer_is_only_read_when_the_route_relays_it() -> None:
    usage = b'{"prompt_tokens":1,"completion_tokens":100}'
    answer = b'{"object":"chat.completion","model":"m","choices":[],"usage":' + usage + b"}"
    plain = guarded(stream_app([answer], content_type=b"application/json"))
    relayed = guarded(stream_app([answer], content_type=b"application/json"), read_response="all")

    await Client().call(plain)
    await Client().call(relayed)

    assert (await ending(plain), await ending(relayed)) == ({"kept": "0.1"}, {"settled": "0.01"})


@pytest.mark.parametrize(("on_failure", "found"), [("keep", {"kept": "0.1"}), ("exact", {"settled": "0.02"})])
async def test_an_exception_mid_stream_costs_what_on_failure_says(on_failure: str, found: dict[str, str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise ValueError("the provider went away")

    guard = guarded(app, on_failure=on_failure)

    client = await Client().call(guard)

    assert isinstance(client.error, ValueError)
    assert await ending(guard) == found
    assert await in_flight(guard) == 0


async def test_a_known_bill_above_the_ceiling_is_settled_also_after_a_failure() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.3")
        raise ValueError("late")

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.3", "overrun": "0.2"}


async def test_an_exception_before_the_start_keeps_the_reservation() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("at once")

    guard = guarded(app)

    client = await Client().call(guard)

    assert (client.status, await ending(guard)) == (None, {"kept": "0.1"})


@pytest.mark.parametrize(
    ("reports", "found"),
    [("nothing", {"kept": "0.1"}), ("begun", {"kept": "0.1"}), ("reported", {"settled": "0.02"})],
)
async def test_a_client_that_leaves_mid_stream(reports: str, found: dict[str, str]) -> None:
    """A disconnect before every begun call was reported is a failure; after the last report it is a normal end."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reports != "nothing":
            call = scope["routeguard"].begin()
            if reports == "reported":
                call.report(cost_usd="0.02")
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    guard = guarded(app)

    await Client(leaves_after=1).call(guard)

    assert await ending(guard) == found


async def test_a_clean_last_message_after_a_disconnect_is_no_success() -> None:
    """What BaseHTTPMiddleware sends when the client left: final body, normal return, no exception."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].begin()
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    guard = guarded(app)

    await Client(leaves_after=1).call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_a_disconnect_after_the_terminal_event_is_a_normal_end() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in chat_chunks(usage=USAGE):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    guard = guarded(app)

    await Client(leaves_after=len(chat_chunks(usage=USAGE))).call(guard)

    assert await ending(guard) == {"settled": "0.01"}


async def test_a_disconnect_before_the_terminal_event_is_not() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in chat_chunks(usage=USAGE)[:-1]:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    guard = guarded(app)

    await Client(leaves_after=len(chat_chunks(usage=USAGE)) - 1).call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_the_ending_is_decided_at_the_last_message_and_not_after_background_work() -> None:
    found: list[dict[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        found.append({**await ending(guard), "in_flight": str(await in_flight(guard))})

    guard = guarded(app)

    await Client().call(guard)

    assert found == [{"settled": "0.02", "in_flight": "0"}]


async def test_an_exception_after_the_last_message_changes_nothing() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        raise ValueError("in a background task")

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.02"}


async def test_a_late_report_only_ever_raises_the_charge() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        admission = scope["routeguard"]
        admission.report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        admission.report(cost_usd="0.05")
        admission.report(cost_usd=0)

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.07", "overrun": "0.05"}


async def test_a_late_report_below_a_kept_charge_moves_nothing() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        scope["routeguard"].report(cost_usd="0.05")

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_a_stream_across_midnight_is_settled_in_the_day_it_began() -> None:
    clock = FakeClock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clock.advance(13 * 3600)
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)

    guard = guarded(app, clock=clock, budget="1/day, 5/month", max_stream="24h")

    await Client().call(guard)

    assert guard._guard is not None
    day, month = await guard._guard.ledger.balances(guard._guard.rules.budgets)
    assert (day.charged_nanousd, month.charged_nanousd) == (0, 0)


async def test_max_stream_cancels_before_the_start_with_504() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await anyio.sleep_forever()

    guard = guarded(app, max_stream="20ms")

    client = await Client().call(guard)

    assert (client.status, client.reason) == (504, "stream_timeout")
    assert client.response_headers["x-should-retry"] == "false"
    assert "retry-after" not in client.response_headers
    assert await ending(guard) == {"kept": "0.1"}


async def test_max_stream_cuts_a_started_stream_without_a_last_chunk() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.01")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    guard = guarded(app, max_stream="20ms")

    client = await Client().call(guard)

    assert (client.status, client.complete) == (200, False)
    assert client.error is not None
    assert await ending(guard) == {"kept": "0.1"}


async def test_work_after_the_last_message_is_never_cancelled() -> None:
    done: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        await anyio.sleep(0.06)
        done.append("background")

    guard = guarded(app, max_stream="20ms")

    client = await Client().call(guard)

    assert (client.error, done) == (None, ["background"])


async def test_the_price_of_nothing_passes_a_spent_budget() -> None:
    guard = guarded(Counting(), price_out=0, budget="0/day")

    client = await Client().call(guard)

    assert client.status == 200


async def test_a_budget_of_nothing_is_exhausted() -> None:
    client = await Client().call(guarded(Counting(), budget="0/day"))

    assert (client.status, client.reason) == (503, "budget_exhausted")


async def test_parallel_slots_are_busy_and_come_back() -> None:
    release = anyio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await stream_app([b"data: x\n\n"])(scope, receive, send)

    guard = guarded(waiting, budget="100/day", max_parallel_per_client=2)
    clients = [Client() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(client.call, guard)
        await anyio.wait_all_tasks_blocked()
        assert await in_flight(guard) == 2
        release.set()
    after = await Client().call(guard)

    assert sorted(client.status or 0 for client in clients) == [200, 200, 429]
    refused = next(client for client in clients if client.status == 429)
    assert refused.reason == "busy"
    assert 1 <= int(refused.response_headers["retry-after"]) <= 5
    assert after.status == 200


async def test_the_admission_is_found_in_every_place() -> None:
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.extend([routeguard.admission(scope), routeguard.admission(), scope["state"]["routeguard"]])
        await stream_app([])(scope, receive, send)

    await Client().call(guarded(app))

    assert isinstance(found[0], Admission)
    assert found[0] is found[1] is found[2]
    assert found[0].ceiling_usd == Decimal("0.1")
    assert found[0].id
    assert "203.0.113.9" not in found[0].client


async def test_an_unguarded_request_sees_no_admission_of_its_predecessor() -> None:
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(routeguard.admission())
        await stream_app([])(scope, receive, send)

    guard = guarded(app)

    await Client().call(guard)
    await Client(path="/other").call(guard)

    assert found[0] is not None
    assert found[1] is None


async def test_a_usage_dataclass_is_a_report() -> None:
    guard = guarded(reporting(usage=Usage(input_tokens=5, output_tokens=200)))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.02"}


def void(value: object) -> None:
    """Throw a result away."""
