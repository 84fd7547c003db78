"""What is handed back to a store that lost it: all of it, in pieces of a bounded size, as the script reads it."""

from itertools import pairwise
from zoneinfo import ZoneInfo

from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.knowledge import Knowledge, Known
from routeguard.ledgers.redis.reply import Account, Parts, Reply
from routeguard.ledgers.redis.restoring import PIECE_MAX, Entry, RedisReservation, entries, pieces
from routeguard.ledgers.redis.store_clock import Calendar
from routeguard.policy import Budget, Window

KEYS = Keyspace("n")


def account(name: str, *, end: int | None = 2000) -> Entry:
    return name, Known(Parts(settled=1, kept=2, open=3, orphaned=4, overrun=5), 10, 11, 0), end


def reservation(name: str, *partitions: str) -> RedisReservation:
    return RedisReservation(name, 7, fields=("f", "g"), slot_partitions=partitions, lease_us=9)


def test_the_accounts_of_a_reservation_are_raised_to_hold_it_also_where_nobody_has_seen_them() -> None:
    calendar, ever = Calendar(), Budget("total", Window("total", ZoneInfo("UTC")), 100)
    calendar.windows(ever, 1000)
    held = [RedisReservation(name, 7, fields=("total|UTC|0|0|a",)) for name in ("1", "2")]

    accounts, latest = entries(Knowledge(clients_max=10), {}, held, calendar)

    assert accounts == [("total|UTC|0|0|a", Known(Parts(), 0, 14, 0), None)]
    assert latest == 0


def test_what_was_seen_of_an_account_stays_the_most_it_held_beside_a_smaller_reservation() -> None:
    calendar, ever = Calendar(), Budget("total", Window("total", ZoneInfo("UTC")), 100)
    calendar.windows(ever, 1000)
    knowledge = Knowledge(clients_max=10)
    seen = Account("total|UTC|0|0|a", Parts(settled=90, open=7), None)
    knowledge.learn(Reply("ok", 10, 1000, (), 0, "", "", (seen,)))

    ((_, known, _),), _ = entries(knowledge, {}, [RedisReservation("1", 7, fields=("total|UTC|0|0|a",))], calendar)

    assert (known.parts.settled, known.highest_nanousd) == (90, 97)


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
