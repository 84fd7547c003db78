"""What a process knows of the store's accounts between two answers, and what makes it suspect a loss."""

import pytest

from routeguard.ledgers.redis.knowledge import FREED_PER_ANSWER, TAKEN_IN_LATE_US, Knowledge, Known
from routeguard.ledgers.redis.reply import Account, Parts, Reply
from routeguard.ledgers.redis.store_clock import Windows
from routeguard.policy import Span

DAY = Windows("day|UTC|0", Span(1000, 2000), 3000)
CLIENTS = Windows("day|UTC|1", Span(1000, 2000), 3000)
EVERYBODY = "day|UTC|0|1000|a"


def reply(*accounts: Account, now_us: int = 10, adjusts: int = 0) -> Reply:
    return Reply("ok", "", now_us, 1500, (), adjusts, "", "", accounts)


def fields(knowledge: Knowledge) -> list[str]:
    """Of the accounts that are handed back."""
    return [f"{counter}|{start}|{kind}" for counter, start, kind, _ in knowledge.highest()]


def everybody(*, start: int = 1000, clients: int | None = None, **parts: int) -> Account:
    return Account(f"day|UTC|0|{start}|a", Parts(**parts), clients)


def client(name: str, *, start: int = 1000, clients: int | None = None, **parts: int) -> Account:
    return Account(f"day|UTC|1|{start}|c|{name}", Parts(**parts), clients)


def newcomers(*, clients: int | None = None, **parts: int) -> Account:
    return Account("day|UTC|1|1000|o", Parts(**parts), clients)


def test_what_was_spent_is_settled_kept_and_orphaned_money_but_not_open_money() -> None:
    knowledge = Knowledge(clients_max=10)

    knowledge.learn(reply(everybody(settled=1, kept=20, open=300, orphaned=4000)))

    assert knowledge.spent(DAY, "") == 4021


def test_nothing_is_known_before_the_first_answer_nor_of_another_window() -> None:
    knowledge = Knowledge(clients_max=10)
    before = knowledge.spent(DAY, "")
    knowledge.learn(reply(everybody(settled=7)))

    tomorrow = Windows("day|UTC|0", Span(2000, 3000), 4000)

    assert before == 0
    assert knowledge.spent(tomorrow, "") == 0
    assert knowledge.spent(CLIENTS, "a") == 0
    assert knowledge.spent(DAY, "") == 7


def test_clients_are_known_apart_even_with_a_bar_in_the_name() -> None:
    knowledge = Knowledge(clients_max=10)

    knowledge.learn(reply(client("a|b", settled=3), client("a", settled=5)))

    assert [knowledge.spent(CLIENTS, name) for name in ("a|b", "a", "b")] == [3, 5, 0]


def test_a_newcomer_is_charged_what_newcomers_share_once_the_map_is_full() -> None:
    knowledge = Knowledge(clients_max=2)
    knowledge.learn(reply(client("known", settled=5, clients=1), newcomers(settled=9)))
    with_room = knowledge.spent(CLIENTS, "new")

    knowledge.learn(reply(client("known", settled=5, clients=2)))

    assert with_room == 0
    assert knowledge.spent(CLIENTS, "new") == 9
    assert knowledge.spent(CLIENTS, "known") == 5


def test_a_client_without_money_is_a_newcomer_and_one_with_open_money_is_not() -> None:
    knowledge = Knowledge(clients_max=1)
    knowledge.learn(reply(client("empty", open=1, clients=1), client("busy", open=1), newcomers(settled=9)))

    knowledge.learn(reply(client("empty"), now_us=11))

    assert knowledge.spent(CLIENTS, "empty") == 9
    assert knowledge.spent(CLIENTS, "busy") == 0


def test_a_client_without_money_takes_no_place() -> None:
    knowledge = Knowledge(clients_max=1)

    knowledge.learn(reply(client("mine", settled=5), client("empty")))

    assert knowledge.spent(CLIENTS, "mine") == 5


def test_the_client_heard_of_longest_ago_is_forgotten_for_a_new_one() -> None:
    knowledge = Knowledge(clients_max=2)

    knowledge.learn(reply(client("a", settled=1), client("b", settled=2), client("c", settled=3)))

    assert [knowledge.spent(CLIENTS, name) for name in "abc"] == [0, 2, 3]


def test_a_late_bill_counts_while_it_is_on_its_way() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=7)))

    knowledge.expect((EVERYBODY,), 5)
    on_its_way = knowledge.spent(DAY, "")
    knowledge.expect((EVERYBODY,), -5)

    assert on_its_way == 12
    assert knowledge.spent(DAY, "") == 7


def test_late_bills_add_up_and_a_client_whose_only_money_is_one_is_no_newcomer() -> None:
    knowledge = Knowledge(clients_max=1)
    knowledge.learn(reply(client("a", open=1, clients=1), newcomers(settled=9)))
    knowledge.learn(reply(client("a"), now_us=11))

    knowledge.expect(("day|UTC|1|1000|c|a",), 2)
    knowledge.expect(("day|UTC|1|1000|c|a",), 3)

    assert knowledge.spent(CLIENTS, "a") == 5


def test_a_client_whose_late_bill_is_as_large_as_its_open_money_is_no_newcomer() -> None:
    knowledge = Knowledge(clients_max=1)
    knowledge.learn(reply(client("a", open=5, clients=1), newcomers(settled=9)))

    knowledge.expect(("day|UTC|1|1000|c|a",), 5)

    assert knowledge.spent(CLIENTS, "a") == 5


@pytest.mark.parametrize("field", ["week|UTC|0|1000|a", "day|UTC|0|999|a", "day|UTC|0|1000|o"])
def test_a_late_bill_of_an_account_nobody_knows_changes_nothing(field: str) -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=7)))

    knowledge.expect((field, EVERYBODY), 5)

    assert knowledge.spent(DAY, "") == 12
    assert fields(knowledge) == [EVERYBODY]


@pytest.mark.parametrize(
    ("before", "after", "is_whole"),
    [
        ({"settled": 5}, {"settled": 5}, True),
        ({"settled": 5}, {"settled": 4}, False),
        ({"kept": 5}, {"kept": 4}, False),
        ({"kept": 5}, {"settled": 5}, True),
        ({"settled": 5}, {}, False),
        ({"open": 5}, {}, True),
        ({"orphaned": 5}, {"settled": 1}, True),
    ],
)
def test_money_that_cannot_go_away_and_has_gone_is_a_loss(
    before: dict[str, int], after: dict[str, int], is_whole: bool
) -> None:
    knowledge = Knowledge(clients_max=10)
    first = knowledge.learn(reply(everybody(**before)))

    second = knowledge.learn(reply(everybody(**after), now_us=11))

    assert first is True
    assert second is is_whole


def test_after_a_loss_the_last_whole_account_is_still_what_was_spent() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5)))

    knowledge.learn(reply(everybody(settled=1), now_us=11))

    assert knowledge.spent(DAY, "") == 5


def test_one_fallen_account_among_whole_ones_is_a_loss() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5), client("a", settled=5)))

    assert knowledge.learn(reply(everybody(settled=5), client("a", settled=4), now_us=11)) is False


def test_an_answer_that_is_older_than_the_last_is_no_loss_and_teaches_nothing() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5), now_us=20))

    older = knowledge.learn(reply(everybody(settled=4), now_us=19))

    assert older is True
    assert knowledge.spent(DAY, "") == 5


@pytest.mark.parametrize(("adjusts", "highest"), [(0, 9), (1, 5)])
def test_an_answer_that_was_overtaken_tells_how_much_there_was_unless_it_was_lowered_since(
    adjusts: int, highest: int
) -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5), now_us=20, adjusts=adjusts))

    knowledge.learn(reply(everybody(settled=4, open=5), now_us=19))

    ((*_, known),) = knowledge.highest()
    assert (known.highest_nanousd, known.parts) == (highest, Parts(settled=5))


def test_answers_teach_and_show_a_loss_also_after_the_stores_clock_was_set_back() -> None:
    knowledge = Knowledge(clients_max=10)
    now_us = 10 * TAKEN_IN_LATE_US
    knowledge.learn(reply(everybody(settled=5), now_us=now_us))
    set_back_us = now_us - TAKEN_IN_LATE_US

    later = knowledge.learn(reply(everybody(settled=6, open=3), now_us=set_back_us))
    fallen = knowledge.learn(reply(everybody(settled=4), now_us=set_back_us + 1))

    ((*_, known),) = knowledge.highest()
    assert [later, fallen] == [True, False]
    assert (known.highest_nanousd, knowledge.spent(DAY, "")) == (9, 6)


def test_an_answer_of_the_same_microsecond_is_looked_at() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5), now_us=20))

    assert knowledge.learn(reply(everybody(settled=4), now_us=20)) is False
    assert knowledge.learn(reply(everybody(settled=6), now_us=20)) is True
    assert knowledge.spent(DAY, "") == 6


def test_what_was_lowered_by_hand_is_no_loss_and_is_from_then_on_the_most_it_held() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=9, open=4), now_us=20))

    lowered = knowledge.learn(reply(everybody(settled=2, open=1), now_us=21, adjusts=1))

    ((*_, known),) = knowledge.highest()
    assert lowered is True
    assert known == Known(Parts(settled=2, open=1), 21, 3, 1)
    assert knowledge.spent(DAY, "") == 2


def test_a_fall_after_an_adjustment_that_was_seen_before_is_a_loss() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=9), now_us=20, adjusts=1))

    fallen = knowledge.learn(reply(everybody(settled=8), now_us=21, adjusts=1))
    lowered = knowledge.learn(reply(everybody(settled=7), now_us=22, adjusts=2))
    older = knowledge.learn(reply(everybody(settled=5), now_us=21, adjusts=3))
    fallen_again = knowledge.learn(reply(everybody(settled=6), now_us=23, adjusts=2))

    assert [fallen, lowered, older, fallen_again] == [False, True, True, False]
    assert knowledge.spent(DAY, "") == 7


def test_an_answer_that_was_overtaken_takes_back_no_adjustment() -> None:
    knowledge = Knowledge(clients_max=10)
    before = knowledge.adjusts

    knowledge.learn(reply(now_us=21, adjusts=3))
    knowledge.learn(reply(now_us=20, adjusts=2))

    assert (before, knowledge.adjusts) == (0, 3)


def test_a_fallen_account_is_noticed_again_until_it_is_mended() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5), now_us=20))

    fallen = knowledge.learn(reply(everybody(settled=4), now_us=21))
    still = knowledge.learn(reply(everybody(settled=4), now_us=22))
    older = knowledge.learn(reply(everybody(settled=3), now_us=21))
    mended = knowledge.learn(reply(everybody(settled=5), now_us=23))

    assert [fallen, still, older, mended] == [False, False, True, True]


def test_the_highest_is_the_most_an_account_ever_held_open_money_included() -> None:
    knowledge = Knowledge(clients_max=10)
    knowledge.learn(reply(everybody(settled=5, open=30, kept=200, orphaned=1000)))

    knowledge.learn(reply(everybody(settled=6, kept=200), now_us=11))

    ((*_, known),) = knowledge.highest()
    assert fields(knowledge) == [EVERYBODY]
    assert known.highest_nanousd == 1235
    assert known.parts == Parts(settled=6, kept=200)


def test_every_account_with_money_is_handed_back_by_its_field_and_no_empty_one() -> None:
    knowledge = Knowledge(clients_max=10)

    knowledge.learn(reply(everybody(settled=5), client("a", open=1), client("b"), newcomers()))

    assert sorted(fields(knowledge)) == [EVERYBODY, "day|UTC|1|1000|c|a"]


def test_a_new_window_begins_with_nothing_and_an_answer_about_the_old_one_is_no_loss() -> None:
    knowledge = Knowledge(clients_max=10)
    tomorrow = Windows("day|UTC|0", Span(2000, 3000), 4000)
    knowledge.learn(reply(everybody(settled=5)))

    knowledge.learn(reply(everybody(start=2000, settled=1), now_us=11))
    late = knowledge.learn(reply(everybody(start=1000, settled=4), now_us=12))

    assert late is True
    assert knowledge.spent(tomorrow, "") == 1
    assert knowledge.spent(DAY, "") == 0
    assert fields(knowledge) == ["day|UTC|0|2000|a"]


def test_the_number_of_clients_stays_as_last_said_where_an_answer_does_not_say() -> None:
    knowledge = Knowledge(clients_max=2)
    knowledge.learn(reply(newcomers(settled=9, clients=2)))

    knowledge.learn(reply(client("a", settled=1), now_us=11))

    assert knowledge.spent(CLIENTS, "new") == 9


def test_a_past_window_is_freed_a_few_clients_with_each_answer() -> None:
    knowledge = Knowledge(clients_max=100)
    knowledge.learn(reply(*[client(f"{number}", settled=1) for number in range(10)]))

    knowledge.learn(reply(client("new", start=2000, settled=1)))
    left = []
    for _ in range(4):
        left.append([len(window) for window in knowledge._past])
        knowledge.learn(reply())

    assert FREED_PER_ANSWER == 4
    assert left == [[10], [6], [2], []]
