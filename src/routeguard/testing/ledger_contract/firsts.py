"""Who is first: something that one of all who share a ledger does, once a window."""

from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import DAY_SECONDS, Contract, budget


class FirstContract(Contract):
    """One is first; what it was told stays true."""

    async def test_one_asker_is_first_and_stays_it(self) -> None:
        """A reply that was lost may be asked for again."""
        ledger = await self.new_ledger(FakeClock())

        answers = [await ledger.first("day|80", by=by, until=None) for by in ("a", "b", "a", "b")]

        assert answers == [True, False, True, False]

    async def test_names_are_independent(self) -> None:
        """The other threshold is another name."""
        ledger = await self.new_ledger(FakeClock())
        await ledger.first("day|80", by="a", until=None)

        assert await ledger.first("day|100", by="b", until=None) is True

    async def test_a_name_is_forgotten_when_its_time_is_over(self) -> None:
        """At the very second, and not a nanosecond before."""
        clock = FakeClock()
        ledger = await self.new_ledger(clock)
        until = (await ledger.balances([budget(1)]))[0].resets_at
        await ledger.first("day|80", by="a", until=until)
        await ledger.first("ever", by="a", until=None)

        clock.advance(DAY_SECONDS / 2 - 1e-9)
        before = await ledger.first("day|80", by="b", until=until)
        clock.advance(1e-9)

        assert (before, await ledger.first("day|80", by="b", until=None)) == (False, True)
        assert await ledger.first("ever", by="b", until=None) is False
