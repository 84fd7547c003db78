"""The page's files, as they lie in `static`, and the login form in front of it."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from starlette.types import Scope

#: Files that a browser may have without a token, by route.
FILES: Mapping[str, str] = MappingProxyType(
    {
        "/page.css": "text/css; charset=utf-8",
        "/page.js": "text/javascript; charset=utf-8",
        "/draw.js": "text/javascript; charset=utf-8",
        "/icon.svg": "image/svg+xml",
    }
)
HTML: Final = "text/html; charset=utf-8"
#: Nothing inline, nothing from elsewhere, in nobody's frame.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)
WRONG: Final = '<p class="alarm" role="alert">That is not the token, or there were too many wrong ones this minute.</p>'


def static(route: str, scope: "Scope") -> Response:
    """One file, or 304 where the browser has it already."""
    body, tag = _BODIES[route]
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    asked = [value.decode("latin-1") for name, value in scope["headers"] if name == b"if-none-match"]
    if tag in asked:
        return Response(status_code=304, headers=headers)
    return Response(body, headers={**headers, "Content-Type": FILES.get(route, HTML)})


def login_form(why: Literal["missing", "wrong"]) -> Response:
    """401 with a form to send the token."""
    body, _ = _BODIES["/login.html"]
    text = body.decode().replace("<!-- wrong -->", WRONG if why == "wrong" else "")
    headers = {**HEADERS, "Cache-Control": "no-store", "WWW-Authenticate": "Bearer"}
    return HTMLResponse(text, 401, headers)


def _read(name: str) -> tuple[bytes, str]:
    body = files("routeguard.status").joinpath("static", name).read_bytes()
    return body, f'"{sha256(body).hexdigest()[:16]}"'


# With the module, because a request must not wait for a file.
_BODIES: Mapping[str, tuple[bytes, str]] = MappingProxyType(
    {f"/{name}": _read(name) for name in ("page.html", "login.html", *(route[1:] for route in FILES))}
)
