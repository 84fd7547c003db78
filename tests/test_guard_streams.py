"""What passes through: every message at once and unchanged, and looked at in groups once it is gone."""

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from routeguard.tap import HELD_BYTES_MAX, HELD_MAX
from tests.driver import Client, chat_chunks, stream_app
from tests.guarding import USAGE, ending, guarded

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
END = {"type": "http.response.body", "body": b"", "more_body": False}


def chunk(body: Any) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


@pytest.mark.parametrize("read_response", ["stream", "all", "none"])
async def test_a_thousand_chunks_pass_unchanged_each_before_the_next_is_made(read_response: str) -> None:
    client = Client()
    chunks = chat_chunks(1_000, usage=USAGE)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for number, body in enumerate(chunks):
            await send(chunk(body))
            assert len(client.sent) == number + 2, "forwarded before anything else happens"
        await send(END)

    await client.call(guarded(app, read_response=read_response))

    assert client.error is None
    assert client.chunks == [*chunks, b""]
    assert sum(message["type"] == "http.response.start" for message in client.sent) == 1


@pytest.mark.parametrize("words", range(HELD_MAX - 6, HELD_MAX + 6))
async def test_what_was_used_is_read_wherever_a_group_ends_and_nothing_twice(words: int) -> None:
    byte_order_mark = "\ufeff".encode()  # stands nowhere but in front of the first event
    first, *others = chat_chunks(words, usage=USAGE)
    guard = guarded(stream_app([byte_order_mark + first, *others]))

    await Client().call(guard)

    assert await ending(guard) == {"settled": "0.01"}


@pytest.mark.parametrize("place", [1, 20, HELD_MAX, HELD_MAX + 1])
async def test_one_foreign_chunk_in_any_group_and_nothing_is_read(place: int) -> None:
    chunks = chat_chunks(HELD_MAX + 20, usage=USAGE)
    chunks.insert(place, b'data: {"text":"hello"}\n\n')
    guard = guarded(stream_app(chunks))

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_buffer_that_is_used_again_is_not_looked_at_later(kind: type) -> None:
    buffer = bytearray()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for body in chat_chunks(50):
            buffer[:] = body
            await send(chunk(kind(bytes(buffer)) if kind is memoryview else buffer))
        buffer[:] = chat_chunks(0, usage=USAGE)[1]  # what was never sent
        await send(END)

    guard = guarded(app)

    await Client().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_a_chunk_before_the_start_which_no_server_takes_is_not_read() -> None:
    first, *_, last = chat_chunks(1, usage=USAGE, done=False)
    client = Client()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with suppress(RuntimeError):
            await send(chunk(first + last))
        await send(START)
        await send(chunk(first))
        await send(END)

    async def strict(message: Any) -> None:
        if not client.sent and message["type"] != "http.response.start":
            raise RuntimeError("no start yet")
        await client.send(message)

    guard = guarded(app)

    await guard(client.scope(), client.receive, strict)

    assert client.chunks == [first, b""]
    assert await ending(guard) == {"kept": "0.1"}


async def test_a_client_that_leaves_in_the_middle_of_a_group_leaves_what_was_read_complete() -> None:
    client = Client(leaves_after=5)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        for body in chat_chunks(2, usage=USAGE):
            await send(chunk(body))
        await receive()
        raise RuntimeError("the client is gone")

    guard = guarded(app, on_failure="exact")

    await client.call(guard)

    assert await ending(guard) == {"settled": "0.01"}


@pytest.mark.parametrize("chunk_bytes", [HELD_BYTES_MAX, 100 * HELD_BYTES_MAX])
async def test_an_open_stream_holds_a_bounded_part_of_what_was_sent(chunk_bytes: int) -> None:
    held: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        tracemalloc.start()
        try:
            for number in range(200):
                await send(chunk(b"data: %d\n\n" % number + b":" * (chunk_bytes - 20) + b"\n\n"))
            held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        await send(END)

    async def forget(message: Any) -> None: ...

    client = Client()

    await guarded(app)(client.scope(), client.receive, forget)

    assert held[0] < 2 * HELD_MAX * HELD_BYTES_MAX + 3 * chunk_bytes


async def test_what_a_middleware_further_out_makes_of_a_message_is_not_what_is_read() -> None:
    chunks = chat_chunks(2, usage=USAGE)

    async def compressing(scope: Any, receive: Any, send: Any) -> None:
        async def compress(message: Any) -> None:
            if message["type"] == "http.response.body":
                message["body"] = b"\x1f\x8b"
            await send(message)

        await guard(scope, receive, compress)

    guard = guarded(stream_app([b"".join(chunks[:2]), b": %s\n\n" % (b"x" * 2000), *chunks[2:]]))

    await Client().call(compressing)

    assert await ending(guard) == {"settled": "0.01"}


@pytest.mark.parametrize("settings", [{}, {"rate": "unlimited"}])
async def test_headers_may_be_an_iterator(settings: dict[str, Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "headers": iter([(b"content-type", b"text/event-stream")])})
        await send(END)

    client = await Client().call(guarded(app, **settings))

    assert client.response_headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("ends", [True, False])
async def test_a_preflight_that_is_answered_with_a_file_is_kept(ends: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.zerocopysend", "file": 3, "more_body": not ends})
        if not ends:
            await send(END)

    guard = guarded(app)
    asking = [(b"origin", b"https://shop.example"), (b"access-control-request-method", b"POST")]

    await Client(method="OPTIONS", headers=asking).call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_the_last_file_of_an_answer_ends_it() -> None:
    found: list[dict[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.01")
        await send(START)
        await send({"type": "http.response.zerocopysend", "file": 3})
        found.append(await ending(guard))

    guard = guarded(app)

    await Client().call(guard)

    assert found == [{"settled": "0.01"}]


async def test_the_applications_send_passes_for_a_coroutine_function() -> None:
    seen: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(iscoroutinefunction(send))
        await send(START)
        await send(END)

    await Client().call(guarded(app))

    assert seen == [True]
