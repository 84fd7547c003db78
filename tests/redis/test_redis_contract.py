"""The suite every ledger passes, unchanged: on a real server, and on fakeredis, which has none of its limits."""

from collections.abc import AsyncIterator, Callable

import fakeredis
import pytest
from fakeredis.aioredis import FakeAsyncRedisConnection
from redis.asyncio.connection import AbstractConnection

from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import Ledger
from routeguard.testing import FakeClock, LedgerContract
from tests.redis.calls import PATIENT
from tests.redis.conftest import fresh_namespace


class _RedisContract(LedgerContract):
    """Every ledger a test opens is closed behind it."""

    opened: list[RedisLedger]

    @pytest.fixture(autouse=True)
    async def _closes(self) -> AsyncIterator[None]:
        self.opened = []
        yield
        for ledger in self.opened:
            await ledger.aclose()

    def open(
        self, url: str, clock: FakeClock, clients_max: int, connect: Callable[[], AbstractConnection] | None
    ) -> Ledger:
        ledger = RedisLedger(
            url,
            namespace=fresh_namespace(),
            clients_max=clients_max,
            timing=PATIENT,
            connect=connect,
            test_clock=clock,
        )
        self.opened.append(ledger)
        return ledger


class TestOnARealServer(_RedisContract):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url = redis_url

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        return self.open(self.url, clock, clients_max, None)


class TestOnFakeredis(_RedisContract):
    #: A hundred take 20 s in a Lua that is none of a server's. The servers below play them all.
    orders = 25

    @pytest.fixture(autouse=True)
    def _server(self) -> None:
        # Reads its files when it is made, which must not happen on the loop.
        self.server = fakeredis.FakeServer()

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        def connect() -> AbstractConnection:
            return FakeAsyncRedisConnection(server=self.server, decode_responses=True, protocol=2, driver_info=None)

        return self.open("redis://", clock, clients_max, connect)
