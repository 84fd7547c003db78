"""Start and shutdown as ASGI tells them, for applications that know lifespan and for those that do not.

Django raises for any scope that is not HTTP, and daphne sends no lifespan at all, so nothing here may be needed
for the guard to work: everything opens with the first request. What lifespan adds is the start line, the refusal
to start with a broken configuration, and a drain of pending settlements before the server goes.
"""

from collections.abc import Awaitable, Callable
from inspect import currentframe

import anyio

from routeguard.errors import ConfigError
from routeguard.replay import Message, Receive, Scope, Send
from routeguard.telemetry import logger

App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: How long a shutdown waits for guarded requests that the server has cancelled, or left alone.
DRAIN_SECONDS = 2.0
#: How far up the stack to look for Starlette building its middleware.
FRAMES_MAX = 12


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
        self._closed = False
        #: We, and not the application, have failed the start.
        self._refused = False
        #: What the server answered our refusal with: hypercorn stops by raising it through the application.
        self._stop: Exception | None = None

    async def run(self, app: App, scope: Scope) -> None:
        """Run the application's lifespan, and answer the server ourselves when it has none."""
        try:
            await app(scope, self._watched_receive, self._watched_send)
        except Exception:
            if self._told and not self._refused:
                if "lifespan.shutdown" in self._asked:
                    await self._close()
                raise
            # The specification lets an application say by raising that it does not speak lifespan; and one whose
            # start we have failed has nothing more to say.
            if self._asked and not self._refused:
                logger.exception("the application's start failed without telling the server, which goes on without it")
        if self._stop is not None:
            raise self._stop
        if not self._told:
            if not self._asked:
                await self._receive()
            await self._watched_send({"type": "lifespan.startup.complete"})
        if self._told == {"lifespan.startup.complete"}:
            # Whatever the application does not wait for, we do.
            if "lifespan.shutdown" not in self._asked:
                await self._watched_receive()
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
                await self._refuse(str(error))
                return
        elif kind in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
            await self._close()
        self._told.add(message["type"])
        await self._send(message)

    async def _close(self) -> None:
        """Our own shutdown, once."""
        if not self._closed:
            self._closed = True
            await self._on_shutdown()

    async def _refuse(self, text: str) -> None:
        self._refused = True
        self._told.add("lifespan.startup.failed")
        try:
            await self._send({"type": "lifespan.startup.failed", "message": text})
        except Exception as error:
            # Kept, since an application may catch what passes through it, and the server would serve on.
            self._stop = error
            raise


class Running:
    """Counts the guarded requests on their way, so that a shutdown can wait for their endings.

    uvicorn cancels what outlasts its graceful timeout and sends the shutdown in the same moment: without a wait the
    ledger is closed, and the process gone, before those requests have ended.
    """

    __slots__ = ("_count", "_idle")

    def __init__(self) -> None:
        self._count = 0
        self._idle: anyio.Event | None = None

    def begin(self) -> None:
        """One more request."""
        self._count += 1

    def end(self) -> None:
        """One request has ended, its money included."""
        self._count -= 1
        if self._idle is not None and self._count == 0:
            self._idle.set()

    async def drained(self) -> None:
        """Return when none is left, or after `DRAIN_SECONDS`."""
        if self._count == 0:
            return
        self._idle = anyio.Event()
        with anyio.move_on_after(DRAIN_SECONDS):
            await self._idle.wait()
        self._idle = None


async def refuse_startup(receive: Receive, send: Send, text: str) -> None:
    """Tell the server that this application cannot start, so that it prints the text and exits."""
    await receive()
    await send({"type": "lifespan.startup.failed", "message": text})


def is_built_lazily() -> bool:
    """Whether Starlette is building its middleware stack now, inside a request or lifespan.

    uvicorn takes any exception raised there for an application without lifespan and serves on unguarded, so the
    error has to be kept and answered. There is no other sign of it: `Starlette.build_middleware_stack` calls the
    class like anyone else.
    """
    frame = currentframe()
    for _ in range(FRAMES_MAX):
        if frame is None:
            return False
        if frame.f_code.co_name == "build_middleware_stack":
            return True
        frame = frame.f_back
    return False
