"""What a process hands back to a store that lost it, in pieces that a script takes in one step each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.knowledge import Knowledge, Known, is_account, split
from routeguard.ledgers.redis.reply import Parts
from routeguard.ledgers.redis.store_clock import Calendar
from routeguard.policy import Reservation
from routeguard.records import Sums

#: Accounts, and reservations, in one step: about 2 ms of the store's time.
PIECE_MAX = 200


@dataclass(slots=True, eq=False, weakref_slot=True)
class RedisReservation(Reservation):
    """A reservation with the fields of the accounts it debited, so that settling never looks at a clock."""

    fields: tuple[str, ...] = ()
    #: Partitions in which it holds a slot, and how long.
    slot_partitions: tuple[str, ...] = ()
    lease_us: int = 0


Entry = tuple[str, Known, int | None]


def entries(
    knowledge: Knowledge,
    journaled: Mapping[str, Sums],
    reservations: Iterable[RedisReservation],
    calendar: Calendar,
) -> tuple[list[Entry], int]:
    """What to raise, and the second that no window of the store may be before.

    Args:
        knowledge: What this process has seen.
        journaled: What the rows of its journal add up to, by the name of each counter; past windows are left out.
        reservations: Open ones of this process. Whoever got one by asking again has not seen its accounts.
        calendar: Every window it has asked for.
    """
    found = {(counter, start, kind): known for counter, start, kind, known in knowledge.highest()}
    windows = calendar.newest() | {(counter, start) for counter, start, _ in found}
    for name, sums in journaled.items():
        # A row of another version may name what is no account; that must not keep the others from being raised.
        if not is_account(name):
            continue
        counter, start, kind = split(name)
        if (counter, start) in windows:
            found[counter, start, kind] = _raised(found.get((counter, start, kind)), sums)
    held: Counter[str] = Counter()
    for reservation in reservations:
        held.update(dict.fromkeys(reservation.fields, reservation.amount_nanousd))
    for name, nanousd in held.items():
        counter, start, kind = split(name)
        seen = found.get((counter, start, kind))
        if seen is None or seen.highest_nanousd < nanousd:
            found[counter, start, kind] = Known(Parts() if seen is None else seen.parts, 0, nanousd, 0)
    accounts = [
        (f"{counter}|{start}|{kind}", known, calendar.span(counter, start).end)
        for (counter, start, kind), known in found.items()
    ]
    # A window in which nothing was spent yet has begun all the same: what came before it is known no more.
    return accounts, max([knowledge.latest(), *[start for _, start, _ in found]])


def _raised(known: Known | None, sums: Sums) -> Known:
    """What this process has seen of an account, raised to what the journal has rows of."""
    parts = known.parts if known is not None else Parts()
    highest = Parts(
        settled=max(parts.settled, sums.settled),
        kept=max(parts.kept, sums.kept),
        overrun=max(parts.overrun, sums.overrun),
    )
    total = max(known.highest_nanousd if known is not None else 0, sums.settled + sums.kept + sums.orphaned)
    return Known(highest, 0, total, 0)


def pieces(
    accounts: Sequence[Entry], reservations: Sequence[RedisReservation], keyspace: Keyspace
) -> Iterator[tuple[list[str], list[str]]]:
    """Keys and arguments for `restore.lua`, accounts before reservations; at least one piece.

    Args:
        accounts: Field, what is known of it, and when its window ends.
        reservations: Open ones of this process.
        keyspace: Names of the keys.
    """
    left_accounts, left_reservations = iter(accounts), iter(reservations)
    first = True
    while True:
        some = list(islice(left_accounts, PIECE_MAX))
        # Only behind the last account: a reservation is taken out of what its accounts hold as orphaned.
        held = list(islice(left_reservations, PIECE_MAX)) if len(some) < PIECE_MAX else []
        if not (first or some or held):
            return
        first = False
        keys, arguments = list(keyspace.common), [str(len(some))]
        for name, known, end in some:
            parts = known.parts
            amounts = (parts.settled, parts.kept, parts.overrun, known.highest_nanousd)
            arguments += [name, *map(str, amounts), "" if end is None else str(end)]
        arguments.append(str(len(held)))
        for reservation in held:
            clients = [keyspace.slots_of(partition) for partition in reservation.slot_partitions if partition]
            keys += clients[:1]
            arguments += [reservation.id, str(reservation.lease_us), "1" if "" in reservation.slot_partitions else "0"]
            arguments += [str(len(clients[:1])), str(reservation.amount_nanousd)]
            arguments += [str(len(reservation.fields)), *reservation.fields]
        yield keys, arguments
