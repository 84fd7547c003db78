"""The Django application behind `INSTALLED_APPS += ["routeguard.django"]`: system checks, no models."""

from django.apps import AppConfig
from django.core.checks import Tags, register

from routeguard.django.checks import check_guard


class RouteGuardConfig(AppConfig):  # type: ignore[misc]  # Django ships no types
    """Registers the system checks."""

    name = "routeguard.django"
    label = "routeguard"
    verbose_name = "routeguard"

    def ready(self) -> None:
        """Called by Django once all applications are there."""
        register(check_guard, Tags.security)
