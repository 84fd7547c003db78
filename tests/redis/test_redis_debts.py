"""Writes that wait for the store: in what order they go, how many there may be, and what is said of those given up."""

import logging

import pytest

from routeguard.ledgers.redis.debts import DEBTS_MAX, REFUSALS_MAX, Debt, Debts
from routeguard.ledgers.redis.scripts import SETTLE


def test_writes_that_wait_are_bounded_and_the_oldest_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    debts = Debts()
    with caplog.at_level(logging.ERROR):
        for number in range(DEBTS_MAX + 2):
            debts.add(Debt(SETTLE, [], [str(number)]))

    assert (len(debts), debts.lost) == (DEBTS_MAX, 2)
    assert debts.take(1)[0].arguments == ["2"]
    assert "given up" in caplog.text


def test_a_write_that_the_store_will_not_have_is_given_up_in_the_end() -> None:
    debts, debt = Debts(), Debt(SETTLE, [], [])

    for _ in range(REFUSALS_MAX + 1):
        debts.postpone(debt, refused=True)
        debts.wake()
        debts.take(1)

    assert (len(debts), debts.lost) == (0, 1)


def test_a_write_that_found_the_store_away_waits_for_it_as_long_as_it_takes() -> None:
    debts, debt = Debts(), Debt(SETTLE, [], [])

    for _ in range(10 * REFUSALS_MAX):
        debts.postpone(debt)
        assert debts.take(1) == []
        debts.wake()
        assert debts.take(1) == [debt]

    assert debts.lost == 0


def test_writes_go_out_oldest_first_and_no_more_than_asked_for() -> None:
    debts = Debts()
    for number in range(3):
        debts.add(_debt(number))

    taken = [_numbers(debts.take(most)) for most in (2, 2, 2)]

    assert taken == [["0", "1"], ["2"], []]


def test_a_postponed_write_goes_out_behind_those_that_were_ready() -> None:
    debts = Debts()
    debts.add(_debt(1))
    debts.postpone(_debt(2))

    before = (debts.ready, len(debts))
    debts.wake()

    assert before == (1, 2)
    assert debts.ready == 2
    assert _numbers(debts.take(5)) == ["1", "2"]


def test_a_write_is_woken_once() -> None:
    debts = Debts()
    debts.postpone(_debt(1))

    debts.wake()
    debts.wake()

    assert _numbers(debts.take(5)) == ["1"]


def test_a_write_refused_as_often_as_it_may_be_is_still_tried() -> None:
    debts, debt = Debts(), _debt(1)

    for _ in range(REFUSALS_MAX):
        debts.postpone(debt, refused=True)
        debts.wake()
        debts.take(1)
    debts.add(debt)

    assert debts.lost == 0
    assert debt.refusals == REFUSALS_MAX


def test_of_too_many_writes_the_one_postponed_longest_ago_is_given_up() -> None:
    debts = Debts()
    debts.add(_debt("ready"))
    for number in range(DEBTS_MAX):
        debts.postpone(_debt(number))

    debts.wake()

    assert debts.lost == 1
    assert _numbers(debts.take(2)) == ["ready", "1"]


def test_the_first_write_given_up_is_logged_and_then_one_in_1000(caplog: pytest.LogCaptureFixture) -> None:
    debts = Debts()

    with caplog.at_level(logging.ERROR):
        for number in range(DEBTS_MAX + 2001):
            debts.add(_debt(number))

    assert [record.getMessage() for record in caplog.records] == [
        f"ledger_error: {number} writes were given up; their reservations end as orphans" for number in (1, 1000, 2000)
    ]


def _debt(number: object) -> Debt:
    return Debt(SETTLE, [], [str(number)])


def _numbers(debts: list[Debt]) -> list[str]:
    return [debt.arguments[0] for debt in debts]
