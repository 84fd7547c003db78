"""An admission: what reports mean, what they never do, and the one ending."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from decimal import Decimal, Inexact, localcontext
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from routeguard.admitted import SCOPE_KEY, Admission, Call, admission, current
from routeguard.ending import Charge, EndingRules, decide
from routeguard.policy import Reservation
from routeguard.usage import Usage

CEILING = 1_000
NANO = Decimal("1e-9")


class Ear:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.late: list[int] = []
        self.problems: list[str] = []

    def charge_late(self, admission: Admission, *, extra_nanousd: int) -> None:
        self.late.append(extra_nanousd)

    def unusable_report(self, admission: Admission, problem: str) -> None:
        self.problems.append(problem)


def price(usage: Usage, admission: Admission, *, model: str | None) -> int | None:
    """One nano-USD a token, for one model and for none."""
    if model not in {None, "m"}:
        return None
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def admitted(ear: Ear | None = None, *, calls: int = 2, ceiling: int = CEILING) -> Admission:
    return Admission(
        Reservation("id-1", ceiling),
        client="hash",
        path="/api/chat",
        request_id="request-1",
        namespace="default",
        calls_per_request=calls,
        price=price,
        watcher=ear or Ear(),
        input_bytes=10,
        wall_ns=0,
    )


def tokens(count: int) -> dict[str, int]:
    """An OpenAI usage of so many tokens, and so many nano-USD."""
    return {"prompt_tokens": count, "completion_tokens": 0, "total_tokens": count}


def ended(at: Admission) -> Charge:
    """End it as the guard does, by what is known now."""
    charge = decide(at.bill(), ceiling_nanousd=CEILING, failure=None, status=200, rules=EndingRules())
    assert at.end(charge)
    return charge


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text either")


class Endless:
    """Has every attribute, and each has every attribute."""

    def __getattr__(self, name: str) -> "Endless":
        return Endless()


class HostileMapping(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise OSError(key)

    def __iter__(self) -> None:  # type: ignore[override]
        raise OSError

    def __len__(self) -> int:
        raise OSError


def _name(value: object) -> str:
    return type(value).__name__ if isinstance(value, Hostile) else repr(value)


def _cyclic() -> dict[str, object]:
    loop: dict[str, object] = {}
    loop["usage"] = loop
    return loop


GARBAGE = {
    "none": None,
    "empty": {},
    "no count": {"model": "m", "id": "x"},
    "negative": tokens(-1),
    "not a number": {"prompt_tokens": float("nan"), "completion_tokens": 1},
    "infinite": {"prompt_tokens": float("inf"), "completion_tokens": 1},
    "text": {"prompt_tokens": "many"},
    "absurdly large": tokens(10**15),
    "no counts in a Usage": Usage(),
    "negative in a Usage": Usage(input_tokens=-5, output_tokens=1),
    "a string": "prompt_tokens: 5",
    "a number": 5,
    "a list": [1, 2],
    "a class": Usage,
    "hostile": Hostile(),
    "endless": Endless(),
    "hostile mapping": HostileMapping(),
    "cyclic": _cyclic(),
}
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


class TestFindingIt:
    def test_it_is_found_from_context_and_from_a_scope(self) -> None:
        one = admitted()

        def inside() -> list[Admission | None]:
            current.set(one)
            return [admission(), admission({}), admission({SCOPE_KEY: one})]

        assert copy_context().run(inside) == [one, None, one]
        assert admission() is None

    def test_it_is_found_from_a_starlette_request(self) -> None:
        one = admitted()
        scope = {"type": "http", "method": "GET", "headers": [], "path": "/"}

        assert admission(Request({**scope, SCOPE_KEY: one})) is one
        assert admission(Request(scope)) is None

    def test_it_is_found_from_anything_that_carries_its_scope(self) -> None:
        """As Django's `ASGIRequest` does, without being a mapping."""
        one = admitted()

        assert admission(SimpleNamespace(scope={SCOPE_KEY: one})) is one
        assert admission(SimpleNamespace(scope={})) is None
        assert admission(SimpleNamespace(scope=None)) is None

    @pytest.mark.parametrize("request_", [object(), 5, "scope", {SCOPE_KEY: "not one"}, [SCOPE_KEY]], ids=repr)
    def test_anything_else_is_not_guarded(self, request_: object) -> None:
        assert admission(request_) is None

    def test_a_bound_function_finds_it_in_a_thread(self) -> None:
        one = admitted()

        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(one.bind(admission)).result()
            unbound = pool.submit(admission).result()

        assert found is one
        assert unbound is None

    def test_a_bound_function_keeps_its_arguments_its_answer_and_its_exception(self) -> None:
        bound = admitted().bind(divmod)

        assert bound(17, 5) == (3, 2)
        with pytest.raises(ZeroDivisionError):
            bound(1, 0)

    def test_a_bound_function_runs_in_many_threads_at_once_and_in_itself(self) -> None:
        one, barrier = admitted(), threading.Barrier(4, timeout=10)

        def work(depth: int) -> bool:
            if depth:
                return bound(depth - 1)
            barrier.wait()
            return admission() is one

        bound = one.bind(work)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(bound, [2] * 4))

        assert found == [True] * 4

    def test_binding_carries_the_rest_of_the_context_and_changes_none_of_it(self) -> None:
        word: ContextVar[str] = ContextVar("word", default="none")
        token = word.set("here")

        bound = admitted().bind(lambda: (word.get(), word.set("changed")))
        word.reset(token)

        assert bound()[0] == "here"
        assert bound()[0] == "here"
        assert word.get() == "none"
        assert admission() is None


class TestWhatItShows:
    def test_it_carries_what_the_log_and_the_prices_need(self) -> None:
        outer = admitted()
        one = Admission(
            Reservation("id-2", CEILING),
            client="hash",
            path="/api/*",
            request_id="request-2",
            namespace="team",
            calls_per_request=2,
            price=price,
            watcher=Ear(),
            input_bytes=77,
            wall_ns=5,
            outer=outer,
        )

        assert (one.id, one.client, one.path, one.request_id) == ("id-2", "hash", "/api/*", "request-2")
        assert (one.namespace, one.input_bytes, one.wall_ns, one.outer) == ("team", 77, 5, outer)
        assert (one.ended, one.charge, one.usage, one.model, one.truncated) == (False, None, None, None, False)

    def test_the_ceiling_is_exact_in_dollars(self) -> None:
        one = admitted(ceiling=9_000_000_000_000_001)

        assert (one.ceiling_nanousd, one.ceiling_usd) == (9_000_000_000_000_001, Decimal("9000000.000000001"))
        assert one.id == "id-1"

    def test_the_decimal_context_of_the_application_does_not_round_it(self) -> None:
        with localcontext() as context:
            context.prec = 3
            context.traps[Inexact] = True

            assert admitted(ceiling=123_456_789).ceiling_usd == Decimal("0.123456789")
