"""What the scripts answer, read once."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parts:
    """An account as it stood when the store answered."""

    settled: int = 0
    kept: int = 0
    open: int = 0
    orphaned: int = 0
    overrun: int = 0

    @property
    def firm(self) -> int:
        """Money that no ending gives back."""
        return self.settled + self.kept

    @property
    def spent(self) -> int:
        return self.settled + self.kept + self.orphaned

    @property
    def charged(self) -> int:
        return self.settled + self.kept + self.open + self.orphaned


@dataclass(frozen=True, slots=True)
class Account:
    """One account of an answer."""

    field: str
    parts: Parts
    #: Clients with money in its window; None where the script did not say.
    clients: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; see `common.lua` for what every script says."""

    status: str
    #: Of the question it answers.
    number: str
    now_us: int
    wall_seconds: int
    #: Ids of the reservations whose lease this script saw end.
    orphans: Sequence[str]
    #: How often something was changed by hand: what is less than it was before the last time is no loss.
    adjusts: int
    #: Two values that mean what the script says they mean.
    first: str
    second: str
    accounts: Sequence[Account]


def read_reply(raw: Sequence[str]) -> Reply:
    """Raises ValueError for what none of our scripts says."""
    status, number, now_us, wall_seconds, orphans, adjusts, first, second, *rest = raw
    accounts = [_account(*rest[at : at + 3]) for at in range(0, len(rest), 3)]
    known_orphans = orphans.split() if orphans else ()
    return Reply(status, number, int(now_us), int(wall_seconds), known_orphans, int(adjusts), first, second, accounts)


def _account(field: str, packed: str, clients: str) -> Account:
    settled, kept, opened, orphaned, overrun = map(int, packed.split())
    return Account(field, Parts(settled, kept, opened, orphaned, overrun), int(clients) if clients else None)
