"""Two real servers: one is demoted or dies, and the other takes its name, with everything or with less."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import LedgerUnavailable
from tests.redis.calls import CALL, LOOKS_AWAY, QUICK, balance, reserve, settle, try_reserve, until
from tests.redis.conftest import Opens
from tests.redis.proxy import FaultProxy
from tests.redis.server import RedisServer


@pytest.fixture
def replica(redis_program: str, own_server: RedisServer) -> Iterator[RedisServer]:
    """Follows `own_server`."""
    own_server.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    with RedisServer(redis_program) as server:
        server.command("REPLICAOF", "127.0.0.1", str(own_server.port))
        yield server


@pytest.fixture
async def name(own_server: RedisServer) -> AsyncIterator[FaultProxy]:
    """What the address in the settings leads to."""
    async with FaultProxy(own_server.port) as proxy:
        yield proxy


async def test_after_a_demotion_the_new_primary_is_found_behind_the_name(
    opens: Opens, own_server: RedisServer, replica: RedisServer, name: FaultProxy
) -> None:
    ledger = opens(name.url, timing=QUICK)
    await _spend(ledger, "spent", 5 * CALL)
    running = await reserve(ledger, "running")
    await _caught_up(own_server, replica)

    replica.command("REPLICAOF", "NO", "ONE")
    own_server.command("REPLICAOF", "127.0.0.1", str(replica.port))
    while_demoted = await try_reserve(ledger, "demoted")
    with pytest.raises(LedgerUnavailable):
        await settle(ledger, running, 7)
    name.upstream = replica.port

    assert while_demoted is None

    async def stands() -> bool:
        found = await balance(ledger)
        return (found.settled_nanousd, found.charged_nanousd) == (5 * CALL + 7, 5 * CALL + 7)

    await until(stands)
    assert await reserve(ledger, "after")


async def test_what_a_promoted_replica_had_not_received_is_raised_to_what_the_process_knows(
    opens: Opens, own_server: RedisServer, replica: RedisServer, name: FaultProxy
) -> None:
    ledger = opens(name.url, timing=QUICK)
    await _spend(ledger, "received", 2 * CALL)
    await _caught_up(own_server, replica)
    replica.command("REPLICAOF", "NO", "ONE")
    await _spend(ledger, "lost", 3 * CALL)
    running = await reserve(ledger, "running")

    own_server.kill()
    name.upstream = replica.port
    await until(lambda: _admits(ledger))

    assert await settle(ledger, running, 7)
    found = await balance(ledger)
    assert (found.settled_nanousd, found.open_nanousd) == (5 * CALL + 7, CALL)
    assert await ledger.in_flight() == 1


async def test_open_money_that_a_promoted_replica_had_not_received_is_charged_when_its_request_ends(
    opens: Opens, own_server: RedisServer, replica: RedisServer, name: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """No counter that never falls has fallen: the ending is what tells."""
    ledger = opens(name.url, timing=QUICK)
    await _spend(ledger, "received", 2 * CALL)
    await _caught_up(own_server, replica)
    replica.command("REPLICAOF", "NO", "ONE")
    running = await reserve(ledger, "running")

    own_server.kill()
    name.upstream = replica.port

    async def is_back() -> bool:
        return (await balance(ledger)).settled_nanousd == 2 * CALL

    await until(is_back)
    assert await settle(ledger, running, 7) is False
    assert "a reservation is gone" in caplog.text
    await until(lambda: _admits(ledger))
    found = await balance(ledger)
    assert (found.settled_nanousd, found.orphaned_nanousd, found.open_nanousd) == (2 * CALL, CALL, CALL)


async def test_a_counter_that_was_evicted_anyway_is_noticed_refused_and_raised(
    opens: Opens, own_server: RedisServer
) -> None:
    """Somebody changed the policy after the start."""
    ledger = opens(own_server.url, namespace="evicted", timing=LOOKS_AWAY)
    assert await ledger.check()
    await _spend(ledger, "spent", 5 * CALL)
    running = await reserve(ledger, "running")
    await asyncio.to_thread(_evict, own_server, "{rg:evicted}:ledger")

    first = await try_reserve(ledger, "first")
    await until(lambda: _admits(ledger))

    assert first is None
    assert await settle(ledger, running, 7)
    found = await balance(ledger)
    assert found.settled_nanousd == 5 * CALL + 7
    # The records may have been evicted with it or not; then what was open may stay charged as orphaned.
    assert 6 * CALL + 7 <= found.charged_nanousd <= 7 * CALL + 7


def _evict(server: RedisServer, key: str) -> None:
    """A cache beside the ledger fills the memory until it is gone; then there is room again."""
    used = int(server.command("INFO", "memory").split("used_memory:")[1].split()[0])
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    server.command("CONFIG", "SET", "maxmemory", str(used + 500_000))
    for number in range(20_000):
        server.command("SET", f"cache:{number}", "x" * 10_000)
        if server.command("EXISTS", key) == ":0\r\n":
            break
    else:
        pytest.fail("the counter was not evicted")
    server.command("CONFIG", "SET", "maxmemory", "0")
    server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def _spend(ledger: RedisLedger, name: str, nanousd: int) -> None:
    await settle(ledger, await reserve(ledger, name), nanousd)


async def _admits(ledger: RedisLedger) -> bool:
    return await try_reserve(ledger, f"again-{time.monotonic_ns()}") is not None


async def _caught_up(primary: RedisServer, replica: RedisServer) -> None:
    """The replica holds everything that was acknowledged."""

    async def equal() -> bool:
        found = [server.command("INFO", "replication") for server in (primary, replica)]
        offsets = [info.split("master_repl_offset:")[1].split()[0] for info in found]
        return "master_link_status:up" in found[1] and offsets[0] == offsets[1]

    await until(equal)
