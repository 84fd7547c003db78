"""The three endings by cause, and every tail of a response."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routeguard import Admission
from routeguard.time_limit import AsyncioTimeLimit, ScopeTimeLimit, TimeLimit
from tests.driver import Client, chat_chunks, stream_app
from tests.guarding import USAGE, Counting, ending, guarded, in_flight, reporting


async def test_no_call_may_release_for_applications_that_begin_every_call() -> None:
    guard = guarded(stream_app([b"data: x\n\n"]), no_call="release")

    await Client().call(guard)

    assert await ending(guard) == {}


@pytest.mark.parametrize(("status", "found"), [(404, {}), (405, {}), (422, {"kept": "0.1"}), (500, {"kept": "0.1"})])
async def test_only_release_statuses_release(status: int, found: dict[str, str]) -> None:
    guard = guarded(stream_app([], status=status))

    await Client().call(guard)

    assert await ending(guard) == found


@pytest.mark.parametrize(("usage", "charged"), [(USAGE, "settled"), (None, "kept")])
async def test_no_status_releases_once_a_provider_was_seen(usage: dict[str, int] | None, charged: str) -> None:
    guard = guarded(stream_app(chat_chunks(usage=usage), status=404))

    await Client().call(guard)

    assert list(await ending(guard)) == [charged]


async def test_nothing_sent_releases() -> None:
    guard = guarded(reporting(before=lambda admission: admission.nothing_sent()))

    await Client().call(guard)

    assert await ending(guard) == {}


async def test_nothing_sent_is_void_once_a_call_was_begun() -> None:
    def both(admission: Admission) -> None:
        admission.nothing_sent()
        admission.begin()

    guard = guarded(reporting(before=both))

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


@pytest.mark.parametrize(("on_failure", "found"), [("keep", {"kept": "0.1"}), ("exact", {"settled": "0.02"})])
async def test_an_exception_mid_stream_costs_what_on_failure_says(on_failure: str, found: dict[str, str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise ValueError("the provider went away")

    guard = guarded(app, on_failure=on_failure)

    client = await Client().call(guard)

    assert isinstance(client.error, ValueError)
    assert await ending(guard) == found
    assert await in_flight(guard) == 0


async def test_a_known_bill_above_the_ceiling_is_settled_also_after_a_failure() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.3")
        raise ValueError("late")

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.3", "overrun": "0.2"}


async def test_an_exception_before_the_start_keeps_the_reservation() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("at once")

    guard = guarded(app)

    client = await Client().call(guard)

    assert (client.status, await ending(guard)) == (None, {"kept": "0.1"})


@pytest.mark.parametrize(
    ("reports", "found"),
    [("nothing", {"kept": "0.1"}), ("begun", {"kept": "0.1"}), ("reported", {"settled": "0.02"})],
)
async def test_a_client_that_leaves_mid_stream(reports: str, found: dict[str, str]) -> None:
    """A disconnect before every begun call was reported is a failure; after the last report it is a normal end."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reports != "nothing":
            call = scope["routeguard"].begin()
            if reports == "reported":
                call.report(cost_usd="0.02")
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    guard = guarded(app)

    await Client(leaves_after=1).call(guard)

    assert await ending(guard) == found


async def test_a_clean_last_message_after_a_disconnect_is_no_success() -> None:
    """What BaseHTTPMiddleware sends when the client left: final body, normal return, no exception."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].begin()
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    guard = guarded(app)

    await Client(leaves_after=1).call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_a_disconnect_after_the_terminal_event_is_a_normal_end() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in chat_chunks(usage=USAGE):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    guard = guarded(app)

    await Client(leaves_after=len(chat_chunks(usage=USAGE))).call(guard)

    assert await ending(guard) == {"settled": "0.01"}


async def test_a_disconnect_before_the_terminal_event_is_not() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in chat_chunks(usage=USAGE)[:-1]:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    guard = guarded(app)

    await Client(leaves_after=len(chat_chunks(usage=USAGE)) - 1).call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_the_ending_is_decided_at_the_last_message_and_not_after_background_work() -> None:
    found: list[dict[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        found.append({**await ending(guard), "in_flight": str(await in_flight(guard))})

    guard = guarded(app)

    await Client().call(guard)

    assert found == [{"settled": "0.02", "in_flight": "0"}]


async def test_an_exception_after_the_last_message_changes_nothing() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.02")
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        raise ValueError("in a background task")

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.02"}


@pytest.fixture
def time_is_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the time that a request has, unless its limit was lifted; by itself it never ends."""
    limited: list[Callable[[], None]] = []

    def takes_limits(kind: type[AsyncioTimeLimit] | type[ScopeTimeLimit]) -> None:
        begin: Any = kind.set

        def set_it(limit: TimeLimit, seconds: float) -> None:
            limited.append(partial(begin, limit, 0))

        monkeypatch.setattr(kind, "set", set_it)
        monkeypatch.setattr(kind, "lift", lambda _: limited.clear())

    for kind in (AsyncioTimeLimit, ScopeTimeLimit):
        takes_limits(kind)

    def end() -> None:
        for begin in limited:
            begin()

    return end


async def test_max_stream_cancels_before_the_start_with_504() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await anyio.sleep_forever()

    guard = guarded(app, max_stream="20ms")

    client = await Client().call(guard)

    assert (client.status, client.reason) == (504, "stream_timeout")
    assert client.response_headers["x-should-retry"] == "false"
    assert "retry-after" not in client.response_headers
    assert await ending(guard) == {"kept": "0.1"}


async def test_max_stream_cuts_a_started_stream_without_a_last_chunk(time_is_over: Callable[[], None]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.01")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        time_is_over()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await send({"type": "http.response.body", "body": b"too late", "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    guard = guarded(app)

    client = await Client().call(guard)

    assert (client.status, client.complete, client.chunks) == (200, False, [b"x"])
    assert client.error is not None
    assert await ending(guard) == {"kept": "0.1"}


async def test_work_after_the_last_message_is_never_cancelled(time_is_over: Callable[[], None]) -> None:
    done: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await stream_app([b"data: x\n\n"])(scope, receive, send)
        time_is_over()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        done.append("background")

    guard = guarded(app)

    client = await Client().call(guard)

    assert (client.error, done) == (None, ["background"])


async def test_a_log_filter_that_raises_leaves_no_slot_and_no_open_money_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise LookupError("a field of somebody else's records")

    app = Counting()
    guard = guarded(app)
    await guard._start()

    with caplog.filtering(Broken()), caplog.at_level(logging.INFO, "routeguard"):
        client = await Client().call(guard)

    assert (type(client.error), app.calls) == (LookupError, 0)
    assert (await in_flight(guard), await ending(guard)) == (0, {"kept": "0.1"})
