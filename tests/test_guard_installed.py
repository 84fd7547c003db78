"""Where a guard may stand: in another guard, on a single route, in a mounted application."""

import itertools
from collections import UserDict
from collections.abc import MutableMapping
from types import MappingProxyType
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

import routeguard
from routeguard import RouteGuard
from tests.driver import Client, chat_chunks, stream_app
from tests.guarding import TEN_CENTS, USAGE, Counting, ending, guarded, in_flight, parts, reporting

#: For namespaces that are used once: counters outlive the guard.
NUMBERS = itertools.count()


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


async def test_what_is_reported_to_the_innermost_guard_is_charged_by_all() -> None:
    """A stream shows one call of two: the guard outside reads it only where it hears nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for cost_usd in ("0.01", "0.05"):
            scope["routeguard"].report(cost_usd=cost_usd)
        await stream_app(chat_chunks(usage=USAGE))(scope, receive, send)
        scope["routeguard"].report(cost_usd="0.02")

    inner = guarded(app, namespace="inner")
    middle = guarded(inner, namespace="middle")
    outer = guarded(middle)

    await Client().call(outer)

    late = {"settled": "0.08", "overrun": "0.02"}
    assert await ending(inner) == await ending(middle) == await ending(outer) == late


async def test_a_call_that_nobody_reported_to_the_innermost_guard_is_kept_by_all() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].begin("0.02")
        scope["routeguard"].begin("0.03").report(cost_usd="0.01")
        await stream_app([])(scope, receive, send)
        scope["routeguard"].report(cost_usd="0.05")

    inner = guarded(app, namespace="inner")
    middle = guarded(inner, namespace="middle")
    outer = guarded(middle, calls_per_request=2)

    await Client().call(outer)

    kept = {"settled": "0.04", "kept": "0.02", "overrun": "0.03"}
    assert await ending(inner) == await ending(middle) == await ending(outer) == kept


async def test_calls_on_the_way_to_a_guard_further_in_are_charged_beside_its_own() -> None:
    async def on_the_way(scope: Any, receive: Any, send: Any) -> None:
        routeguard.Admission.begin(scope["routeguard"], max_usd="0.03")
        await inner(scope, receive, send)

    inner = guarded(reporting(cost_usd="0.02"), namespace="inner")
    outer = guarded(on_the_way)

    await Client().call(outer)

    assert await ending(inner) == {"settled": "0.02"}
    assert await ending(outer) == {"settled": "0.02", "kept": "0.03"}


@pytest.mark.parametrize("settings", [{"paused": True}, {"rate": "1/minute"}, {"max_body": "10"}])
async def test_what_a_guard_further_in_refuses_costs_nothing(settings: Any) -> None:
    inner = guarded(reporting(cost_usd="0.01"), namespace="inner", **settings)
    outer = guarded(inner)
    await Client().call(outer)
    before = (await parts(outer))["remaining"]

    refused = await Client().call(outer)

    assert refused.reason in {"service_paused", "rate_limited", "request_too_large"}
    assert (await parts(outer))["remaining"] == before


async def test_nothing_sent_is_heard_further_out() -> None:
    inner = guarded(reporting(before=lambda admission: admission.nothing_sent()), namespace="inner")
    outer = guarded(inner)

    await Client().call(outer)

    assert await ending(outer) == await ending(inner) == {}


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


async def test_a_single_route_and_a_mounted_application_are_guarded() -> None:
    middleware: Any = [Middleware(RouteGuard, paths="**", namespace="single-route", environ={}, **TEN_CENTS)]

    async def endpoint(request: Any) -> Any:
        raise AssertionError("not called")

    route = Route("/ask", endpoint, methods=["POST"], middleware=middleware)
    mount = Mount("/sub", app=Starlette(routes=[Route("/ask", endpoint, methods=["POST"])], middleware=middleware))
    app = Starlette(routes=[route, mount])

    clients = [await Client(path=path, body=[b"{"]).call(app) for path in ("/ask", "/sub/ask")]

    assert [client.reason for client in clients] == ["bad_request"] * 2


@pytest.mark.parametrize("pattern", ["/ask", "/sub/ask", "/pre/sub/ask"])
async def test_a_guard_in_a_mounted_application_holds_behind_a_prefix_of_the_server(pattern: str) -> None:
    middleware: Any = [Middleware(RouteGuard, paths=[pattern], paused=True, environ={}, **TEN_CENTS)]
    sub = Starlette(routes=[Mount("/ask", app=Counting())], middleware=middleware)
    app = Starlette(routes=[Mount("/sub", app=sub)])

    client = await Client(path="/pre/sub/ask", extra_scope={"root_path": "/pre"}).call(app)

    assert client.reason == "service_paused"


@pytest.mark.parametrize("path", ["/chat", "/api/chat", "//API/chat/"])
async def test_a_prefix_that_the_application_cuts_off_itself_is_no_way_around_the_guard(path: str) -> None:
    """FastAPI sets its own `root_path` behind a guard that stands around it, and serves the route by both names."""
    app = FastAPI()
    app.root_path = "/api"

    by_route = await Client(path=path).call(guarded(app, paths=["/chat"], paused=True))
    by_address = await Client(path=path).call(guarded(app, paths=["/api/chat"], paused=True))

    assert by_route.reason == by_address.reason == "service_paused"


@pytest.mark.parametrize("state", [{}, UserDict[str, object]()], ids=["dictionary", "of its own kind"])
async def test_the_servers_state_gets_the_admission(state: MutableMapping[str, object]) -> None:
    app = Counting()

    await Client(extra_scope={"state": state}).call(guarded(app))

    assert app.admissions == [state["routeguard"]]


@pytest.mark.parametrize("state", [MappingProxyType({}), object()], ids=["read-only", "object"])
async def test_a_state_that_cannot_be_written_to_is_left_alone(state: object) -> None:
    app = Counting(reporting(cost_usd="0.01"))
    guard = guarded(app)

    client = await Client(extra_scope={"state": state}).call(guard)

    assert (client.error, client.status) == (None, 200)
    assert app.admissions != [None]
    assert (await ending(guard), await in_flight(guard)) == ({"settled": "0.01"}, 0)


async def test_the_servers_scope_is_not_changed() -> None:
    client = Client()
    scope = client.scope()
    before = {key: value for key, value in scope.items() if key != "state"}

    await guarded(Counting())(scope, client.receive, client.send)

    assert {key: value for key, value in scope.items() if key != "state"} == before
