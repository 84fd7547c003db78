"""Who turns the kill switch in a run, and whether it stands as they were told.

- A call that was confirmed found it as it was asked for, at some moment between its beginning and its end.
- What is left of a call that has ended turns back nothing that somebody began later and got confirmed.
"""

import math
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turn:
    """One call of `set_paused`."""

    worker: str
    paused: bool
    began: float
    ended: float = math.inf
    confirmed: bool = False


@dataclass(slots=True)
class SwitchAudit:
    """Told of every call, and of every moment at which the store turned it."""

    broken: list[str]
    stands: bool = False
    _turns: list[Turn] = field(default_factory=list)
    _changed_at: float = -math.inf

    @property
    def confirmed(self) -> list[Turn]:
        return [turn for turn in self._turns if turn.confirmed]

    def begin(self, worker: str, *, paused: bool, at: float) -> Turn:
        turn = Turn(worker, paused, at)
        self._turns.append(turn)
        return turn

    def end(self, turn: Turn, *, confirmed: bool, at: float) -> None:
        turn.ended, turn.confirmed = at, confirmed
        if confirmed and self.stands != turn.paused and self._changed_at < turn.began:
            self.broken.append(f"{turn} was confirmed, and the switch stood otherwise all the while")

    def store(self, *, paused: bool, at: float, worker: str | None) -> None:
        """How it stands in the store now; `worker` turned it, or the store forgot or was raised."""
        if paused == self.stands:
            return
        self.stands, self._changed_at = paused, at
        if worker is None:
            return
        mine = max(turn.ended for turn in self._turns if (turn.worker, turn.paused) == (worker, paused))
        for turn in self.confirmed:
            if turn.paused != paused and turn.began > mine:
                self.broken.append(f"at {at} something late of {worker} turned back {turn}")
