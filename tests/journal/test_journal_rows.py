"""Every row exactly once, whatever happens to the file while it is written."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from routeguard.errors import ConfigError
from routeguard.journal.table import COLUMNS
from routeguard.records import Note, Record
from routeguard.sqlite_file import writer as writer_module
from tests.journal.rows import COUNTER, Books, doubles, ids, journal_at, record, select, sums, take, until_idle
from tests.patience import as_promised
from tests.sqlite.files import locked, write


async def test_a_row_says_what_happened_to_whom_and_where_it_was_charged(path: Path) -> None:
    journal, books = journal_at(path), Books()
    note = Note("/chat", "c1", "gpt-5-mini", 120, 34, "reported")
    late = Record("late-1", "late", 9, (COUNTER, "day|UTC|1|0|c|c1"), 0, 5, overrun_nanousd=5, note=note)

    take(journal, books, [late])
    await until_idle(journal)

    (row,) = select(path, f"SELECT {', '.join(COLUMNS)} FROM journal")
    assert dict(zip(COLUMNS, row, strict=True)) == {
        "namespace": "default",
        "ledger": "l",
        "id": "late-1",
        "event": "late",
        "at_ns": 9,
        "path": "/chat",
        "client": "c1",
        "model": "gpt-5-mini",
        "input_tokens": 120,
        "output_tokens": 34,
        "ceiling_nanousd": 0,
        "settled_nanousd": 5,
        "kept_nanousd": 0,
        "orphaned_nanousd": 0,
        "overrun_nanousd": 5,
        "counters": f'["{COUNTER}", "day|UTC|1|0|c|c1"]',
        "why": "reported",
        "reason": None,
    }
    assert sums(path) == {COUNTER: (5, 0, 0, 5), "day|UTC|1|0|c|c1": (5, 0, 0, 5)}
    assert books.written == [late]


async def test_a_record_handed_over_twice_is_one_row_and_counts_once(path: Path) -> None:
    journal, books = journal_at(path), Books()

    take(journal, books, [record(1), record(2), record(1)])
    await until_idle(journal)
    take(journal, books, [record(2)])
    await until_idle(journal)

    assert ids(path) == ["id-1", "id-2"]
    assert sums(path) == {COUNTER: (14, 0, 0, 0)}
    assert len(books.written) == 4, "the ledger need not keep it any more, whoever wrote it"


async def test_rows_are_written_in_the_order_in_which_they_came_and_many_at_a_time(path: Path) -> None:
    journal, books = journal_at(path), Books()

    for number in range(1_000):
        take(journal, books, [record(number)])
    await until_idle(journal)

    assert ids(path) == [f"id-{number}" for number in range(1_000)]
    assert [one.id for one in books.written] == ids(path)


async def test_an_error_at_any_step_of_the_writer_loses_no_row_and_doubles_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite is stopped at its first step, its second, its third, … until it gets through a group undisturbed."""
    monkeypatch.setattr(writer_module, "FAULT_RETRY_SECONDS", 0)
    journal, books = journal_at(path), Books()
    await journal.check()
    stopped, number = 0, 0

    for step in range(1, 100_000):
        await journal.check()
        fault = Fault(step)
        db = journal._writer()._db
        assert db is not None
        db.set_progress_handler(fault, 1)
        take(journal, books, [record(number), record(number + 1)])
        number += 2
        await until_idle(journal)
        if not fault.struck:
            break
        stopped += 1

    assert stopped > 100
    assert ids(path) == [f"id-{index}" for index in range(number)]
    assert sums(path) == {COUNTER: (7 * number, 0, 0, 0)}
    assert [one.id for one in books.written] == ids(path)


async def test_a_file_locked_during_a_hundred_endings_gets_each_of_them_once(path: Path) -> None:
    journal, books = journal_at(path), Books()
    await journal.check()

    with locked(path):
        for number in range(100):
            take(journal, books, [record(number)])
            journal.flush()
        while_locked = (ids(path), books.written[:])
    await until_idle(journal)

    assert while_locked == ([], [])
    assert ids(path) == [f"id-{number}" for number in range(100)]


async def test_a_disk_that_is_full_gets_every_row_once_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "FAULT_RETRY_SECONDS", 0)
    journal, books = journal_at(path), Books()
    await journal.check()
    db = journal._writer()._db
    assert db is not None
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 3}")

    for number in range(300):
        take(journal, books, [record(number, note=Note(reason="x" * 400))])
    await until_idle(journal)

    assert ids(path) == [f"id-{number}" for number in range(300)]


async def test_what_is_closed_in_time_is_written_and_goes_on_afterwards(path: Path) -> None:
    journal, books = journal_at(path, group_seconds=60), Books()

    take(journal, books, [record(1)])
    await journal.aclose()
    take(journal, books, [record(2)])
    await journal.aclose()

    assert ids(path) == ["id-1", "id-2"]


async def test_a_file_that_stays_locked_does_not_hold_up_the_shutdown(path: Path) -> None:
    journal, books = journal_at(path), Books()
    await journal.check()

    with as_promised(), locked(path):
        take(journal, books, [record(1)])
        await journal.aclose()
        before = books.written[:]
    await until_idle(journal)

    assert before == []
    assert ids(path) == ["id-1"]


async def test_the_journal_is_full_at_its_maximum_and_still_takes_what_ends(path: Path) -> None:
    journal, books = journal_at(path, rows_max=3), Books()
    await journal.check()

    with locked(path):
        take(journal, books, [record(1), record(2)])
        before = journal.is_full
        take(journal, books, [record(3), record(4)])
        at_the_maximum = (journal.is_full, journal.healthy)
    await until_idle(journal)

    assert (before, at_the_maximum) == (False, (True, False))
    assert (journal.is_full, journal.healthy) == (False, True)
    assert len(ids(path)) == 4


@pytest.mark.parametrize("statement", ["UPDATE journal SET settled_nanousd = 0", "DELETE FROM journal"])
async def test_a_row_can_neither_be_changed_nor_deleted(path: Path, statement: str) -> None:
    journal, books = journal_at(path), Books()
    take(journal, books, [record(1)])
    await until_idle(journal)

    with closing(sqlite3.connect(path)) as db, pytest.raises(sqlite3.IntegrityError, match="rows are added"):
        db.execute(statement)

    assert sums(path) == {COUNTER: (7, 0, 0, 0)}


async def test_hostile_text_and_numbers_make_a_row_like_any_other(path: Path) -> None:
    journal, books = journal_at(path), Books()
    note = Note("/\udc80\0'; DROP TABLE journal; --", "c", "m", 10**30, -1, "why", "=cmd|'/C calc'!A1")

    take(journal, books, [record(1, note=note), record(2)])
    await until_idle(journal)

    assert ids(path) == ["id-1", "id-2"]
    assert select(path, "SELECT path, input_tokens, reason FROM journal WHERE id = 'id-1'") == [
        ("/?\0'; DROP TABLE journal; --", 2**63 - 1, "=cmd|'/C calc'!A1")
    ]


async def test_two_journals_of_one_file_write_each_row_once(path: Path) -> None:
    """As two processes do, with what a dead third one left behind."""
    both, books = [journal_at(path), journal_at(path)], Books()

    for number in range(200):
        take(both[number % 2], books, [record(number)])
        take(both[(number + 1) % 2], books, [record(number)])
    for journal in both:
        await until_idle(journal)

    assert sorted(ids(path)) == sorted(f"id-{number}" for number in range(200))
    assert doubles(ids(path)) == []


async def test_a_file_that_can_never_be_a_journal_fails_the_start(path: Path) -> None:
    write(path, b"notes")

    with pytest.raises(ConfigError, match=r"ROUTEGUARD_JOURNAL: .* is not a database"):
        await journal_at(path).check()


async def test_the_journal_of_another_version_is_left_alone(path: Path) -> None:
    await journal_at(path).check()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE journal_version SET version = 99")

    close = journal_at(path)
    await close.aclose()
    with pytest.raises(ConfigError, match="another version of routeguard"):
        await close.check()


async def test_a_file_that_does_not_answer_yet_is_a_warning_at_the_start(path: Path) -> None:
    await journal_at(path).check()

    with as_promised(), locked(path):
        (warning,) = await journal_at(path).check()

    # Which of the two bounds is over first, ours or that of the lock, depends on the machine.
    problems = ("the file did not answer in time", f"the file {path} is locked by another process")
    assert warning.startswith(tuple(f"ROUTEGUARD_JOURNAL: {problem}; its rows wait" for problem in problems))


class Fault:
    """Interrupts SQLite once, at a chosen step."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.struck = False

    def __call__(self) -> int:
        self.left -= 1
        self.struck = self.struck or self.left == 0
        return int(self.left == 0)
