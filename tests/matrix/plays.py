"""What a guarded route of the matrix does when its path asks for it: `/chat/whole`, `/chat/fails`, …

Every framework serves the same plays, so that a difference in the outcome is the framework's or the server's.
"""

from collections.abc import AsyncIterator

import anyio

from routeguard import Admission

#: A hundred output tokens: one cent at the prices of `tests.guarding`.
ONE_CENT = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}
#: Plays that answer at once instead of streaming.
WHOLE_ANSWERS = ("late", "empty", "fails-at-once")


class Door:
    """What waits for the test to say go on. Opening it lets through who waits now, not who comes later."""

    def __init__(self) -> None:
        self._opened = anyio.Event()
        #: How many stand before it now.
        self.waiting = 0

    async def passed(self) -> None:
        self.waiting += 1
        try:
            await self._opened.wait()
        finally:
            self.waiting -= 1

    def open(self) -> None:
        opened, self._opened = self._opened, anyio.Event()
        opened.set()


door = Door()


async def words(play: str, admission: Admission | None) -> AsyncIterator[str]:
    """The stream of a play: one provider call, begun before its first word, reported before its last."""
    assert admission is not None, "the route is not guarded"
    call = admission.begin()
    yield "data: one\n\n"
    if play == "fails":
        await door.passed()
        raise ValueError("in mid-stream, as the play asks")
    if play == "hangs":
        await anyio.sleep_forever()
    call.report(ONE_CENT)
    yield "data: two\n\n"


async def whole_answer(play: str, admission: Admission | None) -> str:
    """The answer of a play that does not stream; `empty` is for the framework to answer with a 204."""
    if play == "empty":
        return ""
    assert admission is not None, "the route is not guarded"
    call = admission.begin()
    if play == "fails-at-once":
        raise ValueError("before the start, as the play asks")
    await door.passed()
    call.report(ONE_CENT)
    return "late"


async def after() -> None:
    """Work after the last byte."""
    await door.passed()


def seen(admission: Admission | None) -> str:
    """What an unguarded route says of the admission it finds."""
    return "no admission" if admission is None else "an admission that is not its own"
