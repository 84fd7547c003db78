"""What a widget on another site asks: whether the route is open, and before it whether it may ask."""

from typing import Any

import pytest

from tests.status.asking import ask, watched

SHOP = b"https://shop.example"
ASKS = ((b"access-control-request-method", b"GET"), (b"access-control-request-headers", b"x-widget"))


async def test_a_browser_that_asks_first_is_told_that_the_shop_may_ask() -> None:
    client = await ask(watched(cors_origins=SHOP.decode()), "/open", (b"origin", SHOP), *ASKS, method="OPTIONS")

    headers = client.response_headers
    assert (client.status, b"".join(client.chunks)) == (204, b"")
    assert headers["access-control-allow-origin"] == SHOP.decode()
    assert headers["access-control-allow-methods"] == "GET"
    assert headers["access-control-allow-headers"] == "x-widget"


@pytest.mark.parametrize("settings", [{}, {"cors_origins": "https://other.example"}], ids=["none", "another"])
async def test_a_browser_that_asks_for_another_site_is_told_nothing(settings: dict[str, Any]) -> None:
    client = await ask(watched(**settings), "/open", (b"origin", SHOP), *ASKS, method="OPTIONS")

    assert client.status == 204
    assert not [name for name in client.response_headers if name.startswith("access-control-allow")]


@pytest.mark.parametrize("route", ["/status", "/pause"])
async def test_no_other_route_answers_who_asks_first(route: str) -> None:
    client = await ask(watched(cors_origins=SHOP.decode()), route, (b"origin", SHOP), *ASKS, method="OPTIONS")

    assert client.status == 401
    assert "access-control-allow-origin" not in client.response_headers
