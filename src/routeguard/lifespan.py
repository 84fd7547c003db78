"""Start and shutdown as ASGI tells them, for applications that know lifespan and for those that do not.

Django raises for any scope that is not HTTP, and daphne sends no lifespan at all, so nothing here may be needed
for the guard to work: everything opens with the first request. What lifespan adds is the start line, the refusal
to start with a broken configuration, and a drain of pending settlements before the server goes.
"""

from collections.abc import Awaitable, Callable

from routeguard.errors import ConfigError
from routeguard.replay import Message, Receive, Scope, Send

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Lifespan:
    """One lifespan of the application, with our own start and shutdown in it."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        on_startup: Callable[[], Awaitable[None]],
        on_shutdown: Callable[[], Awaitable[None]],
    ) -> None:
        self._receive = receive
        self._send = send
        self._on_startup = on_startup
        self._on_shutdown = on_shutdown
        #: What the server asked, and what it was told.
        self._asked: set[str] = set()
        self._told: set[str] = set()
        #: We, and not the application, have failed the start.
        self._refused = False

    async def run(self, app: App, scope: Scope) -> None:
        """Run the application's lifespan, and answer the server ourselves when it has none."""
        try:
            await app(scope, self._watched_receive, self._watched_send)
        except Exception:
            if self._told and not self._refused:
                raise
            # The specification lets an application say by raising that it does not speak lifespan; and one whose
            # start we have failed has nothing more to say.
        if self._told:
            return
        if "lifespan.startup" not in self._asked:
            await self._receive()
        await self._watched_send({"type": "lifespan.startup.complete"})
        if not self._refused:
            await self._receive()
            await self._watched_send({"type": "lifespan.shutdown.complete"})

    async def _watched_receive(self) -> Message:
        message = await self._receive()
        self._asked.add(message["type"])
        return message

    async def _watched_send(self, message: Message) -> None:
        kind = message["type"]
        if self._refused:
            return
        if kind == "lifespan.startup.complete":
            try:
                await self._on_startup()
            except ConfigError as error:
                self._refused = True
                message = {"type": "lifespan.startup.failed", "message": str(error)}
        elif kind in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
            await self._on_shutdown()
        self._told.add(message["type"])
        await self._send(message)


async def refuse_startup(receive: Receive, send: Send, text: str) -> None:
    """Tell the server that this application cannot start, so that it prints the text and exits."""
    await receive()
    await send({"type": "lifespan.startup.failed", "message": text})
