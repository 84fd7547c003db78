"""Calls of the meter's in an admission: begun only where the reservation can pay, and reported by nobody else."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from routeguard.admitted import Call, NoRoom
from tests.admissions import CEILING, Ear, admitted, ended, tokens


def begun(found: Call | NoRoom | None) -> Call:
    assert isinstance(found, Call)
    return found


def test_a_metered_call_that_fits_is_begun_at_its_own_worst_case() -> None:
    at = admitted()

    begun(at.begin_metered(300, force=False))

    assert ended(at).kept_nanousd == 300


def test_calls_share_what_is_left_of_the_reservation() -> None:
    at = admitted(calls=5)

    begun(at.begin_metered(700, force=False))
    begun(at.begin_metered(300, force=False))

    assert at.begin_metered(1, force=False) == NoRoom(left_nanousd=0, calls_left=3)


def test_a_report_frees_what_its_call_did_not_cost() -> None:
    at = admitted()
    call = begun(at.begin_metered(CEILING, force=False))

    call.report(tokens(10))

    assert isinstance(at.begin_metered(CEILING - 10, force=False), Call)


def test_one_call_more_than_the_request_may_make_is_not_begun() -> None:
    at = admitted(calls=2)

    begun(at.begin_metered(1, force=False))
    at.begin(max_usd=0)

    assert at.begin_metered(1, force=False) == NoRoom(left_nanousd=CEILING - 1, calls_left=0)


def test_a_released_call_makes_room_for_another_and_costs_nothing() -> None:
    at = admitted(calls=1)

    begun(at.begin_metered(CEILING, force=False)).release()
    begun(at.begin_metered(CEILING, force=False)).report(tokens(7))

    charge = ended(at)
    assert (charge.state, charge.settled_nanousd) == ("settled", 7)


def test_a_request_whose_only_call_was_released_is_settled_at_nothing() -> None:
    at = admitted()

    begun(at.begin_metered(CEILING, force=False)).release()

    charge = ended(at)
    assert (charge.state, charge.total_nanousd) == ("settled", 0)


def test_a_release_after_a_report_is_void() -> None:
    at = admitted(calls=1)
    call = begun(at.begin_metered(CEILING, force=False))

    call.report(tokens(400))
    call.release()

    assert ended(at).settled_nanousd == 400


def test_a_plain_report_describes_the_request_and_leaves_the_metered_call_alone() -> None:
    at = admitted()
    call = begun(at.begin_metered(100, force=False))

    at.report(tokens(30))

    assert call.cost_nanousd is None
    assert ended(at).kept_nanousd == 100


def test_nothing_sent_is_void_once_a_call_was_metered() -> None:
    at = admitted()
    at.nothing_sent()

    begun(at.begin_metered(100, force=False))

    assert ended(at).kept_nanousd == 100


def test_while_observing_a_call_is_begun_in_any_case() -> None:
    at = admitted(calls=1)

    begun(at.begin_metered(CEILING, force=True))
    begun(at.begin_metered(5 * CEILING, force=True))

    assert ended(at).kept_nanousd == 6 * CEILING


def test_after_the_ending_a_metered_call_is_not_begun() -> None:
    at = admitted()
    ended(at)

    assert at.begin_metered(1, force=True) is None


def test_a_release_after_the_ending_moves_no_money_back() -> None:
    ear = Ear()
    at = admitted(ear)
    call = begun(at.begin_metered(400, force=False))
    charge = ended(at)

    call.release()

    assert (charge.kept_nanousd, at.charge, ear.late) == (400, charge, [])


@pytest.mark.parametrize("threads", [2, 8])
def test_of_calls_that_begin_at_once_only_as_many_are_begun_as_fit(threads: int) -> None:
    for _ in range(50):
        at = admitted(calls=100)

        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(partial(at.begin_metered, force=False), [300] * threads * 2))

        assert sum(isinstance(one, Call) for one in found) == 3
