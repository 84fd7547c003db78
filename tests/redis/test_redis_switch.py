"""The kill switch stands as whoever turned it last wanted, whatever a network and a clock do."""

from collections.abc import AsyncIterator

import fakeredis
import pytest

from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.scripts import PAUSE
from routeguard.policy import LedgerUnavailable
from routeguard.testing import FakeClock
from tests.redis.calls import LOOKS_AWAY, PATIENT
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.proxy import FaultProxy
from tests.redis.server import RedisServer

SECOND = 1_000_000
#: Of the store, in tests of the script alone.
NOW = 1_796_000_000 * SECOND
KEYS = Keyspace("switch").common
ON, OFF = "1", "0"


@pytest.fixture
async def proxy(shared_server: RedisServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(shared_server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("paused", [True, False])
async def test_a_copy_that_arrives_after_a_later_turn_turns_nothing_back(
    opens: Opens, proxy: FaultProxy, shared_server: RedisServer, *, paused: bool
) -> None:
    namespace = fresh_namespace()
    slow = opens(proxy.url, namespace=namespace, timing=LOOKS_AWAY)
    other = opens(shared_server.url, namespace=namespace)
    # Sent by its name from now on, and by its text when it is sent again on a new connection.
    await slow.set_paused(paused=not paused)
    proxy.holding = b"EVALSHA"
    proxy.break_next(2, "hold_request")
    await slow.set_paused(paused=paused)
    held = len(proxy.held)
    await other.set_paused(paused=not paused)

    await proxy.deliver()

    await other.in_flight()
    assert held > 0
    assert other.paused is not paused


async def test_a_turn_in_one_process_right_behind_that_of_another_counts(opens: Opens, redis_url: str) -> None:
    namespace = fresh_namespace()
    one, other = opens(redis_url, namespace=namespace), opens(redis_url, namespace=namespace)

    stood = []
    for _ in range(50):
        await one.set_paused(paused=True)
        await other.set_paused(paused=False)
        await one.in_flight()
        stood.append(one.paused)

    assert not any(stood)


@pytest.mark.parametrize("seconds", [-86_400, -2, 86_400])
async def test_a_clock_that_is_set_locks_no_switch(redis_url: str, seconds: int) -> None:
    clock = SettableClock()
    ledger = RedisLedger(redis_url, namespace=fresh_namespace(), timing=PATIENT, test_clock=clock)
    await ledger.set_paused(paused=True)

    clock.ahead_ns += seconds * 10**9
    await ledger.set_paused(paused=False)

    await ledger.in_flight()
    assert not ledger.paused
    await ledger.aclose()


class SettableClock(FakeClock):
    """The clock of a server, which somebody can set."""

    ahead_ns = 10**15

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.ahead_ns


class Server:
    """The script alone, on a server whose clock is a number."""

    def __init__(self, **ledger: str) -> None:
        self.client = fakeredis.FakeRedis(decode_responses=True)
        for field, value in {"epoch": "e", **ledger}.items():
            self.client.hset(KEYS[0], field, value)

    def turn(self, asked: int | str, wanted: str, *, now: int = NOW, epoch: str = "e") -> str:
        moment = f"{now // SECOND} {now}"
        answer = self.client.eval(PAUSE.plain.text, len(KEYS), *KEYS, epoch, moment, "", str(asked), wanted)
        assert isinstance(answer, list)
        return str(answer[0])

    @property
    def stands(self) -> str:
        return str(self.client.hget(KEYS[0], "paused"))


@pytest.mark.parametrize(
    ("asked", "wanted", "turned", "status"),
    [
        ("", OFF, NOW - 9 * SECOND, "stale"),
        (NOW, OFF, NOW, "ok"),
        (NOW - 1, OFF, NOW, "late"),
        (NOW - 1, ON, NOW, "ok"),
        (NOW - SECOND, OFF, NOW - SECOND - 1, "ok"),
        (NOW - 5 * SECOND, OFF, NOW - 9 * SECOND, "ok"),
        (NOW - 5 * SECOND - 1, OFF, NOW - 9 * SECOND, "stale"),
        (NOW + 1, OFF, NOW - 9 * SECOND, "stale"),
        (NOW, OFF, NOW + 86_400 * SECOND, "stale"),
    ],
    ids=[
        "only-tells-the-time",
        "of-the-same-microsecond",
        "turned-since",
        "turned-since-as-asked",
        "asked-since",
        "just-in-time",
        "on-its-way-too-long",
        "asked-before-the-clock-was-set-back",
        "turned-before-the-clock-was-set-back",
    ],
)
def test_a_turn_counts_where_nobody_has_turned_it_since(
    asked: int | str, wanted: str, turned: int, status: str
) -> None:
    server = Server(paused=ON, turned=str(turned))

    answer = server.turn(asked, wanted)

    assert answer == status
    assert server.stands == (wanted if status == "ok" else ON)


def test_a_turn_from_before_the_clock_was_set_back_is_one_of_now() -> None:
    server = Server(paused=ON, turned=str(NOW + 86_400 * SECOND))
    server.turn(NOW, OFF)

    late = server.turn(NOW - 1, OFF, now=NOW + 1)
    again = server.turn(NOW + 1, OFF, now=NOW + 2)

    assert (late, again) == ("late", "ok")


def test_a_repeated_turn_outdates_what_was_asked_before_it() -> None:
    server = Server(paused=ON, turned=str(NOW - 3 * SECOND))

    repeated = server.turn(NOW - SECOND, ON)
    late = server.turn(NOW - 2 * SECOND, OFF, now=NOW + 1)

    assert (repeated, late) == ("ok", "late")


def test_a_turn_in_a_life_of_the_store_that_is_over_is_lost() -> None:
    server = Server(paused=ON)

    assert server.turn(NOW, OFF, epoch="before") == "lost"
    assert server.stands == ON


class Interfered(RedisLedger):
    """Somebody else turns the switch the other way, behind each of the first answers."""

    times = 1

    def interfere(self, other: RedisLedger, *, paused: bool) -> None:
        wait = self._store.wait

        async def waits(request: object, *, until: float | None = None) -> object:
            reply = await wait(request, until=until)  # type: ignore[arg-type]
            if self.times:
                self.times -= 1
                await other.set_paused(paused=paused)
            return reply

        self._store.wait = waits  # type: ignore[method-assign, assignment]


def two(url: str) -> tuple[Interfered, RedisLedger]:
    """Of one namespace."""
    namespace = fresh_namespace()
    return (
        Interfered(url, namespace=namespace, timing=PATIENT),
        RedisLedger(url, namespace=namespace, timing=PATIENT),
    )


async def test_a_pause_that_somebody_undid_meanwhile_is_asked_again(redis_url: str) -> None:
    one, other = two(redis_url)
    one.interfere(other, paused=False)

    await one.set_paused(paused=True)

    await other.in_flight()
    assert (one.paused, other.paused) == (True, True)
    await one.aclose()
    await other.aclose()


async def test_a_resume_behind_which_somebody_paused_says_so(redis_url: str) -> None:
    one, other = two(redis_url)
    await other.set_paused(paused=True)
    one.interfere(other, paused=True)

    with pytest.raises(LedgerUnavailable, match="somebody else has turned the switch"):
        await one.set_paused(paused=False)

    await other.in_flight()
    assert (one.paused, other.paused) == (True, True)
    await one.aclose()
    await other.aclose()
