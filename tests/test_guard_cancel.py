"""Cancelled at every await, failed at every send: money and slots are never left half-written."""

import asyncio
import contextlib
from decimal import Decimal
from typing import Any

import pytest

from tests.driver import CancelAt, Client, chat_chunks, stream_app
from tests.guarding import guarded, in_flight, parts

USAGE = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """A native cancel is asyncio's own; trio has no other way in than its scopes."""
    return "asyncio"


@pytest.mark.parametrize("on_failure", ["keep", "exact"])
async def test_a_cancel_at_any_await_ends_the_admission_once(on_failure: str) -> None:
    """Walk the cancel through every suspension of a whole request, until one request is left alone."""
    outcomes: set[tuple[str, str]] = set()
    for number in range(200):
        guard = guarded(stream_app(chat_chunks(usage=USAGE)), on_failure=on_failure)
        client = Client(body=[b'{"messages":[', b'{"role":"user","content":"hi"}]}'])
        run = CancelAt(guard(client.scope(), client.receive, client.send), number, asyncio.CancelledError())
        try:
            await run
        except asyncio.CancelledError:
            cancelled = True
        else:
            cancelled = False
        found = await parts(guard)
        assert found["open"] == "0", f"await {number}"
        assert await in_flight(guard) == 0, f"await {number}"
        charged = Decimal(found["settled"]) + Decimal(found["kept"])
        assert charged in {Decimal(0), Decimal("0.01"), Decimal("0.1")}, f"await {number}"
        outcomes.add((found["settled"], found["kept"]))
        if not cancelled:
            break
    else:
        pytest.fail("the request never finished by itself")

    assert ("0", "0.1") in outcomes
    assert ("0.01", "0") in outcomes


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("no response"), asyncio.CancelledError()])
async def test_a_send_that_fails_at_any_message_ends_the_admission_once(error: BaseException) -> None:
    chunks = chat_chunks(usage=USAGE)
    for number in range(len(chunks) + 2):
        guard = guarded(stream_app(chunks))
        client = Client(send_raises=(number, error))

        with contextlib.suppress(asyncio.CancelledError):
            await client.call(guard)

        found: Any = await parts(guard)
        is_last = number == len(chunks) + 1
        assert (found["settled"], found["kept"]) == (("0.01", "0") if is_last else ("0", "0.1")), f"send {number}"
        assert (found["open"], await in_flight(guard)) == ("0", 0), f"send {number}"
