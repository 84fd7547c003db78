"""A websocket on a guarded path is refused before it is accepted, and others pass."""

from typing import Any

from routeguard import RouteGuard
from tests.guarding import guarded


async def websocket(guard: RouteGuard, path: str = "/chat", *, extension: bool = False) -> list[Any]:
    sent: list[Any] = []
    scope: dict[str, Any] = {"type": "websocket", "path": path, "headers": [], "query_string": b"", "client": None}
    if extension:
        scope["extensions"] = {"websocket.http.response": {}}

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    return sent


async def accepting(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})


async def test_a_websocket_on_a_guarded_path_is_closed_before_it_is_accepted() -> None:
    assert [message["type"] for message in await websocket(guarded(accepting))] == ["websocket.close"]


async def test_a_websocket_is_refused_with_an_answer_where_the_server_can_send_one() -> None:
    start, body = await websocket(guarded(accepting), extension=True)

    assert (start["type"], start["status"]) == ("websocket.http.response.start", 403)
    assert b'"reason":"websocket_refused"' in body["body"]


async def test_other_websockets_pass() -> None:
    elsewhere = await websocket(guarded(accepting), "/feed")
    ignored = await websocket(guarded(accepting, websocket="ignore"))

    assert elsewhere == ignored == [{"type": "websocket.accept"}]
