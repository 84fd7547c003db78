"""What the model of the store keeps, and what its scripts are asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field


class Arguments:
    """What a script takes from ARGV, in order."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = given
        self._at = 0

    def take(self) -> str:
        self._at += 1
        return self._given[self._at - 1]

    def number(self) -> int:
        return int(self.take())

    def rest(self) -> Sequence[str]:
        return self._given[self._at :]


@dataclass(frozen=True, slots=True)
class KnownWindows:
    """Two windows of a counter, as a caller offers them."""

    counter: str
    first: str
    second: str
    last: str

    def chosen(self, wall: int) -> tuple[str, int | None] | None:
        """Prefix and end of the one that holds this second."""
        if not self.second:
            return f"{self.counter}|{self.first}|", None
        if int(self.first) <= wall < int(self.second):
            return f"{self.counter}|{self.first}|", int(self.second)
        if self.last and int(self.second) <= wall < int(self.last):
            return f"{self.counter}|{self.second}|", int(self.last)
        return None


@dataclass(slots=True)
class Money:
    """One budget of a reserve."""

    known: KnownWindows
    limit: int
    client: str
    window: str = ""
    ends: int | None = None
    field: str = ""
    clients: int | None = None
    overflow: bool = False


def split_record(record: str) -> tuple[list[str], str]:
    """Its words; and when it took its places in the rates, or nothing."""
    parts = record.split()
    claimed = parts.pop() if parts and parts[-1].startswith("@") else ""
    return parts, claimed


@dataclass(slots=True)
class Data:
    """Everything that a server keeps."""

    meta: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, list[int]] = field(default_factory=dict)
    #: Clients with money, by window.
    clients: dict[str, int] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    #: By key, then the end of each lease by id.
    slots: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Claims of rates, oldest first, by key: `[at]` in a log, `[first, last, count]` in buckets.
    rates: dict[str, list[list[int]]] = field(default_factory=dict)
