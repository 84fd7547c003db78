"""What an auditor may ask of a ledger that other processes can reach, and change in it by hand."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from routeguard.policy import Budget
from routeguard.records import Record, Sums


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What an operator changes by hand: one counter by a signed amount, or the ending of an orphan."""

    #: Client-made; of an orphan's ending the reservation's own.
    id: str
    reason: str
    #: Signed; of an orphan what it cost.
    nanousd: int
    #: Whose current window is changed; None: `id` is that of an orphan.
    budget: Budget | None
    #: The client whose share it is; "": everybody.
    client: str = ""


class AdjustmentRefused(Exception):
    """Why nothing was changed, as a sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a ledger says of itself, all of the same moment, by the name of each counter."""

    #: What a journal calls the ledger.
    ledger: str
    #: The counters.
    counted: dict[str, Sums]
    #: What the reservations add up to that are open or orphaned. Those that ended leave the ledger after a while.
    recorded: dict[str, Sums]
    #: Records that wait for the journal.
    unwritten: tuple[Record, ...]
    #: A window that had ended by this second has left the ledger, or may have; None: windows of everybody stay.
    forgotten_until: int | None = None


@runtime_checkable
class AuditedLedger(Protocol):
    """A ledger that other processes can reach, to be verified and adjusted."""

    async def statement(self) -> Statement:
        """Where everything stands.

        Raises:
            LedgerUnavailable: Nobody knows.
        """
        ...

    async def adjust(self, adjustment: Adjustment) -> Record:
        """Change what is charged, once.

        Raises:
            AdjustmentRefused: It would make money negative, or there is nothing to adjust. Nothing was changed.
            LedgerUnavailable: Nobody knows.
        """
        ...
