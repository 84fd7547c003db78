"""The matrix's Django routes: async views, a streaming answer from an async generator."""

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path

from routeguard import admission
from tests.matrix.plays import WHOLE_ANSWERS, after, seen, whole_answer, words

#: Django has no background tasks; a task of the loop is what people use, and it has to be held.
_tasks: set[asyncio.Task[Any]] = set()


async def chat(request: HttpRequest, play: str) -> HttpResponseBase:
    if play in WHOLE_ANSWERS:
        text = await whole_answer(play, admission(request))
        return HttpResponse(text, status=200 if text else 204)
    if play == "background":
        task = asyncio.create_task(after())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    return StreamingHttpResponse(words(play, admission(request)), content_type="text/event-stream")


async def free(request: HttpRequest) -> HttpResponse:
    return HttpResponse(seen(admission()))


urlpatterns = [path("chat/<str:play>", chat), path("free", free)]
