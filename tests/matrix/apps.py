"""The matrix's frameworks: one factory each, all with `/chat/{play}` and an unguarded `/free`.

The imports are inside the factories, so that a server process loads one framework.
"""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from routeguard import admission
from tests.matrix.plays import WHOLE_ANSWERS, after, seen, whole_answer, words

if TYPE_CHECKING:
    from fastapi import FastAPI

METHODS = ["GET", "POST", "HEAD", "OPTIONS"]


def starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    async def chat(request: Request) -> Response:
        play = request.path_params["play"]
        await request.body()
        if play in WHOLE_ANSWERS:
            text = await whole_answer(play, admission(request))
            return PlainTextResponse(text) if text else Response(status_code=204)
        background = BackgroundTask(after) if play == "background" else None
        return StreamingResponse(words(play, admission(request)), media_type="text/event-stream", background=background)

    async def free(request: Request) -> Response:
        return PlainTextResponse(seen(admission()))

    return Starlette(routes=[Route("/chat/{play}", chat, methods=METHODS), Route("/free", free)])


def fastapi() -> "FastAPI":
    from fastapi import BackgroundTasks, FastAPI, Request
    from fastapi.responses import PlainTextResponse, Response, StreamingResponse

    app = FastAPI()

    @app.api_route("/chat/{play}", methods=METHODS, response_model=None)
    async def chat(request: Request, play: str, later: BackgroundTasks) -> Response:
        await request.body()
        if play in WHOLE_ANSWERS:
            text = await whole_answer(play, admission(request))
            return PlainTextResponse(text) if text else Response(status_code=204)
        if play == "background":
            later.add_task(after)
        return StreamingResponse(words(play, admission(request)), media_type="text/event-stream", background=later)

    @app.get("/free", response_class=PlainTextResponse)
    async def free() -> str:
        return seen(admission())

    return app


def fastapi_middleware() -> "FastAPI":
    from fastapi import Request, Response

    app = fastapi()

    @app.middleware("http")
    async def harmless(request: Request, call_next: Callable[[Request], Any]) -> Response:
        response: Response = await call_next(request)
        return response

    return app


def fastapi_events() -> "FastAPI":
    from fastapi import BackgroundTasks, FastAPI, Request
    from fastapi.sse import EventSourceResponse

    plain = fastapi()
    app = FastAPI()

    @app.api_route("/chat/{play:str}", methods=METHODS, response_class=EventSourceResponse)
    async def chat(request: Request, play: str, later: BackgroundTasks) -> AsyncIterator[dict[str, str]]:
        if play == "background":
            later.add_task(after)
        async for word in words(play, admission(request)):
            yield {"text": word}

    async def whole_or_events(scope: Any, receive: Any, send: Any) -> None:
        play = scope["path"].rpartition("/")[2] if scope["type"] == "http" else ""
        is_plain = play in (*WHOLE_ANSWERS, "free")
        await (plain if is_plain else app)(scope, receive, send)

    return whole_or_events  # type: ignore[return-value]  # an ASGI application like any other


def litestar() -> Any:
    from litestar import HttpMethod, Litestar, MediaType, Request, Response, get, route
    from litestar.background_tasks import BackgroundTask
    from litestar.response import Stream

    @route("/chat/{play:str}", http_method=[HttpMethod.GET, HttpMethod.POST], status_code=200)
    async def chat(request: Request[Any, Any, Any], play: str) -> Response[Any]:
        await request.body()
        if play in WHOLE_ANSWERS:
            text = await whole_answer(play, admission(request))
            return Response(text or None, media_type=MediaType.TEXT, status_code=200 if text else 204)
        background = BackgroundTask(after) if play == "background" else None
        return Stream(words(play, admission(request)), media_type="text/event-stream", background=background)

    @get("/free", media_type=MediaType.TEXT)
    async def free() -> str:
        return seen(admission())

    return Litestar([chat, free], openapi_config=None)


def quart() -> Any:
    from quart import Quart, Response, request

    app = Quart(__name__)

    @app.route("/chat/<play>", methods=METHODS)
    async def chat(play: str) -> Response:
        await request.get_data()
        ours = admission(request.scope)
        if play in WHOLE_ANSWERS:
            text = await whole_answer(play, ours)
            return Response(text, status=200 if text else 204)
        if play == "background":
            app.add_background_task(after)
        return Response(words(play, ours), content_type="text/event-stream")

    @app.route("/free")
    async def free() -> Response:
        return Response(seen(admission()))

    return app


def django() -> Any:
    from django.conf import settings
    from django.core.asgi import get_asgi_application

    settings.configure(
        ROOT_URLCONF="tests.matrix.django_urls", ALLOWED_HOSTS=["*"], SECRET_KEY="of this test", USE_TZ=True
    )
    return get_asgi_application()


FRAMEWORKS: dict[str, Callable[[], Any]] = {
    "starlette": starlette,
    "fastapi": fastapi,
    "fastapi-middleware": fastapi_middleware,
    "fastapi-events": fastapi_events,
    "django": django,
    "litestar": litestar,
    "quart": quart,
}
