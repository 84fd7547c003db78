"""Reading a body before the application does, and giving it back."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.replay import BodyTooLarge, ClientGone, Message, Receive, Replay, read_body


def chunk(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


DISCONNECT: Message = {"type": "http.disconnect"}


class Server:
    """A server's `receive`: the scripted messages in order, then for ever nothing."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.waiting = list(messages)
        self.calls = 0

    async def __call__(self) -> Message:
        await anyio.lowlevel.checkpoint()
        self.calls += 1
        if not self.waiting:
            await anyio.sleep_forever()
        return self.waiting.pop(0)


async def read(receive: Receive, *, bytes_max: int = 100) -> bytes:
    body, _ = await read_body(receive, bytes_max=bytes_max)
    return body


@pytest.mark.parametrize(
    ("messages", "body"),
    [
        ([chunk(b"")], b""),
        ([chunk(b"whole")], b"whole"),
        ([chunk(b"in ", more=True), chunk(b"", more=True), chunk(b"parts")], b"in parts"),
        ([chunk(b"all", more=True), chunk(b"")], b"all"),
        ([{"type": "http.request"}], b""),
        ([{"type": "http.request", "body": b"no more"}], b"no more"),
    ],
    ids=["empty", "whole", "parts", "late end", "bare", "no more"],
)
async def test_a_body_is_read_whole_and_given_back_as_one_message(messages: list[Message], body: bytes) -> None:
    server = Server([*messages, DISCONNECT])

    found, replayed = await read_body(server, bytes_max=100)

    assert found == body
    assert replayed == [chunk(body)]
    assert server.calls == len(messages), "nothing is read past the end"


@pytest.mark.parametrize(
    "messages",
    [
        [chunk(bytes(100))],
        [chunk(bytes(99), more=True), chunk(b"x")],
        [chunk(b"x", more=True)] * 99 + [chunk(b"x")],
    ],
    ids=["one", "two", "each byte"],
)
async def test_the_limit_is_inclusive(messages: list[Message]) -> None:
    assert len(await read(Server(messages))) == 100


@pytest.mark.parametrize(
    ("messages", "reads"),
    [
        ([chunk(bytes(101))], 1),
        ([chunk(bytes(100), more=True), chunk(b"x", more=True), chunk(b"never read")], 2),
        ([chunk(b"x", more=True)] * 200, 101),
    ],
    ids=["one", "two", "each byte"],
)
async def test_one_byte_more_is_refused_and_nothing_further_is_read(messages: list[Message], reads: int) -> None:
    server = Server(messages)

    with pytest.raises(BodyTooLarge):
        await read(server)

    assert server.calls == reads


@pytest.mark.parametrize("more", [True, False], ids=["unfinished", "finished"])
async def test_what_was_read_of_a_large_body_is_not_lost(more: bool) -> None:
    """The observe mode passes it on as it came."""
    server = Server([chunk(b"a" * 100, more=True), chunk(b"b", more=more), chunk(b"rest")])

    with pytest.raises(BodyTooLarge) as problem:
        await read(server)
    replay = Replay(server, problem.value.read)

    first = await replay()
    assert first == chunk(b"a" * 100 + b"b", more=more)
    assert await replay() == chunk(b"rest")


@pytest.mark.parametrize("before", [[], [chunk(b"half", more=True)]], ids=["at once", "half way"])
async def test_a_client_that_leaves_before_the_end_is_gone(before: list[Message]) -> None:
    with pytest.raises(ClientGone):
        await read(Server([*before, DISCONNECT]))


async def test_a_receive_that_returns_no_coroutine_is_awaited_all_the_same() -> None:
    """As granian's does not."""

    class Ready:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield from anyio.lowlevel.checkpoint().__await__()
            return chunk(b"ready")

    receive: Callable[[], Awaitable[Message]] = Ready

    assert await read(receive) == b"ready"


class TestReplay:
    async def test_the_application_gets_the_body_and_then_what_the_server_says(self) -> None:
        server = Server([{"type": "http.request", "body": b"", "more_body": False, "extra": 1}, DISCONNECT])
        replay = Replay(server, [chunk(b"one", more=True), chunk(b"two")])

        found = [await replay() for _ in range(4)]

        assert [message.get("body") for message in found] == [b"one", b"two", b"", None]
        assert found[2]["extra"] == 1, "the server's own message, unchanged"

    async def test_it_remembers_a_disconnect_that_the_application_was_told_of(self) -> None:
        replay = Replay(Server([chunk(b""), DISCONNECT]), [chunk(b"body")])

        known = []
        for _ in range(3):
            await replay()
            known.append(replay.disconnected)

        assert known == [False, False, True]

    async def test_it_never_asks_the_server_before_the_application_does(self) -> None:
        server = Server([DISCONNECT])
        replay = Replay(server, [chunk(b"body")])

        await replay()

        assert server.calls == 0
        assert not replay.disconnected


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=12), st.integers(0, 120))
def test_however_a_body_is_cut_it_is_the_same_or_too_large(parts: list[bytes], bytes_max: int) -> None:
    messages = [chunk(part, more=number < len(parts)) for number, part in enumerate(parts, start=1)]

    async def main() -> bytes | None:
        try:
            return await read(Server(messages), bytes_max=bytes_max)
        except BodyTooLarge:
            return None

    found = anyio.run(main)

    whole = b"".join(parts)
    assert found == (whole if len(whole) <= bytes_max else None)
