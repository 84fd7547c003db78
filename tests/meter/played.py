"""A provider inside the process: a transport that plays an answer, and clients of both libraries on top of it."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

import anyio.lowlevel
import httpx
import httpx2
import pytest

from routeguard import metered
from tests.driver import App, chat_chunks

URL = "http://model.test/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
#: A hundred output tokens: one cent at the prices of `tests.guarding`.
ONE_CENT = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "test-model",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": ONE_CENT,
}
Response: TypeAlias = httpx.Response | httpx2.Response


@dataclass
class Played:
    """One answer."""

    chunks: Sequence[bytes] = (json.dumps(COMPLETION).encode(),)
    content_type: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    #: Raised instead of an answer.
    raises: BaseException | None = None
    #: Raised after the chunks.
    breaks: BaseException | None = None


def whole(body: Any = COMPLETION, **played: Any) -> Played:
    return Played([json.dumps(body).encode()], **played)


def chat_stream(*, usage: dict[str, int] | None = ONE_CENT, done: bool = True, **played: Any) -> Played:
    return Played(chat_chunks(usage=usage, done=done), "text/event-stream", **played)


@dataclass
class Sent:
    """One request as the provider sees it."""

    url: str
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Provider:
    """Plays one answer after the other, and the last one for ever; remembers what it was sent."""

    def __init__(self, library: ModuleType, *answers: Played) -> None:
        self.library = library
        self.answers = list(answers) or [Played()]
        self.sent: list[Sent] = []

    def handle_request(self, request: Any) -> Any:
        return self._answer(request, b"".join(request.stream), self._stream)

    async def handle_async_request(self, request: Any) -> Any:
        return self._answer(request, b"".join([part async for part in request.stream]), self._async_stream)

    def close(self) -> None: ...

    async def aclose(self) -> None: ...

    def _answer(self, request: Any, content: bytes, stream: Any) -> Any:
        self.sent.append(Sent(str(request.url), dict(request.headers), content))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.raises is not None:
            raise answer.raises
        headers = {"content-type": answer.content_type, **answer.headers}
        return self.library.Response(answer.status, headers=headers, stream=stream(answer))

    def _stream(self, answer: Played) -> Any:
        class Chunks(self.library.SyncByteStream):  # type: ignore[name-defined,misc] # of either library
            def __iter__(self) -> Iterator[bytes]:
                yield from answer.chunks
                if answer.breaks is not None:
                    raise answer.breaks

        return Chunks()

    def _async_stream(self, answer: Played) -> Any:
        class Chunks(self.library.AsyncByteStream):  # type: ignore[name-defined,misc] # of either library
            async def __aiter__(self) -> AsyncIterator[bytes]:
                for chunk in answer.chunks:
                    await anyio.lowlevel.checkpoint()
                    yield chunk
                if answer.breaks is not None:
                    raise answer.breaks

        return Chunks()


@dataclass(frozen=True)
class Kind:
    """A library, sync or async."""

    library: ModuleType
    is_async: bool

    def __str__(self) -> str:
        return f"{self.library.__name__}-{'async' if self.is_async else 'sync'}"


KINDS = [Kind(library, is_async) for library in (httpx2, httpx) for is_async in (True, False)]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
ASYNC = KINDS[0]


class Caller:
    """An application's client of the provider: the same calls for every kind."""

    def __init__(self, kind: Kind, *answers: Played, **options: Any) -> None:
        self.kind = kind
        self.provider = Provider(kind.library, *answers)
        make = kind.library.AsyncClient if kind.is_async else kind.library.Client
        self.client = metered(make(transport=self.provider), **options)

    @property
    def sent(self) -> list[Sent]:
        return self.provider.sent

    async def post(self, body: Any = None, *, url: str = URL, **request: Any) -> Any:
        """The whole answer to a call, by default a small chat."""
        if "content" not in request:
            request["json"] = {"model": "test-model", "messages": HI} if body is None else body
        if self.kind.is_async:
            return await self.client.post(url, **request)
        return self.client.post(url, **request)

    async def stream(self, body: Any = None, *, url: str = URL, chunks: int | None = None) -> list[bytes]:
        """The chunks of a streamed answer; the caller leaves after so many."""
        body = {"model": "test-model", "messages": HI, "stream": True} if body is None else body
        request = self.client.build_request("POST", url, json=body)
        got: list[bytes] = []
        if self.kind.is_async:
            response = await self.client.send(request, stream=True)
            try:
                async with aclosing(response.aiter_raw()) as passing:
                    async for chunk in passing:
                        got.append(chunk)
                        if len(got) == chunks:
                            break
            finally:
                await response.aclose()
            return got
        response = self.client.send(request, stream=True)
        try:
            for chunk in response.iter_raw():
                got.append(chunk)
                if len(got) == chunks:
                    break
        finally:
            response.close()
        return got


def calling(call: Any, *, status: int = 200) -> App:
    """An application that does `await call()` and answers."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        await call()
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok", "more_body": False})

    return app
