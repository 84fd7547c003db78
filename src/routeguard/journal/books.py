"""A ledger and the journal beside it, as one thing to open, to watch and to close."""

from dataclasses import dataclass

from routeguard.journal.journal import SqliteJournal
from routeguard.policy import Ledger


@dataclass(frozen=True, slots=True)
class Books:
    """Where money is counted, and where its rows are written."""

    ledger: Ledger
    journal: SqliteJournal | None

    @property
    def healthy(self) -> bool:
        """Both do what they are asked."""
        return self.ledger.healthy and (self.journal is None or self.journal.healthy)

    async def check(self) -> tuple[str, ...]:
        """What an operator should know before the first request, as warnings.

        Raises:
            ConfigError: One of them can never be used as it is.
        """
        warnings = await self.ledger.check()
        return warnings if self.journal is None else (*warnings, *await self.journal.check())

    async def aclose(self) -> None:
        """Write what waits to be written, within a bound each, and close what was opened."""
        await self.ledger.aclose()
        if self.journal is not None:
            await self.journal.aclose()
            # What the journal has now, the ledger need not keep: it was told so, and was opened again for it.
            await self.ledger.aclose()
