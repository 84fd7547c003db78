"""A guard whose status is asked, and who asks."""

from typing import Any

from routeguard import RouteGuard
from routeguard.history import History
from routeguard.testing import FakeClock
from tests.driver import App, Client
from tests.guarding import Counting, guarded

TOKEN = "a-token-only-these-tests-know"
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())
HOST = (b"host", b"shop.example")
SAME_ORIGIN = (b"sec-fetch-site", b"same-origin")


def watched(app: App | None = None, *, clock: FakeClock | None = None, **settings: Any) -> RouteGuard:
    """A guard with status routes."""
    return guarded(app or Counting(), clock=clock, admin_token=TOKEN, **settings)


async def ask(
    guard: RouteGuard, route: str, *headers: tuple[bytes, bytes], method: str = "GET", body: bytes = b"", **more: Any
) -> Client:
    """One request to a status route."""
    client = Client(method=method, path=f"/_routeguard{route}", headers=[*headers], body=[body] if body else [], **more)
    await client.call(guard)
    assert client.error is None, client.error
    return client


async def get_json(guard: RouteGuard, route: str) -> Any:
    client = await ask(guard, route, BEARER)
    assert client.status == 200, client.chunks
    return client.json


async def log_in(guard: RouteGuard, *headers: tuple[bytes, bytes], token: str = TOKEN, **more: Any) -> Client:
    """Send the login form."""
    form = (b"content-type", b"application/x-www-form-urlencoded")
    return await ask(guard, "/login", form, *headers, method="POST", body=f"token={token}".encode(), **more)


async def cookie_of(guard: RouteGuard, *headers: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """The cookie header of a browser that has logged in."""
    client = await log_in(guard, *headers)
    return (b"cookie", client.response_headers["set-cookie"].partition(";")[0].encode())


def history_of(guard: RouteGuard) -> History:
    assert guard._guard is not None
    (history,) = [one for one in guard._guard.telemetry.listeners if isinstance(one, History)]
    return history
