import pytest

from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import Claim, Ledger
from routeguard.testing import FakeClock, LedgerContract
from routeguard.testing.ledger_contract.claims import budget


class TestMemoryLedger(LedgerContract):
    """The reference passes the suite that every later ledger must pass unchanged."""

    async def new_ledger(self, clock: FakeClock, *, clients_max: int = 1000) -> Ledger:
        return MemoryLedger(clock=clock, clients_max=clients_max)


async def test_sixty_thousand_addresses_with_money_do_not_grow_the_map(caplog: pytest.LogCaptureFixture) -> None:
    """And nobody who was counted before is forgotten for them."""
    ledger = MemoryLedger(clock=FakeClock(), clients_max=1000)
    mine = budget(100, per_client=True)

    for number in range(60_000):
        one = await ledger.reserve(f"{number}", money=[Claim(mine, f"{number}", 100)], slots=[], force=True)
        await ledger.settle(one, state="kept", settled_nanousd=0, kept_nanousd=100)

    assert ledger.overflowed == 59_000
    assert ledger.client_exhausted_until([mine], "0", 1)[0]
    assert ledger.client_exhausted_until([mine], "never seen", 1)[0]
    assert sum("MAX_CLIENTS" in record.message for record in caplog.records) == 16
