"""A store that forgets what it has acknowledged is refused until it is raised to what every process knows."""

import asyncio
import time
from dataclasses import replace
from itertools import count
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.policy import Budget, Claim, LedgerUnavailable, Refused, Window
from tests.redis.calls import CALL, EVER, LOOKS_AWAY, QUICK, SLOT, balance, reserve, settle, try_reserve, until
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.proxy import FaultProxy
from tests.redis.server import RedisServer

#: The most that a store waits for those who may know more.
LONGEST = 5.0
MINE = Budget("total", Window("total", ZoneInfo("UTC")), 3 * CALL, per_client=True)


async def test_a_restart_without_a_file_forgets_nothing_a_running_process_knows(
    opens: Opens, own_server: RedisServer
) -> None:
    ledger = opens(own_server.url, timing=QUICK)
    await _spend(ledger, "spent", 5 * CALL)
    running = await reserve(ledger, "running")
    own_server.restart()

    first = await try_reserve(ledger, "lost")
    await until(lambda: _admits(ledger))

    assert first is None
    found = await balance(ledger)
    assert (found.settled_nanousd, found.open_nanousd, found.orphaned_nanousd) == (5 * CALL, 2 * CALL, 0)
    assert await ledger.in_flight() == 2
    assert await settle(ledger, running, 1)
    assert (await balance(ledger)).charged_nanousd == 5 * CALL + CALL + 1


async def test_a_restart_with_an_append_only_file_forgets_nothing_at_all(opens: Opens, own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "appendonly", "yes")
    own_server.command("CONFIG", "SET", "appendfsync", "always")
    own_server.options = ("--appendonly", "yes")
    ledger = opens(own_server.url, timing=QUICK)
    await _wait_for_file(own_server)
    await _spend(ledger, "spent", 5 * CALL)
    running = await reserve(ledger, "running")

    own_server.restart()
    await until(lambda: _admits(ledger))

    assert await settle(ledger, running, 1)
    found = await balance(ledger)
    assert (found.settled_nanousd, found.open_nanousd) == (5 * CALL + 1, CALL)


async def test_an_idle_process_raises_what_only_it_knows_before_anybody_reserves(
    opens: Opens, own_server: RedisServer
) -> None:
    timing = replace(QUICK, grace=LONGEST)
    idle, busy = [opens(own_server.url, namespace="idle", timing=timing) for _ in range(2)]
    await busy.refresh()
    await _spend(idle, "spent", EVER.limit_nanousd)
    own_server.command("FLUSHALL")
    first = await try_reserve(busy, "first")

    async def raised() -> bool:
        restoring = busy._store.is_restoring or idle._store.is_restoring
        return not restoring and (await balance(busy)).settled_nanousd == EVER.limit_nanousd

    await until(raised)
    # Everybody has had the time that a store waits for them.
    own_server.command("HSET", "{rg:idle}:ledger", "until", "0")
    with pytest.raises(Refused) as refused:
        await reserve(busy, "next")

    found = await balance(busy)
    assert first is None
    assert refused.value.cause == "budget_exhausted"
    assert (found.settled_nanousd, found.charged_nanousd) == (EVER.limit_nanousd, EVER.limit_nanousd)


async def test_clients_keep_what_they_spent_the_salt_its_value_and_the_switch_its_place(
    opens: Opens, own_server: RedisServer
) -> None:
    namespace = fresh_namespace()
    ledger = opens(own_server.url, namespace=namespace, timing=QUICK)
    for client in ("a", "b"):
        held = await ledger.reserve(client, money=[Claim(MINE, client, CALL)], slots=[Claim(SLOT, client, 1)])
        await settle(ledger, held, 3 * CALL)
    await ledger.set_paused(paused=True)
    salt = ledger.client_salt
    own_server.command("FLUSHALL")
    newcomer = opens(own_server.url, namespace=namespace, timing=QUICK)
    await newcomer.refresh()

    names = map(str, count())

    async def refused() -> bool:
        try:
            await newcomer.reserve(next(names), money=[Claim(MINE, "b", CALL)], slots=[])
        except Refused as refusal:
            return refusal.cause == "budget_exhausted" and refusal.per_client
        return False

    await until(refused)
    await until(lambda: _knows(newcomer, salt))
    assert newcomer.paused
    assert ledger.client_salt == salt


async def test_a_counter_that_fell_is_noticed_without_a_new_epoch(opens: Opens, own_server: RedisServer) -> None:
    """A failover may lose the last writes and keep everything else."""
    ledger = opens(own_server.url, namespace="fell", timing=QUICK)
    await _spend(ledger, "spent", 9 * CALL)
    own_server.command("HSET", "{rg:fell}:ledger", "total|UTC|0|0|a", "1 0 0 0 0")

    async def raised() -> bool:
        return (await balance(ledger)).settled_nanousd == 9 * CALL

    await until(raised)


async def test_a_restored_counter_is_raised_and_never_lowered(opens: Opens, own_server: RedisServer) -> None:
    namespace = fresh_namespace()
    ledger = opens(own_server.url, namespace=namespace, timing=LOOKS_AWAY)
    await _spend(ledger, "spent", 2 * CALL)
    own_server.command("FLUSHALL")
    # A store found empty by a process that has not used it is a new ledger.
    newcomer = opens(own_server.url, namespace=namespace, timing=LOOKS_AWAY)
    await _spend(newcomer, "new", 7 * CALL)

    first = await try_reserve(ledger, "lost")
    await until(lambda: _admits(ledger))

    assert first is None
    assert (await balance(ledger)).settled_nanousd == 7 * CALL


async def test_an_orphan_that_was_lost_is_orphaned_money_again(opens: Opens, own_server: RedisServer) -> None:
    """Open money of which no living process knows the owner."""
    namespace = fresh_namespace()
    witness = opens(own_server.url, namespace=namespace, timing=QUICK)
    dead = RedisLedger(own_server.url, namespace=namespace, timing=QUICK)
    reservation = await reserve(dead, "dead")
    await balance(witness)
    await dead.aclose()
    del reservation
    own_server.command("FLUSHALL")

    await until(lambda: _admits(witness))

    found = await balance(witness)
    assert (found.orphaned_nanousd, found.open_nanousd) == (CALL, CALL)


async def test_nothing_is_reserved_while_others_may_still_raise_the_counters(
    opens: Opens, own_server: RedisServer
) -> None:
    ledger = opens(own_server.url, timing=QUICK)
    await _spend(ledger, "spent", CALL)
    own_server.command("FLUSHALL")

    began = asyncio.get_running_loop().time()
    await until(lambda: _admits(ledger))

    assert asyncio.get_running_loop().time() - began >= QUICK.grace


async def test_a_clock_set_back_while_nobody_reserves_makes_no_day_of_it(opens: Opens, own_server: RedisServer) -> None:
    ledger = opens(own_server.url, namespace="back", timing=QUICK)
    await ledger.refresh()
    own_server.command("HSET", "{rg:back}:ledger", "until", str(time.time_ns() // 1000 + 86_400 * 1_000_000))

    first = await try_reserve(ledger, "first")
    left_us = int(own_server.command("HGET", "{rg:back}:ledger", "until").split()[1]) - time.time_ns() // 1000

    assert first is None
    assert left_us <= LONGEST * 1_000_000


async def test_a_reserve_that_was_refused_when_it_came_again_is_released_where_it_came_before(
    opens: Opens, own_server: RedisServer
) -> None:
    """The store executed it, lost the answer, and was told to wait for others before it came again."""
    async with FaultProxy(own_server.port) as proxy:
        ledger = opens(proxy.url, namespace="twice", timing=LOOKS_AWAY)
        await ledger.refresh()

        async def hold_back() -> None:
            # While the first answer is on its way: another process has found that the store forgot.
            proxy.delay = None
            until = str(time.time_ns() // 1000 + round(LONGEST * 1_000_000))
            await asyncio.to_thread(own_server.command, "HSET", "{rg:twice}:ledger", "until", until)
            raise ConnectionResetError

        proxy.delay = hold_back
        answer = await try_reserve(ledger, "one")

        async def released() -> bool:
            return (await balance(ledger)).charged_nanousd == 0 and await ledger.in_flight() == 0

        assert answer is None
        assert own_server.command("HEXISTS", "{rg:twice}:calls", "one") == ":1\r\n", "it had been executed"
        await until(released)


async def test_a_namespace_of_another_version_is_refused(opens: Opens, own_server: RedisServer) -> None:
    own_server.command("HSET", "{rg:old}:ledger", "epoch", "e", "schema", "0", "salt", "00")
    ledger = opens(own_server.url, namespace="old", timing=QUICK)

    with pytest.raises(LedgerUnavailable):
        await ledger.refresh()


async def _spend(ledger: RedisLedger, name: str, nanousd: int) -> None:
    await settle(ledger, await reserve(ledger, name), nanousd)


async def _admits(ledger: RedisLedger) -> bool:
    return await try_reserve(ledger, f"again-{time.monotonic_ns()}") is not None


async def _knows(ledger: RedisLedger, salt: bytes) -> bool:
    return ledger.client_salt == salt


async def _wait_for_file(server: RedisServer) -> None:
    async def written() -> bool:
        return "aof_rewrite_in_progress:0" in server.command("INFO", "persistence")

    await until(written)
