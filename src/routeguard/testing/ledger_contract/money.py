"""Reserving and ending: what is charged, where, and that it is charged once."""

import random

import anyio

from routeguard.policy import Budget, Claim, Ledger, Reservation
from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import (
    CALL,
    DAY_SECONDS,
    Contract,
    admitted,
    attempt,
    budget,
    refusal,
    slot,
)


class MoneyContract(Contract):
    """Money, whoever spends it."""

    async def test_admits_exactly_what_fits_whatever_the_order(self) -> None:
        """Two hundred at once on a budget of ten ceilings, in `orders` orders: ten are admitted each time."""
        for seed in range(self.orders):
            ledger, day = await self.new_ledger(FakeClock()), budget(10 * CALL)
            rng = random.Random(seed)  # noqa: S311 - an order that can be played again
            admitted: list[Reservation] = []

            async def one(
                number: int,
                ledger: Ledger = ledger,
                day: Budget = day,
                rng: random.Random = rng,
                admitted: list[Reservation] = admitted,
            ) -> None:
                for _ in range(rng.randrange(4)):
                    await anyio.lowlevel.checkpoint()
                if (reservation := await attempt(ledger, f"{number}", [day])) is not None:
                    admitted.append(reservation)

            async with anyio.create_task_group() as tasks:
                for number in rng.sample(range(200), 200):
                    tasks.start_soon(one, number)

            assert len(admitted) == 10, f"seed {seed}"
            for reservation in admitted:
                await ledger.settle(reservation, state="settled", settled_nanousd=CALL // 3, kept_nanousd=0)
            balance = (await ledger.balances([day]))[0]
            assert balance.settled_nanousd == 10 * (CALL // 3), f"seed {seed}"
            assert balance.charged_nanousd == balance.settled_nanousd, f"seed {seed}"

    async def test_a_late_refusal_leaves_every_other_counter_untouched(self) -> None:
        """All or nothing: a full last policy costs nothing on the first ones."""
        ledger = await self.new_ledger(FakeClock())
        day, month, tight = budget(100 * CALL), budget(200 * CALL, "month"), budget(CALL - 1, "hour")

        assert await attempt(ledger, "1", [day, month, tight]) is None
        assert await attempt(ledger, "2", [day], slots=[slot(1)]) is not None
        assert await attempt(ledger, "3", [day, month], slots=[slot(1)]) is None

        assert [balance.charged_nanousd for balance in await ledger.balances([day, month, tight])] == [CALL, 0, 0]
        assert await ledger.in_flight() == 1

    async def test_the_three_endings_move_money_into_their_parts(self) -> None:
        """Settled charges the bill, kept the reservation, released nothing; the parts explain the counter."""
        ledger, day = await self.new_ledger(FakeClock()), budget(100 * CALL)
        settled, kept, released, still_open = [await admitted(ledger, f"{number}", [day]) for number in range(4)]

        await ledger.settle(settled, state="settled", settled_nanousd=7, kept_nanousd=0)
        await ledger.settle(kept, state="kept", settled_nanousd=3, kept_nanousd=CALL)
        await ledger.settle(released, state="released", settled_nanousd=0, kept_nanousd=0)

        balance = (await ledger.balances([day]))[0]
        assert (balance.settled_nanousd, balance.kept_nanousd, balance.open_nanousd) == (10, CALL, CALL)
        assert balance.overrun_nanousd == 3
        assert balance.charged_nanousd + balance.remaining_nanousd == day.limit_nanousd
        assert still_open.state == "open"

    async def test_a_second_settlement_changes_nothing(self) -> None:
        """Exactly one ending; the second is a no-op that says so."""
        ledger, day = await self.new_ledger(FakeClock()), budget(100 * CALL)
        reservation = await admitted(ledger, "1", [day])

        first = await ledger.settle(reservation, state="settled", settled_nanousd=5, kept_nanousd=0)
        second = await ledger.settle(reservation, state="kept", settled_nanousd=0, kept_nanousd=CALL)

        assert (first, second) == (True, False)
        assert (await ledger.balances([day]))[0].charged_nanousd == 5

    async def test_a_bill_of_exactly_the_ceiling_is_no_overrun(self) -> None:
        """Overrun is what is above, however it is divided into settled and kept."""
        ledger, day = await self.new_ledger(FakeClock()), budget(100 * CALL)
        exact = await admitted(ledger, "1", [day])
        above = await admitted(ledger, "2", [day])

        await ledger.settle(exact, state="kept", settled_nanousd=CALL - 1, kept_nanousd=1)
        before = (await ledger.balances([day]))[0].overrun_nanousd
        await ledger.settle(above, state="kept", settled_nanousd=CALL - 1, kept_nanousd=3)

        assert before == 0
        assert (await ledger.balances([day]))[0].overrun_nanousd == 2

    async def test_the_same_id_is_debited_once(self) -> None:
        """A reply that was lost may be asked for again."""
        ledger, day = await self.new_ledger(FakeClock()), budget(100 * CALL)

        first = await admitted(ledger, "same", [day], slots=[slot(5)])
        second = await admitted(ledger, "same", [day], slots=[slot(5)])

        assert first.id == second.id
        assert (await ledger.balances([day]))[0].open_nanousd == CALL
        assert await ledger.in_flight() == 1

    async def test_an_overrun_is_charged_counted_and_blocks_what_follows(self) -> None:
        """The excess is spent money: it goes past the cap, and nothing is admitted behind it."""
        ledger, day = await self.new_ledger(FakeClock()), budget(2 * CALL)
        reservation = await admitted(ledger, "1", [day])

        await ledger.settle(reservation, state="settled", settled_nanousd=5 * CALL, kept_nanousd=0)

        balance = (await ledger.balances([day]))[0]
        assert (balance.overrun_nanousd, balance.remaining_nanousd) == (4 * CALL, -3 * CALL)
        assert await refusal(ledger, "2", [day]) == ("budget_exhausted", False)

    async def test_a_late_bill_is_charged_to_the_window_of_its_reservation(self) -> None:
        """A report after the ending, after midnight: yesterday's counter, not today's."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(100 * CALL)
        reservation = await admitted(ledger, "1", [day])
        await ledger.settle(reservation, state="settled", settled_nanousd=5, kept_nanousd=0)

        ledger.charge_late(reservation, charge_id="late", extra_nanousd=11)
        same_day = (await ledger.balances([day]))[0]
        clock.advance(DAY_SECONDS)
        ledger.charge_late(reservation, charge_id="later", extra_nanousd=13)

        assert (same_day.settled_nanousd, same_day.overrun_nanousd) == (16, 11)
        assert (await ledger.balances([day]))[0].charged_nanousd == 0

    async def test_a_stream_across_midnight_settles_in_the_day_it_was_reserved_in(self) -> None:
        """Fifty streams straddle the reset; both days are exact, and the month saw them all."""
        clock = FakeClock()
        ledger, day, month = await self.new_ledger(clock), budget(100 * CALL), budget(1000 * CALL, "total")
        streams = [await admitted(ledger, f"{number}", [day, month]) for number in range(50)]
        clock.advance(DAY_SECONDS / 2)
        today = await admitted(ledger, "today", [day, month])

        for stream in streams:
            await ledger.settle(stream, state="settled", settled_nanousd=1, kept_nanousd=0)

        day_now, ever = await ledger.balances([day, month])
        assert day_now.charged_nanousd == today.amount_nanousd
        assert ever.charged_nanousd == 50 + CALL

    async def test_the_last_nanosecond_of_a_day_belongs_to_it(self) -> None:
        """As seconds in a double, it would be the first of the next day."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(CALL)
        reservation = await admitted(ledger, "1", [day])
        await ledger.settle(reservation, state="settled", settled_nanousd=CALL, kept_nanousd=0)

        clock.advance(DAY_SECONDS / 2 - 1e-9)
        known, balance = ledger.exhausted_until([day], 1), (await ledger.balances([day]))[0]
        last = await attempt(ledger, "2", [day])
        clock.advance(1e-9)
        first = await attempt(ledger, "3", [day])

        assert known[0]
        assert balance.charged_nanousd == CALL
        assert last is None
        assert first is not None

    async def test_a_clock_that_jumps_back_does_not_reopen_a_window(self) -> None:
        """A budget spent stays spent, and a window entered is not left backwards."""
        clock = FakeClock()
        ledger, day = await self.new_ledger(clock), budget(CALL)
        reservation = await admitted(ledger, "1", [day])
        await ledger.settle(reservation, state="settled", settled_nanousd=CALL, kept_nanousd=0)
        clock.jump(DAY_SECONDS)
        await admitted(ledger, "2", [day])

        clock.jump(-2 * DAY_SECONDS)

        assert await refusal(ledger, "3", [day]) == ("busy", False)

    async def test_a_changed_limit_keeps_what_was_spent(self) -> None:
        """A counter is named by its window, never by its limit."""
        ledger = await self.new_ledger(FakeClock())
        reservation = await admitted(ledger, "1", [budget(10 * CALL)])
        await ledger.settle(reservation, state="kept", settled_nanousd=0, kept_nanousd=CALL)

        assert await refusal(ledger, "2", [budget(2 * CALL - 1)]) == ("budget_exhausted", False)
        assert await attempt(ledger, "3", [budget(2 * CALL)]) is not None

    async def test_force_debits_past_the_cap_and_says_what_stood_in_the_way(self) -> None:
        """The observe mode: everything passes, and the counter is the truth."""
        ledger, day = await self.new_ledger(FakeClock()), budget(CALL)
        claims = [Claim(day, "", 3 * CALL)]

        reservation = await ledger.reserve("1", money=claims, slots=[], force=True)

        assert reservation.refused is not None
        assert reservation.refused.cause == "too_expensive"
        assert (await ledger.balances([day]))[0].remaining_nanousd == -2 * CALL

    async def test_force_without_anything_in_the_way_is_an_ordinary_reservation(self) -> None:
        """Nothing would have been refused, so nothing is reported."""
        ledger, day = await self.new_ledger(FakeClock()), budget(CALL)

        reservation = await ledger.reserve("1", money=[Claim(day, "", CALL)], slots=[], force=True)

        assert reservation.refused is None
        assert (reservation.state, reservation.amount_nanousd) == ("open", CALL)

    async def test_amounts_are_exact_up_to_the_largest(self) -> None:
        """Every nano-dollar counts, also where doubles and text conversions break."""
        for amount in (1, 10**8, 2 * 10**8, 10**9, 123_456_789_012_345, 10**14 - 1, 2**53 - 2):
            ledger, ever = await self.new_ledger(FakeClock()), budget(2**53 - 1, "total")
            reservation = await ledger.reserve("1", money=[Claim(ever, "", amount)], slots=[])
            assert (await ledger.balances([ever]))[0].open_nanousd == amount
            await ledger.settle(reservation, state="settled", settled_nanousd=amount - 1, kept_nanousd=0)
            assert (await ledger.balances([ever]))[0].charged_nanousd == amount - 1

    async def test_pause_is_seen_and_lifted(self) -> None:
        """The kill switch is part of the ledger."""
        ledger = await self.new_ledger(FakeClock())
        at_first = ledger.paused

        await ledger.set_paused(paused=True)
        while_paused = ledger.paused
        await ledger.set_paused(paused=False)

        assert (at_first, while_paused, ledger.paused) == (False, True, False)
