"""The time a request has for what it is doing now: a cancel scope around the whole request, with a deadline that moves.

A deadline is mostly moved and seldom reached. On asyncio the scope would arm and disarm a timer of the loop each time;
here one timer serves a request, and where it rings too early it is set again.
"""

import asyncio
import math
from functools import cache
from types import TracebackType
from typing import Protocol

import anyio


class TimeLimit(Protocol):
    """A context manager that cancels what runs inside it once its time is over. It begins without a limit."""

    @property
    def passed(self) -> bool:
        """The time was over, and what runs inside was cancelled."""
        ...

    def set(self, seconds: float) -> None:
        """From now on there is this much time."""
        ...

    def lift(self) -> None:
        """From now on there is no limit."""
        ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


def time_limit() -> TimeLimit:
    """A limit for the library this task runs under."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    # trio may be the guest of an asyncio loop; what runs then is no task of asyncio.
    return ScopeTimeLimit() if task is None else AsyncioTimeLimit(asyncio.get_running_loop())


class AsyncioTimeLimit:
    """A scope without a deadline, cancelled by one timer of the loop."""

    __slots__ = ("_deadline", "_loop", "_rings_at", "_scope", "_timer", "passed")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.passed = False
        self._loop = loop
        self._scope = _asyncio_scope()()
        self._deadline = self._rings_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is not None:
            if self._rings_at <= deadline:
                return
            self._timer.cancel()
        self._arm(deadline)

    def lift(self) -> None:
        self._deadline = math.inf

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._scope.__exit__(kind, error, traceback)

    def _arm(self, deadline: float) -> None:
        self._rings_at = deadline
        self._timer = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline <= self._loop.time():
            self.passed = True
            self._scope.cancel()
        elif self._deadline != math.inf:
            self._arm(self._deadline)


@cache
def _asyncio_scope() -> type[anyio.CancelScope]:
    """The class of the scopes of asyncio, to be asked for where it runs.

    `anyio.CancelScope` finds it out anew for every scope, and has each initialised twice.
    """
    return type(anyio.CancelScope())


class ScopeTimeLimit:
    """A scope that keeps its own deadline."""

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()

    @property
    def passed(self) -> bool:
        return self._scope.cancel_called

    def set(self, seconds: float) -> None:
        self._scope.deadline = anyio.current_time() + seconds

    def lift(self) -> None:
        self._scope.deadline = math.inf

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._scope.__exit__(kind, error, traceback)
