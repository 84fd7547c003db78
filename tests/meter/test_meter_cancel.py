"""A metered call that is cancelled at any await: no money is left open, and none is lost."""

import asyncio

import pytest

from tests.driver import CancelAt
from tests.meter.played import ASYNC, Caller, chat_stream, whole
from tests.meter.test_meter_own_budget import PRICES, balance


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """A native cancel is asyncio's own; trio has no other way in than its scopes."""
    return "asyncio"


@pytest.mark.parametrize("shape", ["whole", "stream"])
async def test_a_cancel_at_any_await_leaves_no_money_open(shape: str) -> None:
    """The k-th suspension is cancelled, for every k until the call comes through."""
    for number in range(100):
        caller = Caller(ASYNC, chat_stream() if shape == "stream" else whole(), budget="0.1/day", **PRICES)
        driven = CancelAt(caller.stream() if shape == "stream" else _ignoring(caller), number, asyncio.CancelledError())

        cancelled = False
        try:
            await driven
        except asyncio.CancelledError:
            cancelled = True

        found = await balance(caller)
        assert found.open_nanousd == 0, number
        assert (found.charged_nanousd > 0) == bool(caller.sent), number
        if not cancelled:
            break
    assert not cancelled
    assert found.settled_nanousd == 10_000_000


async def _ignoring(caller: Caller) -> None:
    await caller.post()
