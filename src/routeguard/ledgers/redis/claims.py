"""A reserve as its script reads it, and the script's letters as a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from routeguard.ledgers.redis.keyspace import Keyspace, kind_of_log
from routeguard.ledgers.redis.reply import Reply
from routeguard.ledgers.redis.store_clock import Calendar, StoreClock
from routeguard.policy import Budget, Claim, Parallel, Rate, Refused

#: A reservation without a slot has no lease. The ledger looks for its owner after this long.
LEASELESS_US = 8 * 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class Claims:
    """Everything one reserve asks for."""

    id: str
    money: Sequence[Claim[Budget]]
    slots: Sequence[Claim[Parallel]]
    rates: Sequence[Claim[Rate]]
    force: bool

    @property
    def amount_nanousd(self) -> int:
        return self.money[0].amount if self.money else 0

    @property
    def lease_us(self) -> int:
        return max([slot.policy.lease_ns for slot in self.slots], default=LEASELESS_US * 1000) // 1000

    @property
    def slot_partitions(self) -> tuple[str, ...]:
        return tuple([slot.partition for slot in self.slots])

    def check(self) -> None:
        """Our own mistakes; nothing a client sends gets here unchecked."""
        amounts = {claim.amount for claim in self.money}
        assert len(amounts) <= 1, "every budget is debited the same amount"
        assert all(0 < amount <= 2**53 for amount in amounts), "an amount is exact in a double"
        assert len({claim.policy.counter for claim in self.money}) == len(self.money), "one claim a counter"
        names = [self.id, *filter(None, [claim.partition for claim in self.money]), *filter(None, self.slot_partitions)]
        assert " ".join(names).split() == names, "ids and partitions are words"

    def keys(self, keyspace: Keyspace) -> list[str]:
        return [
            *keyspace.common,
            *[keyspace.slots_of(slot.partition) for slot in self.slots],
            *[keyspace.rate(rate.policy, rate.partition) for rate in self.rates],
        ]

    def places(self, keyspace: Keyspace) -> dict[str, str]:
        """Keys of the logs in which it takes a place, and what each is. Rates over one window share one."""
        return {keyspace.rate(rate.policy, rate.partition): kind_of_log(rate.policy) for rate in self.rates}

    def arguments(self, *, clock: StoreClock, calendar: Calendar, clients_max: int) -> list[str]:
        """As `reserve.lua` reads them."""
        wall_seconds = clock.wall_seconds()
        found = [self.id, str(clock.now_us()), "1" if self.force else "0"]
        found += [str(self.amount_nanousd), str(clients_max), str(len(self.money))]
        for money in self.money:
            found += calendar.windows(money.policy, wall_seconds).arguments()
            found += [str(money.policy.limit_nanousd), money.partition]
        found += [str(len(self.slots)), str(self.lease_us)]
        found += ["" if slot.policy.quota is None else str(slot.policy.quota) for slot in self.slots]
        found.append(str(len(self.rates)))
        for rate in self.rates:
            found += [str(rate.policy.quota), str(rate.policy.window_ns // 1000)]
        return found

    def verdict(self, reply: Reply, ends: Sequence[int | None]) -> Refused | None:
        """What stands in the way, the most final thing first: never fits, spent, too often, busy.

        Args:
            reply: `ok` or `refused`.
            ends: When the window of each budget ends.
        """
        letters = reply.first
        money, slots = letters[: len(self.money)], letters[len(self.money) :]
        never = [claim.policy for claim, letter in zip(self.money, money, strict=True) if letter == "n"]
        if never:
            return Refused("too_expensive", per_client=all(budget.per_client for budget in never), resets_at=None)
        spent = [
            (claim.policy, end) for claim, letter, end in zip(self.money, money, ends, strict=True) if letter == "s"
        ]
        if spent:
            per_client = all(budget.per_client for budget, _ in spent)
            return Refused("budget_exhausted", per_client=per_client, resets_at=latest([end for _, end in spent]))
        waits = [int(wait) for wait in reply.second.split()]
        if any(waits):
            per_client = all(rate.partition for rate, wait in zip(self.rates, waits, strict=True) if wait)
            return Refused("rate_limited", per_client=per_client, resets_at=None, retry_ns=max(waits) * 1000)
        busy = [claim.policy.per_client for claim, letter in zip(self.money, money, strict=True) if letter == "b"]
        busy += [claim.policy.per_client for claim, letter in zip(self.slots, slots, strict=True) if letter == "f"]
        return Refused("busy", per_client=all(busy), resets_at=None) if busy else None


def latest(ends: Sequence[int | None]) -> int | None:
    """The latest reset; None as soon as one of them never resets."""
    return None if None in ends else max((end for end in ends if end is not None), default=None)
