"""Places in the rates: whoever was admitted keeps them, and a reserve that admitted nobody leaves none behind."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.claims import Claims
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.limiter import RateLimiter, RateRefused, RateTicket
from routeguard.policy import NANOSECONDS, Claim, LedgerUnavailable, Rate, Refused, Reservation, State
from routeguard.testing import FakeClock
from tests.redis.calls import CALL, EVER, LOOKS_AWAY, PATIENT, PROMPT, SLOT, balance, until
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.proxy import Fault, FaultProxy
from tests.redis.server import RedisServer

MINUTE = 60 * NANOSECONDS
#: A log of claims, and buckets.
FEW, MANY = Rate("client-1", 50, MINUTE), Rate("client-2", 1000, 60 * MINUTE)
SHARED = Rate("global-1", 600, MINUTE)
RATES = (Claim(SHARED, "", 1), Claim(FEW, "a", 1), Claim(MANY, "a", 1))


class Back(FakeClock):
    """A server whose clock can be set back."""

    def monotonic_ns(self) -> int:
        return self.wall_ns()


class Store:
    """The logs of a namespace, read beside the ledger."""

    def __init__(self, server: RedisServer, clock: FakeClock | None = None) -> None:
        self._server = server
        self.namespace = fresh_namespace()
        self.keyspace = Keyspace(self.namespace)
        self.clock = clock

    def ledger(self) -> RedisLedger:
        return RedisLedger(self._server.url, namespace=self.namespace, timing=PATIENT, test_clock=self.clock)

    def log(self, claim: Claim[Rate]) -> str:
        answer = self._server.command("GET", self.keyspace.rate(claim.policy, claim.partition))
        return answer.partition("\r\n")[2].removesuffix("\r\n")

    def logs(self, rates: Sequence[Claim[Rate]] = RATES) -> list[str]:
        return [self.log(claim) for claim in rates]

    def places(self, rates: Sequence[Claim[Rate]] = RATES) -> list[int]:
        """How many are taken in each."""
        logs = self.logs(rates)
        kinds = [claim.policy.quota <= 100 for claim in rates]
        return [len(log) // 16 if kind else int(log[:10] or "0") for log, kind in zip(logs, kinds, strict=True)]


@pytest.fixture
def store(shared_server: RedisServer) -> Store:
    return Store(shared_server)


@pytest.fixture
async def proxy(shared_server: RedisServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(shared_server.port) as proxy:
        yield proxy


def whole(name: str, rates: Sequence[Claim[Rate]] = RATES) -> Claims:
    return Claims(name, [Claim(EVER, "", CALL)], [Claim(SLOT, "", 1)], rates, force=False)


async def reserve(ledger: RedisLedger, asked: Claims) -> Reservation:
    return await ledger.reserve(asked.id, money=asked.money, slots=asked.slots, rates=asked.rates, force=asked.force)


async def _answers(ledger: RedisLedger) -> bool:
    await ledger.in_flight()
    return True


async def take_back(ledger: RedisLedger, asked: Claims) -> None:
    """As the ledger does for itself when nobody waits any more, and wait until it is done."""
    ledger._release(asked)
    await ledger.in_flight()
    assert len(ledger._store.debts) == 0


@pytest.mark.parametrize("fault", ["drop_reply", "half_reply", "drop_request"])
async def test_a_reserve_whose_answers_are_lost_leaves_the_rates_as_they_were(
    opens: Opens, proxy: FaultProxy, store: Store, fault: Fault
) -> None:
    ledger = opens(proxy.url, namespace=store.namespace, timing=LOOKS_AWAY)
    await reserve(ledger, whole("before"))
    before = store.logs()

    # The settle that takes it back is lost as well, once.
    proxy.break_next(3, fault)
    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, whole("lost"))

    async def stands() -> bool:
        return proxy.left == 0 and (await balance(ledger)).open_nanousd == CALL and await ledger.in_flight() == 1

    await until(stands)
    assert (store.places(), len(before[1])) == ([1, 1, 1], 16)
    assert store.log(RATES[1]) == before[1]


async def test_a_store_that_hangs_and_does_everything_late_leaves_the_rates_as_they_were(
    opens: Opens, own_server: RedisServer
) -> None:
    store = Store(own_server)
    await reserve(opens(own_server.url, namespace=store.namespace), whole("before"))
    ledger, other = [opens(own_server.url, namespace=store.namespace, timing=PROMPT) for _ in range(2)]
    for one in (ledger, other):
        await until(partial(_answers, one))
    own_server.stop()

    late = [
        reserve(one, whole(f"{place}-{number}")) for place, one in enumerate((ledger, other)) for number in range(9)
    ]
    answers = await asyncio.gather(*late, return_exceptions=True)
    own_server.resume()

    async def stands() -> bool:
        return (await balance(ledger)).open_nanousd == CALL and await ledger.in_flight() == 1

    assert {type(answer) for answer in answers} == {LedgerUnavailable}
    await until(stands)
    assert store.places() == [1, 1, 1]


async def test_a_reserve_that_arrives_after_it_was_taken_back_takes_no_place(
    opens: Opens, proxy: FaultProxy, store: Store
) -> None:
    ledger = opens(proxy.url, namespace=store.namespace, timing=LOOKS_AWAY)
    await ledger.refresh()
    proxy.break_next(2, "hold_request")
    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, whole("held"))

    async def is_taken_back() -> bool:
        return len(ledger._store.debts) == 0 and await ledger.in_flight() == 0

    await until(is_taken_back)
    await proxy.deliver()

    assert store.places() == [0, 0, 0]
    assert (await balance(ledger)).charged_nanousd == 0


async def test_places_taken_are_those_of_the_admitted_whoever_was_cancelled(
    opens: Opens, proxy: FaultProxy, store: Store
) -> None:
    rng = random.Random(11)

    async def delay() -> None:
        await asyncio.sleep(rng.random() * 0.01)

    proxy.delay = delay
    ledger = opens(proxy.url, namespace=store.namespace)
    await ledger.refresh()
    rates = (Claim(SHARED, "", 1), Claim(Rate("client-1", 100, 60 * MINUTE), "a", 1))
    admitted: list[Reservation] = []

    async def one(number: int) -> None:
        admitted.append(await reserve(ledger, whole(f"c{number}", rates)))

    for batch in range(10):
        tasks = [asyncio.create_task(one(batch * 10 + number)) for number in range(10)]
        for task in rng.sample(tasks, 6):
            await asyncio.sleep(rng.random() * 0.002)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stands() -> bool:
        return await ledger.in_flight() == len(admitted)

    await until(stands)
    assert 40 <= len(admitted) < 100, "some were cancelled, and no rate was ever full"
    assert store.places(rates) == [len(admitted)] * 2


@pytest.mark.parametrize("state", ["settled", "kept", "released"])
async def test_whoever_was_admitted_keeps_its_place_however_it_ends(
    opens: Opens, store: Store, shared_server: RedisServer, state: State
) -> None:
    ledger = opens(shared_server.url, namespace=store.namespace)
    reservation = await reserve(ledger, whole("one"))

    for _ in range(2):
        await ledger.settle(reservation, state=state, settled_nanousd=0, kept_nanousd=0)
    await take_back(ledger, whole("one"))

    assert store.places() == [1, 1, 1]


async def test_a_place_is_given_back_once_however_often_that_is_asked(shared_server: RedisServer) -> None:
    """All claims have the same microsecond: whoever looks for one finds another."""
    store = Store(shared_server, FakeClock())
    ledger = store.ledger()
    for number in range(3):
        await reserve(ledger, whole(f"{number}"))

    for _ in range(3):
        await take_back(ledger, whole("1"))

    await ledger.aclose()
    assert store.places() == [2, 2, 2]


async def test_rates_over_one_window_give_back_the_one_place_they_share(shared_server: RedisServer) -> None:
    store = Store(shared_server, FakeClock())
    ledger = store.ledger()
    rates = [Claim(Rate(f"client-{quota}", quota, MINUTE), "a", 1) for quota in (30, 40, 300, 400)]
    for number in range(3):
        await reserve(ledger, whole(f"{number}", rates))

    await take_back(ledger, whole("1", rates))

    await ledger.aclose()
    assert store.places(rates) == [2, 2, 2, 2]


async def test_an_orphan_that_nobody_was_admitted_by_gives_its_place_back(shared_server: RedisServer) -> None:
    """The store was away for longer than a stream may take."""
    clock = FakeClock()
    store, rate = Store(shared_server, clock), Claim(Rate("client-1", 5, 24 * 60 * MINUTE), "a", 1)
    ledger = store.ledger()
    await reserve(ledger, whole("lost", [rate]))
    clock.advance(SLOT.lease_ns / NANOSECONDS + 1)
    await ledger.in_flight()
    orphaned = (await balance(ledger)).orphaned_nanousd

    await take_back(ledger, whole("lost", [rate]))

    charged = (await balance(ledger)).charged_nanousd
    await ledger.aclose()
    assert (orphaned, charged, store.places([rate])) == (CALL, 0, [0])


@pytest.mark.parametrize("quota", [2, 101])
async def test_what_took_no_place_gives_none_back(shared_server: RedisServer, quota: int) -> None:
    """Observed beyond its rate, at the very moment of those that have a place."""
    store, rate = Store(shared_server, FakeClock()), Claim(Rate("client-1", quota, MINUTE), "a", 1)
    ledger = store.ledger()
    for number in range(quota):
        await reserve(ledger, whole(f"{number}", [rate]))
    observed = Claims("observed", [], [], [rate], force=True)
    forced = await reserve(ledger, observed)

    await take_back(ledger, observed)

    await ledger.aclose()
    assert forced.refused is not None
    assert store.places([rate]) == [quota]


async def test_a_log_that_shrinks_keeps_its_time_to_live(
    opens: Opens, store: Store, shared_server: RedisServer
) -> None:
    ledger = opens(shared_server.url, namespace=store.namespace)
    for number in range(2):
        await reserve(ledger, whole(f"{number}"))

    await take_back(ledger, whole("1"))

    keys = [store.keyspace.rate(rate.policy, rate.partition) for rate in RATES]
    lives = [int(shared_server.command("PTTL", key).strip(":\r\n")) for key in keys]
    assert all(0 < life <= rate.policy.window_ns // 10**6 for life, rate in zip(lives, RATES, strict=True))


@pytest.mark.parametrize("quota", [3, 150])
async def test_on_a_clock_set_back_a_place_is_left_rather_than_anothers_taken(
    shared_server: RedisServer, quota: int
) -> None:
    """Its claim was moved to the moment at which that was found, and its own moment is somebody else's by then."""
    clock = Back()
    store, rate = Store(shared_server, clock), Claim(Rate("client-1", quota, MINUTE), "a", 1)
    ledger = store.ledger()
    await reserve(ledger, whole("moved", [rate]))
    clock.jump(-10)
    await reserve(ledger, whole("finds", [rate]))
    clock.advance(10)
    await reserve(ledger, whole("there", [rate]))
    before = store.log(rate)

    await take_back(ledger, whole("moved", [rate]))
    left = store.log(rate)
    await take_back(ledger, whole("there", [rate]))

    await ledger.aclose()
    assert left == before
    assert store.places([rate]) == [2], "what was claimed since then is given back"


@pytest.mark.parametrize("quota", [1, 10, 100, 120, 200, 600])
async def test_places_are_given_back_as_the_limiter_gives_them_back(shared_server: RedisServer, quota: int) -> None:
    """The same claims taken back at the same times: admitted, refused, and for how long, claim by claim."""
    rng, clock = random.Random(quota), FakeClock()
    store, limiter = Store(shared_server, clock), RateLimiter(clock=clock, clients_max=10)
    ledger, rate = store.ledger(), Rate("client-1", quota, MINUTE)
    given: list[tuple[Claims, RateTicket]] = []
    waits, differing = 0, []

    for number in range(300 + 3 * quota):
        asked, expected, found = Claims(f"{number}", [], [], [Claim(rate, "a", 1)], force=False), 0, 0
        try:
            ticket = limiter.claim("a", rates=[rate], global_rates=())
        except RateRefused as refused:
            expected = refused.retry_ns
        else:
            given.append((asked, ticket))
        try:
            await reserve(ledger, asked)
        except Refused as refused:
            found = refused.retry_ns
        waits += bool(found)
        if found != expected:
            differing.append((number, found, expected))
        if given and rng.random() < 0.2:
            taken_back, ticket = given.pop(rng.randrange(max(0, len(given) - 2 * quota), len(given)))
            limiter.give_back(ticket)
            ledger._release(taken_back)
        clock.advance(rng.choice([0, 0.001, 0.5, 2]) * 60 / quota)

    await ledger.aclose()
    assert differing == []
    assert waits > 10, "it was full now and then"


async def test_a_reserve_that_claims_neither_money_nor_slots_gives_its_places_back(
    opens: Opens, store: Store, shared_server: RedisServer
) -> None:
    ledger, asked = opens(shared_server.url, namespace=store.namespace), Claims("x", [], [], RATES, force=False)
    await reserve(ledger, asked)

    await take_back(ledger, asked)

    assert store.places() == [0, 0, 0]
