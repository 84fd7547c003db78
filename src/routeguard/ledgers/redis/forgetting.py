"""Removing every key of a namespace that nobody uses any more."""

import asyncio
from collections.abc import Callable
from typing import Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from routeguard.ledgers.redis.session import FAILURES, Session, error_code
from routeguard.policy import LedgerUnavailable

#: What a look through all keys of a large store may take.
FORGET_SECONDS: Final = 10.0
#: Keys the server looks at in one command: about half a millisecond of its time.
KEYS_PER_SCAN: Final = "1000"


async def forget_keys(connect: Callable[[], AbstractConnection], pattern: str) -> None:
    """Unlink what matches `pattern`.

    Raises:
        LedgerUnavailable: The store did not answer in time, or does not permit it.
    """
    session = Session(connect())
    try:
        async with asyncio.timeout(FORGET_SECONDS):
            await session.open()
            cursor = "0"
            while True:
                scanned = await _asked(session, "SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN)
                assert isinstance(scanned, list), "SCAN answers with a cursor and keys"
                cursor, keys = str(scanned[0]), scanned[1]
                if keys:
                    await _asked(session, "UNLINK", *keys)
                if cursor == "0":
                    return
    except FAILURES as failure:
        raise LedgerUnavailable(
            f"the store does not answer ({type(failure).__name__}); keys {pattern} may be left"
        ) from None
    finally:
        await session.close()


async def _asked(session: Session, *command: str) -> object:
    (answer,) = await session.exchange([command])
    if isinstance(answer, ResponseError):
        raise LedgerUnavailable(f"the store does not permit {command[0]} ({error_code(answer)})")
    return answer
