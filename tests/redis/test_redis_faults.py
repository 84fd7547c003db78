"""Lost, late and mangled answers, and a store that is away: money is debited once or not at all."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from routeguard.ledgers.redis.line import Timing
from routeguard.ledgers.redis.scripts import RESERVE
from routeguard.policy import LedgerUnavailable, Reservation
from tests.redis.calls import (
    CALL,
    LOOKS_AWAY,
    PROMPT,
    QUICK,
    balance,
    reserve,
    reserved,
    settle,
    try_reserve,
    until,
)
from tests.redis.conftest import Opens
from tests.redis.proxy import Fault, FaultProxy
from tests.redis.server import RedisServer
from tests.stopwatch import seconds

#: What a decision may take, and how much later a busy machine may notice.
DECISION_SECONDS, LATE_SECONDS = 1.0, 0.25


@pytest.fixture
async def proxy(shared_server: RedisServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(shared_server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("fault", ["drop_reply", "half_reply", "drop_request"])
@pytest.mark.parametrize("times", range(1, 12))
async def test_a_reserve_whose_answers_are_lost_debits_once_or_is_released(
    opens: Opens, proxy: FaultProxy, times: int, fault: Fault
) -> None:
    ledger = opens(proxy.url, timing=LOOKS_AWAY)
    await ledger.refresh()

    proxy.break_next(times, fault)
    reservation = await try_reserve(ledger, "lost")

    expected = 0 if reservation is None else CALL
    assert (reservation is not None) == (times == 1), "one retry, and no more"

    async def stands() -> bool:
        found, streams = await balance(ledger), await ledger.in_flight()
        return proxy.left == 0 and (found.charged_nanousd, streams) == (expected, expected // CALL)

    await until(stands)


@pytest.mark.parametrize("fault", ["drop_reply", "half_reply", "drop_request"])
@pytest.mark.parametrize("times", range(1, 12))
async def test_a_settle_whose_answers_are_lost_is_written_once(
    opens: Opens, proxy: FaultProxy, times: int, fault: Fault
) -> None:
    ledger = opens(proxy.url, timing=LOOKS_AWAY)
    reservation = await reserve(ledger, "one")

    proxy.break_next(times, fault)
    try:
        await settle(ledger, reservation, 3 * CALL)
    except LedgerUnavailable:
        assert times > 1

    async def stands() -> bool:
        found, streams = await balance(ledger), await ledger.in_flight()
        parts = (found.settled_nanousd, found.open_nanousd, found.overrun_nanousd)
        return proxy.left == 0 and (*parts, streams) == (3 * CALL, 0, 2 * CALL, 0)

    await until(stands)


async def test_an_answer_lost_on_a_line_that_lives_on_gives_nobody_the_next_one(
    opens: Opens, proxy: FaultProxy
) -> None:
    ledger = opens(proxy.url, timing=LOOKS_AWAY)
    before = await reserve(ledger, "before")
    proxy.break_next(1, "skip_reply")
    lost = asyncio.create_task(try_reserve(ledger, "lost"))
    await until(lambda: asyncio.sleep(0, proxy.left == 0))

    await settle(ledger, before, 3 * CALL)
    reservation = await lost

    found = await balance(ledger)
    assert reservation is not None
    assert reservation.id == "lost"
    assert (found.settled_nanousd, found.open_nanousd, await ledger.in_flight()) == (3 * CALL, CALL, 1)


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_late_bill_whose_answers_are_lost_is_charged_once(opens: Opens, proxy: FaultProxy, times: int) -> None:
    ledger = opens(proxy.url, timing=LOOKS_AWAY)
    reservation = await reserve(ledger, "one")
    await settle(ledger, reservation, CALL)

    proxy.break_next(times, "drop_reply")
    ledger.charge_late(reservation, charge_id="late", extra_nanousd=7)

    async def stands() -> bool:
        return proxy.left == 0 and (await balance(ledger)).settled_nanousd == CALL + 7

    await until(stands)
    assert ledger.exhausted_until([(await balance(ledger)).budget], 1000 * CALL - CALL - 7) == (False, None)


async def test_a_store_that_accepts_and_never_answers_is_refused_within_a_second(
    opens: Opens, own_server: RedisServer
) -> None:
    ledger = opens(own_server.url, namespace="hangs", timing=Timing())
    kept = await reserved(ledger)
    own_server.stop()

    async def seconds_of(name: str) -> float:
        began = seconds()
        await ledger.refresh()
        assert await try_reserve(ledger, name) is None
        return seconds() - began

    slow = await asyncio.gather(*[seconds_of(f"slow-{number}") for number in range(20)])
    healthy_while_away = ledger.healthy
    fast = [await seconds_of(f"fast-{number}") for number in range(200)]
    own_server.resume()
    back = seconds()
    await until(lambda: _admits(ledger.healthy))
    recovered = seconds() - back

    assert max(slow) < DECISION_SECONDS + LATE_SECONDS
    assert sorted(fast)[180] < 0.005
    assert not healthy_while_away
    assert recovered < 2

    async def released() -> bool:
        return (await balance(ledger)).charged_nanousd == CALL and await ledger.in_flight() == 1

    await until(released)
    assert await settle(opens(own_server.url, namespace="hangs"), kept, 1)


async def test_a_store_that_is_not_there_yet_is_found_when_it_comes(opens: Opens, own_server: RedisServer) -> None:
    own_server.kill()
    ledger = opens(own_server.url, timing=PROMPT)

    began = seconds()
    with pytest.raises(LedgerUnavailable):
        await ledger.refresh()
    assert seconds() - began < DECISION_SECONDS + LATE_SECONDS
    salt_before = ledger.client_salt
    own_server.start()

    async def admits() -> bool:
        return await try_reserve(ledger, "first") is not None

    await until(admits)
    assert (salt_before, len(ledger.client_salt)) == (b"", 32)


async def test_scripts_flushed_under_load_fail_no_request_and_charge_none_twice(
    opens: Opens, own_server: RedisServer
) -> None:
    ledger = opens(own_server.url)
    flushed = 0

    async def one(number: int) -> None:
        reservation = await reserve(ledger, f"{number}")
        assert await settle(ledger, reservation, number)

    for batch in range(10):
        tasks = [asyncio.create_task(one(batch * 40 + number)) for number in range(40)]
        while not all(task.done() for task in tasks):
            await asyncio.to_thread(own_server.command, "SCRIPT", "FLUSH")
            flushed += 1
        await asyncio.gather(*tasks)

    found = await balance(ledger)
    assert flushed >= 10
    assert (found.settled_nanousd, found.charged_nanousd) == (sum(range(400)), sum(range(400)))


async def test_a_batch_of_which_the_server_knows_only_some_scripts_is_carried_whole(
    opens: Opens, own_server: RedisServer
) -> None:
    """A flush in the middle of a batch: what follows it is unknown, what went before is done."""
    ledger = opens(own_server.url)
    held = [await reserve(ledger, f"held-{number}") for number in range(5)]
    await settle(ledger, held.pop(), 1)
    own_server.command("SCRIPT", "FLUSH")
    own_server.command("SCRIPT", "LOAD", RESERVE.plain.text)

    answers = await asyncio.gather(
        *[settle(ledger, reservation, 1) for reservation in held],
        *[reserve(ledger, f"new-{number}") for number in range(5)],
    )

    found = await balance(ledger)
    assert answers[:4] == [True] * 4
    assert (found.settled_nanousd, found.open_nanousd) == (5, 5 * CALL)


@pytest.mark.parametrize("serves_stale", ["yes", "no"])
async def test_a_demoted_primary_is_left_and_taken_again(
    opens: Opens, own_server: RedisServer, serves_stale: str
) -> None:
    """READONLY, or MASTERDOWN where a replica serves no stale data."""
    ledger = opens(own_server.url, timing=QUICK)
    reservation = await reserve(ledger, "before")
    own_server.command("CONFIG", "SET", "replica-serve-stale-data", serves_stale)
    own_server.command("REPLICAOF", "127.0.0.1", "1")

    refused = await try_reserve(ledger, "demoted")
    with pytest.raises(LedgerUnavailable):
        await settle(ledger, reservation, 5)
    own_server.command("REPLICAOF", "NO", "ONE")

    assert refused is None

    async def settled() -> bool:
        return (await balance(ledger)).charged_nanousd == 5

    await until(settled)
    assert await reserve(ledger, "after") is not None


async def test_a_store_out_of_memory_reserves_nothing_and_still_takes_endings(
    opens: Opens, own_server: RedisServer
) -> None:
    ledger = opens(own_server.url)
    reservation = await reserve(ledger, "before")
    own_server.command("CONFIG", "SET", "maxmemory", "1")

    refused = await try_reserve(ledger, "full")
    ended = await settle(ledger, reservation, 5)

    found = await balance(ledger)
    assert refused is None
    assert ended is True
    assert (found.settled_nanousd, found.open_nanousd) == (5, 0)


async def test_cancelled_waiters_get_nobodys_answer_and_what_they_were_admitted_to_is_released(
    opens: Opens, proxy: FaultProxy
) -> None:
    rng = random.Random(7)

    async def delay() -> None:
        await asyncio.sleep(rng.random() * 0.01)

    proxy.delay = delay
    ledger = opens(proxy.url)
    await ledger.refresh()
    admitted: dict[int, Reservation] = {}

    async def one(number: int) -> None:
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        admitted[number] = await reserve(ledger, f"c{number}", amount=number)

    for batch in range(10):
        tasks = [asyncio.create_task(one(1 + batch * 50 + number)) for number in range(50)]
        for task in rng.sample(tasks, 25):
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(rng.random() * 0.001)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert len(admitted) >= 250
    assert all((held.id, held.amount_nanousd) == (f"c{number}", number) for number, held in admitted.items())

    async def released() -> bool:
        found = await balance(ledger)
        return (found.open_nanousd, await ledger.in_flight()) == (sum(admitted), len(admitted))

    await until(released)


async def test_a_reserve_given_up_before_it_was_sent_is_never_sent(opens: Opens, own_server: RedisServer) -> None:
    """The line is still connecting."""
    ledger = opens(own_server.url, namespace="unsent")
    own_server.stop()
    ahead = asyncio.create_task(reserve(ledger, "ahead"))
    await asyncio.sleep(0.01)
    behind = asyncio.create_task(reserve(ledger, "behind"))
    await asyncio.sleep(0.01)

    behind.cancel()
    await asyncio.gather(behind, return_exceptions=True)
    own_server.resume()
    await ahead

    assert (await balance(ledger)).charged_nanousd == CALL
    assert own_server.command("HEXISTS", "{rg:unsent}:calls", "behind") == ":0\r\n"


async def test_a_reserve_that_arrives_after_its_release_debits_nothing(opens: Opens, redis_url: str) -> None:
    """A stopped server may read the commands of two connections in any order when it wakes."""
    ledger = opens(redis_url)
    reservation = await reserve(ledger, "late")
    await ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)

    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, "late")

    assert (await balance(ledger)).charged_nanousd == 0


async def test_one_ledger_serves_one_event_loop_after_another(redis_url: str, opens: Opens) -> None:
    ledger = opens(redis_url)

    def in_a_loop_of_its_own(name: str) -> Reservation:
        async def run() -> Reservation:
            reservation = await reserve(ledger, name)
            await ledger.aclose()
            return reservation

        return asyncio.run(run())

    first, second = [await asyncio.to_thread(in_a_loop_of_its_own, f"loop-{number}") for number in range(2)]

    assert await settle(ledger, first, 1)
    assert await settle(ledger, second, 1)
    assert (await balance(ledger)).charged_nanousd == 2


async def test_a_loop_that_ends_with_an_ending_unwritten_leaves_it_to_the_next(
    own_server: RedisServer, opens: Opens
) -> None:
    ledger = opens(own_server.url, timing=PROMPT)
    reservation = await reserved(ledger)
    own_server.stop()

    def in_a_loop_that_ends() -> None:
        async def run() -> None:
            with pytest.raises(LedgerUnavailable):
                await settle(ledger, reservation, 4)

        asyncio.run(run())

    await asyncio.to_thread(in_a_loop_that_ends)
    own_server.resume()

    async def settled() -> bool:
        return (await balance(ledger)).settled_nanousd == 4

    await until(settled)


async def _admits(healthy: bool) -> bool:
    return healthy
