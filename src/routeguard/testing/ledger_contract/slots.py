"""Parallel slots: leases that end whatever happens to their owner."""

from routeguard.policy import Claim, Parallel, State
from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import (
    CALL,
    Contract,
    admitted,
    attempt,
    budget,
    refusal,
    refused_claims,
    slot,
    slot_claim,
)


class SlotContract(Contract):
    """Slots, and the money of the owners who died."""

    async def test_a_slot_is_a_lease_and_money_is_not(self) -> None:
        """The owner died: its slot is back at the end of the lease, its money stays charged as orphaned."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(2 * CALL)
        owner = await admitted(ledger, "1", [day], slots=[slot(1)])
        before = await refusal(ledger, "2", [day], slots=[slot(1)])

        clock.advance(331)

        assert before == ("busy", False)
        assert await ledger.in_flight() == 0
        balance = (await ledger.balances([day]))[0]
        assert (balance.orphaned_nanousd, balance.open_nanousd) == (CALL, 0)
        assert await attempt(ledger, "3", [day], slots=[slot(1)]) is not None
        assert await refusal(ledger, "4", [day]) == ("busy", False)
        assert await ledger.settle(owner, state="settled", settled_nanousd=9, kept_nanousd=0) is True
        assert (await ledger.balances([day]))[0].orphaned_nanousd == 0
        assert (await ledger.balances([day]))[0].settled_nanousd == 9
        assert await ledger.in_flight() == 1

    async def test_a_lease_ends_at_its_last_nanosecond(self) -> None:
        """Not before it, and by itself: no other request has to come."""
        clock = FakeClock()
        ledger = await self.new_ledger(clock)
        await admitted(ledger, "1", [], slots=[slot(1)])

        clock.advance(330 - 1e-9)
        before = await refusal(ledger, "2", [], slots=[slot(1)])
        clock.advance(1e-9)

        assert before == ("busy", False)
        assert await attempt(ledger, "3", [], slots=[slot(1)]) is not None

    async def test_leases_of_different_lengths_end_each_in_its_time(self) -> None:
        """Two guards with different `MAX_STREAM` share a ledger."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(100 * CALL)
        long, short = Parallel(9, lease_ns=600 * 10**9), Parallel(9, lease_ns=60 * 10**9)
        await admitted(ledger, "long", [day], slots=[long])
        clock.advance(10)
        await admitted(ledger, "short", [day], slots=[short])

        seen = []
        for seconds in (59, 1, 529, 1):
            clock.advance(seconds)
            seen.append(((await ledger.balances([day]))[0].orphaned_nanousd, await ledger.in_flight()))

        assert seen == [(0, 2), (CALL, 1), (CALL, 1), (2 * CALL, 0)]

    async def test_a_stream_with_two_leases_holds_both_slots_until_the_longer_ends(self) -> None:
        """Its money is orphaned once, and not before."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(100 * CALL)
        long, short = Parallel(9, lease_ns=600 * 10**9), Parallel(1, lease_ns=60 * 10**9, per_client=True)
        slots = [Claim(long, "", 1), Claim(short, "a", 1)]
        await ledger.reserve("1", money=[Claim(day, "", CALL)], slots=slots)

        seen = []
        for seconds in (61, 538, 1):
            clock.advance(seconds)
            seen.append(((await ledger.balances([day]))[0].orphaned_nanousd, await ledger.in_flight()))

        assert seen == [(0, 1), (0, 1), (CALL, 0)]

    async def test_an_orphan_that_was_released_after_all_gives_its_money_back(self) -> None:
        """Orphaned is provisional: one later settlement with what is known ends it, and only one."""
        clock = FakeClock()
        ledger, day, mine = await self.new_ledger(clock), budget(CALL), budget(CALL, per_client=True)
        owner = await admitted(ledger, "1", [day, mine], client="a", slots=[slot(1)])
        clock.advance(331)
        while_orphaned = await refusal(ledger, "2", [day, mine], client="a")

        first = await ledger.settle(owner, state="released", settled_nanousd=0, kept_nanousd=0)
        second = await ledger.settle(owner, state="kept", settled_nanousd=0, kept_nanousd=CALL)

        assert while_orphaned == ("budget_exhausted", False)
        assert (first, second, owner.state) == (True, False, "released")
        assert await attempt(ledger, "3", [day, mine], client="a") is not None

    async def test_the_id_of_an_orphan_finds_the_orphan(self) -> None:
        """Also when the answer is asked for again long after: its money is charged already."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(100 * CALL)
        await admitted(ledger, "same", [day], slots=[slot(5)])
        clock.advance(331)

        again = await admitted(ledger, "same", [day], slots=[slot(5)])

        assert again.state == "orphaned"
        assert (await ledger.balances([day]))[0].charged_nanousd == CALL
        assert await ledger.in_flight() == 0

    async def test_traffic_does_not_extend_a_lease(self) -> None:
        """Other requests must not keep a dead owner's slot alive."""
        clock = FakeClock()
        ledger = await self.new_ledger(clock)
        await admitted(ledger, "dead", [], slots=[slot(2)])
        for number in range(10):
            clock.advance(32)
            live = await admitted(ledger, f"live-{number}", [], slots=[slot(2)])
            await ledger.settle(live, state="settled", settled_nanousd=0, kept_nanousd=0)

        clock.advance(11)

        assert await ledger.in_flight() == 0

    async def test_every_ending_frees_the_slots(self) -> None:
        """Settled, kept and released streams have all ended."""
        ledger = await self.new_ledger(FakeClock())
        endings: list[State] = ["settled", "kept", "released"]
        streams = [await admitted(ledger, state, [], slots=[slot(3)]) for state in endings]

        for stream, state in zip(streams, endings, strict=True):
            await ledger.settle(stream, state=state, settled_nanousd=0, kept_nanousd=0)

        assert [stream.state for stream in streams] == endings
        assert await ledger.in_flight() == 0

    async def test_a_second_settlement_frees_no_second_slot(self) -> None:
        """Whoever settles twice does not end somebody else's stream."""
        ledger = await self.new_ledger(FakeClock())
        first = await admitted(ledger, "1", [], slots=[slot(2)])
        await admitted(ledger, "2", [], slots=[slot(2)])

        for _ in range(2):
            await ledger.settle(first, state="released", settled_nanousd=0, kept_nanousd=0)

        assert await ledger.in_flight() == 1

    async def test_slots_are_counted_for_everybody_and_for_each_client(self) -> None:
        """A client with all its slots in use does not take the place of another."""
        ledger = await self.new_ledger(FakeClock())
        everybody, mine = slot(3), Parallel(1, lease_ns=330 * 10**9, per_client=True)

        def slots(client: str) -> list[Claim[Parallel]]:
            return [Claim(everybody, "", 1), Claim(mine, client, 1)]

        first = await ledger.reserve("1", money=[], slots=slots("a"))
        second_of_a = await refused_claims(ledger, "2", [], slots("a"))
        await ledger.reserve("3", money=[], slots=slots("b"))
        await ledger.settle(first, state="released", settled_nanousd=0, kept_nanousd=0)
        await ledger.reserve("4", money=[], slots=slots("a"))

        assert (second_of_a.cause, second_of_a.per_client) == ("busy", True)
        assert await ledger.in_flight() == 2

    async def test_slots_without_a_quota_are_counted_and_neverrefused_claims(self) -> None:
        """`unlimited` still says how many streams are open."""
        ledger = await self.new_ledger(FakeClock())
        unlimited = Parallel(None, lease_ns=330 * 10**9)

        for number in range(40):
            await admitted(ledger, f"{number}", [], slots=[unlimited])

        assert await ledger.in_flight() == 40

    async def test_force_takes_a_slot_beyond_the_quota_and_ends_like_any_other(self) -> None:
        """The observe mode counts streams too, and settles what it forced."""
        ledger, day = await self.new_ledger(FakeClock()), budget(CALL)
        await admitted(ledger, "1", [day], slots=[slot(1)])

        forced = await ledger.reserve("2", money=[Claim(day, "", CALL)], slots=[slot_claim(1)], force=True)
        while_open = await ledger.in_flight()
        await ledger.settle(forced, state="settled", settled_nanousd=7, kept_nanousd=0)

        assert forced.refused is not None
        assert forced.refused.cause == "busy"
        assert while_open == 2
        assert await ledger.in_flight() == 1
        assert (await ledger.balances([day]))[0].charged_nanousd == CALL + 7
