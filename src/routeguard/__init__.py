"""Caps what a public AI route can cost, before the call is made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routeguard.admitted import Admission, admission
    from routeguard.asgi import RouteGuard
    from routeguard.config import Settings
    from routeguard.errors import BudgetExceeded, ConfigError, Rejected, RouteguardError
    from routeguard.meter import metered
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
    "metered",
]

#: Where each name lives. A process that only reports, or only reads the version, does not load the guard.
_HOMES = {
    "Admission": "admitted",
    "BudgetExceeded": "errors",
    "ConfigError": "errors",
    "Rejected": "errors",
    "RouteGuard": "asgi",
    "RouteguardError": "errors",
    "Settings": "config",
    "Usage": "usage",
    "admission": "admitted",
    "metered": "meter",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
