"""What a process saw last of each counter: it refuses by what was spent, and forgets with the window."""

from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.sqlite.counters import Debit, Parts, Share
from routeguard.ledgers.sqlite.seen import CLIENTS_MAX, Seen
from routeguard.policy import Budget, Claim, Span, Window

UTC = ZoneInfo("UTC")
DAY_SECONDS = 86_400
TODAY, TOMORROW = Span(0, DAY_SECONDS), Span(DAY_SECONDS, 2 * DAY_SECONDS)
NOON = DAY_SECONDS // 2
DAY = Budget("day", Window("day", UTC), 100)
TOTAL = Budget("total", Window("total", UTC), 100)
MINE = Budget("day", Window("day", UTC), 100, per_client=True)


@pytest.fixture
def seen() -> Seen:
    return Seen(clients_max=2)


def share(
    budget: Budget, spent: int = 0, *, partition: str = "", row: int | None = 1, span: Span = TODAY, clients: int = 0
) -> Share:
    """A counter in which this much was settled."""
    return Share(Claim(budget, partition, 1), row, span, partition, parts=Parts(settled=spent), clients=clients)


def free(seen: Seen, budget: Budget, client: str = "", *, at: int = NOON) -> int:
    """The largest amount that is not refused."""
    return max(amount for amount in range(101) if not seen.exhausted([budget], client, amount, at)[0])


def test_only_a_call_above_the_whole_budget_is_refused_before_anything_was_seen(seen: Seen) -> None:
    assert seen.exhausted([DAY], "", 100, NOON) == (False, None)
    assert seen.exhausted([DAY], "", 101, NOON) == (True, DAY_SECONDS)


def test_what_fits_beside_what_was_spent_is_not_refused_and_no_nano_dollar_more(seen: Seen) -> None:
    seen.see(share(DAY, 40), None)

    assert seen.exhausted([DAY], "", 60, NOON) == (False, None)
    assert seen.exhausted([DAY], "", 61, NOON) == (True, DAY_SECONDS)


def test_open_money_refuses_nothing_because_it_may_come_back(seen: Seen) -> None:
    seen.see(Share(Claim(DAY, "", 1), 1, TODAY, "", parts=Parts(settled=1, open=50, kept=2, orphaned=3)), None)

    assert free(seen, DAY) == 94


def test_a_counter_that_was_never_written_is_not_remembered(seen: Seen) -> None:
    seen.see(share(DAY, 40, row=None), None)

    assert free(seen, DAY) == 100
    assert seen.shared == []


def test_the_row_of_a_debit_counts_where_the_budget_had_none(seen: Seen) -> None:
    seen.see(share(DAY, row=None), Debit(7, 0, ""))

    seen.add([Debit(7, 0, "")], 40)

    assert free(seen, DAY) == 60


def test_the_budgets_of_everybody_are_remembered_and_no_clients(seen: Seen) -> None:
    seen.see(share(DAY), None)
    seen.see(share(MINE, row=2), None)
    seen.see(share(DAY, 1), None)

    assert seen.shared == [DAY]


def test_what_was_seen_replaces_what_was_seen_before(seen: Seen) -> None:
    seen.see(share(DAY, 40), None)

    seen.see(share(DAY, 30), None)

    assert free(seen, DAY) == 70


def test_a_new_window_begins_with_what_was_seen_in_it(seen: Seen) -> None:
    seen.see(share(DAY, 40), None)

    seen.see(share(DAY, 5, span=TOMORROW), None)

    assert free(seen, DAY, at=DAY_SECONDS) == 95


def test_a_window_is_forgotten_in_the_second_it_ends(seen: Seen) -> None:
    seen.see(share(DAY, 40), None)

    assert free(seen, DAY, at=DAY_SECONDS - 1) == 60
    assert free(seen, DAY, at=DAY_SECONDS) == 100
    assert seen.exhausted([DAY], "", 101, DAY_SECONDS) == (True, 2 * DAY_SECONDS)


def test_a_total_never_ends(seen: Seen) -> None:
    seen.see(share(TOTAL, 40, span=Span(0, None)), None)

    assert free(seen, TOTAL, at=10**9) == 60
    assert seen.exhausted([TOTAL], "", 61, NOON) == (True, None)


def test_the_latest_reset_of_all_in_the_way_is_told_and_none_where_one_never_comes(seen: Seen) -> None:
    hour = Budget("hour", Window("hour", UTC), 100)
    seen.see(share(hour, 90, row=3, span=Span(NOON, NOON + 3600)), None)
    seen.see(share(DAY, 90), None)
    seen.see(share(TOTAL, 80, row=2, span=Span(0, None)), None)

    assert seen.exhausted([hour, DAY, TOTAL], "", 20, NOON) == (True, DAY_SECONDS)
    assert seen.exhausted([hour, DAY, TOTAL], "", 21, NOON) == (True, None)


def test_money_added_counts_in_the_window_it_was_debited_in_and_in_no_other(seen: Seen) -> None:
    seen.see(share(DAY, 40, span=TOMORROW), None)

    seen.add([Debit(1, 0, ""), Debit(2, DAY_SECONDS, ""), Debit(1, DAY_SECONDS, "a"), Debit(1, DAY_SECONDS, "")], 7)
    seen.add([Debit(1, DAY_SECONDS, "")], -2)

    assert free(seen, DAY, at=DAY_SECONDS) == 55


def test_a_counter_after_a_late_bill_is_what_the_file_says_where_its_window_was_seen(seen: Seen) -> None:
    seen.see(share(DAY, 40), None)
    yesterday, unseen = Debit(1, -DAY_SECONDS, ""), Debit(2, 0, "")

    seen.see_charged([(yesterday, Parts(settled=99)), (unseen, Parts(settled=99))])
    before = free(seen, DAY)
    seen.see_charged([(Debit(1, 0, ""), Parts(settled=50, open=9, kept=3, orphaned=2, overrun=1))])

    assert before == 60
    assert free(seen, DAY) == 45


def test_a_budget_of_everybody_is_the_same_whoever_asks(seen: Seen) -> None:
    seen.see(share(DAY, 40), None)

    assert free(seen, DAY, "a") == 60


def test_clients_are_seen_apart(seen: Seen) -> None:
    seen.see(share(MINE, 40, partition="a", clients=1), None)

    assert free(seen, MINE, "a") == 60
    assert free(seen, MINE, "b") == 100


def test_a_newcomer_is_the_overflow_client_while_the_map_is_full(seen: Seen) -> None:
    seen.see(share(MINE, 40, partition="a", clients=2), None)
    seen.see(share(MINE, 70, clients=2), None)
    while_full = [free(seen, MINE, client) for client in ("a", "b")]

    seen.see(share(MINE, 40, partition="a", clients=1), None)

    assert while_full == [60, 30]
    assert [free(seen, MINE, client) for client in ("a", "b")] == [60, 100]


def test_one_full_map_says_nothing_of_another(seen: Seen) -> None:
    hourly = Budget("hour", Window("hour", UTC), 100, per_client=True)
    seen.see(share(hourly, 80, row=2, clients=0), None)

    seen.see(share(MINE, 70, clients=2), None)

    assert [free(seen, budget, "b") for budget in (MINE, hourly)] == [30, 100]


def test_everybodys_counter_is_no_client_and_never_forgotten_for_one() -> None:
    seen = Seen(clients_max=10**9)
    seen.see(share(DAY, 40), None)
    seen.see(share(MINE, 5, row=2), None)

    for number in range(CLIENTS_MAX):
        seen.see(share(MINE, 40, row=2, partition=f"{number}"), None)
    first = free(seen, MINE, "0")
    seen.see(share(MINE, 40, row=2, partition="one more"), None)

    assert first == 60
    assert [free(seen, MINE, client) for client in ("0", "1", "one more")] == [100, 60, 60]
    assert free(seen, DAY) == 60
    assert len(seen._counters) == CLIENTS_MAX + 2


def test_a_client_seen_again_takes_no_second_place() -> None:
    seen = Seen(clients_max=10**9)

    for span in (TODAY, TOMORROW):
        for number in range(CLIENTS_MAX):
            seen.see(share(MINE, 40, partition=f"{number}", span=span), None)

    assert free(seen, MINE, "0", at=DAY_SECONDS) == 60
    assert len(seen._clients) == CLIENTS_MAX
