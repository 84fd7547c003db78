"""One question to the file, and the way its answer travels from the writer's thread to whoever waits for it."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple

import anyio

from routeguard.policy import LedgerUnavailable

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")


class Wake(Protocol):
    """Runs a function on an event loop, asked from another thread. The same one for all who wait on that loop."""

    def __call__(self, function: Callable[[*ArgumentsT], object], /, *args: *ArgumentsT) -> object: ...


class Book(Protocol):
    """What the operations of one ledger or journal work on; used by the writer's thread alone."""

    def attach(self, db: sqlite3.Connection) -> None:
        """Make this connection known to the book, and its tables where there are none, in a transaction of its own."""
        ...

    def tidy(self, db: sqlite3.Connection, operations: int) -> Callable[[], None] | None:
        """What is due at the start of a transaction with so many operations of this book.

        Returns what is to be done once it is committed.
        """
        ...


class Operation(Generic[ResultT]):
    """A function to run inside a transaction, once, and what became of it."""

    __slots__ = (
        "_event",
        "_result",
        "_run",
        "_undo",
        "abandoned",
        "book",
        "deadline",
        "done",
        "error",
        "taken",
        "then",
        "wake",
    )

    def __init__(
        self,
        book: Book,
        run: Callable[[sqlite3.Connection], ResultT],
        *,
        seconds: float | None,
        then: Callable[[ResultT], None] | None = None,
        undo: Callable[[sqlite3.Connection, ResultT | None], object] | None = None,
    ) -> None:
        """
        Args:
            book: What it works on.
            run: The function. What it raises takes back the whole transaction.
            seconds: How long the answer is of use; None for what must be written, however long it takes.
            then: What to do with the result once it is committed, whether or not somebody waits.
            undo: Takes back the result, in a later transaction, when nobody is there any more for the answer.
        """
        self.book = book
        self.then = then
        #: Moment of `time.monotonic` after which it is not begun any more.
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.error: Exception | None = None
        self.done = False
        #: The thread has begun it; set before `abandoned` is looked at.
        self.taken = False
        #: Nobody wants it any more; set before `taken` is looked at.
        self.abandoned = False
        self.wake: Wake | None = None
        self._run = run
        self._undo = undo
        self._event: anyio.Event | None = None
        self._result: ResultT | None = None

    def expect(self) -> None:
        """Get ready to be waited for on the running event loop."""
        self.wake = wake_here()
        self._event = anyio.Event()

    async def wait(self, seconds: float, *, shield: bool = False) -> ResultT:
        """The result.

        Raises:
            LedgerUnavailable: The file did not answer in time, or cannot.
        """
        assert self._event is not None, "expect comes before the operation is submitted"
        with anyio.move_on_after(seconds, shield=shield):
            await self._event.wait()
        if not self.done:
            raise LedgerUnavailable("the file did not answer in time")
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value] # done without an error: the result of `run`

    def attempt(self, db: sqlite3.Connection) -> None:
        """Run it, in a transaction that the caller begins and ends."""
        self._result = self._run(db)

    def committed(self) -> None:
        """The transaction is on disk."""
        self.done = True
        if not self.abandoned and self.then is not None:
            self.then(self._result)  # type: ignore[arg-type] # it was attempted, so this is the result of `run`

    def undo(self) -> "Operation[Any] | None":
        """What takes it back; None where there is nothing to take back."""
        if not self.taken or self._undo is None:
            return None
        undo = self._undo
        # What came of it is known by then: the thread may be about it at this moment.
        return Operation(self.book, lambda db: undo(db, self._result), seconds=None)

    def failed(self, error: Exception) -> None:
        """It was not written, or nobody knows."""
        self.error = error
        self.done = True


def wake_all(operations: Iterable[Operation[Any]]) -> list[Operation[Any]]:
    """Tell everybody who waits, each event loop once. Returns those whose loop is gone."""
    waiting: dict[Wake, list[Operation[Any]]] = {}
    for operation in operations:
        if operation.wake is not None:
            waiting.setdefault(operation.wake, []).append(operation)
    lost: list[Operation[Any]] = []
    for wake, answered in waiting.items():
        try:
            wake(_set_events, answered)
        except RuntimeError:  # the loop is closed; trio's RunFinishedError is one too
            lost += answered
    return lost


def _set_events(operations: Iterable[Operation[Any]]) -> None:
    for operation in operations:
        assert operation._event is not None, "what has a loop to wake has an event"  # noqa: SLF001
        operation._event.set()  # noqa: SLF001 - a function of this class that must not look like a method of it


def wake_here() -> Wake:
    """How another thread reaches the running event loop."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon
