"""Which price a metered call is reserved and charged at."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from routeguard import BudgetExceeded, RouteGuard
from routeguard.meter import payer
from routeguard.meter import tariffs as tariffs_module
from routeguard.meter.tariffs import NAMES_MAX, Tariffs, load_prices
from routeguard.prices import ModelPrice
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.in_request import run
from tests.meter.played import ASYNC, COMPLETION, HI, Caller, calling, whole
from tests.meter.served import CONTENT, MESSAGE

# A server builds its guard before it serves; here guards are built on the loop, where reading a file is an error.
load_prices()

ROOT = Path(__file__).resolve().parents[2]
#: gpt-5-mini costs $0.25 and $2 per million tokens, gpt-5 five times that.
GUARD: dict[str, Any] = {
    "price_in": None,
    "price_out": None,
    "model": "gpt-5-mini",
    "max_output_tokens": 1000,
    "calls_per_request": 5,
}


def used(model: str | None = None, *, out: int = 100, **usage: Any) -> Any:
    return whole(used_body(model, out=out, **usage))


def used_body(model: str | None, *, out: int = 100, **usage: Any) -> dict[str, Any]:
    return {**COMPLETION, "model": model, "usage": {"prompt_tokens": 0, "completion_tokens": out, **usage}}


async def charged(caller: Caller, body: dict[str, Any], **settings: Any) -> dict[str, str]:
    guard = guarded(calling(lambda: caller.post({"messages": HI, **body})), **{**GUARD, **settings})
    client = await Client().call(guard)
    if client.error is not None:
        raise client.error
    return await parts(guard)


async def test_a_configured_model_is_charged_at_its_price() -> None:
    caller = Caller(ASYNC, used("gpt-5-mini-2025-08-07"))

    assert (await charged(caller, {"model": "gpt-5-mini"}))["settled"] == "0.0002"


async def test_a_model_that_is_not_configured_is_charged_at_its_own_price() -> None:
    caller = Caller(ASYNC, used("gpt-5-2025-08-07"))

    assert (await charged(caller, {"model": "gpt-5", "max_tokens": 200}))["settled"] == "0.001"


async def test_a_model_that_is_not_configured_is_kept_at_its_own_price() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))

    kept = (await charged(caller, {"model": "gpt-5", "max_tokens": 200}))["kept"]

    assert kept == "0.0020125"  # 200 x $10 and 10 tokens of text at $1.25, per million


async def test_a_dearer_model_that_the_reservation_cannot_pay_is_never_sent() -> None:
    caller = Caller(ASYNC)

    with pytest.raises(BudgetExceeded) as refused:
        await charged(caller, {"model": "gpt-5"}, calls_per_request=1)

    assert (refused.value.reason, caller.sent) == ("reservation", [])


@pytest.mark.parametrize("model", ["nobody-knows-this", "", "x" * 1000, None])
async def test_a_model_without_a_known_price_is_never_sent(model: str | None) -> None:
    caller = Caller(ASYNC)

    with pytest.raises(BudgetExceeded, match="ROUTEGUARD_MODEL") as refused:
        await charged(caller, {"model": model})

    assert (refused.value.reason, caller.sent) == ("unknown_price", [])
    assert model is None or len(model) < 3 or model not in str(refused.value)


async def test_prices_without_a_model_hold_for_every_model() -> None:
    caller = Caller(ASYNC, used("whatever"))

    settled = await charged(caller, {"model": "nobody-knows-this"}, model=None, price_in=0, price_out=100)

    assert settled["settled"] == "0.01"


async def test_what_a_provider_adds_unseen_is_reserved_but_for_what_is_left_to_the_application() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))

    kept = await charged(caller, {"model": "m"}, model=None, price_in=1, price_out=0)

    assert kept["kept"] == "0.00129"  # 2 bytes of text, 8 tokens of framing, 1,536 - 256 unseen


async def test_a_dearer_service_tier_is_reserved_for_where_the_model_is_not_configured() -> None:
    standard = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    priority = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    body = {"model": "gpt-5", "max_tokens": 100}

    usual = await charged(standard, body)
    dearer = await charged(priority, {**body, "service_tier": "priority"})

    assert (usual["kept"], dearer["kept"]) == ("0.0010125", "0.002025")


async def test_a_dearer_service_tier_of_a_configured_model_is_reserved_for() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    body = {"model": "gpt-5-mini", "service_tier": "priority"}

    kept = (await charged(caller, body))["kept"]
    with pytest.raises(BudgetExceeded, match="ALLOW_FIELDS=service_tier") as refused:
        await charged(caller, body, calls_per_request=1)

    assert (kept, refused.value.reason) == ("0.0036045", "reservation")  # 1,000 x $3.60 and 10 x $0.45 per million
    assert len(caller.sent) == 1


@pytest.mark.parametrize(("tier", "settled"), [(None, "0.00036"), ("default", "0.0002"), ("priority", "0.00036")])
async def test_a_tier_that_was_asked_for_is_charged_unless_the_answer_names_another(
    tier: str | None, settled: str
) -> None:
    caller = Caller(ASYNC, whole({**used_body("gpt-5-mini"), "service_tier": tier}))

    assert (await charged(caller, {"model": "gpt-5-mini", "service_tier": "priority"}))["settled"] == settled


@pytest.mark.parametrize("settings", [{"model": "gpt-5-mini"}, {"model": "claude-sonnet-4-5"}])
async def test_a_call_at_a_tier_that_nobody_has_a_price_for_is_never_sent(settings: dict[str, Any]) -> None:
    caller = Caller(ASYNC)

    with pytest.raises(BudgetExceeded, match="service tier") as refused:
        await charged(caller, {"model": "claude-sonnet-4-5", "speed": "fast"}, **settings)

    assert (refused.value.reason, caller.sent) == ("unknown_price", [])


async def test_the_operators_price_is_that_of_every_tier() -> None:
    caller = Caller(ASYNC, used("whatever"))

    settled = await charged(caller, {"model": "m", "speed": "fast"}, model=None, price_in=0, price_out=100)

    assert settled["settled"] == "0.01"


@pytest.mark.parametrize(
    ("asked", "answered", "settled"),
    [
        ("gpt-5-nano", "gpt-5-nano-2025-08-07", "0.00004"),
        ("gpt-5-nano", "gpt-5-2025-08-07", "0.001"),
        ("gpt-5-nano", "nobody-knows-this", "0.00004"),
        ("gpt-5", "gpt-5-nano", "0.001"),
    ],
)
async def test_an_answer_of_another_model_is_charged_at_the_dearer_of_the_two(
    asked: str, answered: str, settled: str
) -> None:
    caller = Caller(ASYNC, used(answered))

    assert (await charged(caller, {"model": asked, "max_tokens": 100}))["settled"] == settled


async def test_what_an_answer_used_on_another_model_is_charged_at_its_own_price() -> None:
    passes = [
        {"type": "message", "input_tokens": 0, "output_tokens": 100},
        {"type": "advisor_message", "model": "claude-opus-4-5", "input_tokens": 0, "output_tokens": 100},
    ]
    usage = {"input_tokens": 0, "output_tokens": 100, "iterations": passes}
    caller = Caller(ASYNC, whole({**MESSAGE, "usage": usage}))
    guard = guarded(
        calling(
            lambda: caller.post(
                {"model": "claude-haiku-4-5", "messages": HI, "max_tokens": 100}, url="http://model.test/v1/messages"
            )
        ),
        **{**GUARD, "model": "gpt-5"},
    )

    await Client().call(guard)

    assert (await parts(guard))["settled"] == "0.003"  # 100 x $5 and 100 x $25 per million


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}])
async def test_an_answer_that_says_it_used_nothing_has_not_said_what_it_used(usage: dict[str, int]) -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": usage}))

    found = await charged(caller, {"model": "gpt-5", "max_tokens": 200})

    assert (found["settled"], found["kept"]) == ("0", "0.0020125")


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        ({"candidatesTokenCount": 100}, ("0", "0.06")),
        ({"promptTokenCount": 9, "candidatesTokenCount": 100}, ("0.01", "0")),
    ],
)
async def test_media_whose_tokens_nobody_counted_are_kept_at_the_worst_case(
    usage: dict[str, int], charged: tuple[str, str]
) -> None:
    caller = Caller(ASYNC, whole({**CONTENT, "usageMetadata": usage}))
    media = {"fileData": {"fileUri": "https://files.test/film.mp4"}}
    body = {"contents": [{"parts": [media]}], "generationConfig": {"maxOutputTokens": 500}}
    url = "http://model.test/v1beta/models/g:generateContent"

    found = await run(lambda: caller.post(body, url=url), media_usd="0.01")

    assert (found["settled"], found["kept"]) == charged


async def test_a_prediction_that_may_be_wrong_is_reserved_for_as_output() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    prediction = {"type": "content", "content": "x" * 400}

    kept = await charged(
        caller, {"model": "m", "max_tokens": 100, "prediction": prediction}, model=None, price_in=0, price_out=100
    )

    assert kept["kept"] == f"{(100 + len(json.dumps(prediction))) / 10_000:.4f}"


async def test_a_missing_count_is_charged_at_the_most_it_can_be() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "model": "gpt-5-mini", "usage": {"prompt_tokens": 8}}))

    settled = (await charged(caller, {"model": "gpt-5-mini", "max_tokens": 300}))["settled"]

    assert settled == "0.000602"


@pytest.mark.parametrize(
    "settings", [GUARD, None], ids=["in a request, a model that is not configured", "a budget of its own"]
)
async def test_a_price_is_looked_up_once_and_not_on_the_event_loop(
    settings: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    find = tariffs_module._find

    def watched(model: str) -> ModelPrice | None:
        threads.append(threading.get_ident())
        return find(model)

    monkeypatch.setattr(tariffs_module, "_find", watched)
    monkeypatch.setattr(payer, "_foreign", Tariffs())
    caller = Caller(ASYNC, used("gpt-5"), **({} if settings else {"budget": "1/day"}))
    body = {"model": "gpt-5", "messages": HI, "max_tokens": 200}

    for _ in range(2):
        await (charged(caller, body) if settings else caller.post(body))

    assert len(threads) == 1
    assert threads != [threading.get_ident()]


def test_a_process_that_has_never_needed_the_table_imports_it_off_the_event_loop(tmp_path: Path) -> None:
    """With every price from a file nothing imports it at start; then a request calls a model of no file."""
    prices = tmp_path / "prices.toml"
    prices.write_text("[mine]\ninput = 100\noutput = 100\n")

    found = subprocess.run(
        [sys.executable, "-m", "tests.meter.first_call", str(prices)], cwd=ROOT, capture_output=True, text=True
    )

    assert (found.returncode, found.stdout) == (0, "imported: False\nsettled: 0.001\nimported: True\n"), found.stderr


def test_names_that_a_client_chooses_do_not_fill_the_memory() -> None:
    tariffs = Tariffs()

    for number in range(3 * NAMES_MAX):
        assert tariffs.of(f"no-such-model-{number}", dearer_tiers=False) is None

    assert len(tariffs) == NAMES_MAX


def test_a_name_is_looked_up_once() -> None:
    tariffs = Tariffs()

    first = tariffs.of("gpt-5-mini", dearer_tiers=False)

    assert first is not None
    assert tariffs.of("gpt-5-mini", dearer_tiers=False) is first


async def test_outside_of_a_request_a_call_without_a_budget_passes_and_is_counted_and_warned_about_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payer, "unmetered", payer.Unmetered())
    caller = Caller(ASYNC)
    body = {"model": "m", "messages": HI, "max_tokens": 1_000_000}

    for _ in range(3):
        assert (await caller.post(body)).status_code == 200
    await caller.client.get("http://model.test/v1/models")

    assert payer.unmetered.count == 3
    assert [sent.json for sent in caller.sent[:3]] == [body] * 3
    assert [record.message.partition(":")[0] for record in caplog.records if record.name == "routeguard"] == [
        "a metered client was used outside of a guarded request and without a budget of its own"
    ]


async def test_a_guard_that_is_switched_off_meters_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payer, "unmetered", payer.Unmetered())
    caller = Caller(ASYNC)
    app = RouteGuard(calling(caller.post), paths=["/chat"], mode="off", environ={})

    await Client().call(app)

    assert (payer.unmetered.count, "max_tokens" in caller.sent[0].json) == (1, False)


@pytest.mark.parametrize(
    ("call", "answered", "settled"),
    [
        ("GPT-5", "gpt-5-2025-08-07", "0.7"),
        ("gpt-5-2025-08-07", "gpt-5-2025-08-07", "0.7"),
        ("gpt-5-mini", "gpt-5", "0.7"),
        ("openai/gpt-5", "openai/gpt-5", "0.001"),
        ("house", "gpt-5", "0.6"),
    ],
)
def test_the_operators_price_holds_for_a_model_that_is_not_configured(
    call: str, answered: str, settled: str, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["gpt-5"]\ninput = 0\noutput = 7000\n["House"]\ninput = 0\noutput = 6000\n')
    caller = Caller(ASYNC, used(answered))
    request = calling(lambda: caller.post({"messages": HI, "model": call, "max_tokens": 100}))
    guard = guarded(request, **{**GUARD, "model": "gpt-5-pro", "prices": f"@{prices}", "budget": "10/day"})

    async def charge() -> str:
        client = await Client().call(guard)
        assert client.error is None
        return (await parts(guard))["settled"]

    assert anyio.run(charge) == settled
