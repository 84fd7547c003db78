"""Caps what a public AI route can cost, before the call is made."""

from routeguard.admitted import Admission, admission
from routeguard.asgi import RouteGuard
from routeguard.config import Settings
from routeguard.errors import BudgetExceeded, ConfigError, Rejected, RouteguardError
from routeguard.usage import Usage

__version__ = "0.1.0"

__all__ = [
    "Admission",
    "BudgetExceeded",
    "ConfigError",
    "Rejected",
    "RouteGuard",
    "RouteguardError",
    "Settings",
    "Usage",
    "__version__",
    "admission",
]
