"""Rates counted in the store, and what the store's clock may do to them."""

import random
import time
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.limiter import RateLimiter, RateRefused
from routeguard.policy import NANOSECONDS, Budget, Claim, LedgerUnavailable, Rate, Refused, Window
from routeguard.testing import FakeClock
from tests.redis.calls import CALL, EVER, PATIENT, balance, reserve, settle
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.server import RedisServer

MINUTE = 60 * NANOSECONDS
DAY_SECONDS = 86_400


class Asker:
    """Claims rates and nothing else, under a new id each time."""

    def __init__(self, url: str, clock: FakeClock) -> None:
        self.ledger = RedisLedger(url, namespace=fresh_namespace(), timing=PATIENT, test_clock=clock)
        self._asked = 0

    async def wait_ns(self, *claims: Claim[Rate], force: bool = False) -> int:
        """0 when admitted, or refused for another reason."""
        self._asked += 1
        try:
            await self.ledger.reserve(f"{self._asked}", money=[], slots=[], rates=claims, force=force)
        except Refused as refused:
            return refused.retry_ns
        return 0


@pytest.mark.parametrize("quota", [1, 10, 100, 101, 200, 600])
async def test_a_rate_in_the_store_is_the_rate_of_the_limiter(redis_url: str, quota: int) -> None:
    """The same claims at the same times: admitted, refused, and for how long, claim by claim."""
    rng, clock = random.Random(quota), FakeClock()
    asker, limiter = Asker(redis_url, clock), RateLimiter(clock=clock, clients_max=10)
    rate = Rate("client-1", quota, MINUTE)
    differing = []

    for number in range(500):
        expected = 0
        try:
            limiter.claim("a", rates=[rate], global_rates=())
        except RateRefused as refused:
            expected = refused.retry_ns
        found = await asker.wait_ns(Claim(rate, "a", 1))
        if found != expected:
            differing.append((number, found, expected))
        clock.advance(rng.choice([0, 0.001, 0.5, 30]) * 60 / quota if rng.random() < 0.7 else 0)

    await asker.ledger.aclose()
    assert differing == []


async def test_no_window_of_the_length_ever_holds_more_than_the_quota(redis_url: str) -> None:
    rng, clock = random.Random(3), FakeClock()
    asker = Asker(redis_url, clock)
    rate = Rate("client-1", 130, MINUTE)
    admitted = []

    for _ in range(1500):
        if await asker.wait_ns(Claim(rate, "a", 1)) == 0:
            admitted.append(clock.monotonic_ns())
        clock.advance(rng.random() * 0.4)

    await asker.ledger.aclose()
    busiest = max(sum(start <= at < start + MINUTE for at in admitted) for start in admitted)
    assert busiest <= 130
    assert len(admitted) >= 130 * 3


async def test_the_longest_wait_is_told_and_clients_do_not_share(redis_url: str) -> None:
    clock = FakeClock()
    asker = Asker(redis_url, clock)
    one, three = Rate("client-1", 1, MINUTE), Rate("client-2", 3, 60 * MINUTE)
    shared = Rate("global-1", 4, MINUTE)

    found = [
        await asker.wait_ns(Claim(one, "a", 1), Claim(three, "a", 1), Claim(shared, "", 1)),
        await asker.wait_ns(Claim(one, "a", 1), Claim(three, "a", 1), Claim(shared, "", 1)),
        await asker.wait_ns(Claim(one, "b", 1), Claim(three, "b", 1), Claim(shared, "", 1)),
    ]
    clock.advance(60)
    for _ in range(2):
        found.append(await asker.wait_ns(Claim(one, "a", 1), Claim(three, "a", 1)))
        clock.advance(60)
    found.append(await asker.wait_ns(Claim(one, "a", 1), Claim(three, "a", 1)))

    await asker.ledger.aclose()
    assert found == [0, MINUTE, 0, 0, 0, 57 * MINUTE]


async def test_whose_rate_is_in_the_way_is_told(redis_url: str) -> None:
    asker = Asker(redis_url, FakeClock())
    mine, shared = Rate("client-1", 1, MINUTE), Rate("global-1", 1, MINUTE)
    await asker.wait_ns(Claim(mine, "a", 1))

    with pytest.raises(Refused) as only_mine:
        await asker.ledger.reserve("x", money=[], slots=[], rates=[Claim(mine, "a", 1), Claim(shared, "", 1)])
    await asker.wait_ns(Claim(shared, "", 1))
    with pytest.raises(Refused) as both:
        await asker.ledger.reserve("y", money=[], slots=[], rates=[Claim(mine, "a", 1), Claim(shared, "", 1)])

    await asker.ledger.aclose()
    assert (only_mine.value.per_client, both.value.per_client) == (True, False)


async def test_a_refusal_for_money_claims_no_rate_and_a_refused_rate_debits_no_money(redis_url: str) -> None:
    asker = Asker(redis_url, FakeClock())
    rate, spent = Rate("client-1", 1, MINUTE), Budget("day", Window("day", ZoneInfo("UTC")), 0)
    with pytest.raises(Refused) as for_money:
        await asker.ledger.reserve("1", money=[Claim(spent, "", CALL)], slots=[], rates=[Claim(rate, "a", 1)])

    first = await asker.wait_ns(Claim(rate, "a", 1))
    with pytest.raises(Refused) as for_rate:
        await asker.ledger.reserve("2", money=[Claim(EVER, "", CALL)], slots=[], rates=[Claim(rate, "a", 1)])

    charged = (await balance(asker.ledger)).charged_nanousd
    await asker.ledger.aclose()
    assert (for_money.value.cause, first, for_rate.value.cause, charged) == ("budget_exhausted", 0, "rate_limited", 0)


async def test_the_same_id_claims_a_rate_once(redis_url: str) -> None:
    asker = Asker(redis_url, FakeClock())
    rate = Rate("client-1", 2, MINUTE)

    for _ in range(3):
        await asker.ledger.reserve("same", money=[], slots=[], rates=[Claim(rate, "a", 1)])

    waits = [await asker.wait_ns(Claim(rate, "a", 1)) for _ in range(2)]
    await asker.ledger.aclose()
    assert waits == [0, MINUTE]


@pytest.mark.parametrize("quota", [1, 150])
async def test_what_observing_lets_through_takes_no_slot_that_is_not_there(redis_url: str, quota: int) -> None:
    """Or of a crowd that is only observed everybody would be counted as refused, and not the excess."""
    clock = FakeClock()
    asker, rate = Asker(redis_url, clock), Rate("client-1", quota, MINUTE)
    for _ in range(quota):
        await asker.wait_ns(Claim(rate, "a", 1))
    clock.advance(59)

    forced = [
        await asker.ledger.reserve(f"f{number}", money=[], slots=[], rates=[Claim(rate, "a", 1)], force=True)
        for number in range(quota)
    ]
    clock.advance(1)

    verdicts = {(one.refused.cause, one.refused.retry_ns) for one in forced if one.refused is not None}
    assert verdicts == {("rate_limited", NANOSECONDS)}
    assert await asker.wait_ns(Claim(rate, "a", 1)) == 0
    await asker.ledger.aclose()


@pytest.mark.parametrize("quota", [3, 150])
async def test_a_clock_set_back_gives_a_slot_back_late_and_not_for_ever(redis_url: str, quota: int) -> None:
    class Back(FakeClock):
        def monotonic_ns(self) -> int:
            return self.wall_ns()

    clock = Back()
    asker = Asker(redis_url, clock)
    rate = Rate("client-1", quota, MINUTE)
    for _ in range(quota):
        await asker.wait_ns(Claim(rate, "a", 1))

    clock.jump(-DAY_SECONDS)
    at_once = await asker.wait_ns(Claim(rate, "a", 1))
    clock.jump(60)
    a_window_later = await asker.wait_ns(Claim(rate, "a", 1))

    await asker.ledger.aclose()
    assert (at_once, a_window_later) == (MINUTE, 0)


async def test_a_window_is_chosen_by_the_store_and_never_moves_backwards(
    opens: Opens, shared_server: RedisServer
) -> None:
    """This process knows an older day than the store has counted in: it asks again, and counts in the newer one."""
    namespace = fresh_namespace()
    ledger, day = opens(shared_server.url, namespace=namespace), Budget("day", Window("day", ZoneInfo("UTC")), CALL)
    await ledger.refresh()
    in_three_days = int(time.time()) + 3 * DAY_SECONDS
    shared_server.command("HSET", f"{{rg:{namespace}}}:ledger", "wall", str(in_three_days))

    reservation = await reserve(ledger, "1", budget=day)
    await settle(ledger, reservation, CALL)

    found = await balance(ledger, day)
    assert found.resets_at == (in_three_days // DAY_SECONDS + 1) * DAY_SECONDS
    assert found.settled_nanousd == CALL


async def test_a_reserve_asked_long_ago_by_the_stores_clock_debits_nothing(
    opens: Opens, shared_server: RedisServer
) -> None:
    """Executed late by a store that was stopped: nobody waits for it any more."""
    ledger = opens(shared_server.url)
    await ledger.refresh()
    ledger._store.clock.hear = lambda **heard: None  # type: ignore[method-assign]
    ledger._store.clock._offset_us -= 6_000_000

    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, "old")

    assert (await balance(ledger)).charged_nanousd == 0


@pytest.mark.parametrize("amount", [1, 10**8, 2 * 10**8, 10**14 - 1, 10**14, 2**53 - 1])
async def test_amounts_are_exact_on_this_server(opens: Opens, redis_url: str, amount: int) -> None:
    ledger, ever = opens(redis_url), Budget("total", Window("total", ZoneInfo("UTC")), 2**53 - 1)

    reservation = await reserve(ledger, "1", amount=amount, budget=ever)
    while_open = (await balance(ledger, ever)).open_nanousd
    await settle(ledger, reservation, amount)

    found = await balance(ledger, ever)
    assert (while_open, found.settled_nanousd, found.open_nanousd) == (amount, amount, 0)


async def test_what_is_past_is_purged(redis_url: str) -> None:
    """Ended records after minutes, accounts of past windows after days; nothing grows for ever."""
    clock = FakeClock()
    namespace = fresh_namespace()
    ledger = RedisLedger(redis_url, namespace=namespace, timing=PATIENT, test_clock=clock)
    day, mine = [Budget("day", Window("day", ZoneInfo("UTC")), 999 * CALL, per_client) for per_client in (False, True)]
    for number in range(50):
        claims = [Claim(day, "", CALL), Claim(mine, f"c{number}", CALL)]
        held = await ledger.reserve(f"{number}", money=claims, slots=[])
        await settle(ledger, held, CALL)
    clock.advance(4 * DAY_SECONDS)
    for number in range(30):
        await ledger.reserve(f"new-{number}", money=[Claim(day, "", CALL)], slots=[])

    from redis import Redis

    with Redis.from_url(redis_url, decode_responses=True) as behind:
        fields = set(behind.hkeys(f"{{rg:{namespace}}}:ledger"))
        records, due = behind.hlen(f"{{rg:{namespace}}}:calls"), behind.zcard(f"{{rg:{namespace}}}:due")
    await ledger.aclose()
    assert len([field for field in fields if "|" in field]) == 1
    assert (records, due) == (30, 31)


async def test_more_clients_than_the_map_holds_share_the_overflow_client(redis_url: str) -> None:
    clock = FakeClock()
    namespace = fresh_namespace()
    ledger = RedisLedger(redis_url, namespace=namespace, timing=PATIENT, test_clock=clock, clients_max=1000)
    mine = Budget("day", Window("day", ZoneInfo("UTC")), 10**6 * CALL, per_client=True)

    for number in range(3000):
        await ledger.reserve(f"{number}", money=[Claim(mine, f"c{number}", CALL)], slots=[])

    from redis import Redis

    with Redis.from_url(redis_url, decode_responses=True) as behind:
        accounts = [field for field in behind.hkeys(f"{{rg:{namespace}}}:ledger") if "|c|" in field]
    await ledger.aclose()
    assert len(accounts) == 1000
    assert ledger.overflowed == 2000
