"""The one ending of an admission, and reports beside it and after it, from many threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.admitted import Call
from routeguard.ending import Charge, EndingRules, decide
from tests.admissions import CEILING, GARBAGE, NANO, Ear, admitted, ended, tokens


class TestTheEnding:
    def test_the_ending_is_taken_once(self) -> None:
        one = admitted()
        first = ended(one)

        second = one.end(Charge("released", 0, 0, "again"))

        assert second is False
        assert one.charge is first

    def test_a_late_report_within_the_charge_moves_nothing(self) -> None:
        ear = Ear()
        one = admitted(ear)
        ended(one)

        one.report(tokens(CEILING))

        assert ear.late == []
        assert one.late_charges == 0

    def test_a_late_report_above_the_charge_is_charged_by_the_difference_each_time(self) -> None:
        ear = Ear()
        one = admitted(ear)
        one.report(tokens(5))
        ended(one)

        one.report(tokens(7))
        one.report(tokens(1))
        one.report(cost_usd=0)

        assert ear.late == [7, 1]
        assert one.late_charges == 2

    def test_a_kept_call_reported_late_is_charged_only_above_its_worst_case(self) -> None:
        ear = Ear()
        one = admitted(ear)
        call = one.begin("0.000000050")
        ended(one)

        for cost in (40, 50, 65, 60):
            call.report(tokens(cost))

        assert ear.late == [15]

    def test_a_late_report_above_what_was_read_is_charged_by_the_difference(self) -> None:
        ear = Ear()
        one = admitted(ear)
        one.end(Charge("settled", 30, 0, "read"))

        one.report(tokens(20))
        one.report(tokens(20))

        assert ear.late == [10]

    def test_a_late_report_after_a_release_is_charged_in_full(self) -> None:
        """The application said that nothing was sent, and then reported a call."""
        ear = Ear()
        one = admitted(ear)
        one.nothing_sent()
        ended(one)

        one.report(tokens(9))

        assert ear.late == [9]

    @pytest.mark.parametrize("usage", GARBAGE.values(), ids=GARBAGE.keys())
    def test_a_late_report_that_cannot_be_used_charges_nothing_and_does_not_raise(self, usage: object) -> None:
        ear = Ear()
        one = admitted(ear)
        ended(one)

        one.report(usage)

        assert ear.late == []
        assert len(ear.problems) == 1

    def test_a_report_between_the_bill_and_the_ending_is_not_lost(self) -> None:
        """A worker thread reports while the event loop decides by what it knew a moment ago."""
        ear = Ear()
        one = admitted(ear)
        one.report(tokens(5))
        charge = decide(one.bill(), ceiling_nanousd=CEILING, failure=None, status=200, rules=EndingRules())
        one.report(tokens(1))

        taken = one.end(charge)

        assert taken
        assert charge.total_nanousd == 5
        assert ear.late == [1]

    def test_a_call_begun_between_the_bill_and_a_release_is_not_free(self) -> None:
        ear = Ear()
        one = admitted(ear)
        one.nothing_sent()
        charge = decide(one.bill(), ceiling_nanousd=CEILING, failure=None, status=200, rules=EndingRules())
        one.begin()

        one.end(charge)

        assert (charge.state, ear.late) == ("released", [500])

    @settings(max_examples=200)
    @given(
        st.lists(st.tuples(st.sampled_from(["begin", "call", "plain", "garbage"]), st.integers(0, 1500)), max_size=14),
        st.integers(0, 14),
    )
    def test_the_charge_never_falls_and_never_stays_below_the_bill(
        self, steps: list[tuple[str, int]], ends_after: int
    ) -> None:
        ear = Ear()
        one = admitted(ear, calls=3)
        calls: list[Call] = []
        at_the_end = None
        costs = 0
        for number, (kind, cost) in enumerate([*steps, ("plain", 0)]):
            if number == min(ends_after, len(steps)):
                at_the_end = ended(one).total_nanousd
                assert at_the_end >= one.bill().total_nanousd
            if kind == "begin":
                calls.append(one.begin(NANO * cost))
            elif kind == "garbage":
                one.report({})
            elif kind == "call" and calls:
                calls[cost % len(calls)].report(tokens(cost))
            else:
                one.report(cost_usd=NANO * cost)
                costs = max(costs, cost)

        assert at_the_end is not None
        charged = at_the_end + sum(ear.late)
        assert all(extra > 0 for extra in ear.late)
        assert charged >= max(one.bill().total_nanousd, costs)
        assert len(ear.late) == one.late_charges


class TestThreads:
    def test_reports_of_many_threads_all_count(self) -> None:
        one = admitted()

        with ThreadPoolExecutor(8) as pool:
            for _ in range(800):
                pool.submit(one.report, tokens(1))

        assert one.bill().whole_nanousd == 800

    def test_an_ending_in_the_middle_of_reports_loses_none(self) -> None:
        ear = Ear()
        one = admitted(ear)
        barrier = threading.Barrier(5)

        def report() -> None:
            barrier.wait()
            for _ in range(100):
                one.report(tokens(3))

        threads = [threading.Thread(target=report) for _ in range(4)]
        for thread in threads:
            thread.start()
        barrier.wait()
        bill = one.bill()
        one.end(Charge("settled", bill.total_nanousd, 0, "reported"))
        for thread in threads:
            thread.join()

        assert bill.total_nanousd + sum(ear.late) == 1200

    def test_one_of_many_threads_takes_the_ending(self) -> None:
        one = admitted()

        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda number: one.end(Charge("settled", number, 0, "reported")), range(100)))

        assert sum(taken) == 1
        assert one.charge == Charge("settled", taken.index(True), 0, "reported")
