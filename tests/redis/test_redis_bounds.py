"""Everything that waits has a bound, and what goes over it is said."""

import asyncio
import logging
from dataclasses import replace

import fakeredis
import pytest
from redis.exceptions import ResponseError

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.line import QUEUE_MAX
from routeguard.ledgers.redis.scripts import OPEN
from routeguard.policy import LedgerUnavailable
from tests.redis.calls import CALL, EVER, PATIENT, QUICK, balance, reserve, settle, try_reserve, until
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.server import RedisServer
from tests.stopwatch import seconds


async def test_more_questions_than_may_wait_are_refused_at_once_and_the_rest_is_answered(
    opens: Opens, redis_url: str
) -> None:
    ledger = opens(redis_url)

    answers = await asyncio.gather(
        *[try_reserve(ledger, f"{number}") for number in range(QUEUE_MAX + 50)], return_exceptions=True
    )

    unasked = [answer for answer in answers if answer is None]
    assert len(unasked) == 50
    assert (await balance(ledger)).open_nanousd == EVER.limit_nanousd


async def test_an_ending_of_which_the_store_knows_no_reservation_moves_no_money_and_has_the_loss_mended(
    opens: Opens, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = fresh_namespace()
    ledger = opens(shared_server.url, namespace=namespace, timing=QUICK)
    reservation = await reserve(ledger, "gone")
    shared_server.command("HDEL", f"{{rg:{namespace}}}:calls", "gone")

    with caplog.at_level(logging.ERROR):
        ended = await settle(ledger, reservation, 1)

    assert ended is False
    assert ledger.unknown_settlements == 1
    assert "its money stays" in caplog.text
    assert "a reservation is gone" in caplog.text

    async def stands() -> bool:
        return (await balance(ledger)).charged_nanousd == CALL

    await until(stands)


async def test_two_processes_that_end_one_reservation_end_it_once(opens: Opens, redis_url: str) -> None:
    namespace = fresh_namespace()
    one, other = [opens(redis_url, namespace=namespace) for _ in range(2)]
    first, second = await reserve(one, "same"), await reserve(other, "same")

    endings = [await settle(one, first, 7), await settle(other, second, 9)]

    assert endings == [True, False]
    assert (await balance(one)).charged_nanousd == 7
    assert other.double_settlements == 1


async def test_a_ledger_that_nobody_asked_opens_and_closes_nothing() -> None:
    ledger = RedisLedger("redis://127.0.0.1:1", namespace="unasked")

    await ledger.aclose()

    assert (ledger.healthy, ledger.paused, ledger.client_salt) == (False, False, b"")


async def test_a_start_in_pause_holds_until_somebody_resumes(opens: Opens, redis_url: str) -> None:
    namespace = fresh_namespace()
    one, other = opens(redis_url, namespace=namespace), opens(redis_url, namespace=namespace)
    one.paused = True
    await one.refresh()
    await other.refresh()
    while_paused = (one.paused, other.paused)

    await other.set_paused(paused=False)
    await one.in_flight()

    assert while_paused == (True, True)
    assert (one.paused, other.paused) == (False, False)


async def test_a_ledger_may_be_used_again_after_it_was_closed(opens: Opens, redis_url: str) -> None:
    ledger = opens(redis_url)
    reservation = await reserve(ledger, "before")
    await ledger.aclose()

    assert await settle(ledger, reservation, 3)
    assert (await balance(ledger)).charged_nanousd == 3


async def test_a_store_that_is_away_when_the_ledger_closes_holds_nobody_up(
    own_server: RedisServer, opens: Opens
) -> None:
    ledger = opens(own_server.url, timing=replace(PATIENT, drain=0.2))
    reservation = await reserve(ledger, "one")
    own_server.kill()
    with pytest.raises(LedgerUnavailable):
        await settle(ledger, reservation, 1)

    began = seconds()
    await ledger.aclose()

    assert seconds() - began < 1


def test_a_server_that_writes_large_numbers_wrong_founds_no_ledger() -> None:
    """As Lua on a machine of 32 bits does with `%d`."""
    client = fakeredis.FakeRedis(decode_responses=True)
    keys = Keyspace("small").common
    small = "local string = setmetatable({format = function() return '2147483647' end}, {__index = string})\n"

    with pytest.raises(ResponseError, match="INTEGERS are too small"):
        client.eval(small + OPEN.plain.text, len(keys), *keys, "", "", "", "1", "epoch", "salt", "")

    assert not client.exists(keys[0])
