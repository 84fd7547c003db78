"""Records as the scripts write them down, and their way to the journal."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from routeguard.policy import LedgerUnavailable
from routeguard.records import NO_NOTE, Event, Journal, Note, Record, Sums, ledger_name
from routeguard.telemetry import logger

#: What a script is told where nothing is known and a journal is kept; an empty text means no journal.
UNKNOWN = "-"
SEPARATOR = "\n\n"


def note_argument(note: Note, journal: Journal | None) -> str:
    """What a script keeps beside the amounts; empty without a journal."""
    return "" if journal is None else json.dumps(note)


def split_records(text: str) -> list[str]:
    """The records in one value of an answer."""
    return text.split(SEPARATOR) if text else []


def parse_record(text: str) -> Record:
    """See `write_down` in `records.lua`. Raises ValueError for what it does not write."""
    head, fields, note = text.split("\n")
    event, record_id, at_us, ceiling, settled, kept, orphaned, overrun = head.split(" ")
    return Record(
        record_id,
        _event(event),
        int(at_us) * 1000,
        () if fields == UNKNOWN else tuple(fields.split()),
        int(ceiling),
        int(settled),
        int(kept),
        int(orphaned),
        int(overrun),
        NO_NOTE if note == UNKNOWN else Note(*json.loads(note)),
    )


def readable(texts: Iterable[str]) -> Iterator[tuple[str, Record]]:
    """Each of these records with its text. What another version wrote stays in the store, for who can read it."""
    unknown = 0
    for text in texts:
        try:
            yield text, parse_record(text)
        except ValueError:
            unknown += 1
    if unknown:
        logger.error("ledger_error: %d records in the store cannot be read by this version of routeguard", unknown)


def _event(word: str) -> Event:
    events: tuple[Event, ...] = ("settle", "keep", "release", "late", "orphan", "adjust", "opening")
    for event in events:
        if event == word:
            return event
    raise ValueError("no event of ours")


class HandOver:
    """Hands records to the journal, and tells the store which of them it need not keep any more."""

    def __init__(self, drop: Callable[[Sequence[str]], None]) -> None:
        self.journal: Journal | None = None
        self._drop = drop
        #: Handed over, as the store has them.
        self._texts: dict[tuple[str, str], str] = {}

    def take(self, texts: Iterable[str], *, salt: bytes) -> None:
        """Records from an answer."""
        if self.journal is None:
            return
        records = []
        for text, record in readable(texts):
            self._texts[record.id, record.event] = text
            records.append(record)
        if records:
            self.journal.take(records, ledger=ledger_name(salt), written=self._written)

    async def sums(self, salt: bytes) -> dict[str, Sums]:
        """What the journal has rows of; nothing where it does not answer, because nobody waits for it."""
        if self.journal is None:
            return {}
        try:
            return await self.journal.sums(ledger_name(salt))
        except LedgerUnavailable as problem:
            logger.error("ledger_error: the journal has no say in what the store held: %s", problem)
            return {}

    def _written(self, records: Sequence[Record]) -> None:
        texts = [self._texts.pop((record.id, record.event), None) for record in records]
        self._drop([text for text in texts if text is not None])
