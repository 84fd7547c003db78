"""Whose settings a command is about: those of the guard in `module:app`, else those of the environment."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING

from routeguard.errors import ConfigError
from routeguard.wrappers import DEPTH_MAX, inwards

if TYPE_CHECKING:
    from routeguard.config import Settings


class NoGuard(Exception):
    """The application cannot be looked into."""


class _Unnamed(ConfigError):
    """Nothing in the environment says what is guarded: usually the application does, and nobody named it."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\n"
            "These are the settings of the environment; name the application to take those of its guard, "
            "for example shop:app"
        )


@dataclass(frozen=True, slots=True)
class Target:
    """What a command is about."""

    settings: "Settings"
    #: The application as it was imported; None where the settings are the environment's alone.
    app: object = None


def target(app: str | None) -> Target:
    """The settings of the guard in `module:app`, else those of the environment.

    Raises:
        ConfigError: They cannot be used.
        NoGuard: There is no such application, or no guard in it.
    """
    from routeguard.config import Settings

    if app is None:
        try:
            return Target(Settings())
        except ConfigError as error:
            if os.environ.get("ROUTEGUARD_PATHS", "").strip():
                raise
            raise _Unnamed(error.problems) from None
    imported = _imported(app)
    settings = next(_settings_in(imported), None)
    if settings is None and isfunction(imported) and not iscoroutinefunction(imported):
        raise NoGuard(
            f"routeguard: {app!r} is a function, and this command calls nothing of yours; name a variable that holds "
            "the application, for example in a module of its own: app = create_app()"
        )
    if settings is None:
        raise NoGuard(f"routeguard: no RouteGuard in {app!r}; add it with app.add_middleware(RouteGuard)")
    return Target(settings, imported)


def _imported(app: str) -> object:
    module_name, _, attribute = app.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        # What a module prints while it is imported is not what this command says: somebody may read it as JSON or CSV.
        with redirect_stdout(sys.stderr):
            found: object = importlib.import_module(module_name)
    except ConfigError:
        raise
    except ImportError as error:
        raise NoGuard(f"routeguard: {module_name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        # A module may do anything while it is imported; what it says is the operator's to read.
        raise NoGuard(f"routeguard: {module_name!r} cannot be imported: {type(error).__name__}: {error}") from error
    for name in (attribute or "app").split("."):
        if not hasattr(found, name):
            raise NoGuard(f"routeguard: there is no {name!r} in {app!r}; write module:app")
        found = getattr(found, name)
    return found


def _settings_in(app: object, depth: int = DEPTH_MAX) -> "Iterator[Settings]":
    """The settings of the guards around and inside an application, outermost first."""
    from routeguard.asgi import RouteGuard
    from routeguard.config import Settings

    for inner in inwards(app):
        if isinstance(inner, RouteGuard):
            yield inner.settings
        for middleware in getattr(inner, "user_middleware", None) or ():
            if getattr(middleware, "cls", None) is RouteGuard:
                yield Settings(**middleware.kwargs)
        for route in _routes(inner) if depth else ():
            yield from _settings_in(getattr(route, "app", None), depth - 1)


def _routes(app: object) -> list[object]:
    routes = getattr(app, "routes", None)
    return list(routes) if isinstance(routes, list | tuple) else []
