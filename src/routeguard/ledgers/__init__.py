"""Where budgets are counted. `open_ledger` turns the `LEDGER` setting into a ledger."""

import threading

from routeguard.clock import Clock
from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import Ledger

# Guards of one process with the same namespace share their counters. A ledger is never forgotten while the
# process lives: an application that rebuilds its middleware must not get a fresh budget with it.
_opened: dict[tuple[str, str], MemoryLedger] = {}
_lock = threading.Lock()


def open_ledger(url: str, *, namespace: str, clock: Clock, clients_max: int, shared: bool = True) -> Ledger:
    """The ledger of a namespace; opens no connection, file or thread.

    Args:
        url: The `LEDGER` setting.
        namespace: Guards with the same `url` and namespace get the same counters.
        clock: Time, for a ledger that is not open yet.
        clients_max: Size of its maps, likewise.
        shared: False gives a ledger of its own, for a guard with a clock of its own.

    Raises:
        ValueError: The kind of ledger is not known.
    """
    if url != "memory://":
        raise ValueError(f"no ledger for {url.partition(':')[0]}://")
    if not shared:
        return MemoryLedger(clock=clock, clients_max=clients_max)
    with _lock:
        ledger = _opened.get((url, namespace))
        if ledger is None:
            ledger = _opened[url, namespace] = MemoryLedger(clock=clock, clients_max=clients_max)
        return ledger
