"""The log of a file is copied into it when it has become long, and then written over from its start."""

import shutil
import sqlite3
import struct
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from routeguard.sqlite_file import checkpoint
from routeguard.sqlite_file.checkpoint import Checkpoint
from routeguard.sqlite_file.file import PAGE_BYTES, connect

Disk = namedtuple("Disk", "total used free")
LONG_BYTES = 100_000
#: A page of the file and what comes before it in the log.
IN_THE_LOG = PAGE_BYTES + 24


@pytest.fixture(autouse=True)
def _soon_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LOG_BYTES", LONG_BYTES)
    monkeypatch.setattr(checkpoint, "LOOK_EVERY", 1)


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(str(path), "normal")) as db:
        db.execute("CREATE TABLE numbers (number INTEGER, padding TEXT)")
        yield db


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def salt_of(path: Path) -> bytes:
    """Another one each time that the log begins anew."""
    with log_of(path).open("rb") as log:
        return log.read(24)[16:]


def write(db: sqlite3.Connection, number: int) -> None:
    db.execute("INSERT INTO numbers VALUES (?, ?)", (number, "x" * 500))


def look(copying: Checkpoint) -> None:
    """Look at the log, and wait until what that may have begun is over."""
    copying.start_if_due()
    copying.hold()
    copying.let_go()


def a_log(pages: int, *, of_an_earlier_log: int = 0) -> bytes:
    """By the file format: a header with its salt, and pages that each repeat the salt of the log they belong to."""
    header = struct.pack(">8xI4x8s8x", PAGE_BYTES, b"new salt")
    salts = [b"new salt"] * pages + [b"old salt"] * of_an_earlier_log
    return header + b"".join(struct.pack(f">8x8s8x{PAGE_BYTES}x", salt) for salt in salts)


def test_a_log_is_copied_when_it_is_long_and_then_begins_anew(path: Path, db: sqlite3.Connection) -> None:
    copying = Checkpoint(str(path))
    before = path.stat().st_size
    sizes = []

    for number in range(1_000):
        write(db, number)
        look(copying)
        sizes.append(log_of(path).stat().st_size)

    assert max(sizes) < LONG_BYTES + 10 * IN_THE_LOG, "it grew no longer than the look after which it was copied"
    assert sizes == sorted(sizes), "and keeps its length on the disk"
    assert path.stat().st_size > before + 1_000 * 500 - LONG_BYTES, "what was written is in the file"
    assert db.execute("SELECT count(*), sum(number) FROM numbers").fetchone() == (1_000, 499_500)


def test_a_log_begins_anew_while_somebody_writes_without_a_pause(path: Path, db: sqlite3.Connection) -> None:
    copying = Checkpoint(str(path))
    begun = set()

    for number in range(100_000):
        with suppress(sqlite3.OperationalError):  # the last pages are copied while nobody may write
            write(db, number)
        copying.start_if_due()
        begun.add(salt_of(path))
        if len(begun) == 5:
            break
    copying.hold()

    assert len(begun) == 5


def test_a_log_leaves_room_on_a_small_disk_to_be_copied(
    path: Path, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "LOG_BYTES", 64_000_000)
    disk = 300_000
    copying, sizes = Checkpoint(str(path)), []

    def left(folder: str) -> Disk:
        assert Path(folder) == path.parent
        used = path.stat().st_size + log_of(path).stat().st_size
        return Disk(disk, used, max(0, disk - used))

    monkeypatch.setattr(shutil, "disk_usage", left)
    for number in range(130):
        write(db, number)
        look(copying)
        sizes.append(path.stat().st_size + log_of(path).stat().st_size)

    assert disk / 2 < max(sizes) <= disk
    assert path.stat().st_size > 130 * 500, "it was copied more than once"


def test_a_log_that_began_anew_is_not_taken_for_as_long_as_it_was(path: Path, db: sqlite3.Connection) -> None:
    copying = Checkpoint(str(path))
    number = 0
    while path.stat().st_size < LONG_BYTES:  # until it was copied
        write(db, number)
        look(copying)
        number += 1
    copied = path.stat().st_size
    assert log_of(path).stat().st_size > LONG_BYTES

    for more in range(20):
        write(db, more)
        look(copying)

    assert path.stat().st_size == copied, "not copied again"


def test_a_log_is_copied_while_another_connection_reads_an_old_moment(path: Path, db: sqlite3.Connection) -> None:
    copying = Checkpoint(str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
        for number in range(300):
            write(db, number)
        look(copying)
        longest = log_of(path).stat().st_size
        assert longest > LONG_BYTES, "nobody is waited for, and nothing is lost"
        assert reader.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
        reader.execute("COMMIT")

    look(copying)
    for number in range(300, 320):
        write(db, number)

    assert log_of(path).stat().st_size == longest, "with the reader gone it begins anew"
    assert db.execute("SELECT count(*) FROM numbers").fetchone() == (320,)


@pytest.mark.parametrize(
    "content",
    [None, b"", a_log(0)[:-1], a_log(0), a_log(LONG_BYTES // IN_THE_LOG), a_log(50, of_an_earlier_log=100)],
    ids=["none", "empty", "half a header", "a header", "a page too short", "longer once"],
)
def test_what_is_no_long_log_is_left_alone(path: Path, content: bytes | None) -> None:
    if content is not None:
        log_of(path).write_bytes(content)

    look(Checkpoint(str(path)))

    assert not path.exists(), "the file was not even opened"


def test_a_log_is_long_with_the_page_that_lies_at_that_length(path: Path) -> None:
    log_of(path).write_bytes(a_log(LONG_BYTES // IN_THE_LOG + 1))

    look(Checkpoint(str(path)))

    assert path.exists(), "the file was opened, to copy the log into it"
