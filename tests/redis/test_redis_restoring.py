"""What is handed back to a store that lost it: all of it, in pieces of a bounded size, as the script reads it."""

from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.knowledge import Knowledge, Known
from routeguard.ledgers.redis.reply import Account, Parts, Reply
from routeguard.ledgers.redis.restoring import PIECE_MAX, Entry, RedisReservation, entries, pieces
from routeguard.ledgers.redis.store_clock import Calendar
from routeguard.policy import Budget, Window, WindowUnit
from routeguard.records import Sums

KEYS = Keyspace("n")
#: The second day there is, so that there is one before it.
TODAY, TOMORROW = 86_400, 2 * 86_400
EVERYBODY, MINE, TOTAL = f"day|UTC|0|{TODAY}|a", f"day|UTC|1|{TODAY}|c|me|too", "total|UTC|0|0|a"


def account(name: str, *, end: int | None = 2000) -> Entry:
    return name, Known(Parts(settled=1, kept=2, open=3, orphaned=4, overrun=5), 10, 11, 0), end


def reservation(name: str, *partitions: str) -> RedisReservation:
    return RedisReservation(name, 7, fields=("f", "g"), slot_partitions=partitions, lease_us=9)


def test_the_accounts_of_a_reservation_are_raised_to_hold_it_also_where_nobody_has_seen_them() -> None:
    asked, ever = Calendar(), Budget("total", Window("total", ZoneInfo("UTC")), 100)
    asked.windows(ever, 1000)
    held = [RedisReservation(name, 7, fields=("total|UTC|0|0|a",)) for name in ("1", "2")]

    accounts, latest = entries(Knowledge(clients_max=10), {}, held, asked)

    assert accounts == [("total|UTC|0|0|a", Known(Parts(), 0, 14, 0), None)]
    assert latest == 0


@pytest.mark.parametrize(("held_nanousd", "highest_nanousd"), [(7, 97), (200, 200)])
def test_what_was_seen_of_an_account_stays_and_is_raised_by_a_larger_reservation_alone(
    held_nanousd: int, highest_nanousd: int
) -> None:
    asked, ever = Calendar(), Budget("total", Window("total", ZoneInfo("UTC")), 100)
    asked.windows(ever, 1000)
    knowledge = Knowledge(clients_max=10)
    seen = Account("total|UTC|0|0|a", Parts(settled=90, open=7), None)
    knowledge.learn(Reply("ok", "", 10, 1000, (), 0, "", "", (seen,)))
    held = RedisReservation("1", held_nanousd, fields=("total|UTC|0|0|a",))

    ((_, known, _),), _ = entries(knowledge, {}, [held], asked)

    assert (known.parts.settled, known.highest_nanousd) == (90, highest_nanousd)


@pytest.mark.parametrize("name", ["@1796055950066642.0", "", "day|UTC|0", "day|UTC|0|soon|a"])
def test_what_a_journal_says_of_no_account_keeps_nobody_from_raising_the_others(name: str) -> None:
    """A version before this one wrote the first of them beside the accounts of an orphan."""
    journaled = {name: Sums(orphaned=5), EVERYBODY: Sums(settled=7)}

    accounts, _ = entries(Knowledge(clients_max=10), journaled, [], calendar())

    assert [(field, known.parts.settled) for field, known, _ in accounts] == [(EVERYBODY, 7)]


def calendar() -> Calendar:
    """Of a process that was asked today for the day of everybody, that of clients, and for the total."""
    found = Calendar()
    units: list[tuple[WindowUnit, bool]] = [("day", False), ("day", True), ("total", False)]
    for unit, per_client in units:
        found.windows(Budget(unit, Window(unit, ZoneInfo("UTC")), 100, per_client), TODAY)
    return found


def taught(*accounts: tuple[str, Parts]) -> Knowledge:
    """What a process knows that has seen these accounts."""
    knowledge = Knowledge(clients_max=10)
    told = [Account(name, parts, None) for name, parts in accounts]
    knowledge.learn(Reply("ok", "", 5, TODAY, (), 3, "", "", told))
    return knowledge


def test_a_process_that_saw_nothing_raises_nothing_and_knows_no_window() -> None:
    assert entries(Knowledge(clients_max=10), {}, [], calendar()) == ([], 0)


def test_without_rows_an_account_is_raised_to_what_was_seen_of_it() -> None:
    knowledge = taught((EVERYBODY, Parts(settled=1, open=5)), (MINE, Parts(kept=2)), (TOTAL, Parts(orphaned=3)))

    accounts, not_before = entries(knowledge, {}, [], calendar())

    assert accounts == [
        (EVERYBODY, Known(Parts(settled=1, open=5), 5, 6, 3), TOMORROW),
        (MINE, Known(Parts(kept=2), 5, 2, 3), TOMORROW),
        (TOTAL, Known(Parts(orphaned=3), 5, 3, 3), None),
    ]
    assert not_before == TODAY


def test_a_window_in_which_nothing_was_spent_yet_has_begun_all_the_same() -> None:
    """What was spent in the one before it is known no more, so the store must not go back to it."""
    knowledge = taught((EVERYBODY, Parts(settled=9)))
    knowledge.learn(Reply("ok", "", 6, TOMORROW, (), 3, "", "", [Account(f"day|UTC|0|{TOMORROW}|a", Parts(), None)]))

    assert entries(knowledge, {}, [], calendar()) == ([], TOMORROW)


def test_an_account_that_only_the_journal_knows_is_raised_to_its_rows() -> None:
    journaled = {MINE: Sums(settled=1, kept=20, orphaned=300, overrun=4000, open=50_000)}

    accounts, not_before = entries(Knowledge(clients_max=10), journaled, [], calendar())

    assert accounts == [(MINE, Known(Parts(settled=1, kept=20, overrun=4000), 0, 321, 0), TOMORROW)]
    assert not_before == TODAY


def test_rows_that_add_up_to_nothing_raise_by_nothing() -> None:
    """They are those of a reservation that was orphaned and then released."""
    accounts, _ = entries(Knowledge(clients_max=10), {MINE: Sums()}, [], calendar())

    assert accounts == [(MINE, Known(Parts(), 0, 0, 0), TOMORROW)]


@pytest.mark.parametrize(
    ("seen", "rows", "raised", "highest"),
    [
        (Parts(settled=5), Sums(settled=7), Parts(settled=7), 7),
        (Parts(settled=7), Sums(settled=5), Parts(settled=7), 7),
        (Parts(kept=5), Sums(kept=7), Parts(kept=7), 7),
        (Parts(kept=7), Sums(kept=5), Parts(kept=7), 7),
        (Parts(settled=9, overrun=5), Sums(settled=9, overrun=7), Parts(settled=9, overrun=7), 9),
        (Parts(settled=9, overrun=7), Sums(settled=9, overrun=5), Parts(settled=9, overrun=7), 9),
        (Parts(settled=5), Sums(kept=7), Parts(settled=5, kept=7), 7),
        (Parts(open=30, orphaned=4), Sums(settled=7), Parts(settled=7), 34),
        (Parts(open=3), Sums(settled=1, kept=1, orphaned=2), Parts(settled=1, kept=1), 4),
    ],
)
def test_what_was_seen_is_raised_part_by_part_to_what_the_journal_has_rows_of(
    seen: Parts, rows: Sums, raised: Parts, highest: int
) -> None:
    accounts, _ = entries(taught((EVERYBODY, seen)), {EVERYBODY: rows}, [], calendar())

    assert accounts == [(EVERYBODY, Known(raised, 0, highest, 0), TOMORROW)]


def test_rows_of_windows_that_are_over_or_were_never_asked_for_raise_nothing() -> None:
    journaled = {
        "day|UTC|0|0|a": Sums(settled=1),
        "week|UTC|0|0|a": Sums(settled=1),
        f"day|UTC|0|{TOMORROW}|a": Sums(settled=1),
    }

    accounts, not_before = entries(taught((TOTAL, Parts(settled=1))), journaled, [], calendar())

    assert [name for name, _, _ in accounts] == [TOTAL]
    assert not_before == 0


def test_rows_of_a_window_that_the_store_alone_has_begun_are_raised() -> None:
    """Its clock is ahead of what this process was asked for."""
    stranger = f"day|UTC|0|{TOMORROW}|o"

    accounts, not_before = entries(
        taught((f"day|UTC|0|{TOMORROW}|a", Parts(settled=1))), {stranger: Sums(kept=2)}, [], calendar()
    )

    assert accounts[1] == (stranger, Known(Parts(kept=2), 0, 2, 0), TOMORROW + 86_400)
    assert not_before == TOMORROW


def test_with_nothing_to_hand_back_the_store_is_still_told_so() -> None:
    assert list(pieces([], [], KEYS)) == [([*KEYS.common], ["0", "0"])]


def test_an_account_is_its_field_its_firm_money_the_most_it_held_and_its_end() -> None:
    ((keys, arguments),) = pieces([account("day"), account("total", end=None)], [], KEYS)

    assert keys == [*KEYS.common]
    assert arguments == ["2", "day", "1", "2", "5", "11", "2000", "total", "1", "2", "5", "11", "", "0"]


def test_a_reservation_is_its_id_its_lease_its_slots_its_money_and_its_accounts() -> None:
    held = [reservation("both", "", "a"), reservation("everybody's", ""), reservation("no slot")]

    ((keys, arguments),) = pieces([], held, KEYS)

    assert keys == [*KEYS.common, KEYS.slots_of("a")]
    assert arguments[:2] == ["0", "3"]
    assert arguments[2:10] == ["both", "9", "1", "1", "7", "2", "f", "g"]
    assert arguments[10:18] == ["everybody's", "9", "1", "0", "7", "2", "f", "g"]
    assert arguments[18:] == ["no slot", "9", "0", "0", "7", "2", "f", "g"]


def test_a_reservation_holds_one_slot_of_a_client() -> None:
    ((keys, arguments),) = pieces([], [reservation("one", "a", "b")], KEYS)

    assert keys == [*KEYS.common, KEYS.slots_of("a")]
    assert arguments[2:6] == ["one", "9", "0", "1"]


def test_pieces_are_bounded_and_reservations_come_behind_the_last_account() -> None:
    accounts = [account(f"a{number}") for number in range(2 * PIECE_MAX)]
    held = [reservation(f"r{number}") for number in range(PIECE_MAX + 1)]

    found = list(pieces(accounts, held, KEYS))

    sizes = [(int(arguments[0]), _held(arguments)) for _, arguments in found]
    assert sizes == [(PIECE_MAX, 0), (PIECE_MAX, 0), (0, PIECE_MAX), (0, 1)]


def test_every_account_and_reservation_is_handed_back_once_and_in_order() -> None:
    accounts = [account(f"a{number:03}") for number in range(PIECE_MAX + 3)]
    held = [reservation(f"r{number:03}") for number in range(PIECE_MAX + 3)]

    arguments = [argument for _, some in pieces(accounts, held, KEYS) for argument in some]

    names = [argument for argument in arguments if argument[:1] in {"a", "r"}]
    assert len(names) == len(accounts) + len(held)
    assert all(one < next_one for one, next_one in pairwise(names))


def _held(arguments: list[str]) -> int:
    accounts = int(arguments[0])
    return int(arguments[1 + 6 * accounts])
