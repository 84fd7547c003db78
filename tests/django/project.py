"""A small Django project inside of the test process: settings, and the routes people guard."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from routeguard import Admission, admission
from tests.sockets.apps import ONE_CENT, one_cent
from tests.sockets.server import Signal


def configure() -> None:
    """Once in a process. `settings.ROUTEGUARD` is left out: every guard of the process would read it."""
    if settings.configured:
        return
    settings.configure(
        ROOT_URLCONF="tests.django.project",
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["routeguard.django"],
        SECRET_KEY="of this test",
        USE_TZ=True,
    )
    django.setup()


#: Given when the client has left, or has seen what it waits for.
seen: list[Signal] = []


def ours(request: HttpRequest) -> Admission:
    found = admission(request)
    assert found is not None, "the view is not guarded"
    assert found is admission(), "the context knows another"
    return found


async def async_stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(one_cent(ours(request)), content_type="text/event-stream")


def sync_stream_of_async_words(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(one_cent(ours(request)), content_type="text/event-stream")


def sync_stream(request: HttpRequest) -> StreamingHttpResponse:
    found = ours(request)

    def words() -> Iterator[str]:
        yield "data: one\n\n"
        found.report(ONE_CENT)
        yield "data: two\n\n"

    return StreamingHttpResponse(words(), content_type="text/event-stream")


def plain(request: HttpRequest) -> JsonResponse:
    ours(request).report(ONE_CENT)
    return JsonResponse({"text": "hello"})


async def named(request: HttpRequest) -> HttpResponse:
    """What `request.routeguard` is."""
    found = getattr(request, "routeguard", "nothing was set")
    if found is not None and not isinstance(found, str):
        found.report(ONE_CENT)
        found = "an admission" if found is admission() else "another admission"
    return HttpResponse(str(found))


def named_in_a_thread(request: HttpRequest) -> HttpResponse:
    response: HttpResponse = asyncio.run(named(request))
    return response


async def paid_for_unread(request: HttpRequest) -> StreamingHttpResponse:
    """Streams without end; the money of its one call was begun."""
    found = ours(request)

    async def words() -> AsyncIterator[str]:
        found.begin()
        yield "data: one\n\n"
        await seen[0].arrives()
        yield "data: two\n\n"

    return StreamingHttpResponse(words(), content_type="text/event-stream")


def all_at_once(request: HttpRequest) -> StreamingHttpResponse:
    """A plain generator whose second word waits for a client that has read the first."""
    found = ours(request)

    def words() -> Iterator[str]:
        call = found.begin()
        yield "data: one\n\n"
        seen[0].wait()
        call.report(ONE_CENT)
        yield "data: two\n\n"

    return StreamingHttpResponse(words(), content_type="text/event-stream")


def sync_middleware(get_response: Any) -> Any:
    def middleware(request: HttpRequest) -> Any:
        return get_response(request)

    return middleware


urlpatterns = [
    path("chat/async", async_stream),
    path("chat/async-words", sync_stream_of_async_words),
    path("chat/sync", sync_stream),
    path("chat/plain", plain),
    path("chat/named", named),
    path("chat/named-in-a-thread", named_in_a_thread),
    path("chat/hangs", paid_for_unread),
    path("chat/all-at-once", all_at_once),
    path("free", named),
]
