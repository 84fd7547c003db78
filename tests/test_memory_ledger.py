from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import Ledger
from routeguard.testing import FakeClock, LedgerContract


class TestMemoryLedger(LedgerContract):
    """The reference passes the suite that every later ledger must pass unchanged."""

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        return MemoryLedger(clock=clock, clients_max=clients_max)
