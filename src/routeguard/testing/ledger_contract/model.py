"""Random interleavings against plain sums."""

import random

from routeguard.policy import Balance, Claim, Refused, Reservation, State
from routeguard.testing.clock import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, DAY_SECONDS, Contract, budget, slot_claim


class ModelContract(Contract):
    """Every part of a counter against a model of it."""

    async def test_any_interleaving_keeps_the_parts_equal_to_a_model(self) -> None:
        """Random reserves, endings, late bills, double endings and time, against plain sums."""
        for seed in range(60):
            await self._play(random.Random(seed), f"seed {seed}")  # noqa: S311 - a run that can be played again

    async def _play(self, rng: random.Random, label: str) -> None:
        clock = FakeClock()
        ledger = await self.new_ledger(clock)
        ever, day = budget(50 * CALL, "total"), budget(20 * CALL)
        model = dict.fromkeys(("settled", "kept", "open", "orphaned", "overrun"), 0)
        living: list[Reservation] = []
        ended: list[Reservation] = []
        for step in range(120):
            choice = rng.random()
            if choice < 0.5 or not living:
                amount = rng.randrange(1, 2 * CALL)
                before = (await ledger.balances([ever]))[0]
                try:
                    reservation = await ledger.reserve(
                        f"{step}", money=[Claim(ever, "", amount), Claim(day, "", amount)], slots=[slot_claim(8)]
                    )
                except Refused:
                    assert (await ledger.balances([ever]))[0] == before, label
                else:
                    living.append(reservation)
                    model["open"] += amount
                    assert before.remaining_nanousd >= amount, label
            elif choice < 0.85:
                reservation = living.pop(rng.randrange(len(living)))
                part = "orphaned" if reservation.state == "orphaned" else "open"
                settled, kept, state = _ending(rng, reservation.amount_nanousd)
                assert await ledger.settle(reservation, state=state, settled_nanousd=settled, kept_nanousd=kept), label
                model[part] -= reservation.amount_nanousd
                model["settled"] += settled
                model["kept"] += kept
                model["overrun"] += max(0, settled + kept - reservation.amount_nanousd)
                ended.append(reservation)
            elif choice < 0.9 and ended:
                late = rng.randrange(1, CALL)
                ledger.charge_late(rng.choice(ended), charge_id=f"late-{step}", extra_nanousd=late)
                model["settled"] += late
                model["overrun"] += late
            elif choice < 0.95 and ended:
                await ledger.settle(rng.choice(ended), state="kept", settled_nanousd=0, kept_nanousd=CALL)
            else:
                clock.advance(rng.choice([1, 100, 331, DAY_SECONDS]))
                await ledger.in_flight()
                orphans = [one.amount_nanousd for one in living if one.state == "orphaned"]
                model["open"] = sum(one.amount_nanousd for one in living) - sum(orphans)
                model["orphaned"] = sum(orphans)
            found = (await ledger.balances([ever]))[0]
            assert _parts(found) == model, label
            assert min(model.values()) >= 0, label


def _ending(rng: random.Random, amount: int) -> tuple[int, int, State]:
    kind = rng.randrange(4)
    if kind == 0:
        return 0, 0, "released"
    if kind == 1:
        return 0, amount, "kept"
    if kind == 2:
        return amount + rng.randrange(CALL), 0, "settled"
    return rng.randrange(amount), 0, "settled"


def _parts(balance: Balance) -> dict[str, int]:
    return {
        "settled": balance.settled_nanousd,
        "kept": balance.kept_nanousd,
        "open": balance.open_nanousd,
        "orphaned": balance.orphaned_nanousd,
        "overrun": balance.overrun_nanousd,
    }
