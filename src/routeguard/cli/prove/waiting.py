"""Waiting for what nobody tells: that a queue was written, or that every request has been decided."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable

import anyio


async def wait_until(holds: Callable[[], Awaitable[bool] | bool], *, seconds: float) -> None:
    """Return once this holds, or when the time is up: what follows looks again and says what it sees."""
    with anyio.move_on_after(seconds):
        while True:
            held = holds()
            if (await held) if isawaitable(held) else held:
                return
            await anyio.sleep(0.002)
