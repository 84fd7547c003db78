"""The shares of clients, in a map of bounded size."""

from routeguard.policy import Claim
from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import (
    CALL,
    DAY_SECONDS,
    Contract,
    admitted,
    attempt,
    budget,
    refusal,
    refused_claims,
)


class ClientContract(Contract):
    """One client beside another, and newcomers when the map is full."""

    async def test_one_client_does_not_spend_the_budget_of_another(self) -> None:
        """Client budgets are partitioned; the site's is shared."""
        ledger, day, mine = await self.new_ledger(FakeClock()), budget(100 * CALL), budget(CALL, per_client=True)
        await admitted(ledger, "1", [day, mine], client="a")

        assert await refusal(ledger, "2", [day, mine], client="a") == ("busy", True)
        assert await attempt(ledger, "3", [day, mine], client="b") is not None
        assert (await ledger.balances([day]))[0].open_nanousd == 2 * CALL

    async def test_newcomers_share_one_overflow_client_when_the_map_is_full_of_money(self) -> None:
        """Nobody's count is lost to rotating addresses, and the map does not grow."""
        ledger = await self.new_ledger(FakeClock(), clients_max=3)
        day, mine = budget(10_000 * CALL), budget(2 * CALL, per_client=True)
        for client in ("a", "b", "c"):
            await admitted(ledger, f"{client}1", [day, mine], client=client)

        strangers = [await attempt(ledger, f"s{number}", [day, mine], client=f"s{number}") for number in range(50)]

        assert sum(reservation is not None for reservation in strangers) == 2
        assert await attempt(ledger, "a2", [day, mine], client="a") is not None
        assert await refusal(ledger, "a3", [day, mine], client="a") == ("busy", True)

    async def test_a_client_whose_money_is_zero_makes_room(self) -> None:
        """Only money holds a place in the map."""
        ledger = await self.new_ledger(FakeClock(), clients_max=1)
        mine = budget(CALL, per_client=True)
        reservation = await admitted(ledger, "1", [mine], client="a")
        await ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)

        await admitted(ledger, "2", [mine], client="b")
        await admitted(ledger, "3", [mine], client="overflow-1")

        assert await refusal(ledger, "4", [mine], client="overflow-2") == ("busy", True)
        assert await refusal(ledger, "5", [mine], client="b") == ("busy", True)

    async def test_a_refused_stranger_takes_no_place_in_the_map(self) -> None:
        """Only money holds one, and a refusal is none."""
        ledger = await self.new_ledger(FakeClock(), clients_max=1)
        day, mine = budget(2 * CALL), budget(CALL, per_client=True)
        for number in range(5):
            await refused_claims(
                ledger, f"x{number}", [Claim(day, "", 3 * CALL), Claim(mine, f"x{number}", 3 * CALL)], []
            )

        await admitted(ledger, "1", [day, mine], client="a")
        await admitted(ledger, "2", [day, mine], client="overflow")

        assert await refusal(ledger, "3", [mine], client="another") == ("busy", True)

    async def test_a_client_keeps_its_place_while_any_money_is_open_or_spent(self) -> None:
        """Ending one of two requests forgets neither the other nor what it cost."""
        ledger, mine = await self.new_ledger(FakeClock(), clients_max=1), budget(2 * CALL, per_client=True)
        first, second = [await admitted(ledger, f"{number}", [mine], client="a") for number in range(2)]
        await ledger.settle(first, state="released", settled_nanousd=0, kept_nanousd=0)
        beside_open = await attempt(ledger, "3", [mine], client="a")
        assert beside_open is not None
        with_both_open = await refusal(ledger, "4", [mine], client="a")
        await ledger.settle(second, state="settled", settled_nanousd=1, kept_nanousd=0)
        await ledger.settle(beside_open, state="released", settled_nanousd=0, kept_nanousd=0)

        assert with_both_open == ("busy", True)
        assert ledger.client_exhausted_until([mine], "a", 2 * CALL)[0] is True
        assert ledger.client_exhausted_until([mine], "a", 2 * CALL - 1)[0] is False

    async def test_a_new_window_gives_every_client_its_budget_again(self) -> None:
        """Client money of a past window is forgotten with the window."""
        clock = FakeClock()
        ledger, mine = await self.new_ledger(clock, clients_max=2), budget(CALL, per_client=True)
        for client in ("a", "b", "overflow"):
            await admitted(ledger, client, [mine], client=client)

        clock.advance(DAY_SECONDS)

        for client in ("c", "d", "a"):
            assert await attempt(ledger, f"next-{client}", [mine], client=client) is not None

    async def test_a_late_bill_finds_a_client_whose_money_was_zero(self) -> None:
        """Released, forgotten, and then billed after all: it is this client's money again."""
        ledger = await self.new_ledger(FakeClock())
        day, mine = budget(100 * CALL), budget(2 * CALL, per_client=True)
        reservation = await admitted(ledger, "1", [day, mine], client="a")
        await ledger.settle(reservation, state="released", settled_nanousd=0, kept_nanousd=0)

        ledger.charge_late(reservation, charge_id="late-1", extra_nanousd=CALL)
        while_one_fits = ledger.client_exhausted_until([mine], "a", CALL)[0]
        ledger.charge_late(reservation, charge_id="late-2", extra_nanousd=1)

        assert while_one_fits is False
        assert await refusal(ledger, "2", [day, mine], client="a") == ("budget_exhausted", True)
        assert (await ledger.balances([day]))[0].settled_nanousd == CALL + 1

    async def test_a_late_bill_joins_what_its_client_spent_since(self) -> None:
        """A client is one client, whichever of its requests a bill is for."""
        ledger, mine = await self.new_ledger(FakeClock()), budget(3 * CALL, per_client=True)
        forgotten = await admitted(ledger, "1", [mine], client="a")
        await ledger.settle(forgotten, state="released", settled_nanousd=0, kept_nanousd=0)
        later = await admitted(ledger, "2", [mine], client="a")
        await ledger.settle(later, state="settled", settled_nanousd=CALL, kept_nanousd=0)

        ledger.charge_late(forgotten, charge_id="late-1", extra_nanousd=CALL)
        while_one_fits = ledger.client_exhausted_until([mine], "a", CALL)[0]
        ledger.charge_late(later, charge_id="late-2", extra_nanousd=1)

        assert while_one_fits is False
        assert ledger.client_exhausted_until([mine], "a", CALL)[0] is True
        assert ledger.client_exhausted_until([mine], "b", CALL)[0] is False

    async def test_a_late_bill_of_an_overflow_client_is_the_overflow_clients(self) -> None:
        """Nobody's own budget is charged for a stranger, and no place in the map is taken."""
        ledger, mine = await self.new_ledger(FakeClock(), clients_max=1), budget(2 * CALL, per_client=True)
        await admitted(ledger, "1", [mine], client="a")
        stranger = await admitted(ledger, "2", [mine], client="stranger")
        await ledger.settle(stranger, state="settled", settled_nanousd=CALL, kept_nanousd=0)

        ledger.charge_late(stranger, charge_id="late", extra_nanousd=1)

        assert await refusal(ledger, "3", [mine], client="another") == ("budget_exhausted", True)
        assert await attempt(ledger, "4", [mine], client="a") is not None
