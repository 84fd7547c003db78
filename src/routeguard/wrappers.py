"""What an application wraps: middleware keeps the next application in one of a few places, under names not ours.

Nothing is called, and everything may be missing.
"""

import sys
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


def prefixes(app: object) -> tuple[str, ...]:
    """What the application cuts off each path by itself: FastAPI its own `root_path`, Django `FORCE_SCRIPT_NAME`.

    Neither stands in the scope that a guard around the application sees.
    """
    found = [getattr(layer, "root_path", None) for layer in inwards(app)]
    # Looked up, never imported: only a process that already runs Django has settings worth reading.
    django = getattr(sys.modules.get("django.conf"), "settings", None)
    if getattr(django, "configured", False):
        found.append(getattr(django, "FORCE_SCRIPT_NAME", None))
    return tuple(dict.fromkeys(prefix for prefix in found if isinstance(prefix, str) and prefix))


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
