"""What every ledger must do: one suite, run unchanged against each of them.

Subclass `LedgerContract` in a test module, give it `new_ledger`, and let pytest with anyio's plugin collect it. The
suite uses only the `Ledger` protocol.
"""

from routeguard.testing.ledger_contract.cancels import CancelContract
from routeguard.testing.ledger_contract.clients import ClientContract
from routeguard.testing.ledger_contract.firsts import FirstContract
from routeguard.testing.ledger_contract.model import ModelContract
from routeguard.testing.ledger_contract.money import MoneyContract
from routeguard.testing.ledger_contract.slots import SlotContract
from routeguard.testing.ledger_contract.verdicts import VerdictContract

__all__ = ["LedgerContract"]


class LedgerContract(
    MoneyContract, VerdictContract, ClientContract, SlotContract, FirstContract, CancelContract, ModelContract
):
    """The suite. `new_ledger` is all a subclass gives."""
