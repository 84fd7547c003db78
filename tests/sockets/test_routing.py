"""Where a guard can stand in an application, and under which paths a guarded route is reached."""

import itertools
import json
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from litestar import Litestar, post
from quart import Quart
from quart import request as quart_request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from routeguard import RouteGuard, admission
from tests.driver import App
from tests.guarding import TEN_CENTS
from tests.sockets.apps import admission_of, one_cent, streaming
from tests.sockets.server import TOKEN, Ledger, Serve, Site
from tests.sockets.wire import HOST, request

ONE_CENT_SETTLED = Ledger(settled="0.01")
NUMBERS = itertools.count()


async def chat(request: Request) -> Response:
    return StreamingResponse(one_cent(admission_of(request)), media_type="text/event-stream")


async def free(request: Request) -> Response:
    return PlainTextResponse(f"free, {admission()}")


def settings(namespace: str, **more: Any) -> dict[str, Any]:
    """For a guard that Starlette builds. Guards of one namespace share their money, so each test names its own."""
    own = {"client_budget": "unlimited", "admin_token": TOKEN, "namespace": namespace, "environ": {}}
    return {**TEN_CENTS, **own, **more}


@pytest.fixture
def namespace() -> str:
    return f"routing-{next(NUMBERS)}"


def on_a_route(namespace: str) -> App:
    guard = Middleware(RouteGuard, **settings(namespace, paths="**"))
    return Starlette(routes=[Route("/chat", chat, methods=["POST"], middleware=[guard]), Route("/free", free)])


def on_a_mount(namespace: str) -> App:
    guard = Middleware(RouteGuard, **settings(namespace, paths="/chat"))
    inner = [Route("/", chat, methods=["POST"])]
    return Starlette(routes=[Mount("/chat", routes=inner, middleware=[guard]), Route("/free", free)])


def around_a_mounted_application(namespace: str) -> App:
    inner = FastAPI()
    inner.add_middleware(RouteGuard, **settings(namespace, paths="/chat"))
    inner.add_api_route("/chat", chat, methods=["POST"], response_model=None)
    app = FastAPI()
    app.mount("/ai", inner)
    app.add_api_route("/free", free, response_model=None)
    return app


def quart_reports() -> Quart:
    app = Quart(__name__)

    @app.post("/chat")
    async def quart_chat() -> str:
        ours = admission(quart_request.scope)
        assert ours is not None, "the route is not guarded"
        ours.report(cost_usd="0.01")
        return "hello"

    return app


def inside_of_quart(namespace: str) -> App:
    app = quart_reports()
    # Quart's own types of an ASGI application are narrower than anybody's.
    inner: Any = app.asgi_app
    app.asgi_app = RouteGuard(inner, **settings(namespace, paths="/chat"))  # type: ignore[assignment]

    @app.get("/free")
    async def quart_free() -> str:
        return f"free, {admission()}"

    return app


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (inside_of_quart, "/chat"),
        (on_a_route, "/chat"),
        (on_a_mount, "/chat/"),
        (around_a_mounted_application, "/ai/chat"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_guard_inside_of_the_application_charges_its_own_route_only(
    serve: Serve, namespace: str, build: Any, path: str
) -> None:
    site = serve(free)
    site.mount(build(namespace))

    with site.connect() as wire:
        wire.send(request(path))
        guarded = wire.answer()
        wire.send(request("/free", method="GET", body=None))
        unguarded = wire.answer()
    site.mount(RouteGuard(build(namespace), **settings(namespace, paths="/no-such-path")))

    assert (guarded.status, guarded.complete) == (200, True)
    assert unguarded.body == b"free, None"
    assert site.ledger() == ONE_CENT_SETTLED


def test_a_guard_around_and_another_inside_reserve_once(serve: Serve, namespace: str) -> None:
    """The budget holds one call: what is reserved twice does not fit."""
    limits = settings(namespace, paths="/chat", budget="0.10/total")
    inner = FastAPI()
    inner.add_middleware(RouteGuard, **limits)
    inner.add_api_route("/chat", chat, methods=["POST"], response_model=None)
    site = serve(free)
    site.mount(RouteGuard(inner, **limits))

    with site.connect() as wire:
        wire.send(request())
        answer = wire.answer()

    assert (answer.status, answer.complete) == (200, True)
    assert site.ledger() == ONE_CENT_SETTLED
    assert site.status()["requests"]["endings"] == {"settled": 1}


def below(root_path: str, app: App) -> App:
    """As a server behind a prefix calls it: the prefix in the scope, the path as the server found it."""

    async def prefixed(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": root_path} if scope["type"] == "http" else scope, receive, send)

    return prefixed


@pytest.mark.parametrize("pattern", ["/chat", "/v/chat"])
@pytest.mark.parametrize("path", ["/v/chat", "/chat"])
def test_a_route_below_a_root_path_is_charged_under_both_of_its_names(serve: Serve, pattern: str, path: str) -> None:
    site = serve(streaming(one_cent), paths=[pattern])
    site.mount(below("/v", site.app))

    with site.connect() as wire:
        wire.send(request(path))
        answer = wire.answer()

    assert (answer.status, answer.complete) == (200, True)
    assert site.ledger() == ONE_CENT_SETTLED


@pytest.mark.parametrize("path", ["/v1/chat", "//v1/chat"])
def test_a_root_path_is_a_prefix_of_segments_and_not_of_letters(serve: Serve, path: str) -> None:
    """A prefix `/v` cut off `/v1/chat` as plain text would leave `1/chat`, which no pattern guards."""
    app = Litestar([reporting_handler("/v1/chat")], openapi_config=None)
    site = serve(app, paths=["/v1/chat"])
    site.mount(below("/v", site.app))

    with site.connect() as wire:
        wire.send(request(path))
        answer = wire.answer()

    assert answer.status in {201, 404}
    assert site.ledger() == (ONE_CENT_SETTLED if answer.status == 201 else Ledger())
    assert sum(site.status()["requests"]["endings"].values()) == 1


def litestar_reports() -> App:
    return Litestar([reporting_handler("/chat")], openapi_config=None)


@pytest.mark.parametrize(
    ("build", "path"),
    [(quart_reports, "/vchat"), (litestar_reports, "/vchat"), (litestar_reports, "/other/v/chat")],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_root_path_that_a_router_cuts_off_as_plain_text_does_not_uncover_the_route(
    serve: Serve, build: Any, path: str
) -> None:
    site = serve(build())
    site.mount(below("/v", site.app))

    with site.connect() as wire:
        wire.send(request(path))
        answer = wire.answer()

    assert answer.status in {200, 201}, "the router no longer does this; the row can go"
    assert site.ledger() == ONE_CENT_SETTLED


def reporting_handler(path: str) -> Any:
    @post(path)
    async def handler() -> str:
        ours = admission()
        assert ours is not None, "the route is not guarded"
        ours.report(cost_usd="0.01")
        return "hello"

    return handler


def starlette_reports() -> App:
    async def handler(request: Request) -> Response:
        admission_of(request).report(cost_usd="0.01")
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/chat", handler, methods=["POST"])])


def fastapi_reports() -> App:
    app = FastAPI()

    @app.post("/chat")
    async def handler(request: Request) -> str:
        admission_of(request).report(cost_usd="0.01")
        return "hello"

    return app


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (starlette_reports, "/chat%0A"),
        (starlette_reports, "/%63hat"),
        (fastapi_reports, "/chat%0A"),
        (litestar_reports, "//chat"),
        (litestar_reports, "/chat/"),
        (litestar_reports, "/chat%2F"),
        (litestar_reports, "///chat//"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_path_that_a_router_takes_for_the_guarded_one_is_charged(serve: Serve, build: Any, path: str) -> None:
    site = serve(build())

    with site.connect() as wire:
        wire.send(request(path))
        answer = wire.answer()

    assert answer.status in {200, 201}, "the router no longer does this; the row can go"
    assert site.ledger() == ONE_CENT_SETTLED


def talking(path: str) -> FastAPI:
    app = FastAPI()

    @app.websocket(path)
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(f"hello, {admission()}")
        await websocket.close()

    return app


def listen(site: Site, path: str) -> str | bytes:
    with connect(f"ws://{HOST}:{site.port}{path}", proxy=None) as websocket:
        return websocket.recv()


def test_a_websocket_of_fastapi_is_refused_on_a_guarded_path(serve: Serve) -> None:
    site = serve(talking("/chat"))

    with pytest.raises(InvalidStatus) as refused:
        listen(site, "/chat")

    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body)["error"]["reason"] == "websocket_refused"


@pytest.mark.parametrize(("path", "websocket"), [("/talk", "refuse"), ("/chat", "ignore")])
def test_a_websocket_of_fastapi_that_is_not_guarded_is_its_own(serve: Serve, path: str, websocket: str) -> None:
    site = serve(talking(path), websocket=websocket)

    said = listen(site, path)

    assert said == "hello, None"
    assert site.ledger() == Ledger()
