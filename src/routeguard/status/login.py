"""Who may see and steer: the admin token as a bearer, or the cookie that the login form gives for it.

Rules that live here:

- The cookie holds an end and its HMAC, keyed by the token: worth nothing after its end or after a new token, the same
  for all processes, and nothing is stored for it.
- Wrong tokens are limited for each client and for everybody together. Beyond the limit the right one is refused like
  a wrong one; who has a cookie stays in.
- A cookie does not steer for a page of another site: browsers say where a request comes from, and whoever says nothing
  is none.
"""

import hmac
import re
from hashlib import sha256
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from routeguard.limiter import RateLimiter, RateRefused
from routeguard.policy import NANOSECONDS, Rate

if TYPE_CHECKING:
    from starlette.types import Scope

    from routeguard.clock import Clock
    from routeguard.guard import Guard

COOKIE: Final = "routeguard_admin"
COOKIE_SECONDS: Final = 12 * 3600
#: Anybody may send any cookie, and until Python 3.11.9 and 3.12.5 `http.cookies` unquotes it in quadratic time
#: (CVE-2024-7592): 60 kB of backslashes took 16 s of the event loop. Ours needs no unquoting.
SENT: Final = re.compile(rb"(?:^|;) *%s=([0-9]{1,11})\.([0-9a-f]{64}) *(?=;|$)" % COOKIE.encode())
#: Wrong tokens of one client, and of everybody. Behind a proxy that nobody has named everybody is one client, and
#: a guess a second must not lock the operator out; for a token of six letters it takes ten years all the same.
WRONG_RATES: Final = (Rate("login-client", 60, 60 * NANOSECONDS),)
WRONG_GLOBAL_RATES: Final = (Rate("login", 300, 60 * NANOSECONDS),)
CLIENTS_MAX: Final = 10_000

#: How a request showed that it may.
Proof = Literal["bearer", "cookie"]


class Login:
    """Decides about tokens and cookies of one guard."""

    def __init__(self, token: str, guard: "Guard") -> None:
        self._token = token.encode()
        self._guard = guard
        self._clock: Clock = guard.clock
        self._limiter = RateLimiter(clock=guard.clock, clients_max=CLIENTS_MAX)

    def proof(self, scope: "Scope") -> Proof | None:
        """How this request shows that it may see; None: it does not."""
        bearers = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(bearers) == 1:
            scheme, _, bearer = bearers[0].partition(b" ")
            if scheme.lower() == b"bearer" and self.is_right(bearer.strip(), scope):
                return "bearer"
        return "cookie" if self._has_cookie(scope) else None

    def is_right(self, token: bytes, scope: "Scope") -> bool:
        """Compare a token in constant time, unless too many were wrong just now."""
        # Not whom the `client=` hook names: it is for the guarded paths, and a guesser might choose the name.
        client = self._guard.clients.by_address(scope)
        try:
            ticket = self._limiter.claim(client, rates=WRONG_RATES, global_rates=WRONG_GLOBAL_RATES)
        except RateRefused:
            return False
        if not hmac.compare_digest(token, self._token):
            return False
        self._limiter.give_back(ticket)
        return True

    def cookie(self, scope: "Scope") -> str:
        """A `Set-Cookie` that lets its holder in for half a day.

        Without a path: the browser takes the folder it asked, whatever a proxy in front calls it.
        """
        ends = str(self._now() + COOKIE_SECONDS)
        return _set_cookie(f"{ends}.{self._seal(ends)}", COOKIE_SECONDS, scope)

    def no_cookie(self, scope: "Scope") -> str:
        """A `Set-Cookie` that takes it away."""
        return _set_cookie("", 0, scope)

    def _has_cookie(self, scope: "Scope") -> bool:
        for name, value in scope["headers"]:
            if name == b"cookie" and (sent := SENT.search(value)) is not None:
                ends, seal = sent[1].decode(), sent[2].decode()
                if hmac.compare_digest(seal, self._seal(ends)) and int(ends) > self._now():
                    return True
        return False

    def _seal(self, ends: str) -> str:
        return hmac.new(self._token, f"routeguard status cookie until {ends}".encode(), sha256).hexdigest()

    def _now(self) -> int:
        return self._clock.wall_ns() // NANOSECONDS


def is_cross_site(scope: "Scope") -> bool:
    """Whether a browser says that a page of another site sent the request.

    `Sec-Fetch-Site` is the browser's own word, and no script can set it
    (https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header). Browsers without it send an `Origin` with a POST.
    Who sends neither is a program that was given the cookie, as Go's `http.CrossOriginProtection` takes it too; what a
    browser older than both would send for another site, `SameSite` leaves without its cookie.
    """
    headers: dict[bytes, str] = {name: value.decode("latin-1") for name, value in scope["headers"]}
    fetch_site = headers.get(b"sec-fetch-site")
    if fetch_site is not None:
        return fetch_site != "same-origin"
    origin, host = headers.get(b"origin"), headers.get(b"host")
    return origin is not None and (host is None or origin.partition("://")[2].lower() != host.lower())


def _set_cookie(value: str, max_age: int, scope: "Scope") -> str:
    secure = "" if _is_loopback(scope) else "; Secure"
    return f"{COOKIE}={value}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"


def _is_loopback(scope: "Scope") -> bool:
    """Whether the browser asked a host that is the machine it runs on; there, plain HTTP is as safe as HTTPS."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False
