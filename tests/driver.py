"""The package's own ASGI driver, and applications to drive."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from routeguard.replay import Message
from routeguard.testing.driver import App, CancelAt, Client

__all__ = ["App", "CancelAt", "Client", "Message", "chat_chunks", "lifespan", "stream_app"]


def chat_chunks(words: int = 3, *, usage: Mapping[str, Any] | None = None, done: bool = True) -> list[bytes]:
    """An OpenAI chat event stream, written by hand."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test-model"}
    events: list[str] = []
    for number in range(words):
        choice = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}
        events.append(json.dumps({**base, "choices": [choice], "usage": None}))
    events.append(json.dumps({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}))
    if usage is not None:
        events.append(json.dumps({**base, "choices": [], "usage": usage}))
    if done:
        events.append("[DONE]")
    return [f"data: {event}\n\n".encode() for event in events]


def stream_app(chunks: Iterable[bytes], *, content_type: bytes = b"text/event-stream", status: int = 200) -> App:
    """A bare ASGI application that reads its request and streams these chunks."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def lifespan(app: Any) -> list[Any]:
    """What an application sends when it is started and then stopped."""
    sent: list[Any] = []
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    return sent
