"""No history tells a ledger from plain sums.

`LedgerContract` names what each ledger must do; here nobody chose what happens.
"""

import faulthandler
from collections.abc import Callable, Iterator
from pathlib import Path

import fakeredis
import pytest
from fakeredis.aioredis import FakeAsyncRedisConnection
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio.connection import AbstractConnection

from routeguard.ledgers.memory import MemoryLedger
from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import Ledger
from routeguard.testing import FakeClock
from tests.histories.machine import Histories
from tests.redis.calls import PATIENT
from tests.redis.server import RedisServer, needed_server
from tests.sqlite.files import close_all, ledger_at


def test_no_history_tells_the_memory_ledger_from_plain_sums() -> None:
    play("MemoryHistories", lambda clock, _: MemoryLedger(clock=clock), histories=100, is_shared=False)


def test_no_history_tells_the_sqlite_ledger_from_plain_sums(file: Path) -> None:
    play("SqliteHistories", lambda clock, namespace: ledger_at(file, clock, namespace=namespace), histories=50)


def test_no_history_tells_the_redis_ledger_on_fakeredis_from_plain_sums() -> None:
    server = fakeredis.FakeServer()

    def connect() -> AbstractConnection:
        return FakeAsyncRedisConnection(server=server, decode_responses=True, protocol=2, driver_info=None)

    def opens(clock: FakeClock, namespace: str) -> Ledger:
        return RedisLedger("redis://", namespace=namespace, timing=PATIENT, connect=connect, test_clock=clock)

    play("FakeredisHistories", opens, histories=25)


def test_no_history_tells_the_redis_ledger_on_a_server_from_plain_sums(server: RedisServer) -> None:
    def opens(clock: FakeClock, namespace: str) -> Ledger:
        return RedisLedger(server.url, namespace=namespace, timing=PATIENT, test_clock=clock)

    play("RedisHistories", opens, histories=25)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "ledger.db"
    close_all()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    program = needed_server("its histories were played on fakeredis alone")
    with RedisServer(program) as started:
        yield started


def play(name: str, opens: Callable[[FakeClock, str], Ledger], *, histories: int, is_shared: bool = True) -> None:
    machine = type(name, (Histories,), {"opens": staticmethod(opens), "is_shared": is_shared})
    asked = settings(
        max_examples=histories,
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        phases=set(settings().phases) - {Phase.explain},
        report_multiple_bugs=False,
    )
    # To find the shortest history may take longer than a test may, and without it nobody understands the failure.
    faulthandler.cancel_dump_traceback_later()
    run_state_machine_as_test(machine, settings=asked)
