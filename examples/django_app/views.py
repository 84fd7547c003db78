"""An ordinary chat view: it asks the provider and passes its event stream on."""

import json
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx2
from django.conf import settings
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from examples.django_app.providers import cast
from examples.fastapi_app.model import Model, log_failure

ROLES = {"user", "assistant"}


@csrf_exempt
@require_POST
async def chat(request: HttpRequest) -> HttpResponseBase:
    messages = _messages(request.body)
    if messages is None:
        # No provider was asked, so nothing of the reservation is due.
        request.routeguard.nothing_sent()
        return JsonResponse({"detail": "messages is not a list of what users and assistants said"}, status=422)
    model = cast().answers(messages[-1]["content"])
    # An async generator: a plain one would be read to its end before the first byte is sent.
    return StreamingHttpResponse(_answer(model, messages), content_type="text/event-stream")


def _messages(body: bytes) -> list[dict[str, str]] | None:
    """What was said so far; None where the body is something else. The guard has made sure that it is strict JSON."""
    asked = json.loads(body or b"null")
    messages = asked.get("messages") if isinstance(asked, dict) else None
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        return None
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ROLES and isinstance(message.get("content"), str)


@cache
def _client(model: Model) -> httpx2.AsyncClient:
    """One client for each provider, made with the first question: Django has no lifespan to open and close it in."""
    headers = {"Authorization": f"Bearer {model.api_key}"}
    return httpx2.AsyncClient(base_url=model.base_url, headers=headers, timeout=httpx2.Timeout(60, connect=5))


async def _answer(model: Model, messages: list[dict[str, str]]) -> AsyncIterator[bytes]:
    """The provider's own event stream, passed on. The guard reads the usage from it."""
    question = {
        "model": model.name,
        "messages": [{"role": "system", "content": settings.SYSTEM_PROMPT}, *messages],
        model.cap_field: settings.ROUTEGUARD["MAX_OUTPUT_TOKENS"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        # When the visitor leaves, the block closes the connection, and the provider stops.
        async with _client(model).stream("POST", "chat/completions", json=question) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_bytes():
                yield part
    except httpx2.HTTPError as failure:
        log_failure(model, failure)
        # A stream that just stops looks like success to most clients.
        error = {"message": "The answer broke off. Please ask again.", "type": "upstream_error", "code": None}
        yield f"\n\ndata: {json.dumps({'error': error})}\n\n".encode()
