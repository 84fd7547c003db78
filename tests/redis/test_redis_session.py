"""What a server's error says, in the words of every version, and commands as the protocol has them."""

import asyncio
import socket
import ssl
import struct
from contextlib import suppress

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import AuthenticationError, BusyLoadingError, InvalidResponse, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from routeguard.ledgers.redis import session
from routeguard.ledgers.redis.session import (
    FAILURES,
    Session,
    connection_for,
    error_code,
    pack,
    said_of,
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


@pytest.mark.parametrize(
    ("verify_code", "says"),
    [
        (9, "clocks"),
        (10, "renew it"),
        (62, "another host"),
        (64, "another host"),
        (19, "ssl_ca_certs"),
        (20, "ssl_ca_certs"),
    ],
)
def test_of_a_certificate_that_is_refused_the_remedy_is_said(verify_code: int, says: str) -> None:
    refused = ssl.SSLCertVerificationError(1, "certificate is not valid for '192.0.2.7'")
    refused.verify_code = verify_code
    failure = ConnectionError("Error 1 connecting to 192.0.2.7:6379")
    failure.__cause__ = refused

    said = said_of(failure)

    assert said.startswith("ConnectionError: ")
    assert says in said
    assert "192.0.2.7" not in said


def test_a_file_or_a_database_that_is_not_there_is_said() -> None:
    no_file = ConnectionError("Error 2 connecting to unix socket: /secret.sock")
    no_file.__cause__ = FileNotFoundError(2, "No such file or directory")

    assert said_of(no_file).endswith("a socket or what is after the question mark")
    assert said_of(ResponseError("DB index is out of range")).endswith("no database of the number in LEDGER")
    assert said_of(AuthenticationError("WRONGPASS of somebody")).endswith("refuses the user or the password in LEDGER")
    assert said_of(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("url", "failure", "context", "scheme"),
    [
        ("rediss://localhost", TimeoutError, None, "without TLS, LEDGER begins with redis://"),
        ("rediss://localhost", asyncio.CancelledError, None, "without TLS, LEDGER begins with redis://"),
        ("rediss://localhost", RedisConnectionError, ssl.SSLError(), "without TLS, LEDGER begins with redis://"),
        ("rediss://localhost", RedisConnectionError, ConnectionRefusedError(), None),
        ("redis://localhost", RedisConnectionError, None, "with TLS, LEDGER begins with rediss://"),
        ("redis://localhost", RedisConnectionError, ConnectionResetError(), "with TLS, LEDGER begins with rediss://"),
        ("redis://localhost", InvalidResponse, None, "with TLS, LEDGER begins with rediss://"),
        ("redis://localhost", RedisConnectionError, ConnectionRefusedError(), None),
        ("redis://localhost", TimeoutError, None, None),
        ("redis://localhost", ResponseError, None, None),
        ("redis://localhost", BusyLoadingError, None, None),
        ("unix:///run/redis.sock", RedisConnectionError, None, None),
    ],
)
async def test_of_a_server_that_makes_no_sense_the_other_scheme_is_said(
    url: str,
    failure: type[BaseException],
    context: BaseException | None,
    scheme: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = connection_for(url)

    async def fail() -> None:
        failed = failure("in words that may name anything")
        failed.__context__ = context
        raise failed

    monkeypatch.setattr(connection, "connect", fail)
    with pytest.raises(failure) as failed:
        await Session(connection).open()

    kind = failure.__name__
    assert said_of(failed.value) == (kind if scheme is None else f"{kind}: if it works {scheme}")


def test_an_option_that_no_connection_takes_is_an_error_of_the_address() -> None:
    with pytest.raises(ValueError, match="after the question mark that no connection takes"):
        connection_for("rediss://:secret@localhost/0?ssl_cert_reqs=sometimes")


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
