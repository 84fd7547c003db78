"""A metered client finds its request from worker threads, and only its own."""

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from routeguard import admission
from routeguard.meter import payer
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.played import HI, KINDS, Caller, calling, chat_stream, whole

SYNC = KINDS[1]
URL = "http://model.test/v1/chat/completions"
CALL: Any = {"model": "m", "messages": HI}


def route(endpoint: Any) -> FastAPI:
    app = FastAPI()
    app.post("/chat")(endpoint)
    return app


async def test_a_plain_function_as_a_route_is_metered_in_its_worker_thread() -> None:
    caller = Caller(SYNC, whole())

    def chat() -> str:
        return str(caller.client.post(URL, json=CALL).status_code)

    guard = guarded(route(chat))
    await Client().call(guard)

    assert (await parts(guard))["settled"] == "0.01"


async def test_a_stream_that_is_relayed_from_a_worker_thread_is_metered() -> None:
    caller = Caller(SYNC, chat_stream())

    def chat() -> StreamingResponse:
        def relay() -> Iterator[bytes]:
            with caller.client.stream("POST", URL, json={**CALL, "stream": True}) as answer:
                yield from answer.iter_raw()

        return StreamingResponse(relay(), media_type="text/event-stream")

    guard = guarded(route(chat))
    client = await Client().call(guard)

    assert client.complete
    assert (await parts(guard))["settled"] == "0.01"


async def test_a_thread_of_ones_own_needs_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payer, "unmetered", payer.Unmetered())
    caller = Caller(SYNC, whole())

    def call() -> None:
        caller.client.post(URL, json=CALL)

    async def both() -> None:
        found = admission()
        assert found is not None
        for target in (call, found.bind(call)):
            thread = threading.Thread(target=target)
            thread.start()
            await anyio.to_thread.run_sync(thread.join)

    guard = guarded(calling(both))
    await Client().call(guard)

    assert (payer.unmetered.count, (await parts(guard))["settled"]) == (1, "0.01")


async def test_requests_at_once_pay_each_for_its_own_calls() -> None:
    caller = Caller(KINDS[0], whole())
    guard = guarded(calling(caller.post), budget="9/day", rate="unlimited", max_parallel_per_client="unlimited")

    async with anyio.create_task_group() as requests:
        for _ in range(20):
            requests.start_soon(Client().call, guard)

    charged = await parts(guard)
    assert (charged["settled"], charged["open"], len(caller.sent)) == ("0.2", "0", 20)
