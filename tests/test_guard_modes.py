"""Observe and off, preflights, websockets, two guards, lifespan, and a configuration that cannot be used."""

import itertools
import logging
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import routeguard
from routeguard import ConfigError, RouteGuard
from routeguard.testing import FakeClock
from tests.driver import Client, stream_app
from tests.guarding import TEN_CENTS, Counting, guarded, in_flight, parts, reporting

#: For namespaces that are used once: counters outlive the guard.
NUMBERS = itertools.count()
PREFLIGHT = [(b"origin", b"https://shop.example"), (b"access-control-request-method", b"POST")]


def preflight(**more: Any) -> Client:
    return Client(method="OPTIONS", headers=[*PREFLIGHT, *more.pop("headers", [])], body=[], **more)


async def status_of(guard: RouteGuard) -> Any:
    assert guard._status is not None
    return await guard._status.status()


# Observe


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


# Preflight


async def test_a_preflight_without_an_answer_body_costs_nothing() -> None:
    app = Counting(stream_app([], status=204))
    guard = guarded(app, rate="1/minute")

    clients = [await preflight().call(guard) for _ in range(5)]

    assert [client.status for client in clients] == [204] * 5
    assert app.calls == 5
    assert (await parts(guard))["remaining"] == "1"
    assert await in_flight(guard) == 0


async def test_a_preflight_that_is_answered_with_a_body_is_kept() -> None:
    """A Django view runs its whole stream for OPTIONS."""
    guard = guarded(stream_app([b"data: money\n\n"]))

    await preflight().call(guard)

    assert (await parts(guard))["kept"] == "0.1"


async def test_a_preflight_is_never_refused_for_money() -> None:
    app = Counting(stream_app([b"data: money\n\n"]))
    guard = guarded(app, budget="0.15/day", cors_origins=["https://shop.example"])

    first = await preflight().call(guard)
    second = await preflight(headers=[(b"access-control-request-headers", b"content-type")]).call(guard)

    assert (first.status, second.status, app.calls) == (200, 204, 1)
    assert second.response_headers["access-control-allow-origin"] == "https://shop.example"
    assert second.response_headers["access-control-allow-methods"] == "POST"
    assert second.response_headers["access-control-allow-headers"] == "content-type"
    assert second.response_headers["vary"] == "Origin"


async def test_a_preflight_sees_the_pause_and_the_global_rate_as_204() -> None:
    app = Counting(stream_app([], status=204))
    paused = await preflight().call(guarded(app, paused=True))
    limited = guarded(app, global_rate="1/minute")
    counted = [(await preflight().call(limited)).status for _ in range(3)]

    assert (paused.status, counted, app.calls) == (204, [204, 204, 204], 1)


async def test_the_application_gets_a_preflight_without_the_body_that_follows_it() -> None:
    got: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.append(await receive())
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    client = preflight(plain_headers=False)
    client.body = [b'{"messages":[]}']

    await client.call(guarded(app))

    assert got == [{"type": "http.request", "body": b"", "more_body": False}]


async def test_an_options_request_with_a_body_is_a_request_like_any_other() -> None:
    app = Counting(stream_app([], status=204))
    guard = guarded(app, rate="1/minute")

    clients = [await Client(method="OPTIONS", headers=list(PREFLIGHT)).call(guard) for _ in range(3)]

    assert [client.status for client in clients] == [204, 429, 429]
    assert (await parts(guard))["kept"] == "0.1"


async def test_the_edge_secret_applies_to_a_preflight() -> None:
    client = await preflight().call(guarded(Counting(), edge_secret="x-edge:secret-value"))

    assert (client.status, client.reason) == (403, "edge_secret")


# CORS


async def test_a_refusal_carries_cors_headers_for_a_configured_origin_only() -> None:
    guard = guarded(Counting(), paused=True, cors_origins="https://shop.example, https://two.example")

    ours = await Client(headers=[(b"origin", b"https://two.example")]).call(guard)
    foreign = await Client(headers=[(b"origin", b"https://evil.example")]).call(guard)
    any_ = await Client(headers=[(b"origin", b"https://x")]).call(guarded(Counting(), paused=True, cors_origins="*"))

    assert ours.response_headers["access-control-allow-origin"] == "https://two.example"
    assert "Retry-After" in ours.response_headers["access-control-expose-headers"]
    assert foreign.response_headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in foreign.response_headers
    assert any_.response_headers["access-control-allow-origin"] == "*"


# Websockets


async def websocket(guard: RouteGuard, path: str = "/chat", *, extension: bool = False) -> list[Any]:
    sent: list[Any] = []
    scope: dict[str, Any] = {"type": "websocket", "path": path, "headers": [], "query_string": b"", "client": None}
    if extension:
        scope["extensions"] = {"websocket.http.response": {}}

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    return sent


async def accepting(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})


async def test_a_websocket_on_a_guarded_path_is_closed_before_it_is_accepted() -> None:
    assert [message["type"] for message in await websocket(guarded(accepting))] == ["websocket.close"]


async def test_a_websocket_is_refused_with_an_answer_where_the_server_can_send_one() -> None:
    start, body = await websocket(guarded(accepting), extension=True)

    assert (start["type"], start["status"]) == ("websocket.http.response.start", 403)
    assert b'"reason":"websocket_refused"' in body["body"]


async def test_other_websockets_pass() -> None:
    elsewhere = await websocket(guarded(accepting), "/feed")
    ignored = await websocket(guarded(accepting, websocket="ignore"))

    assert elsewhere == ignored == [{"type": "websocket.accept"}]


# Two guards


async def test_a_second_guard_of_the_same_namespace_is_skipped_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Counting()
    inner = guarded(app)
    outer = guarded(inner)

    for _ in range(3):
        await Client().call(outer)

    assert app.calls == 3
    assert (await parts(outer))["kept"] == "0.3"
    assert (await parts(inner))["kept"] == "0"
    assert [record.message for record in caplog.records if "second RouteGuard" in record.message] != []
    assert sum("second RouteGuard" in record.message for record in caplog.records) == 1


async def test_guards_of_two_namespaces_both_reserve_and_the_innermost_is_the_admission() -> None:
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(routeguard.admission())
        found.append(routeguard.admission(scope))
        await stream_app([])(scope, receive, send)

    inner = guarded(app, namespace="inner")
    outer = guarded(inner)

    await Client().call(outer)

    assert found[0] is found[1]
    assert found[0].namespace == "inner"
    assert (await parts(outer))["kept"] == (await parts(inner))["kept"] == "0.1"


async def test_guards_of_one_namespace_share_their_counters() -> None:
    settings: Any = {
        **TEN_CENTS,
        "budget": "0.15/day",
        "client_budget": "unlimited",
        "namespace": f"shared-{next(NUMBERS)}",
        "environ": {},
    }
    one = RouteGuard(Counting(), paths=["/a"], **settings)
    two = RouteGuard(Counting(), paths=["/b"], **settings)

    first = await Client(path="/a").call(one)
    second = await Client(path="/b").call(two)

    assert (first.status, second.status, second.reason) == (200, 503, "budget_exhausted")


# The client


async def test_the_client_hook_names_who_is_asking_and_else_the_address_decides() -> None:
    def client(scope: Any) -> str | None:
        name = dict(scope["headers"]).get(b"x-user")
        if name == b"broken":
            raise RuntimeError
        return None if name is None else name.decode()

    guard = guarded(Counting(), budget="100/day", client=client, rate="1/minute")

    async def ask(user: bytes | None) -> int | None:
        headers = [] if user is None else [(b"x-user", user)]
        return (await Client(headers=headers).call(guard)).status

    assert [await ask(b"ann"), await ask(b"bob"), await ask(b"ann")] == [200, 200, 429]
    assert [await ask(None), await ask(b"broken")] == [200, 429]


async def test_requests_without_an_address_share_one_client_or_are_refused() -> None:
    shared = guarded(Counting(), platform="vercel", rate="1/minute")
    strict = guarded(Counting(), platform="vercel", unknown_client="reject")

    statuses = [(await Client(peer=(f"198.51.100.{number}", 1)).call(shared)).status for number in range(2)]
    refused = await Client().call(strict)

    assert statuses == [200, 429]
    assert (refused.status, refused.reason) == (400, "no_client_address")


async def test_exempt_clients_keep_the_site_limits_only() -> None:
    guard = guarded(
        Counting(), budget="0.35/day", client_budget="0.1/day", rate="1/minute", exempt_clients="203.0.113.0/24"
    )

    statuses = [(await Client().call(guard)).status for _ in range(4)]
    other = [(await Client(peer=("198.51.100.1", 1)).call(guard)).reason for _ in range(1)]

    assert statuses == [200, 200, 200, 503]
    assert other == ["budget_exhausted"]


async def test_forged_addresses_do_not_make_a_new_client() -> None:
    guard = guarded(Counting(), budget="100/day", client_ip="xff:1", rate="2/minute")

    statuses = [
        (await Client(headers=[(b"x-forwarded-for", b"6.6.6.%d, 203.0.113.9" % number)]).call(guard)).status
        for number in range(50)
    ]

    assert statuses == [200, 200] + [429] * 48


async def test_forwarding_headers_that_nobody_configured_are_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = guarded(Counting(), budget="100/day", rate="unlimited")

    for _ in range(3):
        await Client(headers=[(b"x-forwarded-for", b"6.6.6.6")]).call(guard)

    assert sum("CLIENT_IP" in record.message for record in caplog.records) == 1


# Lifespan and configuration


async def lifespan(app: Any) -> list[Any]:
    sent: list[Any] = []
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    return sent


async def test_a_broken_configuration_fails_the_start_under_add_middleware() -> None:
    for app in (FastAPI(), Starlette()):
        app.add_middleware(RouteGuard, paths=["/chat"], budget="much", environ={})

        sent = await lifespan(app)

        assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
        assert "BUDGET" in sent[0]["message"] or "budget" in sent[0]["message"]
        assert "much" in sent[0]["message"]


async def test_without_a_lifespan_a_broken_configuration_refuses_every_guarded_request() -> None:
    app = Starlette(routes=[Route("/chat", stream_app, methods=["POST"])])
    app.add_middleware(RouteGuard, paths=["/chat"], budget="much", environ={})

    client = await Client().call(app)

    assert (client.status, client.reason) == (503, "guard_unavailable")


async def test_a_broken_configuration_leaves_other_paths_alone() -> None:
    async def page(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/other", page)])
    app.add_middleware(RouteGuard, paths=["/chat"], budget="much", environ={})

    assert (await Client(method="GET", path="/other", body=[]).call(app)).status == 200
    assert (await Client(path="//chat/").call(app)).status == 503


async def test_built_by_hand_a_broken_configuration_raises() -> None:
    with pytest.raises(ConfigError, match="much"):
        RouteGuard(Counting(), paths=["/chat"], budget="much", environ={})


async def test_the_guard_answers_lifespan_for_an_application_without_one() -> None:
    async def http_only(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError("Django can only handle ASGI/HTTP connections")

    sent = await lifespan(guarded(http_only))

    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_failing_start_of_the_application_stays_its_own() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        raise RuntimeError("no database")

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(RuntimeError, match="no database"):
        await guarded(failing)({"type": "lifespan"}, receive, send)

    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]


async def test_the_start_line_is_said_once(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "routeguard")
    guard = guarded(Counting())

    await Client().call(guard)
    await Client().call(guard)

    said = [record.message for record in caplog.records if record.message.startswith("routeguard: ")]
    assert len(said) == 1
    assert "/chat" in said[0]
    assert "$1.00/day" in said[0]


# In frameworks


async def test_a_single_route_and_a_mounted_application_are_guarded() -> None:
    middleware: Any = [Middleware(RouteGuard, paths="**", namespace="single-route", environ={}, **TEN_CENTS)]

    async def endpoint(request: Any) -> Any:
        raise AssertionError("not called")

    route = Route("/ask", endpoint, methods=["POST"], middleware=middleware)
    mount = Mount("/sub", app=Starlette(routes=[Route("/ask", endpoint, methods=["POST"])], middleware=middleware))
    app = Starlette(routes=[route, mount])

    clients = [await Client(path=path, body=[b"{"]).call(app) for path in ("/ask", "/sub/ask")]

    assert [client.reason for client in clients] == ["bad_request"] * 2


async def test_the_servers_scope_is_not_changed() -> None:
    client = Client()
    scope = client.scope()
    before = {key: value for key, value in scope.items() if key != "state"}

    await guarded(Counting())(scope, client.receive, client.send)

    assert {key: value for key, value in scope.items() if key != "state"} == before


# Status


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
