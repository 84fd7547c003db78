"""The package's own wire between a ledger and its store, that can lose, cut and hold back answers."""

from routeguard.testing.fault_proxy import Fault, FaultProxy

__all__ = ["Fault", "FaultProxy"]
