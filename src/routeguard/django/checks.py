"""System checks: what `manage.py check` says about the guard.

Rules that live here:

- The guard in force is the one in `ASGI_APPLICATION`, keywords included. Without that setting only what
  `settings.ROUTEGUARD` and the environment say can be judged, and where they say nothing, nothing is.
- What would stop the server is an error, what it would warn of at start is a warning.
- A check never starts, opens or reserves anything.
"""

import os
from collections.abc import Iterator, Sequence

from django.conf import settings as project
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.utils.module_loading import import_string

from routeguard.asgi import RouteGuard
from routeguard.config import Settings
from routeguard.errors import ConfigError
from routeguard.wrappers import inwards

POINT_HINT = "Set ASGI_APPLICATION to the guarded application in asgi.py, so that its keywords count too."
CORS_HINT = "Set ROUTEGUARD = {'CORS_ORIGINS': […]} to the origins that django-cors-headers lets in."


def check_guard(app_configs: object = None, **_: object) -> list[CheckMessage]:
    """Every message about the guard; registered by `routeguard.django`."""
    dotted: str | None = getattr(project, "ASGI_APPLICATION", None)
    if dotted is None and not _is_configured():
        message = "The guard cannot be judged: ASGI_APPLICATION is not set, and neither is settings.ROUTEGUARD."
        return [CheckWarning(message, hint=POINT_HINT, id="routeguard.W001")]
    try:
        found = Settings() if dotted is None else _settings_of(dotted)
    except ConfigError as error:
        hint = POINT_HINT if dotted is None else None
        return [Error(problem, hint=hint, id="routeguard.E001") for problem in error.problems]
    except ImportError as error:
        return [Error(f"ASGI_APPLICATION = {dotted!r} cannot be imported: {error}", id="routeguard.E002")]
    if found is None:
        hint = "Write application = RouteGuard(get_asgi_application()) in asgi.py."
        return [CheckWarning(f"ASGI_APPLICATION = {dotted!r} is not guarded.", hint=hint, id="routeguard.W002")]
    return [*_about_money(found), *_about_cors(found), *_about_start(found)]


def _is_configured() -> bool:
    return hasattr(project, "ROUTEGUARD") or any(name.startswith("ROUTEGUARD_") for name in os.environ)


def _settings_of(dotted: str) -> Settings | None:
    """The settings of the guard around an application; None where it has none.

    Raises:
        ConfigError: They cannot be used.
        ImportError: There is no such application.
    """
    guards = (inner for inner in inwards(import_string(dotted)) if isinstance(inner, RouteGuard))
    guard = next(guards, None)
    return None if guard is None else guard.settings


def _about_money(settings: Settings) -> Iterator[CheckMessage]:
    if settings.mode == "off":
        yield CheckWarning("The guard is switched off (MODE=off).", id="routeguard.W003")
    elif not settings.budgets:
        yield CheckWarning(
            "The guard has no cap: BUDGET is unlimited.",
            hint="Say what the route may cost: ROUTEGUARD = {'BUDGET': '5/day'}.",
            id="routeguard.W004",
        )


def _about_cors(settings: Settings) -> Iterator[CheckMessage]:
    """The guard stands outside of every Django middleware, so its own answers get no header from corsheaders."""
    if settings.mode == "off" or "corsheaders" not in project.INSTALLED_APPS:
        return
    if "*" in settings.cors_origins:
        return
    if getattr(project, "CORS_ALLOW_ALL_ORIGINS", False):
        yield CheckWarning(
            "django-cors-headers lets every origin in, the guard's own answers do not: browsers hide them.",
            hint="Set ROUTEGUARD = {'CORS_ORIGINS': '*'}.",
            id="routeguard.W005",
        )
        return
    allowed: Sequence[str] = getattr(project, "CORS_ALLOWED_ORIGINS", ())
    missing = [origin for origin in allowed if origin not in settings.cors_origins]
    if missing:
        yield CheckWarning(
            f"Pages of {', '.join(missing)} cannot read why the guard refuses: it stands outside of "
            "django-cors-headers, and CORS_ORIGINS does not name them.",
            hint=f"Set ROUTEGUARD = {{'CORS_ORIGINS': {list(allowed)!r}}}.",
            id="routeguard.W005",
        )
    elif not settings.cors_origins:
        yield CheckWarning(
            "The guard stands outside of django-cors-headers, and CORS_ORIGINS names nobody: "
            "browsers hide its answers from pages of other origins.",
            hint=CORS_HINT,
            id="routeguard.W005",
        )


def _about_start(settings: Settings) -> Iterator[CheckMessage]:
    for sentence in settings.warnings:
        yield CheckWarning(sentence, id="routeguard.W010")
