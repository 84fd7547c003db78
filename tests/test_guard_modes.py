"""Observe and off: what passes, what is counted, and what is refused all the same."""

from typing import Any

from routeguard import RouteGuard
from tests.driver import Client, stream_app
from tests.guarding import Counting, guarded, parts, reporting, status_of


async def test_observing_passes_everything_and_counts_what_it_would_have_refused() -> None:
    app = Counting(reporting(cost_usd="0.05"))
    guard = guarded(app, mode="observe", budget="0.1/day", rate="3/minute")

    statuses = [(await Client().call(guard)).status for _ in range(5)]

    assert statuses == [200] * 5
    assert app.calls == 5
    status = await status_of(guard)
    assert status["would_reject"] == {"budget_exhausted": 4}
    assert status["budgets"][0]["settled_usd"] == "0.25"
    assert status["budgets"][0]["remaining_usd"] == "-0.15"
    assert status["requests"]["rejected"] == {}


async def test_observing_hands_an_oversized_body_on_untouched_and_unbuffered() -> None:
    got: list[tuple[int, bool]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            got.append((len(message["body"]), message["more_body"]))
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard = guarded(app, mode="observe", max_body="1kB", price_in=1)
    chunks = [b"a" * 600, b"b" * 600, b"c" * 600]

    await Client(body=chunks, headers=[(b"transfer-encoding", b"chunked")]).call(guard)

    assert sum(size for size, _ in got) == 1800
    assert [more for _, more in got] == [True] * (len(got) - 1) + [False]
    assert len(got) > 1
    assert (await status_of(guard))["would_reject"] == {"request_too_large": 1}


async def test_observing_counts_a_bad_body_once_and_still_reserves() -> None:
    guard = guarded(stream_app([]), mode="observe")

    client = await Client(body=[b"{"]).call(guard)

    assert client.status == 200
    assert (await status_of(guard))["would_reject"] == {"bad_request": 1}
    assert (await parts(guard))["kept"] == "0.1"


async def test_observing_still_refuses_while_paused_and_without_the_edge_secret() -> None:
    paused = await Client().call(guarded(Counting(), mode="observe", paused=True))
    no_edge = await Client().call(guarded(Counting(), mode="observe", edge_secret="x-edge:secret-value"))

    assert (paused.reason, no_edge.reason) == ("service_paused", "edge_secret")


async def test_off_is_as_if_not_installed() -> None:
    app = Counting()
    guard = RouteGuard(app, paths=["/chat"], mode="off", admin_token="t" * 20, environ={})

    client = await Client().call(guard)
    status = await Client(method="GET", path="/_routeguard/status", body=[]).call(guard)

    assert (client.status, app.admissions[0]) == (200, None)
    assert status.status == 200
    assert app.calls == 2
