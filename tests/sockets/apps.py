"""Small FastAPI applications of the kind people guard, each with one route: `POST /chat`."""

from collections.abc import AsyncIterator, Callable, Iterator

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask

import routeguard
from routeguard import Admission

Words = AsyncIterator[str] | Iterator[str]

#: A hundred output tokens: one cent at the prices of `tests.guarding`.
ONE_CENT = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}


def streaming(generate: Callable[[Admission], Words], *, after: Callable[[], object] | None = None) -> FastAPI:
    """Streams what `generate` yields; `after` runs as its background task."""
    app = FastAPI()

    @app.post("/chat")
    async def chat(request: Request) -> StreamingResponse:
        background = None if after is None else BackgroundTask(after)
        return StreamingResponse(generate(admission_of(request)), media_type="text/event-stream", background=background)

    return app


def admission_of(request: Request) -> Admission:
    admission = routeguard.admission(request)
    assert admission is not None, "the route is not guarded"
    return admission


async def one_cent(admission: Admission) -> AsyncIterator[str]:
    """Two events, and a report of what they cost."""
    yield "data: one\n\n"
    admission.report(ONE_CENT)
    yield "data: two\n\n"
