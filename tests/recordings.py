"""Recorded provider answers and what they used. They are not part of the repository: without them their tests skip."""

import csv
import json
import os
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("RG_RECORDINGS") or Path(__file__).parents[2] / "shared" / "recordings")
TABLE = FOLDER / "recordings.tsv"

#: The `api` column of the dialects that are read.
READ = {
    "api/chat",
    "chat",
    "converse",
    "converse-stream",
    "embeddings",
    "generateContent",
    "messages",
    "responses",
    "streamGenerateContent",
    "v2/chat",
}
#: Those that are not, and why.
UNREAD = {"ui-message-stream-v1": "it carries no usage at all"}

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
        raw = (FOLDER / self.file).read_bytes()
        # Binary streams are kept in a JSON file.
        return b64decode(json.loads(raw)["body_base64"]) if self._is_binary else raw

    @property
    def media_type(self) -> str:
        if self._is_binary:
            return "application/vnd.amazon.eventstream"
        return "text/event-stream" if self.file.endswith(".sse") else "application/json"

    @property
    def is_stream(self) -> bool:
        return self.media_type != "application/json"

    @property
    def events(self) -> list[bytes]:
        """The stream, one event after the other."""
        body = self.body
        if not self._is_binary:
            return [event + b"\n\n" for event in body.rstrip().replace(b"\r\n", b"\n").split(b"\n\n")]
        events = []
        while body:
            end = int.from_bytes(body[:4])
            events.append(body[:end])
            body = body[end:]
        return events

    @property
    def _is_binary(self) -> bool:
        return self.api == "converse-stream"


def recordings() -> list[Recording]:
    """Every recorded answer; none where there are no recordings."""
    if not TABLE.is_file():
        return []
    with TABLE.open(encoding="utf-8", newline="") as table:
        return [_recording(row) for row in csv.DictReader(table, delimiter="\t")]


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
