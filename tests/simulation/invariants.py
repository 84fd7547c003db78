"""What is checked, at every half second and at the end:

- What the provider billed is covered by the counter: billed <= counter.
- The counter is the sum of its records, part by part, and no part is negative.
- Without overruns it is within the cap.
- The slots are the open reservations whose lease runs.
- The places in a rate are the reservations of its window, without those that nobody was admitted by. Where the clock
  was set back there may be more.
- Every decision takes a second at most.
- In the end every reservation of a living worker has the ending that the worker gave it, once; one whose answer was
  lost is released, and has no place in a rate; and what dead workers held is orphaned at the end of its lease.

Where the store loses what it acknowledged, billed <= counter + known loss, and the loss is exactly:

- emptied: what only workers that are dead had seen; and what was debited after it before the last worker that knew
  better had raised the counters (an empty store is a new ledger to a worker that has never used it).
- replaced by a copy that was behind: what was debited after the copy was taken.
"""

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from routeguard.ledgers.redis.keyspace import Keyspace
from tests.simulation.broken import Broken
from tests.simulation.model_data import Data, split_record
from tests.simulation.model_rates import places
from tests.simulation.model_store import KEPT, OPEN, ORPHANED, OVERRUN, SETTLED
from tests.simulation.worker import DAY, EVER, LEASE_SECONDS, RATES

if TYPE_CHECKING:
    from tests.simulation.world import World

DECISION_SECONDS = 1.0
#: Floats add up to a little more.
ROUNDING_SECONDS = 1e-6
KEYS = Keyspace("sim")


def check(world: "World") -> None:
    """At any moment."""
    if world.unexpected:
        raise Broken(world.unexpected[0])
    if world.longest_decision > DECISION_SECONDS + ROUNDING_SECONDS:
        raise Broken(f"a decision took {world.longest_decision:.3f} s")
    for worker in world.workers.values():
        worker.check()
    _check_bill(world)
    _check_records(world)
    _check_slots(world)
    _check_rates(world)


def _check_bill(world: "World") -> None:
    data = world.server.model.data
    for name, parts in data.accounts.items():
        if min(parts) < 0:
            raise Broken(f"{name} has a part below zero: {parts}")
        limit = DAY.limit_nanousd if name.startswith("day|") else EVER.limit_nanousd
        if world.loss == "none" and sum(parts[:OVERRUN]) - parts[OVERRUN] > limit:
            raise Broken(f"{name} is above its cap: {parts}")
    # Until everybody who knows better has raised them, counters are too low, and nobody reserves.
    for name, amount in _billed(world).items() if not world.to_raise else ():
        if world.has_lost and _is_past(world, name):
            continue
        parts = data.accounts.get(name, [0] * 5)
        if amount > sum(parts[:OVERRUN]) + world.lost(name):
            raise Broken(f"{name}: billed {amount}, and the counter is {parts}")


def _check_records(world: "World") -> None:
    data, sums = world.server.model.data, _held(world.server.model.data)
    if world.has_lost:
        for name, parts in data.accounts.items():
            if parts[OPEN] != sums[name][OPEN] and not _is_past(world, name):
                raise Broken(f"{name}: open {parts[OPEN]}, and its records hold {sums[name][OPEN]}")
        return
    _add_endings(world, sums)
    for name, parts in data.accounts.items():
        if parts != sums[name]:
            raise Broken(f"{name} is {parts}, and its records make {sums[name]}")
    for name, parts in sums.items():
        if name not in data.accounts and any(parts[:OVERRUN]):
            raise Broken(f"{name} is gone, and its records make {parts}")


def _held(data: Data) -> dict[str, list[int]]:
    """What the records hold as open and orphaned, by account."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for record in data.calls.values():
        if record.startswith(("open ", "orphaned ")):
            (state, amount, *fields), _ = split_record(record)
            for name in fields:
                sums[name][OPEN if state == "open" else ORPHANED] += int(amount)
    return sums


def _add_endings(world: "World", sums: dict[str, list[int]]) -> None:
    for name, (amount, fields) in world.audit.debits.items():
        for _, settled, kept in world.audit.endings[name]:
            for one in fields:
                sums[one][SETTLED] += settled
                sums[one][KEPT] += kept
                sums[one][OVERRUN] += max(0, settled + kept - amount)
    for extra, fields in world.audit.late.values():
        for one in fields:
            sums[one][SETTLED] += extra
            sums[one][OVERRUN] += extra


def _check_slots(world: "World") -> None:
    data, now = world.server.model.data, world.server.now_us()
    held = {
        name for key, slots in data.slots.items() if key.endswith("slots") for name, ends in slots.items() if ends > now
    }
    running = {name for name, record in data.calls.items() if record.startswith("open ") and data.due[f"r{name}"] > now}
    if held != running:
        raise Broken(f"slots {sorted(held)}, and running are {sorted(running)}")


def _check_rates(world: "World") -> None:
    now_us, taken = world.server.now_us(), world.audit.places.values()
    for rate in RATES:
        since_us = now_us - rate.window_ns // 1000
        found = places(world.server.model.data.rates.get(KEYS.rate(rate, ""), []), since=since_us)
        if world.server.jumped < 0:
            # Time has passed all the same: no place is back before its window is over.
            since = world.loop.time() - rate.window_ns / 1e9 + ROUNDING_SECONDS
            expected = sum(place.at > since for place in taken)
            is_wrong = found < expected
        else:
            expected = sum(place.at_us > since_us for place in taken)
            is_wrong = found != expected
        if is_wrong:
            raise Broken(f"{rate.name} has {found} places taken, and {expected} reservations have one")


def check_endings(world: "World") -> None:
    """When everything that was owed is written."""
    data = world.server.model.data
    living = set(world.workers)
    for name, record in data.calls.items():
        worker = name.removeprefix("late:").split("-")[0]
        if worker in living and record.startswith(("open ", "orphaned ")) and world.loss != "behind":
            raise Broken(f"{name} of a living worker is {record}")
    admitted = {call.id for call in world.calls}
    for name in world.audit.places if world.loss != "behind" else ():
        if name.split("-")[0] in living and name not in admitted:
            raise Broken(f"{name} has a place in the rates, and nobody was admitted by it")
    if world.loss != "none":
        return
    for call in world.calls:
        if call.worker in living and world.audit.endings[call.id] != [call.ending]:
            raise Broken(f"{call.id} ended as {world.audit.endings[call.id]}, and was to end as {call.ending}")
    for name, endings in world.audit.endings.items():
        if len(endings) > 1:
            raise Broken(f"{name} ended twice: {endings}")


async def check_leases(world: "World") -> None:
    """Nobody gives money back because time has passed, and every slot is back."""
    before = {name: sum(parts[:OVERRUN]) for name, parts in world.server.model.data.accounts.items()}
    world.server.jumped = max(world.server.jumped, 0.0)
    await asyncio.sleep(LEASE_SECONDS + 1.5)
    streams = [await worker.ledger.in_flight() for worker in world.workers.values()]
    if any(streams):
        raise Broken(f"{streams} streams hold a slot when every lease is over")
    after = {name: sum(parts[:OVERRUN]) for name, parts in world.server.model.data.accounts.items()}
    moved = {name: (before[name], after.get(name)) for name in before if before[name] != after.get(name)}
    # A day later, past windows are forgotten. What the store lost may still be raised once more, by a late packet.
    if world.server.jumped < 86_400 and any(world.loss == "none" or (now or 0) < was for was, now in moved.values()):
        raise Broken(f"money moved because time has passed: {moved}")
    if any(parts[OPEN] for parts in world.server.model.data.accounts.values()):
        raise Broken("money is open, and nobody holds it")


def _billed(world: "World") -> dict[str, int]:
    """Within what was reserved: an overrun is charged with its ending, or lost with its worker."""
    billed: dict[str, int] = defaultdict(int)
    for call in world.calls:
        for name in call.fields:
            billed[name] += min(call.bill, call.amount)
    return billed


def _is_past(world: "World", name: str) -> bool:
    """A window that is over. Where the store loses it, it is not raised: nobody spends from it any more."""
    wall = max(world.server.now_us() // 1_000_000, int(world.server.model.data.meta.get("wall", "0")))
    return name.startswith("day|") and name != f"day|UTC|0|{wall - wall % 86_400}|a"
