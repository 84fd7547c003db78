"""What a row of the proof expected, and what it saw."""

from dataclasses import dataclass, field
from typing import Literal

from routeguard.money import format_usd

Verdict = Literal["held", "breach", "not run"]


class NotRun(Exception):
    """These settings leave nothing to prove here, or it cannot be played; the text says why."""


@dataclass(slots=True)
class Findings:
    """The facts of one row, in the order they were looked at."""

    expected: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def equal(self, what: str, *, expected: int, seen: int) -> None:
        """A count that has to be exactly this."""
        self.expected.append(f"{expected} {what}")
        self.seen.append(f"{seen} {what}")

    def money(self, what: str, *, expected: int, seen: int) -> None:
        """Nano-USD that have to be exactly this."""
        self.expected.append(f"${format_usd(expected)} {what}")
        self.seen.append(f"${format_usd(seen)} {what}")

    def true(self, what: str, *, otherwise: str | None) -> None:
        """Something that has to hold; `otherwise` says what is there instead, None where it holds."""
        self.expected.append(what)
        self.seen.append(what if otherwise is None else otherwise)

    @property
    def hold(self) -> bool:
        """Everything was as expected."""
        return self.expected == self.seen


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row."""

    name: str
    proves: str
    verdict: Verdict
    expected: str
    #: What was seen, or why it was not run.
    seen: str
    seconds: float
