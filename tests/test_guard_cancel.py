"""Cancelled at every await, failed at every send: money and slots are never left half-written."""

import asyncio
import contextlib
from decimal import Decimal
from typing import Any

import pytest

from tests.driver import CancelAt, Client, Message, chat_chunks, stream_app
from tests.guarding import ending, guarded, in_flight, parts

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


@pytest.mark.parametrize(
    ("reports", "left", "found"),
    [
        (True, True, {"settled": "0.01"}),
        (False, True, {"kept": "0.1"}),
        (True, False, {"kept": "0.1"}),
    ],
)
async def test_a_cancel_is_a_failure_unless_the_client_has_left_after_the_last_report(
    reports: bool, left: bool, found: dict[str, str]
) -> None:
    """gunicorn's worker tells a stream that does not ask of no client that left, and cancels it 3 s later."""
    stream = _Stream(reports=reports)
    guard = guarded(stream)
    request = asyncio.create_task(Client(leaves_after=1 if left else None).call(guard))
    await stream.sent.wait()

    request.cancel()
    await asyncio.wait([request])

    assert request.cancelled()
    assert await ending(guard) == found


async def test_a_second_cancel_leaves_no_slot_and_no_open_money_behind() -> None:
    stream = _Stream(reports=True)
    guard = guarded(stream)
    client = Client()
    asked = asyncio.Event()

    async def receive() -> Message:
        if stream.sent.is_set():
            asked.set()
        return await client.receive()

    request = asyncio.create_task(guard(client.scope(), receive, client.send))
    await stream.sent.wait()

    request.cancel()
    await asyncio.wait([request, asyncio.create_task(asked.wait())], return_when=asyncio.FIRST_COMPLETED)
    request.cancel()
    await asyncio.wait([request])

    assert request.cancelled()
    assert (await ending(guard), await in_flight(guard)) == ({"kept": "0.1"}, 0)


class _Stream:
    """Begins a call, sends a chunk, and then waits without asking whether its client is still there."""

    def __init__(self, *, reports: bool) -> None:
        self.sent = asyncio.Event()
        self._reports = reports

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        call = scope["routeguard"].begin()
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        if self._reports:
            call.report(USAGE)
        self.sent.set()
        await asyncio.Event().wait()
