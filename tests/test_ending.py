"""The ending: every cause in a table, and what holds for all of them."""

from itertools import product

import pytest

from routeguard.ending import Bill, Charge, EndingRules, Failure, decide

CEILING = 100
FAILURES: list[Failure] = ["exception", "status_5xx", "stream_timeout", "disconnect", "cancelled"]
DEFAULT = EndingRules()
EXACT = EndingRules(on_failure="exact")
RELEASING = EndingRules(no_call="release")

NOTHING = Bill()
SENT_NOTHING = Bill(nothing_sent=True)


def begun(worst: int = 0, *, reported: int = 0, whole: int = 0, read: int | None = None) -> Bill:
    """A request in which calls were begun, reported or metered."""
    return Bill(reported, worst, whole, any_call=True, read_nanousd=read)


@pytest.mark.parametrize(
    ("bill", "status", "rules", "charge"),
    [
        pytest.param(begun(reported=7), 200, DEFAULT, Charge("settled", 7, 0, "reported"), id="reported exactly"),
        pytest.param(begun(reported=0), 200, DEFAULT, Charge("settled", 0, 0, "reported"), id="a cost of 0"),
        pytest.param(begun(reported=250), 200, DEFAULT, Charge("settled", 250, 0, "reported"), id="an overrun"),
        pytest.param(begun(50), 200, DEFAULT, Charge("kept", 0, 50, "unreported_call"), id="begun, not reported"),
        pytest.param(begun(50, reported=7), 200, DEFAULT, Charge("kept", 7, 50, "unreported_call"), id="one of two"),
        pytest.param(begun(300), 200, DEFAULT, Charge("kept", 0, 300, "unreported_call"), id="worst case over it"),
        pytest.param(begun(whole=9), 200, DEFAULT, Charge("settled", 9, 0, "reported"), id="reported as a whole"),
        pytest.param(
            begun(reported=5, whole=9), 200, DEFAULT, Charge("settled", 9, 0, "reported"), id="the whole is larger"
        ),
        pytest.param(
            begun(reported=9, whole=5), 200, DEFAULT, Charge("settled", 9, 0, "reported"), id="the calls are larger"
        ),
        pytest.param(
            begun(5, whole=9), 200, DEFAULT, Charge("kept", 4, 5, "unreported_call"), id="the whole holds the begun"
        ),
        pytest.param(
            begun(reported=3, read=80), 200, DEFAULT, Charge("settled", 3, 0, "reported"), id="a report beats reading"
        ),
        pytest.param(begun(3, read=80), 200, DEFAULT, Charge("kept", 0, 3, "unreported_call"), id="so does a begin"),
        pytest.param(
            Bill(read_nanousd=8, provider_seen=True), 200, DEFAULT, Charge("settled", 8, 0, "read"), id="read"
        ),
        pytest.param(
            Bill(read_nanousd=0, provider_seen=True), 200, DEFAULT, Charge("settled", 0, 0, "read"), id="read as 0"
        ),
        pytest.param(
            Bill(read_nanousd=8, provider_seen=True), 404, RELEASING, Charge("settled", 8, 0, "read"), id="read a 404"
        ),
        pytest.param(NOTHING, 200, DEFAULT, Charge("kept", 0, CEILING, "no_usage"), id="nothing known"),
        pytest.param(NOTHING, None, DEFAULT, Charge("kept", 0, CEILING, "no_usage"), id="no answer"),
        pytest.param(NOTHING, 400, DEFAULT, Charge("kept", 0, CEILING, "no_usage"), id="an answer of 400"),
        pytest.param(NOTHING, 404, DEFAULT, Charge("released", 0, 0, "status_404"), id="an answer of 404"),
        pytest.param(NOTHING, 405, DEFAULT, Charge("released", 0, 0, "status_405"), id="an answer of 405"),
        pytest.param(NOTHING, 200, RELEASING, Charge("released", 0, 0, "no_call"), id="no call, and released"),
        pytest.param(
            Bill(provider_seen=True), 404, DEFAULT, Charge("kept", 0, CEILING, "no_usage"), id="a provider in a 404"
        ),
        pytest.param(
            Bill(provider_seen=True), 200, RELEASING, Charge("kept", 0, CEILING, "no_usage"), id="seen, not counted"
        ),
        pytest.param(
            begun(50), 404, RELEASING, Charge("kept", 0, 50, "unreported_call"), id="a 404 after a call was begun"
        ),
        pytest.param(SENT_NOTHING, 200, DEFAULT, Charge("released", 0, 0, "nothing_sent"), id="nothing sent"),
        pytest.param(
            Bill(nothing_sent=True, read_nanousd=8, provider_seen=True),
            200,
            DEFAULT,
            Charge("released", 0, 0, "nothing_sent"),
            id="nothing sent, an old answer replayed",
        ),
        pytest.param(
            Bill(0, 50, any_call=True, nothing_sent=True),
            200,
            DEFAULT,
            Charge("kept", 0, 50, "unreported_call"),
            id="nothing sent is void after a begin",
        ),
        pytest.param(
            Bill(0, 0, any_call=True, nothing_sent=True),
            200,
            DEFAULT,
            Charge("settled", 0, 0, "reported"),
            id="nothing sent is void after a report of 0",
        ),
    ],
)
def test_an_ending_without_a_failure(bill: Bill, status: int | None, rules: EndingRules, charge: Charge) -> None:
    assert decide(bill, ceiling_nanousd=CEILING, failure=None, status=status, rules=rules) == charge


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    "bill",
    [
        NOTHING,
        begun(reported=7),
        begun(reported=CEILING),
        begun(50),
        begun(CEILING),
        begun(whole=9),
        Bill(read_nanousd=8, provider_seen=True),
    ],
    ids=["nothing", "reported", "reported in full", "begun", "begun in full", "whole", "read"],
)
def test_a_failure_is_charged_in_full_whatever_was_reported(bill: Bill, failure: Failure) -> None:
    """Who aborts on purpose, or fails on purpose, gets nothing back."""
    found = decide(bill, ceiling_nanousd=CEILING, failure=failure, status=404, rules=RELEASING)

    assert found == Charge("kept", 0, CEILING, failure)


@pytest.mark.parametrize(
    ("bill", "charge"),
    [
        (begun(reported=101), Charge("settled", 101, 0, "reported")),
        (begun(whole=300), Charge("settled", 300, 0, "reported")),
        (begun(60, reported=50), Charge("kept", 50, 60, "unreported_call")),
        (Bill(read_nanousd=130, provider_seen=True), Charge("settled", 130, 0, "read")),
    ],
    ids=["reported", "whole", "begun twice", "read"],
)
def test_a_known_bill_above_the_ceiling_is_charged_after_a_failure_too(bill: Bill, charge: Charge) -> None:
    assert decide(bill, ceiling_nanousd=CEILING, failure="exception", status=500, rules=DEFAULT) == charge


@pytest.mark.parametrize("failure", FAILURES)
def test_with_exact_a_failure_ends_as_if_there_were_none(failure: Failure) -> None:
    for bill, status in product(_bills(), [200, 404, None]):
        found = decide(bill, ceiling_nanousd=CEILING, failure=failure, status=status, rules=EXACT)
        without = decide(bill, ceiling_nanousd=CEILING, failure=None, status=status, rules=EXACT)

        assert (found.state, found.settled_nanousd, found.kept_nanousd) == (
            without.state,
            without.settled_nanousd,
            without.kept_nanousd,
        )


def test_with_exact_the_failure_is_still_what_is_logged() -> None:
    assert decide(NOTHING, ceiling_nanousd=CEILING, failure="cancelled", status=None, rules=EXACT).why == "cancelled"


def test_nothing_sent_is_released_after_a_failure_too() -> None:
    """Provably nothing left: a crash later on does not change that."""
    found = decide(SENT_NOTHING, ceiling_nanousd=CEILING, failure="exception", status=500, rules=DEFAULT)

    assert found == Charge("released", 0, 0, "nothing_sent")


@pytest.mark.parametrize("statuses", [frozenset(), frozenset({422})], ids=["none", "422"])
def test_only_the_statuses_of_the_operator_release(statuses: frozenset[int]) -> None:
    rules = EndingRules(release_statuses=statuses)

    found = {
        status: decide(NOTHING, ceiling_nanousd=CEILING, failure=None, status=status, rules=rules).state
        for status in (None, 200, 404, 405, 422)
    }

    assert {status for status, state in found.items() if state == "released"} == statuses


def test_no_ending_charges_less_than_what_is_known() -> None:
    """Over every combination: the bill, or all of the reservation, or provably nothing."""
    for bill, failure, status, rules in _everything():
        charge = decide(bill, ceiling_nanousd=CEILING, failure=failure, status=status, rules=rules)

        label = (bill, failure, status, rules, charge)
        known = bill.total_nanousd if bill.any_call else (bill.read_nanousd or 0)
        released = charge.state == "released"
        assert charge.state in {"settled", "kept", "released"}, label
        assert min(charge.settled_nanousd, charge.kept_nanousd) >= 0, label
        assert charge.why, label
        assert (charge.kept_nanousd > 0) is (charge.state == "kept"), label
        if released:
            assert charge.total_nanousd == 0, label
            assert not bill.any_call, label
            assert bill.nothing_sent or not (bill.provider_seen or bill.read_nanousd), label
        else:
            assert charge.total_nanousd >= known, label
        if failure is not None and rules.on_failure == "keep" and not released:
            assert charge.total_nanousd == max(CEILING, known), label
        if not bill.any_call and bill.read_nanousd is None and not released:
            assert charge.total_nanousd == CEILING, label


def test_the_total_of_a_bill_is_the_larger_of_the_whole_and_the_sum() -> None:
    assert Bill().total_nanousd == 0
    assert Bill(3, 4, 6).total_nanousd == 7
    assert Bill(3, 4, 8).total_nanousd == 8


def _bills() -> list[Bill]:
    with_calls = [
        Bill(reported, worst, whole, any_call=True, read_nanousd=read, provider_seen=seen, nothing_sent=unsent)
        for reported, worst, whole in product([0, 7, 130], [0, 50, 101], [0, 60, 200])
        for read, seen, unsent in product([None, 90], [False, True], [False, True])
    ]
    without = [
        Bill(read_nanousd=read, provider_seen=seen or read is not None, nothing_sent=unsent)
        for read, seen, unsent in product([None, 0, 30, 120], [False, True], [False, True])
    ]
    return with_calls + without


def _everything() -> list[tuple[Bill, Failure | None, int | None, EndingRules]]:
    failures: list[Failure | None] = [None, *FAILURES]
    statuses: list[int | None] = [None, 200, 404, 500]
    rules = [DEFAULT, EXACT, RELEASING, EndingRules("exact", "release", frozenset({500}))]
    return list(product(_bills(), failures, statuses, rules))
