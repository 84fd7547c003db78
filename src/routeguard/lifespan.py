"""Start and shutdown as ASGI tells them, for applications that know lifespan and for those that do not.

Django raises for any scope that is not HTTP, and daphne sends no lifespan at all, so nothing here may be needed
for the guard to work: everything opens with the first request. What lifespan adds is the start line, the refusal
to start with a broken configuration, and a drain of pending settlements before the server goes.
"""

from collections.abc import Awaitable, Callable

from routeguard.replay import Message, Receive, Scope, Send


async def pass_lifespan(
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    on_startup: Callable[[], Awaitable[None]],
    on_shutdown: Callable[[], Awaitable[None]],
) -> None:
    """Run the application's lifespan, and answer the server ourselves when it has none."""
    told: set[str] = set()
    asked: set[str] = set()

    async def watched_receive() -> Message:
        message = await receive()
        asked.add(message["type"])
        return message

    async def watched_send(message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            await on_startup()
        elif kind in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
            await on_shutdown()
        told.add(kind)
        await send(message)

    try:
        await app(scope, watched_receive, watched_send)
    except Exception:
        if told:
            raise
        # The application does not speak lifespan; the specification allows to say so by raising.
    if "lifespan.startup.complete" in told or "lifespan.startup.failed" in told:
        return
    if "lifespan.startup" not in asked:
        await receive()
    await on_startup()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await on_shutdown()
    await send({"type": "lifespan.shutdown.complete"})


async def refuse_startup(receive: Receive, send: Send, text: str) -> None:
    """Tell the server that this application cannot start, so that it prints the text and exits."""
    await receive()
    await send({"type": "lifespan.startup.failed", "message": text})
