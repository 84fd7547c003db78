"""The start of a guard: lifespan, the start line, and a configuration that cannot be used."""

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from routeguard import ConfigError, RouteGuard
from tests.configured import table
from tests.driver import Client, lifespan, stream_app
from tests.guarding import Counting, guarded
from tests.test_guard_websockets import websocket


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


async def test_refusals_of_a_broken_configuration_can_be_told_apart_by_their_request_ids() -> None:
    app = Starlette(routes=[Route("/chat", stream_app, methods=["POST"])])
    app.add_middleware(RouteGuard, paths=["/chat"], budget="much", environ={})

    known = await Client(headers=[(b"x-request-id", b"their-7")]).call(app)
    first, second = [await Client(headers=[(b"x-request-id", b"<no id>")]).call(app) for _ in range(2)]

    assert (known.response_headers["x-request-id"], known.json["request_id"]) == ("their-7", "their-7")
    assert first.response_headers["x-request-id"] == first.json["request_id"] != second.response_headers["x-request-id"]


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


def unusable(tmp_path: Path, **settings: Any) -> tuple[RouteGuard, Counting]:
    """A guard whose journal is a file of something else: settings that fit together, and books that never will."""
    (tmp_path / "theirs.db").write_text("not a database, " * 100)
    app = Counting()
    return guarded(app, journal=f"sqlite:///{tmp_path}/theirs.db", **settings), app


async def test_of_first_requests_that_come_together_none_passes_a_guard_that_cannot_start(tmp_path: Path) -> None:
    guard, app = unusable(tmp_path)
    clients = [Client() for _ in range(5)]

    async with anyio.create_task_group() as group:
        for client in clients:
            group.start_soon(client.call, guard)

    assert [client.status for client in clients] == [503] * 5
    assert app.calls == 0


async def test_a_guard_that_cannot_start_refuses_in_the_configured_format_and_to_the_configured_origins(
    tmp_path: Path,
) -> None:
    guard, _ = unusable(tmp_path, error_format="problem", cors_origins="https://shop.example")

    clients = [await Client(headers=[(b"origin", b"https://shop.example")]).call(guard) for _ in range(2)]

    assert [(client.status, client.response_headers["content-type"]) for client in clients] == [
        (503, "application/problem+json")
    ] * 2
    assert [client.response_headers["access-control-allow-origin"] for client in clients] == [
        "https://shop.example"
    ] * 2


async def test_a_websocket_that_comes_first_does_not_hide_that_the_guard_cannot_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard, app = unusable(tmp_path)

    sent = await websocket(guard)
    client = await Client().call(guard)

    assert [(message["type"], message.get("code")) for message in sent] == [("websocket.close", 1011)]
    assert (client.status, client.reason, app.calls) == (503, "guard_unavailable", 0)
    assert sum("is not a database" in record.message for record in caplog.records) == 2, "the journal's and ours"


@table("paths", [5, True, b"/chat", [None], ["/chat", "/a b"], {"/chat": 1}, [], ...])
async def test_paths_that_cannot_be_read_fail_the_start_and_refuse_every_request(paths: Any) -> None:
    app = Starlette(routes=[Route("/chat", stream_app, methods=["POST"])])
    app.add_middleware(RouteGuard, paths=paths, price_in=1, price_out=1, environ={})

    client = await Client().call(app)
    sent = await lifespan(app)

    assert (client.status, client.reason) == (503, "guard_unavailable")
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "paths=" in sent[0]["message"]


def closings(guard: RouteGuard) -> list[str]:
    """Filled when the guard closes its books."""
    assert guard._guard is not None
    seen: list[str] = []

    async def closed() -> None:
        seen.append("closed")

    guard._guard.closing = (*guard._guard.closing, closed)
    return seen


async def test_the_books_are_closed_for_an_application_that_starts_and_does_not_wait() -> None:
    async def hasty(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})

    guard = guarded(hasty)
    closed = closings(guard)

    sent = await lifespan(guard)

    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert closed == ["closed"]


async def test_the_books_are_closed_for_an_application_that_fails_to_shut_down() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        raise RuntimeError("the pool is gone")

    guard = guarded(failing)
    closed = closings(guard)

    with pytest.raises(RuntimeError, match="the pool is gone"):
        await lifespan(guard)

    assert closed == ["closed"]


async def test_a_start_that_failed_without_telling_the_server_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise RuntimeError("no database")

    sent = await lifespan(guarded(failing))

    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "no database" in str(record.exc_info and record.exc_info[1])


async def test_an_application_that_knows_no_lifespan_is_not_logged_as_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def http_only(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("Django can only handle ASGI/HTTP connections")

    await lifespan(guarded(http_only))

    assert not [record for record in caplog.records if record.exc_info]
