"""Where an admission is found, and what it shows."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from decimal import Decimal, Inexact, localcontext
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from routeguard.admitted import SCOPE_KEY, Admission, admission, current
from routeguard.policy import Reservation
from tests.admissions import CEILING, Ear, admitted, price


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

    @pytest.mark.parametrize("request_", [..., 5, "scope", {SCOPE_KEY: "not one"}, [SCOPE_KEY]], ids=repr)
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
        one, barrier = admitted(), threading.Barrier(4, timeout=60)

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
