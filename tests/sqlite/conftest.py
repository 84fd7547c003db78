"""A ledger file for each test, closed before the next."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from routeguard.sqlite_file.file import connect
from routeguard.testing import FakeClock
from tests.sqlite.files import close_all


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where the file will be."""
    yield tmp_path / "ledger.db"
    close_all()


@pytest.fixture
def clock() -> FakeClock:
    """The clock of the host."""
    return FakeClock()


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(str(path), "normal")
    yield connection
    connection.close()
