"""Callers who do not wait for their answer."""

import random
from collections.abc import Sequence

import anyio
import anyio.lowlevel

from routeguard.policy import NANOSECONDS, Claim, Ledger, Rate, Refused, Reservation
from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, Contract, budget, slot_claim

#: Counted claim by claim, and in buckets.
EXACT, LARGE = Rate("client-1", 100, 60 * NANOSECONDS), Rate("client-2", 101, 3600 * NANOSECONDS)


class CancelContract(Contract):
    """A reserve that nobody was admitted by."""

    async def test_a_cancelled_reserve_leaves_money_slots_and_rates_as_they_were(self) -> None:
        """At whichever moment its caller goes; and whoever stays is counted."""
        ledger, day, rng = await self.new_ledger(FakeClock()), budget(1000 * CALL), random.Random(13)  # noqa: S311 - a run that can be played again
        rates = [Claim(EXACT, "a", 1), Claim(LARGE, "a", 1)] if ledger.counts_rates else []
        admitted: list[Reservation] = []

        async def one(name: str, scope: anyio.CancelScope) -> None:
            with scope:
                reservation = await ledger.reserve(
                    name, money=[Claim(day, "", CALL)], slots=[slot_claim(1000)], rates=rates
                )
                admitted.append(reservation)

        for batch in range(30):
            async with anyio.create_task_group() as tasks:
                scopes = [anyio.CancelScope() for _ in range(3)]
                for place, scope in enumerate(scopes):
                    tasks.start_soon(one, f"{batch}-{place}", scope)
                for _ in range(rng.randrange(12)):
                    await anyio.lowlevel.checkpoint()
                scopes[0].cancel()
                scopes[1].cancel()

        assert (await ledger.balances([day]))[0].open_nanousd == len(admitted) * CALL
        assert await ledger.in_flight() == len(admitted)
        for rate in rates:
            assert len(admitted) + await _places_left(ledger, [rate]) == rate.policy.quota


async def _places_left(ledger: Ledger, rates: Sequence[Claim[Rate]]) -> int:
    """Takes them all."""
    taken = 0
    while True:
        try:
            await ledger.reserve(f"{rates[0].policy.name}-{taken}", money=[], slots=[], rates=rates)
        except Refused:
            return taken
        taken += 1
