"""The guarded application: this line is all that routeguard needs of a Django project."""

import os

from django.core.asgi import get_asgi_application

from routeguard import RouteGuard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_app.settings")

application = RouteGuard(get_asgi_application())
