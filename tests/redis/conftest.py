"""Real servers, and a loud word where there is none."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.line import Timing
from tests.redis.calls import PATIENT
from tests.redis.server import RedisServer, needed_server

Opens = Callable[..., RedisLedger]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """redis-py knows asyncio alone."""
    return "asyncio"


@pytest.fixture(scope="session")
def redis_program() -> str:
    """A server to start; without one this fails where it must be there, and is named at the end elsewhere."""
    return needed_server("the tests of the redis ledger did not run (RG_TEST_REDIS_URL names one for some of them)")


@pytest.fixture(scope="session")
def shared_server(redis_program: str) -> Iterator[RedisServer]:
    """One for the tests that leave it as it was."""
    with RedisServer(redis_program) as server:
        yield server


@pytest.fixture
def own_server(redis_program: str) -> Iterator[RedisServer]:
    """One to be stopped, killed and flushed."""
    with RedisServer(redis_program) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    """The server that the environment names, else our own."""
    named = os.environ.get("RG_TEST_REDIS_URL")
    if named is not None:
        assert urlsplit(named).scheme in {"redis", "rediss", "unix"}
        return named
    server: RedisServer = request.getfixturevalue("shared_server")
    return server.url


@pytest.fixture
async def opens() -> AsyncIterator[Opens]:
    """Opens ledgers as processes do, and closes them behind the test."""
    opened: list[RedisLedger] = []

    def open_one(url: str, *, namespace: str | None = None, **options: object) -> RedisLedger:
        timing = options.pop("timing", PATIENT)
        assert isinstance(timing, Timing)
        ledger = RedisLedger(url, namespace=namespace or fresh_namespace(), timing=timing)
        opened.append(ledger)
        return ledger

    yield open_one
    for ledger in opened:
        await ledger.aclose()


def fresh_namespace() -> str:
    """Nobody else's counters."""
    return f"test-{os.urandom(6).hex()}"
