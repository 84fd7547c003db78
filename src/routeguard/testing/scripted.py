"""A provider that does as it is told: OpenAI chat over plain ASGI, for tests and demos without a key.

Rules that live here:

- One word of the answer is one output token; a message costs `MESSAGE_TOKENS` plus one token for every four
  UTF-8 bytes, rounded up. Bills are therefore exact, repeatable, and below any bound made of bytes.
- What was generated is billed, whether or not the caller stayed to read it or was told about it. That is what
  providers do, and what a ledger has to survive.
- Nothing is random and nothing reads a clock; only `pace_seconds` waits.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import anyio

from routeguard.money import ceil_div

_Message: TypeAlias = MutableMapping[str, object]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]

#: Billed for each message beside its text: role and delimiters.
MESSAGE_TOKENS = 4
#: Larger requests are answered 413 and billed nothing.
BODY_BYTES_MAX = 8_000_000
#: A message of the user that starts with this word chooses the script of its call.
DIRECTIVE = "script:"
#: A directive cannot ask for more words than this.
WORDS_MAX = 100_000

_CREATED = 1_700_000_000
_TEXT = (
    "A warm lamp beside the bed is kind to tired eyes, and a dimmer makes it kinder. "
    "For a desk choose a brighter one with an arm, so that the light falls where you look."
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What happens to one call. The default is an ordinary answer of 35 words, two whole sentences."""

    #: Length of the whole answer in words; the request's cap may cut it (`finish_reason` "length").
    words: int = 35
    #: Answer with this HTTP status instead: no output, nothing billed.
    status: int | None = None
    #: Break off after this many words: the connection ends without a last chunk.
    fail_after: int | None = None
    #: Say nothing more after this many words, until the caller leaves. 0 hangs before the response starts.
    hang_after: int | None = None
    #: False: the answer is billed, but the caller is never told its usage.
    usage: bool = True
    #: Words generated beyond the cap that the request set.
    over_cap: int = 0

    @classmethod
    def parse(cls, text: str, *, default: "Script") -> "Script":
        """The script a user's message asks for, else `default`.

        A directive reads `script: fail_after=3 usage=false`; each setting is a field of this class.

        Raises:
            ValueError: The directive names an unknown setting or a value that is not a number (true or false
                for `usage`).
        """
        if not text.startswith(DIRECTIVE):
            return default
        known = {item.name for item in fields(cls)}
        chosen: dict[str, Any] = {}
        for setting in text.removeprefix(DIRECTIVE).split():
            name, _, value = setting.partition("=")
            if name not in known:
                raise ValueError(f"no script setting is called {name[:40]!r}; known: {', '.join(sorted(known))}")
            chosen[name] = _parse_value(name, value)
        return replace(default, **chosen)


def _parse_value(name: str, value: str) -> int:
    """A count up to `WORDS_MAX`, a status from 400 to 599, or a truth value for `usage`."""
    if name == "usage":
        if value not in ("true", "false"):
            raise ValueError("usage is true or false")
        return value == "true"
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(WORDS_MAX))):
        raise ValueError(f"{name} is not a plain number")
    number = int(value)
    lowest, highest = (400, 599) if name == "status" else (0, WORDS_MAX)
    if not lowest <= number <= highest:
        raise ValueError(f"{name} is not between {lowest} and {highest}")
    return number


@dataclass(slots=True, eq=False)
class ScriptedProvider:
    """An ASGI application that answers `POST …/chat/completions` as OpenAI does, streamed or whole.

    The counters are what this provider would put on its bill; compare them with the ledger.

    ```python
    provider = ScriptedProvider(Script(words=12, fail_after=5))
    ```
    """

    #: What a call does unless its last user message is a directive (see `Script.parse`).
    script: Script = field(default_factory=Script)
    #: Wait before each word. Zero only yields to the event loop.
    pace_seconds: float = 0.0
    #: What waits; tests inject their own.
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    #: Calls that reached the provider, whatever became of them.
    calls: int = field(default=0, init=False)
    #: Calls whose caller left before the answer was complete.
    abandoned: int = field(default=0, init=False)
    #: Input tokens on the bill.
    input_tokens_billed: int = field(default=0, init=False)
    #: Output tokens on the bill.
    output_tokens_billed: int = field(default=0, init=False)

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] != "POST" or not str(scope["path"]).endswith("/chat/completions"):
            await _respond_error(send, 404, "only POST /chat/completions is played here")
            return
        body = await _read_body(receive)
        self.calls += 1
        if body is None:
            await _respond_error(send, 413, f"the request is larger than {BODY_BYTES_MAX} bytes")
            return
        try:
            call = _Call.parse(body, default=self.script, number=self.calls)
        except ValueError as error:
            await _respond_error(send, 400, str(error))
            return
        if call.script.status is not None:
            await _respond_error(send, call.script.status, "this failure is part of the script")
            return
        self.input_tokens_billed += call.input_tokens
        async with _until_disconnect(receive) as left:
            await (self._stream if call.streamed else self._answer)(call, send)
        if left():
            self.abandoned += 1

    async def _stream(self, call: "_Call", send: _Send) -> None:
        for index in range(call.words_generated):
            word = await self._generate(call, index)
            if index == 0:
                await send(_start(200, b"text/event-stream; charset=utf-8"))
                await send(_event(call.chunk({"role": "assistant", "content": ""})))
            await send(_event(call.chunk({"content": word})))
        await _hang_if_due(call, call.words_generated)
        if call.breaks_off:
            return  # No last chunk: a server ends the connection, as it does when a provider dies.
        if call.words_generated == 0:
            await send(_start(200, b"text/event-stream; charset=utf-8"))
        await send(_event(call.chunk({}, finish=call.finish)))
        if call.tells_usage and call.script.usage:
            await send(_event(call.usage_chunk()))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _answer(self, call: "_Call", send: _Send) -> None:
        text = "".join([await self._generate(call, index) for index in range(call.words_generated)])
        await _hang_if_due(call, call.words_generated)
        body = json.dumps(call.completion(text)).encode()
        await send(_start(200, b"application/json", length=len(body)))
        if call.breaks_off:
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            return
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _generate(self, call: "_Call", index: int) -> str:
        """One word of the answer, billed before it is handed out."""
        await _hang_if_due(call, index)
        await self.sleep(self.pace_seconds)
        self.output_tokens_billed += 1
        return f"{' ' if index else ''}{_WORDS[index % len(_WORDS)]}"


async def _hang_if_due(call: "_Call", index: int) -> None:
    if index == call.script.hang_after:
        await anyio.sleep_forever()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request, understood."""

    id: str
    model: str
    input_tokens: int
    #: What the request allows, or None.
    cap: int | None
    streamed: bool
    tells_usage: bool
    script: Script

    @classmethod
    def parse(cls, body: bytes, *, default: Script, number: int) -> "_Call":
        """Raises ValueError, with a message for the caller, where the request is not a chat request."""
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError("the body is not JSON") from None
        messages = request.get("messages") if isinstance(request, dict) else None
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValueError("messages is not a list of objects")
        cap = request.get("max_completion_tokens", request.get("max_tokens"))
        if cap is not None and (type(cap) is not int or cap < 1):
            raise ValueError("the output cap is not a positive integer")
        options = request.get("stream_options")
        asked = [_text(message) for message in messages if message.get("role") == "user"]
        return cls(
            id=f"chatcmpl-scripted-{number}",
            model=str(request.get("model") or "scripted"),
            input_tokens=sum(MESSAGE_TOKENS + ceil_div(len(_text(message).encode()), 4) for message in messages),
            cap=cap,
            streamed=request.get("stream") is True,
            tells_usage=isinstance(options, dict) and options.get("include_usage") is True,
            script=Script.parse(asked[-1] if asked else "", default=default),
        )

    @property
    def words_answered(self) -> int:
        """Length of the whole answer, were it not to break off."""
        capped = self.script.words if self.cap is None else min(self.script.words, self.cap)
        return capped + self.script.over_cap

    @property
    def words_generated(self) -> int:
        stop = self.script.fail_after
        return self.words_answered if stop is None else min(stop, self.words_answered)

    @property
    def breaks_off(self) -> bool:
        return self.script.fail_after is not None

    @property
    def finish(self) -> str:
        return "length" if self.cap is not None and self.script.words > self.cap else "stop"

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.words_generated,
            "total_tokens": self.input_tokens + self.words_generated,
        }

    def chunk(self, delta: Mapping[str, str], *, finish: str | None = None) -> dict[str, object]:
        chunk = self._head("chat.completion.chunk")
        chunk["choices"] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        if self.tells_usage:
            chunk["usage"] = None
        return chunk

    def usage_chunk(self) -> dict[str, object]:
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage}

    def completion(self, text: str) -> dict[str, object]:
        completion = self._head("chat.completion")
        message = {"role": "assistant", "content": text, "refusal": None}
        completion["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}]
        if self.script.usage:
            completion["usage"] = self.usage
        return completion

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": _CREATED, "model": self.model}


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


async def _read_body(receive: _Receive) -> bytes | None:
    """The whole body, or None where it is larger than `BODY_BYTES_MAX`."""
    body = bytearray()
    more = True
    while more and len(body) <= BODY_BYTES_MAX:
        message = await receive()
        part = message.get("body", b"")
        body += part if isinstance(part, bytes) else b""
        more = message["type"] == "http.request" and message.get("more_body", False) is True
    return None if len(body) > BODY_BYTES_MAX else bytes(body)


@asynccontextmanager
async def _until_disconnect(receive: _Receive) -> AsyncIterator[Callable[[], bool]]:
    """Cancels the block when the caller leaves; the value tells afterwards whether that happened."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        generating.cancel()

    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        with anyio.CancelScope() as generating:
            yield lambda: generating.cancelled_caught
        watching.cancel_scope.cancel()


def _start(status: int, content_type: bytes, *, length: int | None = None) -> _Message:
    headers = [(b"content-type", content_type)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {"type": "http.response.start", "status": status, "headers": headers}


def _event(chunk: Mapping[str, object]) -> _Message:
    return {"type": "http.response.body", "body": b"data: %s\n\n" % json.dumps(chunk).encode(), "more_body": True}


async def _respond_error(send: _Send, status: int, message: str) -> None:
    error = {"message": message, "type": "scripted_error", "param": None, "code": None}
    body = json.dumps({"error": error}).encode()
    await send(_start(status, b"application/json", length=len(body)))
    await send({"type": "http.response.body", "body": body, "more_body": False})
