"""The rates: whom they hold, what they answer, and which refusals take no slot."""

from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, guarded


async def test_a_rate_is_per_client_and_a_refusal_takes_no_slot() -> None:
    clock = FakeClock()
    guard = guarded(Counting(), clock=clock, budget="100/day", rate="2/minute")

    mine = [(await Client().call(guard)).status for _ in range(4)]
    other = (await Client(peer=("198.51.100.7", 1)).call(guard)).status
    clock.advance(60)
    later = (await Client().call(guard)).status

    assert (mine, other, later) == ([200, 200, 429, 429], 200, 200)


async def test_a_rate_refusal_says_when_to_come_back() -> None:
    clock = FakeClock()
    guard = guarded(Counting(), clock=clock, budget="100/day", rate="1/minute, 3/day")
    first = await Client().call(guard)
    clock.advance(15)

    refused = await Client().call(guard)

    assert first.response_headers["ratelimit-policy"] == '"client-1";q=1;w=60, "client-2";q=3;w=86400'
    assert first.response_headers["ratelimit"] == '"client-1";r=0;t=60'
    assert "retry-after" not in first.response_headers
    assert (refused.status, refused.reason) == (429, "rate_limited")
    assert refused.response_headers["retry-after"] == "45"
    assert refused.json["error"]["retry_after"] == 45
    assert refused.response_headers["ratelimit"] == '"client-1";r=0;t=45'
    assert "x-should-retry" not in refused.response_headers


async def test_the_global_rate_holds_over_all_clients() -> None:
    guard = guarded(Counting(), budget="100/day", global_rate="3/minute")

    statuses = [(await Client(peer=(f"198.51.100.{number}", 1)).call(guard)).status for number in range(5)]

    assert statuses == [200, 200, 200, 429, 429]


async def test_money_refusals_give_the_rate_slot_back() -> None:
    app = Counting()
    guard = guarded(app, budget="1/day", client_budget="0.1/day", rate="3/minute")
    await Client().call(guard)

    refused = [await Client().call(guard) for _ in range(5)]

    assert [client.reason for client in refused] == ["client_budget_exhausted"] * 5
    assert refused[0].status == 429
    assert refused[0].response_headers["x-should-retry"] == "false"
    assert app.calls == 1


async def test_a_client_budget_wins_over_a_rate_that_is_also_in_the_way() -> None:
    guard = guarded(Counting(), client_budget="0.1/day", rate="1/minute")
    await Client().call(guard)

    client = await Client().call(guard)

    assert client.reason == "client_budget_exhausted"


async def test_refusals_beyond_ten_times_the_rate_are_answered_before_the_body() -> None:
    clock = FakeClock()
    guard = guarded(Counting(), clock=clock, budget="1/day", client_budget="0.1/day", rate="2/minute")
    await Client().call(guard)

    reasons = [(await Client().call(guard)).reason for _ in range(22)]

    assert reasons[:20] == ["client_budget_exhausted"] * 20
    assert set(reasons[20:]) <= {"client_budget_exhausted", "rate_limited"}
    unread = Client(headers=[(b"content-length", b"90")], body=[b"never", b"sent"], leaves_in_body=True)
    assert (await unread.call(guard)).status == 429
