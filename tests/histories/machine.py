"""What may happen to a ledger, beside the sums that it has to keep.

Every step is followed by a look at all counters, through every process that shares them; hypothesis cuts a history that
tells a ledger from the model down to the shortest.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from routeguard.policy import NANOSECONDS, Balance, Ledger, LedgerUnavailable, Refused, Reservation, State
from routeguard.records import Record, Sums
from routeguard.testing import FakeClock
from tests.histories.model import BUDGETS, DAY, HOUR, RATES, SLOT, SLOT_OF_CLIENT, Asked, Model, Verdict
from tests.redis.conftest import fresh_namespace

ResultT = TypeVar("ResultT")
AMOUNTS = st.integers(1, 13)
ASKED = st.builds(
    Asked,
    client=st.sampled_from("ab"),
    amount=AMOUNTS,
    budgets=st.lists(st.sampled_from(list(BUDGETS)), unique=True, min_size=1),
    slot_of_client=st.booleans(),
    rates=st.lists(st.sampled_from(list(RATES)), unique=True),
    force=st.sampled_from([False, False, False, True]),
)
PROCESSES = st.integers(0, 1)
WINDOW_ENDS = st.tuples(st.sampled_from([HOUR, DAY]), st.sampled_from([-1, 0]))
#: A history is over before a store forgets an orphan, after seven days.
LIFE = 6 * DAY
ENDINGS: st.SearchStrategy[State] = st.sampled_from(["settled", "kept", "released"])


class Told:
    """A journal that has written what it takes at once, each record once."""

    name = "told"
    is_idle = True

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Record] = {}

    def take(self, records: Sequence[Record], *, ledger: str, written: Callable[[Sequence[Record]], None]) -> None:
        self._records.update({(record.id, record.event): record for record in records})
        written(records)

    async def sums(self, ledger: str) -> dict[str, Sums]:
        raise AssertionError("no ledger forgot anything")

    def parts(self) -> Counter[tuple[str, str]]:
        """What all records add up to."""
        found: Counter[tuple[str, str]] = Counter()
        for record in self._records.values():
            for counter in record.counters:
                for part in ("settled", "kept", "orphaned", "overrun"):
                    found[counter, part] += getattr(record, f"{part}_nanousd")
        return found


class Histories(RuleBasedStateMachine):
    """What may happen to one ledger. A subclass opens it, as each of its processes does."""

    #: Other processes share what it counts, rates included, and find it again when they have restarted.
    is_shared: ClassVar[bool] = True
    opens: ClassVar[Callable[[FakeClock, str], Ledger]]
    living = Bundle("living")
    ended = Bundle("ended")

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.journal = FakeClock(), Told()
        self.model = Model(self.clock)
        self.namespace, self.numbers = fresh_namespace(), count()
        self.runner = asyncio.Runner()
        #: Who holds which reservation. What a process held is gone when it restarts.
        self.held: dict[str, tuple[Ledger, Reservation]] = {}
        self.paused = False
        self.ledgers: list[Ledger] = []
        self.ends = self.model.now + LIFE

    @initialize()
    def start(self) -> None:
        self.ledgers = [self.open() for _ in range(2 if self.is_shared else 1)]

    def open(self) -> Ledger:
        ledger = type(self).opens(self.clock, self.namespace)
        ledger.journal = self.journal
        self.run(ledger.refresh())
        return ledger

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self.runner.get_loop().run_until_complete(coroutine)

    def ledger(self, process: int) -> Ledger:
        return self.ledgers[process % len(self.ledgers)]

    def ask(self, ledger: Ledger, name: str, asked: Asked) -> Reservation:
        return self.run(
            ledger.reserve(name, money=asked.money, slots=asked.slots, rates=asked.rate_claims, force=asked.force)
        )

    @rule(target=living, process=PROCESSES, asked=ASKED, more=st.integers(0, 1))
    def reserve_what_is_left(self, process: int, asked: Asked, more: int) -> Any:
        """To the last of it, or one more."""
        left = min(
            budget.limit_nanousd - self.model.charged(self.model.counter(budget, partition))
            for budget, partition, _ in asked.money
        )
        return self.reserve(process, replace(asked, amount=max(1, left + more)))

    @rule(target=living, process=PROCESSES, asked=ASKED)
    def reserve(self, process: int, asked: Asked) -> Any:
        if not self.is_shared:
            asked = replace(asked, rates=[])
        name, expected = f"{next(self.numbers)}", self.model.verdict(asked)
        ledger = self.ledger(process)
        if expected is not None and not asked.force:
            with pytest.raises(Refused) as refused:
                self.ask(ledger, name, asked)
            assert _seen(refused.value) == expected
            return multiple()

        reservation = self.ask(ledger, name, asked)

        assert _seen(reservation.refused) == expected
        self.model.debit(name, asked, expected)
        self.held[name] = ledger, reservation
        return name

    @rule(name=living)
    def ask_again(self, name: str) -> None:
        """Finds the reservation, also by a process that restarted in between."""
        ledger, _ = self.holder(name)
        stream = self.model.streams[name]

        again = self.ask(ledger, name, stream.asked)

        assert (again.id, again.amount_nanousd, again.state) == (name, stream.asked.amount, stream.state)

    @rule(target=ended, name=consumes(living), state=ENDINGS, settled=st.integers(0, 15), kept=st.integers(0, 15))
    def settle(self, name: str, state: State, settled: int, kept: int) -> str:
        if state == "released":
            settled = kept = 0
        ledger, reservation = self.holder(name)

        assert self.run(ledger.settle(reservation, state=state, settled_nanousd=settled, kept_nanousd=kept)) is True

        self.model.end(name, state, settled, kept)
        return name

    @rule(name=ended, state=ENDINGS)
    def settle_again(self, name: str, state: State) -> None:
        """No more than once."""
        if name in self.held:
            ledger, reservation = self.held[name]
            assert self.run(ledger.settle(reservation, state=state, settled_nanousd=7, kept_nanousd=7)) is False

    @precondition(lambda self: self.is_shared)
    @rule(process=PROCESSES, name=ended)
    def ask_again_after_the_end(self, process: int, name: str) -> None:
        """What has ended never passes for open, as long as it is remembered."""
        stream = self.model.streams[name]
        if self.model.now - stream.ended_at < 120:
            with pytest.raises(LedgerUnavailable, match="ended"):
                self.ask(self.ledger(process), name, stream.asked)

    @rule(name=ended, extra=AMOUNTS, twice=st.booleans())
    def charge_late(self, name: str, extra: int, twice: bool) -> None:
        """Once, however often a process that has a store behind it says so."""
        is_of_a_window_long_over = self.model.now - self.model.streams[name].lease_ends > DAY
        if name not in self.held or is_of_a_window_long_over:
            return
        ledger, reservation = self.held[name]
        charge_id = f"late-{next(self.numbers)}"
        for _ in range(2 if twice and self.is_shared else 1):
            ledger.charge_late(reservation, charge_id=charge_id, extra_nanousd=extra)
        self.run(ledger.in_flight())
        self.model.charge_late(name, extra)

    @rule(seconds=st.sampled_from([1, 59, 60, 329, 330, 599, 600, DAY]) | WINDOW_ENDS)
    def let_time_pass(self, seconds: int | tuple[int, int]) -> None:
        """So many seconds, or until a window of that length has ended, or nearly."""
        if isinstance(seconds, tuple):
            length, beyond = seconds
            seconds = length - self.model.wall % length + beyond
        if self.model.now + seconds < self.ends:
            self._pass(seconds)

    @precondition(lambda self: not self.model.latest_wall)
    @rule(seconds=st.sampled_from([1, HOUR, DAY]))
    def set_the_clock_back(self, seconds: int) -> None:
        """After a debit of every budget: what no debit has chosen is no window yet.

        Once: this clock's two times part with it, those of a store do not, and its accounts go two days after a window.
        """
        everything = Asked("a", 1, list(BUDGETS), slot_of_client=False, rates=[], force=True)
        name, expected = f"{next(self.numbers)}", self.model.verdict(everything)
        self.held[name] = self.ledgers[0], self.ask(self.ledgers[0], name, everything)
        self.model.debit(name, everything, expected)
        self.settle(name, "released", 0, 0)
        self.model.latest_wall = self.model.wall
        self.clock.jump(-seconds)

    @rule(process=PROCESSES, paused=st.booleans())
    def turn_the_switch(self, process: int, paused: bool) -> None:
        self.run(self.ledger(process).set_paused(paused=paused))
        self.paused = paused
        assert self.ledger(process).paused is paused
        self._pass(1)

    @precondition(lambda self: self.is_shared)
    @rule(process=PROCESSES)
    def restart(self, process: int) -> None:
        dead = self.ledgers[process]
        self.run(dead.aclose())
        self.held = {name: held for name, held in self.held.items() if held[0] is not dead}
        self.ledgers[process] = self.open()

    def _pass(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.let_leases_end()

    def holder(self, name: str) -> tuple[Ledger, Reservation]:
        """Whoever holds a living reservation; after a restart the first process that asks for it."""
        if name not in self.held:
            self.held[name] = self.ledgers[0], self.ask(self.ledgers[0], name, self.model.streams[name].asked)
        return self.held[name]

    @invariant()
    def every_process_finds_the_sums(self) -> None:
        for ledger in self.ledgers:
            balances, in_flight = self.run(_look(ledger))
            assert in_flight == len(self.model.holders())
            assert ledger.paused is self.paused
            for balance in balances:
                counter = self.model.counter(balance.budget, "")
                for part in ("settled", "kept", "open", "orphaned", "overrun"):
                    assert getattr(balance, f"{part}_nanousd") == self.model.parts[counter, part], (counter, part)
                assert balance.resets_at == self.model.span(balance.budget)[1]
                if not balance.budget.per_client:
                    free = balance.budget.limit_nanousd - self.model.spent(counter)
                    assert ledger.exhausted_until([balance.budget], free) == (False, None)
                    assert ledger.exhausted_until([balance.budget], free + 1) == (True, balance.resets_at)

    @invariant()
    def nothing_is_beyond_its_limit_but_what_was_forced_or_billed_above(self) -> None:
        """Of the model as well, whose verdicts could be wrong in the ledger's way."""
        for budget in BUDGETS.values():
            for client in "ab":
                counter = self.model.counter(budget, client)
                excused = self.model.parts[counter, "overrun"] + self.model.forced[counter]
                assert self.model.charged(counter) <= budget.limit_nanousd + excused, counter
        assert min(self.model.parts.values(), default=0) >= 0
        for client, quota in ("", SLOT.quota), ("a", SLOT_OF_CLIENT.quota), ("b", SLOT_OF_CLIENT.quota):
            assert quota is not None
            assert sum(not stream.asked.force for stream in self.model.holders(client)) <= quota

    def teardown(self) -> None:
        """What the journal was told adds up to the counters, those of clients and of past windows too."""
        try:
            # Every lease ends. What was written down then belongs to nobody, and is handed over with the next look.
            for seconds in (330, 3):
                self._pass(seconds)
                for ledger in self.ledgers:
                    self.run(_look(ledger))
            told = {key: nanousd for key, nanousd in self.journal.parts().items() if nanousd}
            assert told == {key: nanousd for key, nanousd in self.model.parts.items() if nanousd and key[1] != "open"}
        finally:
            for ledger in self.ledgers:
                self.run(ledger.aclose())
            self.runner.close()


async def _look(ledger: Ledger) -> tuple[list[Balance], int]:
    await ledger.refresh()
    return await ledger.balances(list(BUDGETS.values())), await ledger.in_flight()


def _seen(refused: Refused | None) -> Verdict | None:
    if refused is None:
        return None
    return refused.cause, refused.per_client, refused.resets_at, refused.retry_ns // NANOSECONDS
