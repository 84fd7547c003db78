"""One connection: commands out in one write, answers back in order.

redis-py opens it, authenticates and speaks the protocol. Its client and pool are left out: they send a command again
on their own (up to eleven times), and a command here is sent again at most once, by `line`.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from routeguard.ledgers.redis.scripts import ALLOW_OOM

#: What a server says instead of working; another try, or another server behind the name, may do better.
UNAVAILABLE = frozenset(
    {"READONLY", "LOADING", "MASTERDOWN", "BUSY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "UNKILLABLE", "NOAUTH"}
)
#: "Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY You can't write …"
INSIDE_A_SCRIPT = re.compile(r"^(?:ERR )?Error running script .*: -([A-Z]+) ")
#: By OpenSSL's code (https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/): what helps.
CERTIFICATES = {
    9: "its certificate is not valid yet: compare the clocks of both machines",
    10: "its certificate has expired: renew it",
    62: "its certificate is for another host: write the name in it into LEDGER",
    64: "its certificate is for another host: write the name in it into LEDGER",
}
#: What to try where the scheme of the address may be the wrong one.
NOT_TLS = "if it works without TLS, LEDGER begins with redis://"
TLS = "if it works with TLS, LEDGER begins with rediss://"
#: Every way an exchange can fail as a whole.
FAILURES = (RedisError, OSError, TimeoutError)


def connection_for(url: str) -> AbstractConnection:
    """An unopened connection. RESP2 and no CLIENT SETINFO: two commands less to permit, nothing lost.

    Raises:
        ValueError: The address cannot be read.
    """
    try:
        given: dict[str, Any] = dict(parse_url(url))
        parts = urlsplit(url)
    except ValueError:
        # The parser's own words may hold a piece of the password.
        raise ValueError("cannot be read as the address of a Redis server") from None
    # What the parser takes for nothing at all would be another database, or no socket.
    if parts.scheme == "unix":
        if not parts.path.strip("/") or parts.netloc.rpartition("@")[2]:
            raise ValueError("names no socket; write for example 'unix:///run/redis.sock?db=0'")
    elif not (parts.path.removeprefix("/") or "0").isdecimal():
        raise ValueError("names a database that is not a number; write for example 'redis://localhost:6379/0'")
    kind = given.pop("connection_class", Connection)
    for ours in (
        "protocol",
        "decode_responses",
        "retry",
        "retry_on_timeout",
        "retry_on_error",
        "health_check_interval",
    ):
        given.pop(ours, None)
    # The timeouts of a decision are ours, around whole exchanges; one more in each read would only cost time.
    given["socket_timeout"] = given["socket_connect_timeout"] = None
    assert kind in {Connection, SSLConnection, UnixDomainSocketConnection}, "what parse_url knows"
    try:
        connection: AbstractConnection = kind(protocol=2, decode_responses=True, driver_info=None, **given)
    except (TypeError, RedisError):
        raise ValueError("has something after the question mark that no connection takes; see docs/redis.md") from None
    return connection


class Session:
    """An open connection, and what its server can do. Its caller limits the time of every method."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        #: Scripts may ask to run when memory is full.
        self.allow_oom = False
        #: Names of the scripts whose text was sent over it.
        self.known: set[str] = set()

    async def open(self) -> None:
        """Connect, authenticate, and find out what the server understands.

        A failure that another scheme of the address may help has a note that says so.
        """
        try:
            await self._connection.connect()  # type: ignore[no-untyped-call]  # redis-py 8.1 types all but this
            (answer,) = await self.exchange([("EVAL", f"{ALLOW_OOM}return 1", "0")])
        except (RedisConnectionError, InvalidResponse, TimeoutError, asyncio.CancelledError) as failure:
            remedy = _other_scheme(self._connection, failure)
            if remedy is not None:
                failure.add_note(remedy)
            raise
        self.allow_oom = answer == 1

    async def exchange(self, commands: Sequence[Sequence[str]]) -> list[object]:
        """The answers to these commands, in order; an error of one command is its answer."""
        await self.send(commands)
        return [await self.read() for _ in commands]

    async def send(self, commands: Sequence[Sequence[str]]) -> None:
        """Write these commands at once; `read` gives the answers in their order."""
        try:
            await self._connection.send_packed_command(b"".join(map(pack, commands)), check_health=False)
        except RuntimeError as closed:
            # What uvloop says, and asyncio does not, of a connection that was lost since somebody last looked.
            raise ConnectionResetError(str(closed)) from closed

    async def read(self) -> object:
        """The next answer; an error of one command is its answer."""
        try:
            answer: object = await self._connection.read_response()
        except ResponseError as error:
            return error
        return answer

    async def close(self) -> None:
        """Close without waiting for the other side. What was on its way stays unread."""
        await self._connection.disconnect(nowait=True)


def pack(command: Sequence[str]) -> bytes:
    """A command as the protocol has it (RESP, "Sending commands to a Redis server").

    redis-py's own packing takes half of the time of a reserve (bench_redis): it asks each word what it is.
    """
    if _pack_in_c is not None:
        return _pack_in_c(tuple(command))
    words = [f"*{len(command)}\r\n"]
    for word in command:
        size = len(word) if word.isascii() else len(word.encode())
        words.append(f"${size}\r\n{word}\r\n")
    return "".join(words).encode()


def _find_pack_in_c() -> Callable[[tuple[str, ...]], bytes] | None:
    """hiredis is optional, for redis-py as well."""
    try:
        from hiredis import pack_command
    except ImportError:
        return None
    return pack_command  # type: ignore[return-value,unused-ignore]  # its stub knows tuples of one word


_pack_in_c = _find_pack_in_c()


def says_unavailable(error: ResponseError) -> bool:
    """Whether this error is about the server and not about the command."""
    return error_code(error) in UNAVAILABLE


def said_of(failure: BaseException) -> str:
    """What failed, and what helps where that is known; never in a server's own words, which may name anything."""
    kind = type(failure).__name__
    cause = failure.__cause__ or failure.__context__ or failure
    if isinstance(cause, ssl.SSLCertVerificationError):
        known = "its certificate is not one to trust: name the certificate of its authority with ?ssl_ca_certs=/file"
        return f"{kind}: {CERTIFICATES.get(cause.verify_code, known)}"
    if isinstance(cause, FileNotFoundError):
        return f"{kind}: a file that LEDGER names is not there, a socket or what is after the question mark"
    if isinstance(failure, ResponseError) and "DB index" in str(failure):
        return f"{kind}: it has no database of the number in LEDGER"
    if isinstance(failure, AuthenticationError):
        return f"{kind}: it refuses the user or the password in LEDGER"
    # Whoever limits the time raises an error of its own, from the one in which the waiting ended.
    notes = {*getattr(failure, "__notes__", ()), *getattr(cause, "__notes__", ())}
    schemes = [scheme for scheme in (NOT_TLS, TLS) if scheme in notes]
    return f"{kind}: {schemes[0]}" if schemes else kind


def _other_scheme(connection: AbstractConnection, failure: BaseException) -> str | None:
    """What to try where somebody listens, and says nothing that makes sense."""
    if isinstance(connection, SSLConnection):
        # A server without TLS waits for the end of what it takes for a line, or answers that it is no command. What
        # else may be wrong with TLS is said of certificates.
        waited = isinstance(failure, (asyncio.CancelledError, TimeoutError))
        no_tls = isinstance(failure.__context__, ssl.SSLError)
        return NOT_TLS if waited or no_tls else None
    # One with TLS hangs up, or answers with what is no answer. What is more than that, like LOADING, made sense.
    is_remote, is_cut = isinstance(connection, Connection), isinstance(failure.__context__, ConnectionResetError | None)
    hung_up = type(failure) in {RedisConnectionError, InvalidResponse} and is_cut
    return TLS if is_remote and hung_up else None


def error_code(error: RedisError) -> str:
    """The first word of a server's error: redis-py cuts off those it knows, and keeps them beside.

    Of what a command inside a script ran into, Redis 6.2 tells in the middle of its own words.
    """
    known = getattr(error, "status_code", None)
    code = known if isinstance(known, str) else str(error).partition(" ")[0]
    inside = INSIDE_A_SCRIPT.search(str(error)) if code in {"ERR", "Error"} else None
    return inside[1] if inside else code
