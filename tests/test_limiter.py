"""Rates against the plainest model there is: a list of the times at which something was admitted."""

import random
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.limiter import BUCKETS, EXACT_MAX, REFUSALS_PER_QUOTA, Left, RateLimiter, RateRefused, RateTicket
from routeguard.policy import NANOSECONDS, Rate
from routeguard.testing import FakeClock

MINUTE_NS = 60 * NANOSECONDS
DAY_NS = 86_400 * NANOSECONDS
PER_MINUTE = Rate("client-1", 10, MINUTE_NS)
PER_DAY = Rate("client-2", 200, DAY_NS)
GLOBAL = Rate("global-1", 600, MINUTE_NS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> RateLimiter:
    return RateLimiter(clock=clock, clients_max=1000)


@pytest.mark.parametrize("quota", [1, 2, 7, EXACT_MAX, EXACT_MAX + 1, 250])
def test_a_quota_is_admitted_and_the_next_one_refused(limiter: RateLimiter, quota: int) -> None:
    rate = Rate("client-1", quota, MINUTE_NS)

    tickets = [claim(limiter, rate) for _ in range(quota)]

    assert all(tickets)
    assert claim(limiter, rate) is None


@pytest.mark.parametrize("quota", [1, 3, EXACT_MAX, EXACT_MAX + 1, 250])
@pytest.mark.parametrize("seed", range(4))
def test_no_window_of_any_place_holds_more_than_the_quota(quota: int, seed: int) -> None:
    """Random traffic with slots given back: never early, and late by at most a sixtieth of the window."""
    window_ns = 6_000
    rng, clock = random.Random(seed), FakeClock()
    limiter, rate = RateLimiter(clock=clock, clients_max=10), Rate("client-1", quota, window_ns)
    lateness_ns = window_ns // BUCKETS if quota > EXACT_MAX else 0
    held: list[RateTicket] = []
    admitted = refused = 0
    for _ in range(12 * quota + 400):
        wait(clock, rng.choice([0, 0, 1, rng.randrange(4 * window_ns // quota)]))
        now_ns = clock.monotonic_ns()
        held = [ticket for ticket in held if ticket.claimed_ns > now_ns - window_ns - lateness_ns]
        in_window = sum(ticket.claimed_ns > now_ns - window_ns for ticket in held)
        ticket = claim(limiter, rate)
        if ticket is None:
            refused += 1
            assert len(held) >= quota
        else:
            admitted += 1
            assert in_window < quota
            held.append(ticket)
            if rng.random() < 0.2:
                limiter.give_back(held.pop(rng.randrange(len(held))))
    assert min(admitted, refused) > 20, "traffic that shows both"


@settings(max_examples=150)
@given(
    quota=st.sampled_from([1, 2, 5]),
    gaps_ns=st.lists(st.integers(0, 700), min_size=1, max_size=60),
)
def test_an_exact_rate_admits_whenever_the_model_does(quota: int, gaps_ns: list[int]) -> None:
    clock = FakeClock()
    limiter, rate = RateLimiter(clock=clock, clients_max=10), Rate("client-1", quota, 1000)
    times: list[int] = []
    for gap_ns in gaps_ns:
        wait(clock, gap_ns)
        now_ns = clock.monotonic_ns()
        fits = sum(time > now_ns - 1000 for time in times) < quota

        assert (claim(limiter, rate) is not None) is fits
        if fits:
            times.append(now_ns)


@pytest.mark.parametrize("quota", [1, 3, EXACT_MAX, EXACT_MAX + 1, 250])
@pytest.mark.parametrize("seed", range(3))
def test_a_retry_is_told_the_exact_nanosecond_at_which_a_slot_is_free(quota: int, seed: int) -> None:
    rng, clock = random.Random(seed), FakeClock()
    limiter, rate = RateLimiter(clock=clock, clients_max=10), Rate("client-1", quota, 6_000)
    for _ in range(5):
        while claim(limiter, rate) is not None:
            wait(clock, rng.randrange(6_000 // quota + 1))

        retry_ns = refusal(limiter, rate).retry_ns

        assert 0 < retry_ns <= 6_000
        wait(clock, retry_ns - 1)
        assert claim(limiter, rate) is None
        wait(clock, 1)
        assert claim(limiter, rate) is not None


def test_the_wait_is_for_the_slowest_of_the_rates_in_the_way(limiter: RateLimiter, clock: FakeClock) -> None:
    rates = [Rate("client-1", 1, 10), Rate("client-2", 1, 500), Rate("client-3", 9, 9_000)]
    shared = [Rate("global-1", 1, 300)]
    limiter.claim("a", rates=rates, global_rates=shared)
    wait(clock, 3)

    with pytest.raises(RateRefused) as refused:
        limiter.claim("a", rates=rates, global_rates=shared)

    assert refused.value.retry_ns == 497
    assert refused.value.per_client
    assert str(refused.value) == "no slot is free"


def test_a_refusal_by_everybody_together_is_not_the_clients_own(limiter: RateLimiter) -> None:
    shared = [Rate("global-1", 1, MINUTE_NS)]
    limiter.claim("a", rates=[PER_MINUTE], global_rates=shared)

    with pytest.raises(RateRefused) as refused:
        limiter.claim("b", rates=[PER_MINUTE], global_rates=shared)

    assert not refused.value.per_client
    assert refused.value.retry_ns == MINUTE_NS


def test_a_refusal_by_one_rate_takes_no_slot_of_another(limiter: RateLimiter) -> None:
    """All or nothing, also between a client's rates and everybody's."""
    single = Rate("client-1", 1, MINUTE_NS)
    shared = Rate("global-1", 2, MINUTE_NS)
    limiter.claim("a", rates=[single, PER_DAY], global_rates=[shared])
    for _ in range(5):
        with pytest.raises(RateRefused):
            limiter.claim("a", rates=[single, PER_DAY], global_rates=[shared])
    limiter.claim("b", rates=[single, PER_DAY], global_rates=[shared])
    for _ in range(5):
        with pytest.raises(RateRefused):
            limiter.claim("a", rates=[PER_DAY], global_rates=[shared])

    left = limiter.left("a", [PER_DAY])

    assert left is not None
    assert left.remaining == PER_DAY.quota - 1


def test_clients_do_not_share_a_rate(limiter: RateLimiter) -> None:
    single = Rate("client-1", 1, MINUTE_NS)
    claim(limiter, single, client="a")

    assert claim(limiter, single, client="a") is None
    assert claim(limiter, single, client="b") is not None


def test_two_guards_with_different_quotas_count_the_same_requests(limiter: RateLimiter) -> None:
    """During a deploy one process may enforce two limits over one window."""
    before, after = Rate("client-1", 5, MINUTE_NS), Rate("client-1", 2, MINUTE_NS)
    for _ in range(4):
        claim(limiter, before)

    assert claim(limiter, after) is None
    assert claim(limiter, before) is not None


@pytest.mark.parametrize(
    ("before", "after"), [(5, 2), (5, 1), (300, 150), *((300, after) for after in range(286, 300))]
)
def test_a_lowered_quota_says_when_enough_slots_are_back(
    limiter: RateLimiter, clock: FakeClock, before: int, after: int
) -> None:
    lowered = Rate("client-1", after, 60_000)
    for _ in range(before):
        claim(limiter, Rate("client-1", before, 60_000))
        wait(clock, 150)

    retry_ns = refusal(limiter, lowered).retry_ns

    wait(clock, retry_ns - 1)
    assert claim(limiter, lowered) is None
    wait(clock, 1)
    assert claim(limiter, lowered) is not None


@pytest.mark.parametrize("window_ns", [6_000, 6_030, 6_059])
def test_a_claim_a_sixtieth_of_the_window_after_another_is_forgotten_after_it(
    limiter: RateLimiter, clock: FakeClock, window_ns: int
) -> None:
    """Claims that lie closer together are forgotten together, with the last of them."""
    rate = Rate("client-1", EXACT_MAX + 1, window_ns)
    resets = []

    for gap_ns in (0, 99, 1):
        wait(clock, gap_ns)
        claim(limiter, rate)
        left = limiter.left("a", [rate])
        assert left is not None
        resets.append(left.reset_ns)

    assert resets == [window_ns, window_ns, window_ns - 1]


@pytest.mark.parametrize("quota", [3, EXACT_MAX + 3])
def test_a_slot_given_back_is_free_at_once_on_every_rate(limiter: RateLimiter, quota: int) -> None:
    rate, shared = Rate("client-1", quota, MINUTE_NS), Rate("global-1", quota, MINUTE_NS)
    tickets = [limiter.claim("a", rates=[rate], global_rates=[shared]) for _ in range(quota)]

    limiter.give_back(tickets[1])

    limiter.claim("a", rates=[rate], global_rates=[shared])
    with pytest.raises(RateRefused):
        limiter.claim("a", rates=[rate], global_rates=[shared])


@pytest.mark.parametrize("quota", [2, EXACT_MAX + 2])
def test_a_slot_given_back_after_its_window_frees_nothing(limiter: RateLimiter, clock: FakeClock, quota: int) -> None:
    rate = Rate("client-1", quota, 6_000)
    old = claim(limiter, rate)
    assert old is not None
    wait(clock, 6_000)
    for _ in range(quota):
        claim(limiter, rate)

    limiter.give_back(old)

    assert claim(limiter, rate) is None


def test_giving_back_every_slot_leaves_the_window_as_new(limiter: RateLimiter, clock: FakeClock) -> None:
    rate = Rate("client-1", 200, 6_000)
    tickets = [limiter.claim("a", rates=[rate], global_rates=[]) for _ in range(3)]
    wait(clock, 1_000)

    for ticket in tickets:
        limiter.give_back(ticket)

    left = limiter.left("a", [rate])
    assert left is not None
    assert (left.remaining, left.reset_ns) == (200, 6_000)


def test_a_ticket_says_what_is_left_of_the_rate_with_the_fewest(limiter: RateLimiter, clock: FakeClock) -> None:
    limiter.claim("a", rates=[PER_MINUTE, PER_DAY], global_rates=[GLOBAL])
    clock.advance(20)

    ticket = limiter.claim("a", rates=[PER_MINUTE, PER_DAY], global_rates=[GLOBAL])

    assert ticket.left is not None
    assert (ticket.left.rate, ticket.left.remaining, ticket.left.reset_ns) == (PER_MINUTE, 8, 40 * NANOSECONDS)


def test_the_day_is_named_when_it_has_fewer_left_than_the_minute(limiter: RateLimiter, clock: FakeClock) -> None:
    for _ in range(195):
        claim(limiter, PER_DAY)
        clock.advance(60)

    ticket = limiter.claim("a", rates=[PER_MINUTE, PER_DAY], global_rates=[])

    assert ticket.left is not None
    assert (ticket.left.rate, ticket.left.remaining) == (PER_DAY, 4)
    assert ticket.left == limiter.left("a", [PER_MINUTE, PER_DAY])


def test_the_first_of_two_rates_with_as_few_left_is_named(limiter: RateLimiter) -> None:
    rates = [Rate("client-1", 5, MINUTE_NS), Rate("client-2", 5, DAY_NS)]

    left = limiter.claim("a", rates=rates, global_rates=[]).left

    assert left is not None
    assert left.rate.name == "client-1"


def test_what_is_left_of_a_full_rate_is_nothing_until_its_oldest_slot_is_back(
    limiter: RateLimiter, clock: FakeClock
) -> None:
    for _ in range(10):
        claim(limiter, PER_MINUTE)
        clock.advance(1)

    left = limiter.left("a", [PER_MINUTE])

    assert left is not None
    assert (left.remaining, left.reset_ns) == (0, 50 * NANOSECONDS)


@pytest.mark.parametrize("quota", [10, EXACT_MAX + 10])
def test_slots_are_forgotten_one_by_one_as_they_grow_old(limiter: RateLimiter, clock: FakeClock, quota: int) -> None:
    rate = Rate("client-1", quota, MINUTE_NS)
    seen = []

    for seconds in (20, 30, 10, 30):
        claim(limiter, rate)
        clock.advance(seconds)
        left = limiter.left("a", [rate])
        assert left is not None
        seen.append((quota - left.remaining, left.reset_ns // NANOSECONDS))
    clock.advance(60)

    assert seen == [(1, 40), (2, 10), (2, 20), (2, 20)]
    assert limiter.left("a", [rate]) == Left(rate, quota, MINUTE_NS)


def test_a_stranger_has_everything_left_and_leaves_no_trace(limiter: RateLimiter) -> None:
    left = limiter.left("stranger", [PER_MINUTE, PER_DAY])

    assert left is not None
    assert (left.rate, left.remaining, left.reset_ns) == (PER_MINUTE, 10, MINUTE_NS)
    assert limiter.left("stranger", []) is None
    assert len(limiter) == 0


def test_a_refused_stranger_makes_no_entry(limiter: RateLimiter) -> None:
    shared = [Rate("global-1", 1, MINUTE_NS)]
    limiter.claim("first", rates=[PER_MINUTE], global_rates=shared)

    for number in range(100):
        with pytest.raises(RateRefused):
            limiter.claim(f"stranger-{number}", rates=[PER_MINUTE], global_rates=shared)
        limiter.count_refusal(f"stranger-{number}", [PER_MINUTE])

    assert len(limiter) == 1


def test_a_client_without_rates_makes_no_entry_but_counts_for_everybody(limiter: RateLimiter) -> None:
    shared = [Rate("global-1", 2, MINUTE_NS)]
    tickets = [limiter.claim("exempt", rates=[], global_rates=shared) for _ in range(2)]

    with pytest.raises(RateRefused):
        limiter.claim("exempt", rates=[], global_rates=shared)

    assert len(limiter) == 0
    assert [ticket.left for ticket in tickets] == [None, None]


def test_the_map_of_clients_has_a_hard_size(clock: FakeClock) -> None:
    """Ten thousand addresses in a row, and the busy client in between keeps its place."""
    limiter, rate = RateLimiter(clock=clock, clients_max=10), Rate("client-1", 5, MINUTE_NS)
    for _ in range(5):
        claim(limiter, rate, client="busy")

    for number in range(10_000):
        claim(limiter, rate, client=f"rotating-{number}")
        assert claim(limiter, rate, client="busy") is None

    assert len(limiter) == 10


def test_everybodys_rate_cannot_be_evicted(clock: FakeClock) -> None:
    limiter, shared = RateLimiter(clock=clock, clients_max=1), [Rate("global-1", 50, MINUTE_NS)]

    admitted = 0
    for number in range(500):
        try:
            limiter.claim(f"rotating-{number}", rates=[PER_MINUTE], global_rates=shared)
        except RateRefused:
            continue
        admitted += 1

    assert admitted == 50


def test_the_state_of_one_rate_stays_small(clock: FakeClock) -> None:
    """A window of a million claims is at most a sixtieth of a window each."""
    limiter, rate = RateLimiter(clock=clock, clients_max=10), Rate("client-1", 1_000_000, 6_000)

    for _ in range(20_000):
        ticket = claim(limiter, rate)
        wait(clock, 7)

    assert ticket is not None
    ((window, _),) = ticket.counted
    assert len(getattr(window, "buckets")) <= BUCKETS + 1  # noqa: B009 - only this kind of window has buckets


def test_the_numbers_are_those_of_the_contract() -> None:
    """Exact up to 100, above it a sixtieth late at most, and ten refusals for each admission."""
    assert (EXACT_MAX, BUCKETS, REFUSALS_PER_QUOTA) == (100, 60, 10)


@pytest.mark.parametrize(("refusals", "admits"), [(99, True), (100, False), (150, False)])
def test_refusals_are_limited_to_ten_times_the_tightest_quota(
    limiter: RateLimiter, refusals: int, admits: bool
) -> None:
    limiter.claim("a", rates=[PER_DAY, PER_MINUTE], global_rates=[])

    for _ in range(refusals):
        limiter.count_refusal("a", [PER_DAY, PER_MINUTE])

    assert (claim(limiter, PER_DAY, PER_MINUTE) is not None) is admits


def test_refusals_of_one_client_do_not_limit_another(limiter: RateLimiter) -> None:
    claim(limiter, PER_MINUTE, client="a")
    for _ in range(100):
        limiter.count_refusal("a", [PER_MINUTE])

    assert claim(limiter, PER_MINUTE, client="a") is None
    assert claim(limiter, PER_MINUTE, client="b") is not None


def test_refusals_are_forgotten_with_the_window_of_the_tightest_quota(limiter: RateLimiter, clock: FakeClock) -> None:
    limiter.claim("a", rates=[PER_MINUTE, PER_DAY], global_rates=[])
    for _ in range(100):
        limiter.count_refusal("a", [PER_MINUTE, PER_DAY])
    refused = refusal(limiter, PER_MINUTE, PER_DAY)

    wait(clock, refused.retry_ns - 1)
    too_early = claim(limiter, PER_MINUTE, PER_DAY)
    wait(clock, 1)

    assert refused.retry_ns == MINUTE_NS
    assert refused.per_client
    assert too_early is None
    assert claim(limiter, PER_MINUTE, PER_DAY) is not None


def test_a_refused_client_is_not_counted_for_everybody(limiter: RateLimiter) -> None:
    shared = [Rate("global-1", 2, MINUTE_NS)]
    limiter.claim("a", rates=[PER_MINUTE], global_rates=shared)
    for _ in range(100):
        limiter.count_refusal("a", [PER_MINUTE])

    with pytest.raises(RateRefused):
        limiter.claim("a", rates=[PER_MINUTE], global_rates=shared)

    limiter.claim("b", rates=[PER_MINUTE], global_rates=shared)


def test_old_refusals_are_freed_as_new_ones_come(limiter: RateLimiter, clock: FakeClock) -> None:
    """A client that is refused for ever takes no more memory than one that is refused for a minute."""
    claim(limiter, PER_MINUTE)

    for _ in range(5_000):
        limiter.count_refusal("a", [PER_MINUTE])
        clock.advance(1)

    refusals = limiter._clients["a"].refusals
    assert refusals is not None
    assert refusals.total <= 61
    assert len(refusals.buckets) <= BUCKETS + 1


def test_a_refusal_of_a_client_without_rates_is_nothing(limiter: RateLimiter) -> None:
    claim(limiter, PER_MINUTE)

    limiter.count_refusal("a", [])

    assert claim(limiter, PER_MINUTE) is not None


def test_a_client_that_has_no_rates_any_more_is_not_held_up_by_its_refusals(limiter: RateLimiter) -> None:
    claim(limiter, PER_MINUTE)
    for _ in range(100):
        limiter.count_refusal("a", [PER_MINUTE])

    assert claim(limiter) is not None
    assert claim(limiter, PER_MINUTE) is None


def test_a_rate_in_the_way_for_one_more_nanosecond_is_still_the_clients_own(
    limiter: RateLimiter, clock: FakeClock
) -> None:
    single = Rate("client-1", 1, 10)
    claim(limiter, single)
    wait(clock, 9)

    refused = refusal(limiter, single)

    assert (refused.retry_ns, refused.per_client) == (1, True)


@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("quota", [50, EXACT_MAX + 50])
def test_threads_together_get_no_more_than_the_quota(limiter: RateLimiter, quota: int) -> None:
    """A framework may run an event loop in each of several threads."""
    rate, admitted = Rate("client-1", quota, MINUTE_NS), [0, 0]
    barrier = threading.Barrier(2)

    def hammer(thread: int) -> None:
        barrier.wait()
        for _ in range(quota):
            admitted[thread] += claim(limiter, rate) is not None

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(admitted) == quota


@pytest.fixture
def _switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def claim(limiter: RateLimiter, *rates: Rate, client: str = "a") -> RateTicket | None:
    """A slot of each rate; None when refused."""
    try:
        return limiter.claim(client, rates=rates, global_rates=[])
    except RateRefused:
        return None


def refusal(limiter: RateLimiter, *rates: Rate) -> RateRefused:
    with pytest.raises(RateRefused) as refused:
        limiter.claim("a", rates=rates, global_rates=[])
    return refused.value


def wait(clock: FakeClock, nanoseconds: int) -> None:
    clock.advance(nanoseconds / NANOSECONDS)
