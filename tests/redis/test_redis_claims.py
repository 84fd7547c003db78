"""A reserve as the script reads it, and the script's letters as a verdict."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.redis.claims import LEASELESS_US, Claims, latest
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.reply import Reply
from routeguard.ledgers.redis.store_clock import Calendar, StoreClock
from routeguard.policy import NANOSECONDS, Budget, Claim, Parallel, Rate, Window
from routeguard.testing import FakeClock

UTC = ZoneInfo("UTC")
DAY = Budget("day", Window("day", UTC), 100)
TOTAL = Budget("total", Window("total", UTC), 100)
MINE = Budget("day", Window("day", UTC), 25, per_client=True)
SLOT, MY_SLOT = Parallel(3, 60 * NANOSECONDS), Parallel(None, 90 * NANOSECONDS, per_client=True)
MINUTE, MY_MINUTE = Rate("all-1", 600, 60 * NANOSECONDS), Rate("client-1", 10, 30 * NANOSECONDS)


def claims(
    *,
    money: Sequence[Claim[Budget]] = (),
    slots: Sequence[Claim[Parallel]] = (),
    rates: Sequence[Claim[Rate]] = (),
    force: bool = False,
) -> Claims:
    return Claims("id", money, slots, rates, force)


def everything(*, force: bool = False) -> Claims:
    return claims(
        money=[Claim(DAY, "", 7), Claim(MINE, "me", 7), Claim(TOTAL, "", 7)],
        slots=[Claim(SLOT, "", 1), Claim(MY_SLOT, "me", 1)],
        rates=[Claim(MINUTE, "", 1), Claim(MY_MINUTE, "me", 1)],
        force=force,
    )


def answer(first: str, second: str = "") -> Reply:
    return Reply("refused", "", 1, 1, (), 0, first, second, ())


def test_a_reserve_without_money_or_slots_asks_for_none_and_is_looked_for_after_eight_days() -> None:
    nothing = claims()

    assert nothing.amount_nanousd == 0
    assert nothing.lease_us == LEASELESS_US == 8 * 86_400 * 10**6
    assert nothing.slot_partitions == ()


def test_the_longest_lease_of_its_slots_is_the_lease() -> None:
    assert everything().lease_us == 90 * 10**6
    assert everything().slot_partitions == ("", "me")
    assert everything().amount_nanousd == 7


def test_a_key_is_given_for_each_slot_and_each_rate_behind_the_common_ones() -> None:
    keyspace = Keyspace("n")

    assert everything().keys(keyspace) == [
        *keyspace.common,
        "{rg:n}:slots",
        "{rg:n}:slots:me",
        "{rg:n}:rate:60000000:buckets:",
        "{rg:n}:rate:30000000:log:me",
    ]


@pytest.mark.parametrize(("force", "written"), [(False, "0"), (True, "1")])
def test_the_arguments_stand_in_the_order_the_script_reads_them(force: bool, written: str) -> None:
    clock = FakeClock()
    day = clock.wall_ns() // NANOSECONDS // 86_400 * 86_400
    span = [str(day), str(day + 86_400), str(day + 2 * 86_400)]

    arguments = everything(force=force).arguments(clock=StoreClock(clock), calendar=Calendar(), clients_max=50)

    assert arguments == [
        *["id", "1000000000", written, "7", "50", "3"],
        *["day|UTC|0", *span, "100", ""],
        *["day|UTC|1", *span, "25", "me"],
        *["total|UTC|0", "0", "", "", "100", ""],
        *["2", "90000000", "3", ""],
        *["2", "600", "60000000", "10", "30000000"],
    ]


@pytest.mark.parametrize(
    ("first", "second", "cause", "per_client", "resets_at", "retry_ns"),
    [
        ("nnnff", "5 9", "too_expensive", False, None, 0),
        ("snnff", "5 9", "too_expensive", False, None, 0),
        ("snsff", "5 9", "too_expensive", True, None, 0),
        ("bsbff", "5 9", "budget_exhausted", True, 20, 0),
        ("ssb--", "0 0", "budget_exhausted", False, 20, 0),
        ("s----", "0 0", "budget_exhausted", False, 10, 0),
        ("s-s--", "0 0", "budget_exhausted", False, None, 0),
        ("bbbff", "5 9", "rate_limited", False, None, 9000),
        ("-----", "5 0", "rate_limited", False, None, 5000),
        ("-----", "0 9", "rate_limited", True, None, 9000),
        ("-----", "9 5", "rate_limited", False, None, 9000),
        ("b----", "0 0", "busy", False, None, 0),
        ("-b---", "0 0", "busy", True, None, 0),
        ("-b-f-", "0 0", "busy", False, None, 0),
        ("-b--f", "0 0", "busy", True, None, 0),
        ("----f", "0 0", "busy", True, None, 0),
        ("b---f", "0 0", "busy", False, None, 0),
    ],
)
def test_the_most_final_thing_in_the_way_is_the_verdict(
    first: str, second: str, cause: str, per_client: bool, resets_at: int | None, retry_ns: int
) -> None:
    refused = everything().verdict(answer(first, second), [10, 20, None])

    assert refused is not None
    assert (refused.cause, refused.per_client, refused.resets_at, refused.retry_ns) == (
        cause,
        per_client,
        resets_at,
        retry_ns,
    )


def test_with_nothing_in_the_way_there_is_no_verdict() -> None:
    assert everything().verdict(answer("-----", "0 0"), [10, 20, None]) is None
    assert claims().verdict(answer(""), []) is None


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ("--", "0 0", [10, 20, None]),
        ("n", "0 0", [10, 20, None]),
        ("sss--", "0 0", [10, 20]),
        ("-----", "0 5 9", [10, 20, None]),
        ("---f", "0 0", [1] * 3),
    ],
    ids=["money", "never fits", "ends", "rates", "slots"],
)
def test_an_answer_to_another_question_is_an_error_and_no_verdict(
    first: str, second: str, ends: Sequence[int | None]
) -> None:
    with pytest.raises(ValueError, match="zip"):
        everything().verdict(answer(first, second), ends)


@pytest.mark.parametrize(("ends", "last"), [([], None), ([5], 5), ([5, 9, 7], 9), ([5, None], None), ([0], 0)])
def test_the_latest_reset_is_none_as_soon_as_one_never_comes(ends: Sequence[int | None], last: int | None) -> None:
    assert latest(ends) == last


@pytest.mark.parametrize(
    "mistaken",
    [
        claims(money=[Claim(DAY, "", 7), Claim(TOTAL, "", 8)]),
        claims(money=[Claim(DAY, "", 0)]),
        claims(money=[Claim(DAY, "", -1)]),
        claims(money=[Claim(DAY, "", 2**53 + 1)]),
        claims(money=[Claim(DAY, "", 7), Claim(Budget("day", Window("day", UTC), 5), "", 7)]),
        claims(money=[Claim(MINE, "a b", 7)]),
        claims(slots=[Claim(MY_SLOT, " a", 1)]),
        Claims("i d", [], [], [], force=False),
        Claims("id\n", [], [], [], force=False),
    ],
    ids=["two amounts", "nothing", "negative", "inexact", "one counter twice", "money", "slot", "id", "newline"],
)
def test_our_own_mistakes_are_caught_before_anything_is_sent(mistaken: Claims) -> None:
    with pytest.raises(AssertionError):
        mistaken.check()


def test_what_is_no_mistake_passes_up_to_the_largest_exact_amount() -> None:
    claims(money=[Claim(MINE, "me", 2**53), Claim(DAY, "", 2**53)], slots=[Claim(SLOT, "", 1)]).check()
    claims(money=[Claim(DAY, "", 1)]).check()
    claims().check()
