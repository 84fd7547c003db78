"""A metered client with a budget of its own: the hard stop of scripts and agents."""

import asyncio
import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routeguard import BudgetExceeded, ConfigError, metered
from routeguard.meter.payer import Allowance
from routeguard.policy import Balance
from tests.meter.played import (
    ASYNC,
    COMPLETION,
    HI,
    KINDS,
    URL,
    Caller,
    Kind,
    Played,
    chat_stream,
    every_kind,
    whole,
)

#: $100 per million output tokens, of which a call here may produce a thousand: ten cents at most.
PRICES: dict[str, Any] = {"price_in": 0, "price_out": 100}
SYNC = KINDS[1]
UNREPORTED = whole({**COMPLETION, "usage": None})

# A script makes its client once. Here clients are made on the loop, where reading prices and time zones is an error.
metered(sync=True, budget="1/day").close()


def allowance_of(caller: Caller) -> Allowance:
    found = caller.client._transport._allowance
    assert isinstance(found, Allowance)
    return found


async def balance(caller: Caller) -> Balance:
    allowance = allowance_of(caller)
    (found,) = await allowance.ledger.balances(allowance.budgets)
    return found


async def spend(caller: Caller, *, calls: int) -> list[str]:
    """Call so often; the reason of each refusal."""
    reasons = []
    for _ in range(calls):
        try:
            await caller.post()
        except BudgetExceeded as refusal:
            reasons.append(refusal.reason)
    return reasons


@every_kind
async def test_what_is_charged_never_exceeds_the_budget(kind: Kind) -> None:
    caller = Caller(kind, whole(), budget="0.14/day", **PRICES)

    reasons = await spend(caller, calls=10)

    assert len(caller.sent) == 5  # a cent each; for the sixth 9 cents are left, and it could cost 10
    assert reasons == ["budget_exhausted"] * 5
    found = await balance(caller)
    assert (found.settled_nanousd, found.open_nanousd, found.kept_nanousd) == (50_000_000, 0, 0)


@every_kind
async def test_an_answer_without_usage_is_charged_in_full(kind: Kind) -> None:
    caller = Caller(kind, UNREPORTED, budget="0.25/day", **PRICES)

    assert await spend(caller, calls=3) == ["budget_exhausted"]

    assert (await balance(caller)).kept_nanousd == 200_000_000


@every_kind
async def test_a_call_that_the_provider_refused_costs_nothing(kind: Kind) -> None:
    caller = Caller(kind, whole({"error": {}}, status=429), budget="0.1/day", **PRICES)

    assert await spend(caller, calls=5) == []

    assert (await balance(caller)).charged_nanousd == 0


@every_kind
async def test_a_call_that_never_left_costs_nothing_and_one_that_broke_everything(kind: Kind) -> None:
    never, broke = kind.library.ConnectError("no"), kind.library.ReadError("gone")
    caller = Caller(kind, Played(raises=never), Played(raises=broke), budget="0.2/day", **PRICES)

    for error in (never, broke):
        with pytest.raises(type(error)):
            await caller.post()

    found = await balance(caller)
    assert (found.kept_nanousd, found.open_nanousd) == (100_000_000, 0)


@every_kind
async def test_a_stream_is_settled_when_its_caller_is_done_with_it(kind: Kind) -> None:
    caller = Caller(kind, chat_stream(), budget="0.2/day", **PRICES)

    await caller.stream()

    found = await balance(caller)
    assert (found.settled_nanousd, found.open_nanousd) == (10_000_000, 0)


@pytest.mark.parametrize("encoding", [None, "gzip"])
@every_kind
async def test_an_answer_that_a_transport_has_in_memory_is_settled_like_any_other(
    kind: Kind, encoding: str | None
) -> None:
    """As caches and mock transports answer; a client neither reads nor closes those."""
    library, body = kind.library, json.dumps(COMPLETION).encode()
    headers = {} if encoding is None else {"content-encoding": encoding}
    content = body if encoding is None else gzip.compress(body)
    transport = library.MockTransport(lambda request: library.Response(200, headers=headers, content=content))
    client = metered(
        (library.AsyncClient if kind.is_async else library.Client)(transport=transport), budget="1/day", **PRICES
    )

    sent = client.post(URL, json={"model": "test-model", "messages": HI})
    answer = await sent if kind.is_async else sent

    allowance = client._transport._allowance
    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert (answer.json(), answer.request.url) == (COMPLETION, URL)
    assert answer.headers["content-length"] == f"{len(answer.content)}"
    assert (found.settled_nanousd, found.open_nanousd) == (10_000_000, 0)


async def test_calls_at_once_never_exceed_the_budget_together() -> None:
    caller = Caller(ASYNC, UNREPORTED, budget="0.3/day", **PRICES)

    async with anyio.create_task_group() as tools:
        for _ in range(10):
            tools.start_soon(lambda: spend(caller, calls=1))

    assert len(caller.sent) == 3
    assert (await balance(caller)).charged_nanousd == 300_000_000


def test_threads_at_once_never_exceed_the_budget_together() -> None:
    caller = Caller(SYNC, UNREPORTED, budget="0.3/day", **PRICES)
    refusals: list[str] = []

    def call() -> None:
        try:
            caller.client.post("http://model.test/v1/chat/completions", json={"model": "m", "messages": HI})
        except BudgetExceeded as refusal:
            refusals.append(refusal.reason)

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(caller.sent), len(refusals)) == (3, 7)


def test_a_sync_client_shares_a_file_with_others(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/agent.db"
    one = Caller(SYNC, UNREPORTED, budget="0.25/day", ledger=ledger, **PRICES)
    other = Caller(SYNC, UNREPORTED, budget="0.25/day", ledger=ledger, **PRICES)

    body = {"model": "m", "messages": HI}
    one.client.post("http://model.test/v1/chat/completions", json=body)
    other.client.post("http://model.test/v1/chat/completions", json=body)

    for caller in (one, other):
        with pytest.raises(BudgetExceeded, match="spent"):
            caller.client.post("http://model.test/v1/chat/completions", json=body)
    assert [len(caller.sent) for caller in (one, other)] == [1, 1]


def test_an_async_client_keeps_its_budget_over_event_loops(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/agent.db"

    def run_once() -> list[str]:
        caller = Caller(ASYNC, UNREPORTED, budget="0.25/day", ledger=ledger, **PRICES)
        return asyncio.run(spend(caller, calls=1))

    assert [run_once() for _ in range(4)] == [[], [], ["budget_exhausted"], ["budget_exhausted"]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_sync_client_works_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    caller = Caller(SYNC, UNREPORTED, budget="0.35/day", ledger=f"sqlite:///{tmp_path}/agent.db", **PRICES)

    def call() -> None:
        caller.client.post("http://model.test/v1/chat/completions", json={"model": "m", "messages": HI})

    call()
    child = os.fork()
    if not child:
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    call()

    assert status == 0
    with pytest.raises(BudgetExceeded):
        call()


async def test_budgets_in_memory_are_of_one_client_unless_they_have_a_name(anyio_backend_name: str) -> None:
    alone = [Caller(ASYNC, UNREPORTED, budget="0.1/day", **PRICES) for _ in range(2)]
    named = [
        Caller(ASYNC, UNREPORTED, budget="0.1/day", namespace=f"own-budget-{anyio_backend_name}", **PRICES)
        for _ in range(2)
    ]

    assert [await spend(caller, calls=1) for caller in alone] == [[], []]
    assert [await spend(caller, calls=1) for caller in named] == [[], ["budget_exhausted"]]


async def test_the_kill_switch_of_a_ledger_stops_its_clients() -> None:
    caller = Caller(ASYNC, budget="1/day", **PRICES)
    await allowance_of(caller).ledger.set_paused(paused=True)

    assert await spend(caller, calls=1) == ["service_paused"]

    assert caller.sent == []


@pytest.mark.parametrize(("budget", "reason"), [("0/day", "budget_exhausted"), ("0.05/day", "too_expensive")])
async def test_a_call_that_does_not_fit_is_refused(budget: str, reason: str) -> None:
    caller = Caller(ASYNC, budget=budget, **PRICES)

    assert await spend(caller, calls=1) == [reason]


async def test_open_calls_that_hold_the_budget_say_busy_and_not_spent() -> None:
    caller = Caller(ASYNC, chat_stream(), budget="0.15/day", **PRICES)
    request = caller.client.build_request("POST", "http://model.test/v1/chat/completions", json={"messages": HI})

    response = await caller.client.send(request, stream=True)
    reasons = await spend(caller, calls=1)
    await response.aread()

    assert reasons == ["busy"]
    assert await spend(caller, calls=1) == []


async def test_an_unknown_model_is_refused_and_a_free_one_passes_a_spent_budget() -> None:
    unknown = Caller(ASYNC, budget="1/day")
    free = Caller(ASYNC, budget="0/day", price_in=0, price_out=0)

    assert await spend(unknown, calls=1) == ["unknown_price"]
    assert await spend(free, calls=2) == []


@pytest.mark.parametrize(
    ("options", "given", "sent"),
    [
        ({}, None, 1000),
        ({}, 50_000, 50_000),
        ({"max_output_tokens": 300}, None, 300),
        ({"max_output_tokens": 300}, 50_000, 300),
        ({"max_output_tokens": 300}, 20, 20),
    ],
)
async def test_the_budget_is_the_stop_and_a_cap_is_lowered_only_on_demand(
    options: dict[str, Any], given: int | None, sent: int
) -> None:
    caller = Caller(ASYNC, budget="100/day", **PRICES, **options)

    await caller.post({"model": "m", "messages": HI, "max_tokens": given})

    assert caller.sent[0].json["max_tokens"] == sent


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"budget": "5"}, "budget does not say per which window"),
        ({"budget": "1/day", "ledger": "sqlite://"}, "ledger names no file"),
        ({"budget": "1/day", "ledger": "mysql://secret@host"}, "ledger is a ledger"),
        ({"budget": "1/day", "namespace": "No Spaces"}, "namespace is not 1 to 64"),
        ({"budget": "1/day", "max_output_tokens": 0}, "max_output_tokens is out of range"),
        ({"budget": "1/day", "price_in": 1}, "price_in and price_out go together"),
        ({"ledger": "memory://"}, "ledger means nothing without a budget"),
    ],
)
def test_options_that_cannot_be_used_say_what_is_wrong(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as error:
        metered(**options)

    assert "secret" not in str(error.value)


def test_a_client_is_metered_once_and_only_a_client() -> None:
    client = metered(sync=True)

    with pytest.raises(ConfigError, match="metered already"):
        metered(client)
    with pytest.raises(ConfigError, match="cannot be metered"):
        metered(object())
    with pytest.raises(ConfigError, match="takes no options"):
        metered(SYNC.library.Client(), timeout=3)
    client.close()


@every_kind
async def test_mounted_transports_are_metered_too(kind: Kind) -> None:
    caller = Caller(kind)
    make = kind.library.AsyncClient if kind.is_async else kind.library.Client
    caller.client = metered(make(mounts={"http://": caller.provider, "all://": None}), budget="0/day", **PRICES)

    with pytest.raises(BudgetExceeded):
        await caller.post()

    assert caller.sent == []


async def test_a_scope_that_is_cancelled_midway_settles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(ASYNC, chat_stream(), budget="0.1/day", **PRICES)
    ledger = allowance_of(caller).ledger
    settle = ledger.settle

    async def settle_slowly(*reservation: Any, **charge: Any) -> bool:
        await anyio.lowlevel.checkpoint()
        return await settle(*reservation, **charge)

    monkeypatch.setattr(ledger, "settle", settle_slowly)

    with anyio.CancelScope() as scope:
        request = caller.client.build_request(
            "POST", "http://model.test/v1/chat/completions", json={"messages": HI, "stream": True}
        )
        response = await caller.client.send(request, stream=True)
        scope.cancel()
        await response.aread()

    await response.aclose()
    found = await balance(caller)
    assert (found.open_nanousd, found.kept_nanousd) == (0, 100_000_000)


async def test_a_deployment_that_turns_out_to_be_a_dearer_model_is_charged_as_that() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "model": "gpt-5-2025-08-07"}), budget="1/day")

    await caller.post({"model": "gpt-5-nano", "messages": HI})

    assert (await balance(caller)).settled_nanousd == 1_012_500  # 10 x $1.25 and 100 x $10 per million


async def test_an_answer_that_says_it_used_nothing_keeps_the_worst_case() -> None:
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": usage}), budget="1/day", **PRICES)

    await caller.post()

    found = await balance(caller)
    assert (found.settled_nanousd, found.kept_nanousd) == (0, 100_000_000)
