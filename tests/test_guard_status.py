"""The status routes beside a guarded application: the token, the figures, pause and resume."""

from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, guarded, reporting


async def test_the_status_routes_do_not_exist_without_a_token() -> None:
    app = Counting()

    await Client(method="GET", path="/_routeguard/status", body=[]).call(guarded(app))

    assert app.calls == 1


async def test_status_needs_the_token_and_adds_up() -> None:
    app = Counting(reporting(cost_usd="0.05"))
    guard = guarded(app, admin_token="token-for-tests-only", rate="1/minute", budget="1/day, 5/month")
    await Client().call(guard)
    await Client().call(guard)

    async def get(path: str, token: str | None = None, method: str = "GET") -> Client:
        headers = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
        return await Client(method=method, path=path, headers=headers, body=[]).call(guard)

    assert (await get("/_routeguard/status")).status == 401
    assert (await get("/_routeguard/status", "wrong")).status == 401
    status = (await get("/_routeguard/status", "token-for-tests-only")).json
    assert [budget["name"] for budget in status["budgets"]] == ["day", "month"]
    assert status["budgets"][0]["settled_usd"] == "0.05"
    assert status["requests"] == {"admitted": 1, "rejected": {"rate_limited": 1}, "endings": {"settled": 1}}
    assert status["top_clients"][0]["spend_usd"] == "0.05"
    assert status["ledger"] == {"kind": "memory", "scope": "process", "healthy": True}
    assert status["trust"] == {"platform": None, "source": "direct"}
    assert (await get("/_routeguard/nothing", "token-for-tests-only")).status == 404


async def test_pause_and_resume_over_http() -> None:
    guard = guarded(Counting(), admin_token="token-for-tests-only")
    bearer = [(b"authorization", b"Bearer token-for-tests-only")]

    paused = await Client(path="/_routeguard/pause", headers=list(bearer), body=[]).call(guard)
    refused = await Client().call(guard)
    is_open = await Client(method="GET", path="/_routeguard/open", body=[]).call(guard)
    resumed = await Client(path="/_routeguard/resume", headers=list(bearer), body=[]).call(guard)
    admitted = await Client().call(guard)

    assert paused.json == {"paused": True, "scope": "process"}
    assert (refused.reason, is_open.json) == ("service_paused", {"open": False, "resets_at": None})
    assert resumed.json == {"paused": False, "scope": "process"}
    assert admitted.status == 200


async def test_open_says_when_a_spent_budget_resets() -> None:
    guard = guarded(Counting(), admin_token="token-for-tests-only", budget="0.1/day", clock=FakeClock())
    before = await Client(method="GET", path="/_routeguard/open", body=[]).call(guard)
    await Client().call(guard)

    after = await Client(method="GET", path="/_routeguard/open", body=[]).call(guard)

    assert before.json == {"open": True, "resets_at": None}
    assert after.json == {"open": False, "resets_at": "2026-12-01T00:00:00Z"}
