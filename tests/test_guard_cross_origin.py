"""Preflights and the headers of refusals for a page of another origin."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from tests.driver import Client, chat_chunks, stream_app
from tests.guarding import Counting, ending, guarded, in_flight, parts, status_of

PREFLIGHT = [(b"origin", b"https://shop.example"), (b"access-control-request-method", b"POST")]


def preflight(**more: Any) -> Client:
    return Client(method="OPTIONS", headers=[*PREFLIGHT, *more.pop("headers", [])], body=[], **more)


async def test_a_preflight_without_an_answer_body_costs_nothing() -> None:
    app = Counting(stream_app([], status=204))
    guard = guarded(app, rate="1/minute")

    clients = [await preflight().call(guard) for _ in range(5)]

    assert [client.status for client in clients] == [204] * 5
    assert app.calls == 5
    assert (await parts(guard))["remaining"] == "1"
    assert await in_flight(guard) == 0


async def test_a_preflight_that_is_answered_with_a_body_is_kept() -> None:
    """A Django view runs its whole stream for OPTIONS."""
    guard = guarded(stream_app([b"data: money\n\n"]))

    await preflight().call(guard)

    assert (await parts(guard))["kept"] == "0.1"


async def test_a_preflight_that_no_route_serves_costs_nothing() -> None:
    """FastAPI without CORS answers it 405 with a body: else one address could spend the budget of all with them."""
    app = Starlette(routes=[Route("/chat", lambda request: Response(), methods=["POST"])])
    guard = guarded(app)

    client = await preflight().call(guard)

    assert (client.status, client.chunks) == (405, [b"Method Not Allowed"])
    assert await ending(guard) == {}


async def test_a_provider_call_behind_a_preflight_is_kept_whatever_its_status() -> None:
    guard = guarded(stream_app(chat_chunks(usage=None), status=404))

    await preflight().call(guard)

    assert await ending(guard) == {"kept": "0.1"}


async def test_a_preflight_is_never_refused_for_money() -> None:
    app = Counting(stream_app([b"data: money\n\n"]))
    guard = guarded(app, budget="0.15/day", cors_origins=["https://shop.example"])

    first = await preflight().call(guard)
    second = await preflight(headers=[(b"access-control-request-headers", b"content-type")]).call(guard)

    assert (first.status, second.status, app.calls) == (200, 204, 1)
    assert second.response_headers["access-control-allow-origin"] == "https://shop.example"
    assert second.response_headers["access-control-allow-methods"] == "POST"
    assert second.response_headers["access-control-allow-headers"] == "content-type"
    assert second.response_headers["vary"] == "Origin"


async def test_a_preflight_sees_the_pause_and_the_global_rate_as_204() -> None:
    app = Counting(stream_app([], status=204))
    paused = await preflight().call(guarded(app, paused=True))
    limited = guarded(app, global_rate="1/minute")
    counted = [(await preflight().call(limited)).status for _ in range(3)]

    assert (paused.status, counted, app.calls) == (204, [204, 204, 204], 1)


@pytest.mark.parametrize(
    "query",
    [
        b"prompt=x&max_tokens=1001",
        b"prompt=x&n=2",
        b"prompt=x&model=other",
        b"q=data:;base64,AA",
        b"q=" + b"x" * 64_000,
    ],
    ids=["output", "answers", "model", "media", "size"],
)
async def test_a_preflight_that_asks_for_what_no_request_may_is_answered_by_the_guard(query: bytes) -> None:
    """A Django view runs for OPTIONS as well, and would ask the model for it."""
    app = Counting(stream_app([b"data: money\n\n"]))
    guard = guarded(app, cors_origins=["https://shop.example"])

    client = await preflight(query=query).call(guard)

    assert (client.status, client.chunks, app.calls) == (204, [b""], 0)
    assert client.response_headers["access-control-allow-origin"] == "https://shop.example"
    assert (await parts(guard))["remaining"] == "1"


async def test_a_preflight_that_would_be_answered_by_the_guard_is_reserved_for_while_observing() -> None:
    app = Counting(stream_app([b"data: money\n\n"]))
    guard = guarded(app, mode="observe", global_rate="1/minute")

    for query in (b"prompt=x&n=2", b""):
        await preflight(query=query).call(guard)

    assert app.calls == 2
    assert (await parts(guard))["kept"] == "0.2"
    assert (await status_of(guard))["would_reject"] == {"output_too_large": 1, "rate_limited": 1}


async def test_the_text_in_the_address_of_a_preflight_is_reserved_for() -> None:
    app = Counting(stream_app([], status=204))
    guard = guarded(app, price_in=1, price_out=0)

    for query in (b"", b"q=" + b"%EF%B7%BA" * 10):
        await preflight(query=query).call(guard)

    without, with_text = (admission.ceiling_nanousd for admission in app.admissions if admission is not None)
    assert with_text - without == (len("q") + 33 * 10) * 1000


async def test_the_application_gets_a_preflight_without_the_body_that_follows_it() -> None:
    got: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.append(await receive())
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    client = preflight(plain_headers=False)
    client.body = [b'{"messages":[]}']

    await client.call(guarded(app))

    assert got == [{"type": "http.request", "body": b"", "more_body": False}]


async def test_an_options_request_with_a_body_is_a_request_like_any_other() -> None:
    app = Counting(stream_app([], status=204))
    guard = guarded(app, rate="1/minute")

    clients = [await Client(method="OPTIONS", headers=list(PREFLIGHT)).call(guard) for _ in range(3)]

    assert [client.status for client in clients] == [204, 429, 429]
    assert (await parts(guard))["kept"] == "0.1"


async def test_the_edge_secret_applies_to_a_preflight() -> None:
    client = await preflight().call(guarded(Counting(), edge_secret="x-edge:secret-value"))

    assert (client.status, client.reason) == (403, "edge_secret")


async def test_a_refusal_carries_cors_headers_for_a_configured_origin_only() -> None:
    guard = guarded(Counting(), paused=True, cors_origins="https://shop.example, https://two.example")

    ours = await Client(headers=[(b"origin", b"https://two.example")]).call(guard)
    foreign = await Client(headers=[(b"origin", b"https://evil.example")]).call(guard)
    any_ = await Client(headers=[(b"origin", b"https://x")]).call(guarded(Counting(), paused=True, cors_origins="*"))

    assert ours.response_headers["access-control-allow-origin"] == "https://two.example"
    assert "Retry-After" in ours.response_headers["access-control-expose-headers"]
    assert foreign.response_headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in foreign.response_headers
    assert any_.response_headers["access-control-allow-origin"] == "*"
