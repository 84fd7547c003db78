"""What every test runs under: both event loops, a time limit, no blocking call, and hypothesis without a clock."""

import functools
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import ParamSpec

import anyio
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import Phase, settings

from tests.patience import be_patient

#: For what hangs. The longest test takes a twentieth of it, and a busy machine may be ten times as slow.
TEST_SECONDS_MAX = 300
#: What is spent by a server of the real clock, and read back, lies in one day. No such test takes as long.
DAY_SECONDS, BEFORE_MIDNIGHT_SECONDS = 86_400, 60
P = ParamSpec("P")

# The suite ships with the package, outside of what pytest rewrites by itself.
pytest.register_assert_rewrite("routeguard.testing.ledger_contract")

# In CI the examples follow from the test alone, so that a red run is red again; elsewhere they are new each time,
# and a failure prints the line that reproduces it. No deadline: a busy machine is not a bug.
settings.register_profile("routeguard", deadline=None, print_blob=True, derandomize="CI" in os.environ)
# Nobody reads how a mutant failed, and to find the smallest example of it took most of the time.
settings.register_profile(
    "mutants", settings.get_profile("routeguard"), phases=set(Phase) - {Phase.shrink, Phase.explain}, print_blob=False
)
settings.load_profile("routeguard")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Runs each async test twice. A module that needs an asyncio-only library overrides it."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="session", autouse=True)
def _no_blocking_calls() -> Iterator[None]:
    """A file, socket, lock or sleep that routeguard waits for on a running asyncio loop raises BlockingError."""
    with blockbuster_ctx("routeguard"):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_hurry() -> Iterator[None]:
    """A file answers when the machine comes to it. Where a bound is meant, it is asked for (`files.as_promised`)."""
    with pytest.MonkeyPatch.context() as patch:
        be_patient(patch)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begins no test in the last minute of a day."""
    left = DAY_SECONDS - time.time() % DAY_SECONDS
    if left < BEFORE_MIDNIGHT_SECONDS:
        time.sleep(left)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Cancels an async test that hangs, on its own loop: a signal would leave trio's runner waiting for itself."""
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _limited(pyfuncitem.obj)


def _limited(test: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    @functools.wraps(test)
    async def limited(*args: P.args, **kwargs: P.kwargs) -> None:
        with anyio.fail_after(TEST_SECONDS_MAX):
            await test(*args, **kwargs)

    return limited
