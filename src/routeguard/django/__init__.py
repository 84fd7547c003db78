"""For Django projects: `manage.py check` knows the guard, and views find `request.routeguard`.

`INSTALLED_APPS += ["routeguard.django"]` adds the checks. `MIDDLEWARE += ["routeguard.django.AdmissionMiddleware"]` is
optional, and works anywhere in the list. The guard itself goes around `get_asgi_application()` in `asgi.py`.
"""

from routeguard.django.middleware import AdmissionMiddleware

__all__ = ["AdmissionMiddleware"]
