"""What happened to money, as a ledger tells it to a journal.

Rules that live here:

- A record says how the counters it names have changed, in signed nano-USD. The sum of all records of a counter is
  what the counter holds besides open money.
- An id and an event stand for one record. Whoever writes a record twice has written it once.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

#: `opening`: what a counter held when the journal began. The others happened to one reservation, or by hand.
Event = Literal["settle", "keep", "release", "late", "orphan", "adjust", "opening"]


class Note(NamedTuple):
    """What the guard knows of a request and its ledger does not; None: unknown."""

    path: str | None = None
    #: Keyed hash of the client.
    client: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    #: Why it ended as it did, in one word.
    why: str | None = None
    #: What an operator wrote beside an adjustment.
    reason: str | None = None


NO_NOTE = Note()
_EVENTS: dict[str, Event] = {"settled": "settle", "kept": "keep", "released": "release"}


class Sums(NamedTuple):
    """What a counter adds up from, in nano-USD; `overrun` is inside the others."""

    settled: int = 0
    kept: int = 0
    orphaned: int = 0
    overrun: int = 0
    open: int = 0

    def plus(self, other: "Sums") -> "Sums":
        """Part by part."""
        return Sums(*[mine + its for mine, its in zip(self, other, strict=True)])


class Record(NamedTuple):
    """One row of the journal."""

    #: Of the reservation, or of the late bill or adjustment itself.
    id: str
    event: Event
    #: Nanoseconds since the Unix epoch.
    wall_ns: int
    #: Names of the counters it changed, each by the same amounts; see `counter_name`.
    counters: tuple[str, ...]
    #: What was reserved, in nano-USD.
    ceiling_nanousd: int
    #: By how much each part changed, in nano-USD. Negative where an orphan ends, and by hand.
    settled_nanousd: int = 0
    kept_nanousd: int = 0
    orphaned_nanousd: int = 0
    overrun_nanousd: int = 0
    note: Note = NO_NOTE


def ledger_name(client_salt: bytes) -> str:
    """What a journal calls a ledger, so that the sums of one that was begun anew stay apart from those before it.

    From what is the same for all who share the counters, and tells nobody the key of the hashes.
    """
    return hashlib.sha256(b"routeguard ledger " + client_salt).hexdigest()[:16]


def counter_name(unit: str, zone: str, start: int, *, per_client: bool, partition: str) -> str:
    """`day|UTC|0|1796000000|a`: a budget, the start of its window, and whose share it is.

    The share is `a` for everybody, `c|` and a keyed hash for a client, `o` for newcomers who share one budget.
    """
    share = f"c|{partition}" if partition else "o" if per_client else "a"
    return f"{unit}|{zone}|{int(per_client)}|{start}|{share}"


def settled_record(
    entry: tuple[str, int, tuple[str, ...]],
    *,
    state: str,
    was_orphaned: bool,
    charged: tuple[int, int],
    wall_ns: int,
    note: Note,
) -> Record:
    """The record of an ending.

    Args:
        entry: Id of the reservation, what was reserved, and the counters it debited.
        state: `settled`, `kept` or `released`.
        was_orphaned: Its owner had been given up.
        charged: What is settled and what is kept.
        wall_ns: When.
        note: What the guard knows besides.
    """
    entry_id, ceiling, counters = entry
    overrun = max(0, sum(charged) - ceiling)
    return Record(
        entry_id, _EVENTS[state], wall_ns, counters, ceiling, *charged, -ceiling if was_orphaned else 0, overrun, note
    )


def orphan_record(entry: tuple[str, int, tuple[str, ...]], *, wall_ns: int) -> Record:
    """The record of a reservation whose owner has been given up; `entry` as above."""
    entry_id, ceiling, counters = entry
    return Record(entry_id, "orphan", wall_ns, counters, ceiling, orphaned_nanousd=ceiling)


def late_record(charge_id: str, extra_nanousd: int, counters: tuple[str, ...], *, wall_ns: int, note: Note) -> Record:
    """The record of a bill that came after the ending."""
    return Record(charge_id, "late", wall_ns, counters, 0, extra_nanousd, overrun_nanousd=extra_nanousd, note=note)


class Journal(Protocol):
    """Where a ledger hands its records. Any thread may call it, and nothing here blocks."""

    @property
    def name(self) -> str:
        """What all processes that write it call it. Asked for where waiting for the disk does no harm."""
        ...

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be written, so that what dead processes left may be handed over too."""
        ...

    def take(self, records: Sequence[Record], *, ledger: str, written: Callable[[Sequence[Record]], None]) -> None:
        """Write these, each once.

        Args:
            records: They stay the ledger's as well until `written` is called with them.
            ledger: Whose they are; see `ledger_name`.
            written: Called from another thread once they cannot be lost any more.
        """
        ...

    async def sums(self, ledger: str) -> dict[str, Sums]:
        """What the rows of a ledger add up to, by the name of each counter; what was taken before is in them.

        Raises:
            LedgerUnavailable: The journal does not answer.
        """
        ...
