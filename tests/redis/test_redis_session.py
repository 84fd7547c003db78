"""What a server's error says, in the words of every version, and commands as the protocol has them."""

import asyncio
import socket
import struct
from contextlib import suppress

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ReadOnlyError, ResponseError

from routeguard.ledgers.redis import session
from routeguard.ledgers.redis.session import (
    FAILURES,
    Session,
    connection_for,
    error_code,
    pack,
    says_unavailable,
)

OF_6_2 = "Error running script (call to f_99): @user_script:1: @user_script: 1: -READONLY You can't write"


@pytest.mark.parametrize(
    ("error", "code", "is_unavailable"),
    [
        (ResponseError("READONLY You can't write against a read only replica."), "READONLY", True),
        (ReadOnlyError("READONLY You can't write"), "READONLY", True),
        (ResponseError(OF_6_2), "READONLY", True),
        (ResponseError(f"ERR {OF_6_2}"), "READONLY", True),
        (ResponseError("LOADING Redis is loading the dataset in memory"), "LOADING", True),
        (ResponseError("ERR user_script:7: -READONLY is what somebody called a key"), "ERR", False),
        (ResponseError("OOM command not allowed"), "OOM", False),
    ],
)
def test_the_code_of_an_error_says_whether_another_server_may_do_better(
    error: ResponseError, code: str, is_unavailable: bool
) -> None:
    assert (error_code(error), says_unavailable(error)) == (code, is_unavailable)


@given(st.lists(st.text(), min_size=1))
def test_a_command_is_packed_alike_with_and_without_hiredis(command: list[str]) -> None:
    with_hiredis = pack(command)
    packer, session._pack_in_c = session._pack_in_c, None
    try:
        without = pack(command)
    finally:
        session._pack_in_c = packer

    assert packer is not None, "the tests install it"
    assert with_hiredis == without


def test_a_connection_that_was_lost_is_a_failure_on_uvloop_as_well() -> None:
    async def answer_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b":1\r\n")
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def send_to_the_lost() -> None:
        async with await asyncio.start_server(answer_and_reset, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            session = Session(connection_for(f"redis://127.0.0.1:{port}/0"))
            await session.open()
            writer = session._connection._writer
            assert writer is not None
            async with asyncio.timeout(5):
                with suppress(OSError):
                    await writer.wait_closed()
            await session.send([("PING",)])

    with pytest.raises(FAILURES):
        uvloop.run(send_to_the_lost())
