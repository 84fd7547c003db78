"""Django, set up once for the process, behind the running uvicorn of `tests/sockets`."""

from tests.django.project import configure
from tests.sockets.conftest import serve, server

__all__ = ["serve", "server"]

configure()
