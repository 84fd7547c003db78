"""Metered clients: what an application's own provider calls may cost, and what they did cost."""

from routeguard.meter.client import metered

__all__ = ["metered"]
