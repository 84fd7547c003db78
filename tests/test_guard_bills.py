"""What the bill of a request is read from: reports of the application, the answer of a provider, or nothing."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import genai_prices.data  # noqa: F401 - read now, because reading files inside an event loop is trapped
import pytest

import routeguard
from routeguard import Admission, Usage
from routeguard.prices import Era, Price, Schedule
from routeguard.testing import FakeClock
from tests.driver import Client, chat_chunks, stream_app
from tests.guarding import USAGE, Counting, ending, guarded, reporting
from tests.tariffs import model, rates, tariff


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


async def test_a_late_bill_above_the_ceiling_raises_later_ceilings_and_names_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        scope["routeguard"].report(cost_usd="0.25")

    guard = guarded(app)
    await Client().call(guard)
    after = Counting()
    guard.app = after

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.15", "kept": "0.35", "overrun": "0.15"}
    assert after.admissions[0] is not None
    assert after.admissions[0].ceiling_usd == Decimal("0.25")
    assert "raise CALLS_PER_REQUEST" in caplog.text


async def test_a_late_bill_is_logged_with_what_the_request_is_charged_by_now(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.01")
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        scope["routeguard"].report(cost_usd="0.02")
        scope["routeguard"].report(cost_usd="0.04")

    await Client().call(guarded(app))

    lines: list[Any] = [record for record in caplog.records if getattr(record, "event", None) == "overrun"]
    assert [line.charged_usd for line in lines] == ["0.03", "0.07"]


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


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_call_is_priced_at_the_dearer_of_two_moments_whichever_way_the_clock_went(hours: int) -> None:
    cheap, dear = (Price.flat(rates(input="0", output=usd)) for usd in ("1", "2"))
    peak = Era(0, ((0, cheap), (12 * 3600, dear), (13 * 3600, cheap)))
    clock = FakeClock(datetime(2026, 11, 30, 12, 30, tzinfo=UTC))
    guard = guarded(reporting(before=lambda _: clock.jump(hours * 3600), usage=USAGE), clock=clock)
    assert guard._guard is not None
    guard._guard.tariff = tariff(model("test-model", standard=Schedule((peak,))))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.0002"}
