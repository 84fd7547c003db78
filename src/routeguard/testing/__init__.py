"""For tests of routeguard and of applications behind it.

`FakeClock` moves by hand, `LedgerContract` is the suite every ledger passes, and `ScriptedProvider` is a provider
whose answers and bill are known in advance.
"""

from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract import LedgerContract
from routeguard.testing.scripted import ScriptedProvider

__all__ = ["FakeClock", "LedgerContract", "ScriptedProvider"]
