"""The page about the proof lists what is played, in the same words."""

from pathlib import Path

from routeguard.cli.prove.rows import ROWS
from tests.prove.test_prove_faults import FAULTS, REDIS_FAULTS, SQLITE_FAULTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "prove.md").read_text()


def test_the_page_has_every_row_in_its_order() -> None:
    table = "\n".join(f"| {row.name} | {row.proves} |" for row in ROWS)

    assert table in PAGE


def test_the_page_counts_the_faults() -> None:
    assert f"{len(FAULTS) + len(SQLITE_FAULTS) + len(REDIS_FAULTS)} times, one line each" in PAGE
