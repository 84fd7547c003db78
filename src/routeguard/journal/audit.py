"""Whether a ledger's counters, its reservations and the journal say the same."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, get_args
from zoneinfo import ZoneInfo

from routeguard.auditing import Statement
from routeguard.journal.reading import Standing
from routeguard.money import format_usd
from routeguard.policy import Window, WindowUnit
from routeguard.records import Record, Sums

NOTHING = Sums()
_UNITS: Final[dict[str, WindowUnit]] = {unit: unit for unit in get_args(WindowUnit)}


@dataclass(frozen=True, slots=True)
class Line:
    """One counter, as each of the three has it."""

    counter: str
    counted: Sums
    #: `open` and `orphaned` as the reservations add up.
    recorded: Sums
    #: None without a journal.
    journaled: Sums | None
    #: What differs, one sentence each.
    problems: tuple[str, ...]


def compare(statement: Statement, standing: Standing | None, damaged: Collection[str] = ()) -> list[Line]:
    """A line for each counter the ledger has, or should have for what is written of it.

    The journal says nothing of open money, and the reservations nothing of what has ended: those leave the ledger
    after a while. A client's counter leaves it with its window, and some ledgers forget that of everybody some time
    after; then the journal alone remembers.

    Args:
        statement: What the ledger says.
        standing: What the journal says; None without one.
        damaged: Counters whose rows in the journal do not add up.
    """
    counters = {*statement.counted, *statement.recorded}
    if standing is not None:
        counters |= {name for name in standing.sums if _is_kept(name, statement.forgotten_until)}
        counters |= {name for name in damaged if name.endswith("|a")}
    waiting = _added_up(standing.missing) if standing is not None else {}
    lines = []
    for counter in sorted(counters):
        journaled = None
        if standing is not None:
            journaled = standing.sums.get(counter, NOTHING).plus(waiting.get(counter, NOTHING))
        counted, recorded = statement.counted.get(counter, NOTHING), statement.recorded.get(counter, NOTHING)
        problems = _problems(counted, recorded, journaled)
        if counter in damaged:
            problems.append("the rows of the journal do not add up to the sums beside them: it was changed by hand")
        lines.append(Line(counter, counted, recorded, journaled, tuple(problems)))
    return lines


def _is_kept(counter: str, forgotten_until: int | None) -> bool:
    """Whether a ledger has to have this counter because the journal has rows of it."""
    if not counter.endswith("|a"):
        return False
    end = None if forgotten_until is None else _end_of_window(counter)
    return end is None or forgotten_until is None or end > forgotten_until


def _end_of_window(counter: str) -> int | None:
    """The second at which the window of a counter ends; None for never, and where its name does not tell."""
    unit, zone, _, start, _ = counter.split("|", 4)
    try:
        return Window(_UNITS[unit], ZoneInfo(zone)).span(int(start)).end
    except (KeyError, ValueError):  # rows of another version, or of a host that knows more zones
        return None


def _problems(counted: Sums, recorded: Sums, journaled: Sums | None) -> list[str]:
    found = [
        f"{part}: the counter has {_usd(counted, part)}, its reservations add up to {_usd(recorded, part)}"
        for part in ("open", "orphaned")
        if getattr(counted, part) != getattr(recorded, part)
    ]
    if journaled is not None:
        found += [
            f"{part}: the counter has {_usd(counted, part)}, the journal {_usd(journaled, part)}"
            for part in ("settled", "kept", "orphaned", "overrun")
            if getattr(counted, part) != getattr(journaled, part)
        ]
    return found


def _usd(sums: Sums, part: str) -> str:
    return f"{format_usd(getattr(sums, part))} USD"


def _added_up(records: Iterable[Record]) -> dict[str, Sums]:
    sums: dict[str, Sums] = {}
    for record in records:
        parts = Sums(record.settled_nanousd, record.kept_nanousd, record.orphaned_nanousd, record.overrun_nanousd)
        for counter in record.counters:
            sums[counter] = sums.get(counter, Sums()).plus(parts)
    return sums
