"""Refusing: what stands in the way, whose fault it is, and until when."""

from routeguard.policy import Claim, Parallel
from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import (
    CALL,
    DAY_SECONDS,
    MIDWEEK,
    Contract,
    admitted,
    attempt,
    budget,
    refusal,
    refused,
    refused_claims,
    slot,
)


class VerdictContract(Contract):
    """The reasons of a refusal, the most final one first."""

    async def test_the_most_final_reason_wins(self) -> None:
        """Never fits, then spent, then spent by this client, then busy."""
        ledger = await self.new_ledger(FakeClock())
        day, mine = budget(2 * CALL), budget(CALL, per_client=True)
        first = await admitted(ledger, "1", [day, mine], client="a", slots=[slot(1)])

        busy = await refusal(ledger, "2", [day, mine], client="a", slots=[slot(1)])
        await ledger.settle(first, state="settled", settled_nanousd=CALL, kept_nanousd=0)
        client_spent = await refusal(ledger, "3", [day, mine], client="a")
        second = await admitted(ledger, "4", [day, mine], client="b")
        await ledger.settle(second, state="settled", settled_nanousd=CALL, kept_nanousd=0)
        spent = await refusal(ledger, "5", [day, mine], client="a")
        never = await refusal(ledger, "6", [budget(CALL - 1, "hour"), day, mine], client="a")

        assert busy == ("busy", False)
        assert client_spent == ("budget_exhausted", True)
        assert spent == ("budget_exhausted", False)
        assert never == ("too_expensive", False)

    async def test_the_last_nano_dollar_can_be_spent_and_not_one_more(self) -> None:
        """Every limit is inclusive: for one call, beside open money, and beside spent money."""
        ledger, day = await self.new_ledger(FakeClock()), budget(3 * CALL)
        whole = await ledger.reserve("1", money=[Claim(day, "", 3 * CALL)], slots=[])
        await ledger.settle(whole, state="settled", settled_nanousd=CALL, kept_nanousd=0)
        await admitted(ledger, "2", [day])

        above_one = await refused_claims(ledger, "3", [Claim(day, "", 3 * CALL + 1)], [])
        above_spent = await refused_claims(ledger, "4", [Claim(day, "", 2 * CALL + 1)], [])
        above_open = await refused_claims(ledger, "5", [Claim(day, "", CALL + 1)], [])

        assert [found.cause for found in (above_one, above_spent, above_open)] == [
            "too_expensive",
            "budget_exhausted",
            "busy",
        ]
        assert await attempt(ledger, "6", [day]) is not None
        assert (await ledger.balances([day]))[0].remaining_nanousd == 0

    async def test_a_budget_that_a_call_would_just_fill_is_not_in_the_way(self) -> None:
        """The client's own is, so the refusal is this client's alone."""
        ledger = await self.new_ledger(FakeClock())
        day, mine = budget(2 * CALL), budget(CALL, per_client=True)
        first = await admitted(ledger, "1", [day, mine], client="a")

        busy = await refusal(ledger, "2", [day, mine], client="a")
        await ledger.settle(first, state="kept", settled_nanousd=0, kept_nanousd=CALL)
        spent = await refusal(ledger, "3", [day, mine], client="a")

        assert (busy, spent) == (("busy", True), ("budget_exhausted", True))

    async def test_open_money_is_busy_and_spent_money_is_exhausted(self) -> None:
        """Only settled, kept and orphaned money is final."""
        ledger, day = await self.new_ledger(FakeClock()), budget(CALL)
        reservation = await admitted(ledger, "1", [day])

        while_open = await refusal(ledger, "2", [day])
        await ledger.settle(reservation, state="kept", settled_nanousd=0, kept_nanousd=CALL)

        assert while_open == ("busy", False)
        assert await refusal(ledger, "3", [day]) == ("budget_exhausted", False)
        assert ledger.exhausted_until([day], 1)[0] is True

    async def test_the_latest_reset_among_the_budgets_in_the_way_is_named(self) -> None:
        """Waiting for the day does not help when the month is spent."""
        ledger, day, month = await self.new_ledger(FakeClock(MIDWEEK)), budget(CALL), budget(CALL, "month")
        reservation = await admitted(ledger, "1", [day, month])
        await ledger.settle(reservation, state="settled", settled_nanousd=CALL, kept_nanousd=0)

        with_month = await refused(ledger, "2", [day, month])
        with_total = await refused(ledger, "3", [day, budget(0, "total")])

        month_ends = (await ledger.balances([month]))[0].resets_at
        assert with_month.resets_at == month_ends
        assert with_total.resets_at is None

    async def test_the_latest_reset_may_be_a_clients_own(self) -> None:
        """The site is spent for today, this client for the month: tomorrow does not help it."""
        ledger, day = await self.new_ledger(FakeClock(MIDWEEK)), budget(CALL)
        month = budget(CALL, "month", per_client=True)
        reservation = await admitted(ledger, "1", [day, month], client="a")
        await ledger.settle(reservation, state="settled", settled_nanousd=CALL, kept_nanousd=0)

        of_spender = await refused(ledger, "2", [day, month], client="a")
        of_another = await refused(ledger, "3", [day, month], client="b")

        day_ends, month_ends = [balance.resets_at for balance in await ledger.balances([day, month])]
        assert (of_spender.per_client, of_spender.resets_at) == (False, month_ends)
        assert (of_another.per_client, of_another.resets_at) == (False, day_ends)

    async def test_what_is_exhausted_is_known_without_asking(self) -> None:
        """Money that is spent, kept or orphaned counts; open money may come back."""
        ledger = await self.new_ledger(FakeClock(MIDWEEK))
        day, month = budget(3 * CALL), budget(2 * CALL, "month")
        first, second = [await admitted(ledger, f"{number}", [day, month]) for number in range(2)]
        while_open = ledger.exhausted_until([day, month], 2 * CALL)
        await ledger.settle(first, state="settled", settled_nanousd=CALL, kept_nanousd=0)
        await ledger.settle(second, state="kept", settled_nanousd=0, kept_nanousd=CALL)

        day_ends, month_ends = [balance.resets_at for balance in await ledger.balances([day, month])]
        assert while_open == (False, None)
        assert ledger.exhausted_until([day], CALL) == (False, None)
        assert ledger.exhausted_until([day], CALL + 1) == (True, day_ends)
        assert ledger.exhausted_until([day, month], CALL) == (True, month_ends)
        assert ledger.exhausted_until([day, month], CALL + 1) == (True, month_ends)
        assert ledger.exhausted_until([budget(0, "total"), month], 1) == (True, None)

    async def test_what_a_client_has_exhausted_is_known_without_asking(self) -> None:
        """For this client alone, and for a newcomer from what newcomers share."""
        ledger, mine = await self.new_ledger(FakeClock(), clients_max=1), budget(CALL, per_client=True)
        reservation = await admitted(ledger, "1", [mine], client="a")
        await ledger.settle(reservation, state="kept", settled_nanousd=0, kept_nanousd=CALL)
        before = ledger.client_exhausted_until([mine], "stranger", 1)
        stranger = await admitted(ledger, "2", [mine], client="stranger")
        await ledger.settle(stranger, state="kept", settled_nanousd=0, kept_nanousd=CALL)

        ends = (await ledger.balances([mine]))[0].resets_at
        assert before == (False, None)
        assert ledger.client_exhausted_until([mine], "a", 1) == (True, ends)
        assert ledger.client_exhausted_until([mine], "another", 1) == (True, ends)

    async def test_a_budget_that_turns_is_not_exhausted_any_more(self) -> None:
        """At the very second at which the window ends."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(CALL)
        reservation = await admitted(ledger, "1", [day])
        await ledger.settle(reservation, state="settled", settled_nanousd=CALL, kept_nanousd=0)

        clock.advance(DAY_SECONDS / 2 - 1)
        before = ledger.exhausted_until([day], 1)[0]
        clock.advance(1)

        assert before is True
        assert ledger.exhausted_until([day], CALL) == (False, None)
        assert await attempt(ledger, "2", [day]) is not None

    async def test_a_budget_of_nothing_is_exhausted(self) -> None:
        """Zero blocks; it is not "no budget"."""
        ledger = await self.new_ledger(FakeClock())

        assert await refusal(ledger, "1", [budget(0)]) == ("budget_exhausted", False)

    async def test_busy_is_a_clients_own_only_when_nothing_else_is_in_the_way(self) -> None:
        """Whose fault it is decides the message, so everything in the way is looked at."""
        ledger, everybody, mine = await self.new_ledger(FakeClock()), slot(1), Parallel(1, 330 * 10**9, per_client=True)
        day, own = budget(CALL), budget(CALL, per_client=True)
        claims: list[Claim[Parallel]] = [Claim(everybody, "", 1), Claim(mine, "a", 1)]
        await ledger.reserve("1", money=[Claim(day, "", CALL), Claim(own, "a", CALL)], slots=claims)

        site = [
            await refused_claims(ledger, "2", [], claims),
            await refused_claims(ledger, "3", [Claim(day, "", CALL), Claim(own, "a", CALL)], []),
            await refused_claims(ledger, "4", [Claim(own, "a", CALL)], claims[:1]),
        ]
        client = [await refused_claims(ledger, "5", [Claim(own, "a", CALL)], claims[1:])]

        assert [(found.cause, found.per_client, found.resets_at) for found in site] == [("busy", False, None)] * 3
        assert [(found.cause, found.per_client, found.resets_at) for found in client] == [("busy", True, None)]

    async def test_a_call_too_dear_for_a_clients_budget_alone_is_too_expensive(self) -> None:
        """Waiting helps as little as with the site's."""
        ledger, day, mine = await self.new_ledger(FakeClock()), budget(9 * CALL), budget(CALL - 1, per_client=True)

        found = await refused(ledger, "1", [day, mine], client="a")

        assert (found.cause, found.per_client, found.resets_at) == ("too_expensive", True, None)
        assert await refusal(ledger, "2", [budget(1, "hour"), mine], client="a") == ("too_expensive", False)
