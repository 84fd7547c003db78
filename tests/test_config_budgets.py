"""Budgets beside the smallest and the largest call, and what processes make of a budget."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from routeguard.money import NANOUSD_MAX, NANOUSD_PER_USD, format_usd
from tests.configured import USD, build, client_limits, limits, problems, table

#: At 1 USD per million tokens both ways: 1,536 tokens of overhead and 1,000 of output, then 64,000 bytes of body.
SMALLEST_USD, LARGEST_USD = "0.002536", "0.066536"


def test_a_budget_that_fits_exactly_the_smallest_call_starts() -> None:
    settings = build(budget=f"{SMALLEST_USD}/day", client_budget="100%")

    assert settings.tariff.smallest(0) == settings.budgets[0].limit_nanousd


def test_a_budget_below_the_smallest_call_stops_the_server() -> None:
    (problem,) = problems(budget="0.002535999/day, 5/month", client_budget="unlimited")

    assert "budget='0.002535999/day, 5/month' (ROUTEGUARD_BUDGET) comes to $0.002535999 per day" in problem
    assert f"the smallest possible call may cost ${SMALLEST_USD}" in problem


def test_a_client_budget_below_the_smallest_call_stops_the_server() -> None:
    (problem,) = problems(budget="0.01/day")

    assert "ROUTEGUARD_CLIENT_BUDGET ('25%' by default) comes to $0.0025 per day" in problem


def test_a_client_budget_below_the_smallest_call_only_warns_when_some_clients_are_exempt() -> None:
    settings = build(budget="0.01/day", exempt_clients="203.0.113.7")

    assert any("comes to $0.0025 per day" in warning for warning in settings.warnings)


def test_a_budget_below_the_largest_call_warns() -> None:
    settings = build(budget="0.066535999/day", client_budget="unlimited")

    (warning,) = settings.warnings
    assert f"the largest possible call may cost ${LARGEST_USD}" in warning
    assert build(budget=f"{LARGEST_USD}/day", client_budget="unlimited").warnings == ()


@table("budget", ["0/day", "0", 0, "0/day, 5/month"])
def test_a_budget_of_0_is_legal_and_warned_about(budget: object) -> None:
    settings = build(budget=budget, client_budget="unlimited")

    (warning,) = settings.warnings
    assert "a budget of 0 refuses every request that costs anything" in warning


def test_a_budget_that_only_division_makes_0_stops_the_server() -> None:
    found = problems(budget="0.000000003/day", client_budget="unlimited", processes=4)

    assert len(found) == 1


def test_unlimited_is_no_budget_and_its_share_is_none_either() -> None:
    settings = build(budget="unlimited", client_budget="25%")

    assert settings.budgets == settings.client_budgets == ()


def test_a_client_budget_of_its_own_stands_beside_an_unlimited_one() -> None:
    assert client_limits(build(budget="unlimited", client_budget="1/hour")) == [("hour", USD)]


@given(
    nanousd=st.integers(NANOUSD_PER_USD * 4, NANOUSD_MAX // 10_000),
    percent=st.integers(1, 100),
    processes=st.integers(1, 7),
)
@hypothesis_settings(max_examples=60)
def test_parts_of_a_budget_never_add_up_to_more_than_the_whole(nanousd: int, percent: int, processes: int) -> None:
    settings = build(
        budget=f"{format_usd(nanousd)}/day", client_budget=f"{percent}%", processes=processes, price_in=0, price_out=0
    )

    (budget,), (client_budget,) = settings.budgets, settings.client_budgets
    assert nanousd - processes < budget.limit_nanousd * processes <= nanousd
    assert client_budget.limit_nanousd * processes * 100 <= nanousd * percent
    assert client_budget.limit_nanousd <= budget.limit_nanousd


def test_processes_divide_money_down_and_requests_and_streams_up() -> None:
    settings = build(budget="1/day", processes=3, rate="10/minute, 2/day", max_parallel=32, max_parallel_per_client=2)

    assert limits(settings) == [("day", 333_333_333)]
    assert client_limits(settings) == [("day", 83_333_333)]
    assert [rate.quota for rate in settings.rates] == [4, 1]
    assert [rate.quota for rate in settings.global_rates] == [200]
    assert (settings.max_parallel, settings.max_parallel_per_client) == (11, 1)


def test_processes_leave_unlimited_unlimited() -> None:
    settings = build(
        processes=3, budget="unlimited", rate="unlimited", global_rate="unlimited", max_parallel="unlimited"
    )

    assert (settings.budgets, settings.rates, settings.global_rates, settings.max_parallel) == ((), (), (), None)
