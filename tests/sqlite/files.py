"""Looking into a ledger file from outside, and the sums that must hold in it at every moment."""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from routeguard.ledgers.sqlite import SqliteLedger
from routeguard.sqlite_file.file import Synchronous
from routeguard.sqlite_file.writer import _writers
from routeguard.testing import FakeClock
from tests.patience import PATIENT_SECONDS


def ledger_at(
    path: Path,
    clock: FakeClock,
    *,
    namespace: str = "default",
    clients_max: int = 1000,
    synchronous: Synchronous = "normal",
) -> SqliteLedger:
    """A ledger of its own: two of them on one file and clock know of each other what two processes do."""
    return SqliteLedger(str(path), namespace=namespace, clock=clock, clients_max=clients_max, synchronous=synchronous)


def rows(path: Path, query: str, *arguments: object) -> list[tuple[object, ...]]:
    """What a program beside the guard reads."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query, arguments).fetchall()


def number(path: Path, query: str, *arguments: object) -> int:
    """The one number that a query gives."""
    ((found,),) = rows(path, query, *arguments)
    assert isinstance(found, int)
    return found


def check_sums(path: Path) -> None:
    """Every counter is the sum of the entries that debited it, of money and of slots, and the file is whole.

    Holds while no entry has been forgotten: for two minutes.
    """
    sums: dict[tuple[object, ...], Counter[str]] = {}
    for state, amount, settled, kept, debits in rows(path, "SELECT state, amount, settled, kept, debits FROM entries"):
        assert isinstance(amount, int)
        assert isinstance(settled, int)
        assert isinstance(kept, int)
        for debit in json.loads(str(debits)):
            parts = sums.setdefault(tuple(debit), Counter())
            parts["settled"] += settled
            parts["kept"] += kept
            if state in {"open", "orphaned"}:
                parts[str(state)] += amount
            else:
                parts["overrun"] += max(0, settled + kept - amount)
    names = ("settled", "open", "kept", "orphaned", "overrun")
    for budget, starts, partition, *found in rows(
        path, f"SELECT budget, starts, partition, {', '.join(names)} FROM counters"
    ):
        parts = sums.pop((budget, starts, partition), Counter())
        assert found == [parts[name] for name in names], (budget, starts, partition)
    # What is left was dropped with its money at zero.
    assert not any(parts.total() for parts in sums.values())
    check_slots(path)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def check_slots(path: Path) -> None:
    """Every slot in use is that of an entry whose lease nobody has ended yet."""
    held: Counter[tuple[object, object]] = Counter()
    for namespace, slots in rows(path, "SELECT namespace, slots FROM entries WHERE lease_ends_ns IS NOT NULL"):
        held.update((namespace, partition) for partition in json.loads(str(slots)))
    in_use = {(namespace, partition): used for namespace, partition, used in rows(path, "SELECT * FROM slots")}
    assert {whose: used for whose, used in in_use.items() if used} == held, "each slot is held by a lease"
    assert all(used or not partition for (_, partition), used in in_use.items()), "a client without a slot has no row"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the file's lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def close_all() -> None:
    """Close every ledger file of this process, so that no thread outlives its test."""
    closed = []
    for writer in _writers.values():
        if writer.is_open:
            closed.append(threading.Event())
            writer.close(closed[-1].set)
    for event in closed:
        assert event.wait(PATIENT_SECONDS), "a ledger file did not close"
    _writers.clear()


def exists(path: Path) -> bool:
    """Whether there is such a file; small file operations do not stop a test that runs alone on its loop."""
    return path.exists()


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def make_folder(path: Path) -> None:
    path.mkdir()


def move_away(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
