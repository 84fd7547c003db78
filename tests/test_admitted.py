"""An admission: what reports mean, and what they never do."""

from decimal import Decimal

import pytest

from routeguard.usage import Usage
from tests.admissions import CEILING, GARBAGE, NANO, Ear, Hostile, admitted, tokens


def _name(value: object) -> str:
    return type(value).__name__ if isinstance(value, Hostile) else repr(value)


BAD_COSTS = ["", "much", "-0.1", -1, "nan", float("inf"), True, "1e400", Decimal("sNaN"), b"1", [], Hostile()]


class TestWhatCounts:
    def test_nothing_said_is_nothing_known(self) -> None:
        bill = admitted().bill()

        assert (bill.total_nanousd, bill.any_call, bill.nothing_sent) == (0, False, False)

    def test_a_begun_call_counts_at_its_share_of_the_ceiling_rounded_up(self) -> None:
        one = admitted(calls=3)

        call = one.begin()

        assert call.max_nanousd == 334
        assert one.bill().unreported_nanousd == 334
        assert one.has_unreported_calls()

    @pytest.mark.parametrize(
        ("worst", "nanousd"), [("0.000000002", 2), (NANO * 5 / 2, 3), (1e-9, 1), (0, 0), (3, 3 * 10**9)]
    )
    def test_a_begun_call_counts_at_the_worst_case_it_names(self, worst: str | float | Decimal, nanousd: int) -> None:
        one = admitted()

        one.begin(max_usd=worst)

        assert one.bill().unreported_nanousd == nanousd

    @pytest.mark.parametrize("worst", BAD_COSTS, ids=_name)
    def test_an_unusable_worst_case_is_the_whole_ceiling(self, worst: str) -> None:
        ear = Ear()
        one = admitted(ear)

        call = one.begin(max_usd=worst)

        assert call.max_nanousd == CEILING
        assert len(ear.problems) == 1

    def test_begun_calls_add_up_each_at_what_was_reported_or_at_its_worst_case(self) -> None:
        one = admitted(calls=4)
        first, second, _ = one.begin(), one.begin(), one.begin("0.000000007")

        first.report(tokens(3))
        second.report(cost_usd=NANO * 2)

        bill = one.bill()
        assert (bill.reported_nanousd, bill.unreported_nanousd, bill.whole_nanousd) == (5, 7, 0)
        assert one.has_unreported_calls()

    def test_the_largest_of_several_reports_of_one_call_counts(self) -> None:
        """Providers repeat cumulative numbers; a smaller one later is no money back."""
        one = admitted()
        call = one.begin()

        for cost in (5, 9, 4):
            call.report(tokens(cost))

        assert one.bill().total_nanousd == 9
        assert not one.has_unreported_calls()

    def test_a_plain_report_is_of_the_oldest_call_not_yet_reported(self) -> None:
        one = admitted()
        first, second = one.begin(), one.begin()

        one.report(tokens(3))
        one.report(tokens(4))

        assert (first.cost_nanousd, second.cost_nanousd) == (3, 4)
        assert one.bill().whole_nanousd == 0

    def test_a_plain_report_without_an_outstanding_call_is_of_the_request_and_adds_up(self) -> None:
        one = admitted()
        one.begin().report(tokens(5))

        one.report(tokens(3))
        one.report(cost_usd=NANO * 4)

        bill = one.bill()
        assert (bill.whole_nanousd, bill.reported_nanousd, bill.total_nanousd) == (7, 5, 7)

    def test_a_cost_of_nothing_is_an_answer(self) -> None:
        one = admitted()
        one.begin()

        one.report(cost_usd=0)

        assert (one.bill().total_nanousd, one.bill().any_call) == (0, True)
        assert not one.has_unreported_calls()

    def test_a_whole_cost_of_nothing_is_an_answer_too(self) -> None:
        one = admitted()

        one.report(cost_usd="0")

        assert (one.bill().total_nanousd, one.bill().any_call) == (0, True)

    def test_a_cost_wins_over_a_usage(self) -> None:
        one = admitted()

        one.report(tokens(900), cost_usd=NANO * 3)

        assert one.bill().total_nanousd == 3
        assert one.usage is not None

    def test_a_report_that_can_be_used_is_nothing_to_speak_of(self) -> None:
        ear = Ear()
        one = admitted(ear)

        one.begin().report(tokens(1))
        one.report(tokens(1), model="m")
        one.report(cost_usd=1)

        assert ear.problems == []

    def test_a_cost_is_rounded_up(self) -> None:
        one = admitted()

        one.report(cost_usd="0.0000000031")

        assert one.bill().total_nanousd == 4

    @pytest.mark.parametrize("usage", GARBAGE.values(), ids=GARBAGE.keys())
    def test_a_report_without_a_usable_number_is_a_begun_call_nobody_reported(self, usage: object) -> None:
        ear = Ear()
        one = admitted(ear)

        one.report(usage)

        bill = one.bill()
        assert (bill.unreported_nanousd, bill.reported_nanousd, bill.any_call) == (500, 0, True)
        assert one.has_unreported_calls()
        assert ear.problems == ["no usable number in it"]

    @pytest.mark.parametrize("cost", BAD_COSTS, ids=_name)
    def test_an_unusable_cost_is_not_replaced_by_the_usage_beside_it(self, cost: str) -> None:
        """Two numbers of which one is nonsense are no answer."""
        ear = Ear()
        one = admitted(ear)

        one.report(tokens(1), cost_usd=cost)

        assert one.bill().unreported_nanousd == 500
        assert len(ear.problems) == 1

    @pytest.mark.parametrize("model", ["gpt-unknown", "", 5, ["m"]], ids=repr)
    def test_an_unknown_model_is_an_unusable_report(self, model: str) -> None:
        ear = Ear()
        one = admitted(ear)

        one.report(tokens(1), model=model)

        assert one.bill().unreported_nanousd == 500
        assert len(ear.problems) == 1

    @pytest.mark.parametrize("usage", GARBAGE.values(), ids=GARBAGE.keys())
    def test_an_unusable_report_leaves_a_begun_call_at_its_worst_case(self, usage: object) -> None:
        one = admitted()
        call = one.begin("0.000000070")

        call.report(usage)

        assert one.bill().total_nanousd == 70

    def test_an_unusable_report_takes_nothing_back_from_a_call_already_reported(self) -> None:
        one = admitted()
        call = one.begin()
        call.report(tokens(8))

        call.report({})

        assert one.bill().total_nanousd == 8

    def test_reporting_each_chunk_of_a_stream_is_one_bill(self) -> None:
        """All chunks but the last have no usage; they stand for one unreported call until it comes."""
        one = admitted()

        for usage in (None, None, None, tokens(12)):
            one.report(usage)

        assert (one.bill().total_nanousd, one.has_unreported_calls()) == (12, False)

    def test_nothing_sent_is_said_in_the_bill_beside_what_contradicts_it(self) -> None:
        silent, begun = admitted(), admitted()
        begun.begin()

        for one in (silent, begun):
            one.nothing_sent()

        assert (silent.bill().nothing_sent, silent.bill().any_call) == (True, False)
        assert (begun.bill().nothing_sent, begun.bill().any_call) == (True, True)

    def test_what_was_read_and_seen_is_passed_into_the_bill(self) -> None:
        bill = admitted().bill(read_nanousd=4, provider_seen=True)

        assert (bill.read_nanousd, bill.provider_seen, bill.any_call) == (4, True, False)

    @pytest.mark.parametrize(("finish", "truncated"), [("length", True), ("max_tokens", True), ("stop", False)])
    def test_an_answer_cut_off_at_its_cap_is_noticed(self, finish: str, truncated: bool) -> None:
        one = admitted()

        one.report(Usage(input_tokens=1, output_tokens=1, finish=finish))

        assert one.truncated is truncated
