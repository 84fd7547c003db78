"""Recorded provider answers and what they used. They are not part of the repository: without them their tests skip."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("RG_RECORDINGS") or Path(__file__).parents[2] / "shared" / "recordings")
TABLE = FOLDER / "recordings.tsv"

#: The `api` column of the dialects that are read.
READ = {"chat", "responses", "messages", "generateContent", "streamGenerateContent"}

needs_recordings = pytest.mark.skipif(
    not TABLE.is_file(), reason="no recorded answers here (RG_RECORDINGS names their folder)"
)


@dataclass(frozen=True, slots=True)
class Recording:
    """One row of the table. None: the answer does not say."""

    file: str
    api: str
    input_tokens: int | None
    cached: int | None
    written: int | None
    output_tokens: int | None
    reasoning: int | None
    finish: str | None
    other: str
    http_status: int

    @property
    def body(self) -> bytes:
        return (FOLDER / self.file).read_bytes()

    @property
    def is_stream(self) -> bool:
        return self.file.endswith(".sse")


def recordings() -> list[Recording]:
    """Every recorded answer of a dialect that is read; none where there are no recordings."""
    if not TABLE.is_file():
        return []
    with TABLE.open(encoding="utf-8", newline="") as table:
        rows = [_recording(row) for row in csv.DictReader(table, delimiter="\t")]
    return [row for row in rows if row.api in READ]


def _recording(row: dict[str, str]) -> Recording:
    return Recording(
        file=row["file"],
        api=row["api"],
        input_tokens=_count(row["input"]),
        cached=_count(row["cached_input"]),
        written=_count(row["cache_write"]),
        output_tokens=_count(row["output"]),
        reasoning=_count(row["reasoning"]),
        finish=None if row["finish"] == "-" else row["finish"],
        other=row["other_billable"],
        http_status=int(row["http_status"]),
    )


def _count(cell: str) -> int | None:
    return None if cell == "-" else int(cell)
