"""A provider of four dialects behind a real server; every call uses ten input and a hundred output tokens."""

import json
from collections.abc import Sequence
from typing import Any

from tests.driver import chat_chunks
from tests.meter.played import COMPLETION, ONE_CENT
from tests.sockets.server import Signal
from tests.sockets.wire import HOST

USAGE = {"input_tokens": 10, "output_tokens": 100, "total_tokens": 110}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 100},
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "model": "gpt-5-mini",
    "output": [
        {
            "type": "message",
            "id": "m1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "usage": {
        **USAGE,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}
CONTENT: dict[str, Any] = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 100, "totalTokenCount": 110},
    "modelVersion": "gemini-2.5-flash",
}
EMBEDDINGS = {
    "object": "list",
    "model": "text-embedding-3-small",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
    "usage": {"prompt_tokens": 10, "total_tokens": 10},
}


class Served:
    """The application of the provider. A status set here answers every call."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}"
        self.calls: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        #: The answer to a chat, instead of the usual one.
        self.completion: dict[str, Any] = COMPLETION
        #: Held back until it is given: what a chat's stream says after its first chunk.
        self.go_on: Signal | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        asked = json.loads(body)
        self.calls.append(asked)
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            await _send(send, status, b"application/json", [b'{"error":{"message":"no","type":"server_error"}}'])
        elif (path := scope["path"]).endswith("/chat/completions"):
            await self._chat(asked, send)
        elif path.endswith("/responses"):
            completed = {"type": "response.completed", "sequence_number": 2, "response": RESPONSE}
            created = {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "usage": None}}
            delta = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "hello", "item_id": "m1"}
            delta.update(output_index=0, content_index=0, logprobs=[])
            await _answer(send, asked, RESPONSE, [_named(event) for event in (created, delta, completed)])
        elif path.endswith("/messages"):
            await _answer(send, asked, MESSAGE, [_named(event) for event in _message_events()])
        elif path.endswith("/embeddings"):
            await _answer(send, {}, EMBEDDINGS, [])
        elif ":streamGenerateContent" in path:
            await _send(send, 200, b"text/event-stream", [f"data: {json.dumps(CONTENT)}\n\n".encode()] * 2)
        else:
            await _answer(send, {}, CONTENT, [])

    async def _chat(self, asked: dict[str, Any], send: Any) -> None:
        tells = (asked.get("stream_options") or {}).get("include_usage")
        chunks = chat_chunks(usage=ONE_CENT if tells else None)
        if asked.get("stream"):
            await _send(send, 200, b"text/event-stream", chunks[:1], last=False)
            if self.go_on is not None:
                await self.go_on.arrives()
            for chunk in chunks[1:]:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await _answer(send, {}, self.completion, [])


def _message_events() -> list[dict[str, Any]]:
    started = {**MESSAGE, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    block = {"type": "text", "text": ""}
    return [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 100},
        },
        {"type": "message_stop"},
    ]


def _named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


async def _answer(send: Any, asked: dict[str, Any], whole: dict[str, Any], chunks: Sequence[bytes]) -> None:
    if asked.get("stream"):
        await _send(send, 200, b"text/event-stream", chunks)
    else:
        await _send(send, 200, b"application/json", [json.dumps(whole).encode()])


async def _send(send: Any, status: int, content_type: bytes, chunks: Sequence[bytes], *, last: bool = True) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]})
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if last:
        await send({"type": "http.response.body", "body": b""})
