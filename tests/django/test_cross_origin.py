"""A page of another origin reads why it is refused, and when to come back, in a real browser.

The page is on `localhost`, the guarded routes on `127.0.0.1`: two origins on one server.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.test import override_settings
from starlette.middleware.cors import CORSMiddleware

from tests.driver import App, stream_app
from tests.guarding import guarded
from tests.sockets.browser import visiting
from tests.sockets.server import Edge, Serve, Signal
from tests.sockets.wire import HOST

#: Each path is guarded by settings of its own, with which the second request is refused.
REFUSING: dict[str, dict[str, Any]] = {
    "/chat/large": {"max_body": 100},
    "/chat/limited": {"rate": "1/hour"},
    "/chat/spent": {"budget": "0.10/total"},
}

PAGE = """<script type="module">
const found = {}, headers = {"content-type": "application/json"};
for (const [path, size] of [["/chat/large", 1000], ["/chat/limited", 1], ["/chat/spent", 1]]) {
  const body = JSON.stringify({messages: [{role: "user", content: "x".repeat(size)}]});
  for (let n = 0; n < 2; n++) {
    try {
      let answer, error;
      do {  // an answer is read as soon as its length has come, and its request may end a moment later
        answer = await fetch("http://%s" + path, {method: "POST", headers, body});
        const text = await answer.text();
        error = answer.ok ? {} : JSON.parse(text).error;
      } while (error.reason === "busy");
      found[path] = [answer.status, error.message ?? "", answer.headers.get("retry-after")];
    } catch (error) { found[path] = ["failed", error.message, null]; }
  }
}
await fetch("/found", {method: "POST", body: JSON.stringify(found)});
</script>"""


@contextmanager
def starlette_applications(origin: str) -> Iterator[dict[str, App]]:
    """CORS outside of the guard, as `add_middleware` puts what is added last."""
    yield {
        path: CORSMiddleware(
            guarded(stream_app([b"data: hello\n\n"]), paths=["/chat/*"], **settings),
            allow_origins=[origin],
            allow_methods=["POST"],
            allow_headers=["content-type"],
            expose_headers=["Retry-After"],
        )
        for path, settings in REFUSING.items()
    }


@contextmanager
def django_applications(origin: str) -> Iterator[dict[str, App]]:
    """CORS inside of the guard, in Django's own middleware: the guard's answers need `CORS_ORIGINS`."""
    with override_settings(
        MIDDLEWARE=["corsheaders.middleware.CorsMiddleware"],
        ROOT_URLCONF="tests.django.crossed_urls",
        CORS_ALLOWED_ORIGINS=[origin],
    ):
        django = get_asgi_application()
        yield {
            path: guarded(django, paths=["/chat/*"], cors_origins=[origin], **settings)
            for path, settings in REFUSING.items()
        }


@pytest.mark.parametrize("applications", [starlette_applications, django_applications])
def test_a_page_of_another_origin_reads_why_and_until_when(
    serve: Serve, server: tuple[Edge, int], tmp_path: Path, applications: Any
) -> None:
    port = server[1]
    found: dict[str, list[Any]] = {}
    reported = Signal()

    async def page(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body", False):
            body += message["body"]
        if scope["path"] == "/found":
            found.update(json.loads(body + message["body"]))
            reported.give()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": PAGE.encode() % f"{HOST}:{port}".encode()})

    site = serve(page)
    with applications(f"http://localhost:{port}") as guards:

        async def routed(scope: Any, receive: Any, send: Any) -> None:
            await guards.get(scope["path"], page)(scope, receive, send)

        site.mount(routed)
        with visiting(f"http://localhost:{port}/", tmp_path):
            reported.wait()

    (large, large_why, _), (limited, limited_why, wait), (spent, spent_why, rest) = found.values()
    preflights = [exchange for exchange in site.exchanges if exchange.method == "OPTIONS"]
    assert (large, limited, spent) == (413, 429, 503)
    assert all((large_why, limited_why, spent_why))
    assert 1 <= int(wait) <= 60
    assert 61 <= int(rest) <= 3600
    assert preflights
    assert {exchange.status for exchange in preflights} == {200}
