"""The reference ledger: counters in this process."""

from routeguard.ledgers.memory.ledger import RETIRED_PER_RESERVE, MemoryLedger

__all__ = ["RETIRED_PER_RESERVE", "MemoryLedger"]
