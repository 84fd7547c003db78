"""A journal to hand records to, and what lies in it."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import anyio.lowlevel

from routeguard.journal import SqliteJournal
from routeguard.records import Note, Record

COUNTER = "day|UTC|0|0|a"


class Books:
    """A ledger that only remembers what it was told."""

    def __init__(self) -> None:
        self.written: list[Record] = []

    def hear(self, records: Sequence[Record]) -> None:
        self.written.extend(records)


def journal_at(path: Path, *, group_seconds: float = 0.001, rows_max: int = 10_000) -> SqliteJournal:
    return SqliteJournal(str(path), namespace="default", group_seconds=group_seconds, rows_max=rows_max)


def record(number: int, *, settled: int = 7, note: Note | None = None) -> Record:
    return Record(
        f"id-{number}", "settle", number, (COUNTER,), 10, settled, note=note or Note(path="/chat", why="reported")
    )


def take(journal: SqliteJournal, books: Books, records: Sequence[Record]) -> None:
    journal.take(records, ledger="l", written=books.hear)


async def until_idle(journal: SqliteJournal) -> None:
    """Everything that was taken is written, whatever it takes."""
    with anyio.fail_after(120):
        while not journal.is_idle:
            journal.flush()
            await anyio.lowlevel.checkpoint()


def ids(path: Path) -> list[str]:
    """Of all rows, in the order in which they were written."""
    return [str(row[0]) for row in select(path, "SELECT id FROM journal ORDER BY seq")]


def sums(path: Path) -> dict[str, tuple[object, ...]]:
    """As they are kept beside the rows."""
    found = select(
        path, "SELECT counter, settled_nanousd, kept_nanousd, orphaned_nanousd, overrun_nanousd FROM journal_sums"
    )
    return {str(row[0]): row[1:] for row in found}


def select(path: Path, query: str, *arguments: object) -> list[tuple[object, ...]]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        return db.execute(query, arguments).fetchall() if "journal" in tables else []


def doubles(found: Sequence[str]) -> list[str]:
    """What is there more than once."""
    return [name for name, number in Counter(found).items() if number > 1]
