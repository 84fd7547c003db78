"""A journal and a ledger file for each test, closed before the next."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from routeguard.testing import FakeClock
from tests.sqlite.files import close_all


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where the journal will be."""
    yield tmp_path / "journal.db"
    close_all()


@pytest.fixture
def clock() -> FakeClock:
    """The clock of the ledgers."""
    return FakeClock()
