"""What an application wraps: middleware keeps the next application in one of a few places, under names not ours.

Nothing is called, and everything may be missing.
"""

from collections.abc import Iterator, Mapping
from typing import Final

#: Applications inside one another; no real one is as deep.
DEPTH_MAX: Final = 50
GUARD: Final = "RouteGuard"


def inwards(app: object) -> Iterator[object]:
    """The application and what it wraps, outermost first."""
    seen: set[int] = set()
    while app is not None and id(app) not in seen and len(seen) < DEPTH_MAX:
        seen.add(id(app))
        yield app
        app = _wrapped_by(app)


def is_guard(app: object) -> bool:
    """Whether it is a guard; asked by name where importing one would be too much."""
    return type(app).__name__ == GUARD and type(app).__module__.startswith("routeguard.")


def _wrapped_by(app: object) -> object:
    # Channels' `ProtocolTypeRouter` has an application for each protocol.
    by_protocol = getattr(app, "application_mapping", None)
    if isinstance(by_protocol, Mapping):
        return by_protocol.get("http")
    # Quart's `asgi_app` is the method that every call goes through, unless something was put around it.
    around = getattr(app, "asgi_app", None)
    return getattr(app, "app", None) or (around if is_guard(around) else getattr(app, "application", None))
