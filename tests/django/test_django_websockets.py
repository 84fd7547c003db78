"""Django Channels behind the guard: its websockets are refused on guarded paths, and its own everywhere else."""

import json
from typing import Any

import pytest
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from routeguard import admission
from tests.sockets.server import Ledger, Serve, Site
from tests.sockets.wire import request


class Talk(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels ships no types
    """Says what it hears, and whether it finds an admission."""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.send(text_data=f"{text_data}, {admission()}")


def channels_site(serve: Serve, **settings: Any) -> Site:
    routes = [path("chat/talk", Talk.as_asgi()), path("talk", Talk.as_asgi())]
    router = ProtocolTypeRouter({"http": get_asgi_application(), "websocket": URLRouter(routes)})
    return serve(router, paths=["/chat/*"], **settings)


def talk(site: Site, path: str) -> str | bytes:
    with connect(f"ws://127.0.0.1:{site.port}{path}", proxy=None) as websocket:
        websocket.send("hello")
        return websocket.recv()


def test_a_websocket_on_a_guarded_path_is_refused_with_a_reason(serve: Serve) -> None:
    site = channels_site(serve)

    with pytest.raises(InvalidStatus) as refused:
        talk(site, "/chat/talk")

    response = refused.value.response
    assert response.status_code == 403
    assert json.loads(response.body)["error"]["reason"] == "websocket_refused"
    assert site.status()["requests"]["rejected"] == {"websocket_refused": 1}


def test_a_websocket_on_another_path_is_channels_own(serve: Serve) -> None:
    site = channels_site(serve)

    said = talk(site, "/talk")

    assert said == "hello, None"
    assert site.status()["requests"]["rejected"] == {}


def test_an_ignored_websocket_passes_on_a_guarded_path_and_costs_nothing(serve: Serve) -> None:
    site = channels_site(serve, websocket="ignore")

    said = talk(site, "/chat/talk")

    assert said == "hello, None"
    assert site.ledger() == Ledger()


def test_http_requests_of_channels_are_guarded(serve: Serve) -> None:
    site = channels_site(serve)

    with site.connect() as wire:
        wire.send(request("/chat/async"))
        answer = wire.answer()

    assert answer.complete
    assert site.ledger() == Ledger(settled="0.01")
