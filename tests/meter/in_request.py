"""A call inside a guarded request, and what the request is charged for it.

Any output token costs a hundredth of a cent, and a call may produce a thousand: ten cents at most.
"""

from typing import Any

import pytest

from routeguard import BudgetExceeded
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.played import calling


async def run(call: Any, **settings: Any) -> dict[str, str]:
    """A guarded request that does this, and what it was charged."""
    guard = guarded(calling(call), **settings)
    client = await Client().call(guard)
    if client.error is not None:
        raise client.error
    return await parts(guard)


async def refused(call: Any, **settings: Any) -> BudgetExceeded:
    """The refusal of a call in a guarded request."""
    found: list[BudgetExceeded] = []

    async def catching() -> None:
        with pytest.raises(BudgetExceeded) as caught:
            await call()
        found.append(caught.value)

    await run(catching, **settings)
    return found[0]
