"""Cohere's `/v2/chat`: capped as `max_tokens`, and charged what its own words say."""

import json
from typing import Any

import pytest

from routeguard import BudgetExceeded
from routeguard.meter.tariffs import load_prices
from tests.answers import COHERE_USAGE, cohere_events
from tests.meter.played import ASYNC, HI, Caller, Kind, Played, every_kind, whole

# A script makes its client before it runs a loop; here it is made on one, where reading a file is an error.
load_prices()

URL = "https://api.cohere.test/v2/chat"
#: $2.50 and $10 per million tokens.
MODEL = "command-a-03-2025"
ANSWER = {
    "id": "c-1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
    "usage": COHERE_USAGE,
}
#: 20 tokens in and 9 out at the prices of `MODEL`, of whose input 4 came from a cache at no discount that is known.
COST_NANOUSD = 20 * 2_500 + 9 * 10_000


def stream(*, whole: bool = True) -> Played:
    events = cohere_events("Hel", "lo")
    return Played(events if whole else events[:-1], "text/event-stream")


def asking(**members: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": HI, **members}


async def charged(caller: Caller) -> tuple[int, int]:
    """What is settled and what is kept, in nano-USD."""
    allowance = caller.client._transport._allowance
    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert found.open_nanousd == 0
    return found.settled_nanousd, found.kept_nanousd


@every_kind
async def test_an_answer_is_charged_what_it_reports(kind: Kind) -> None:
    caller = Caller(kind, whole(ANSWER), budget="1/day")

    await caller.post(asking(), url=URL)

    assert await charged(caller) == (COST_NANOUSD, 0)


@every_kind
async def test_a_stream_is_charged_what_its_last_event_reports(kind: Kind) -> None:
    caller = Caller(kind, stream(), budget="1/day")

    got = await caller.stream(asking(stream=True), url=URL)

    assert b"".join(got) == b"".join(cohere_events("Hel", "lo"))
    assert "stream_options" not in caller.sent[0].json
    assert await charged(caller) == (COST_NANOUSD, 0)


@pytest.mark.parametrize(
    ("options", "given", "sent"),
    [({}, {}, 1000), ({}, {"max_tokens": 20}, 20), ({"max_output_tokens": 300}, {"max_tokens": 5000}, 300)],
)
async def test_its_output_cap_is_sent_under_its_own_name(
    options: dict[str, Any], given: dict[str, Any], sent: int
) -> None:
    caller = Caller(ASYNC, whole(ANSWER), budget="1/day", **options)

    await caller.post(asking(**given), url=URL)

    assert caller.sent[0].json == asking(max_tokens=sent)


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "100"])
async def test_a_cap_that_is_none_is_refused(cap: Any) -> None:
    caller = Caller(ASYNC, budget="1/day")

    with pytest.raises(BudgetExceeded) as refused:
        await caller.post(asking(max_tokens=cap), url=URL)

    assert (refused.value.reason, caller.sent) == ("output_cap", [])


async def test_the_documents_it_is_given_count_as_input() -> None:
    documents = [{"id": "d1", "data": {"text": "x" * 10_000}}]
    plain, grounded = (Caller(ASYNC, whole({**ANSWER, "usage": None}), budget="1/day") for _ in range(2))

    await plain.post(asking(max_tokens=1), url=URL)
    await grounded.post(asking(max_tokens=1, documents=documents), url=URL)

    (_, without), (_, with_them) = await charged(plain), await charged(grounded)
    assert with_them - without >= 10_000 * 2_500


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_a_refusal_of_its_own_costs_nothing(status: int) -> None:
    caller = Caller(ASYNC, whole({"message": "no"}, status=status), budget="1/day")

    await caller.post(asking(), url=URL)

    assert await charged(caller) == (0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        whole({"message": "invalid request"}, status=400),
        whole({"message": "cancelled"}, status=499),
        whole({"message": "down"}, status=503),
        whole({**ANSWER, "usage": None}),
        stream(whole=False),
    ],
    ids=["400", "499", "503", "no usage", "a stream cut off"],
)
async def test_whatever_may_have_been_billed_is_kept_at_the_worst_case(answer: Played) -> None:
    caller = Caller(ASYNC, answer, budget="1/day")

    await caller.post(asking(), url=URL)

    settled, kept = await charged(caller)
    assert (settled, kept > 1000 * 10_000) == (0, True)


async def test_the_call_that_the_budget_cannot_pay_is_never_sent() -> None:
    caller = Caller(ASYNC, whole(ANSWER), budget="0.002/day")

    with pytest.raises(BudgetExceeded) as refused:
        await caller.post(asking(), url=URL)

    assert (refused.value.reason, caller.sent) == ("too_expensive", [])


async def test_another_request_to_the_same_path_passes_untouched() -> None:
    caller = Caller(ASYNC, budget="0/day")
    body = {"message": "the first version asked like this"}

    await caller.post(body, url=URL)

    assert json.loads(caller.sent[0].content) == body
