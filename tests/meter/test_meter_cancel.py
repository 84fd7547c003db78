"""A metered call that is cancelled at any await: no money is left open, and none is lost."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.driver import App, CancelAt, Client
from tests.guarding import guarded, parts
from tests.meter.played import ASYNC, Caller, calling, chat_stream, whole
from tests.meter.test_meter_own_budget import PRICES, balance
from tests.status.asking import TOKEN, history_of


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


async def test_a_cancel_at_any_await_of_a_late_call_lets_no_guard_charge_less(tmp_path: Path) -> None:
    """The ledger goes on with what it was told; so do the guards further out, and what counts."""
    for number in range(100):
        caller, outcome = Caller(ASYNC, whole()), list[bool]()
        late = _calling_late(caller, number, outcome)
        ledger = f"sqlite:///{tmp_path / f'{number}.db'}"
        inner = guarded(late, namespace="inner", ledger=ledger, admin_token=TOKEN)
        outer = guarded(inner)

        await Client().call(outer)

        assert inner._guard is not None
        found = await parts(inner)
        charged = Decimal(found["settled"]) + Decimal(found["kept"])
        outside = await parts(outer)
        assert Decimal(outside["settled"]) == charged, number
        assert sum(history.charged_nanousd for history in history_of(inner).hours()) == charged * 10**9, number
        await inner._guard.aclose()
        if outcome == [True]:
            break
    assert outcome == [True]
    assert charged == Decimal("0.06")


def _calling_late(caller: Caller, number: int, outcome: list[bool]) -> App:
    """An application whose call after the ending is cancelled at this suspension; says whether it came through."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["routeguard"].report(cost_usd="0.05")
        await calling(anyio.lowlevel.checkpoint)(scope, receive, send)
        try:
            await CancelAt(_ignoring(caller), number, asyncio.CancelledError())
        except asyncio.CancelledError:
            outcome.append(False)
        else:
            outcome.append(True)

    return app
