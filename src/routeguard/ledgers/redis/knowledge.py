"""What this process has seen of the current windows: to refuse without asking, and to notice and mend a loss.

Rules that live here:

- It never admits anything. What it says is spent was spent; it errs by knowing too little.
- The highest values seen are kept until the window ends: should the store lose what it acknowledged, every process
  raises the counters to what it knows.
- Clients are an LRU map with a hard size, one for each counter. A past one is freed a few entries at a time: 50,000
  at once would stall the event loop.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from cachetools import LRUCache

from routeguard.ledgers.redis.reply import Account, Parts, Reply
from routeguard.ledgers.redis.store_clock import Windows

#: Entries of past windows freed with each answer.
FREED_PER_ANSWER = 4
#: How much older than the newest an answer can be. One that seems older than that comes from a clock that was set back.
TAKEN_IN_LATE_US = 10_000_000
EVERYBODY, OVERFLOW, CLIENT = "a", "o", "c|"


@dataclass(slots=True)
class Known:
    """One account: as last seen, and the most it ever held."""

    parts: Parts
    #: Microseconds on the store's clock.
    seen_us: int
    highest_nanousd: int
    #: How often something had been changed by hand when it was seen.
    adjusts: int
    #: Late bills that are on their way.
    coming_nanousd: int = 0


@dataclass(slots=True)
class KnownWindow:
    """The accounts of a counter's newest window."""

    start: int
    clients: LRUCache[str, Known]
    others: dict[str, Known] = field(default_factory=dict)
    #: Clients with money, when last seen.
    clients_with_money: int = 0

    def find(self, kind: str) -> Known | None:
        return self.clients.get(kind) if kind.startswith(CLIENT) else self.others.get(kind)

    def put(self, kind: str, known: Known) -> None:
        if kind.startswith(CLIENT):
            self.clients[kind] = known
        else:
            self.others[kind] = known


class Knowledge:
    """Thread-safe; never waits for anything but its own lock."""

    def __init__(self, *, clients_max: int) -> None:
        self._clients_max = clients_max
        self._windows: dict[str, KnownWindow] = {}
        self._past: list[LRUCache[str, Known]] = []
        #: How often something was changed by hand, as far as is known.
        self.adjusts = 0
        self._lock = threading.Lock()

    def learn(self, reply: Reply) -> bool:
        """Take in the accounts of an answer.

        Returns:
            False when money that cannot go away has gone: the store has lost what it acknowledged.
        """
        with self._lock:
            self._free_some()
            self.adjusts = max(self.adjusts, reply.adjusts)
            fallen = [account.field for account in reply.accounts if not self._learn(account, reply)]
        return not fallen

    def expect(self, fields: tuple[str, ...], extra_nanousd: int) -> None:
        """Count a late bill that is on its way, or (negative) that has arrived."""
        with self._lock:
            for name in fields:
                counter, start, kind = split(name)
                window = self._windows.get(counter)
                known = window.find(kind) if window is not None and window.start == start else None
                if known is not None:
                    known.coming_nanousd += extra_nanousd

    def spent(self, windows: Windows, client: str) -> int:
        """Settled, kept and orphaned money of everybody, or of a client; of a newcomer what newcomers share."""
        with self._lock:
            window = self._windows.get(windows.counter)
            if window is None or window.start != windows.span.start:
                return 0
            known = window.find(f"{CLIENT}{client}" if client else EVERYBODY)
            is_newcomer = client and (known is None or not known.parts.charged + known.coming_nanousd)
            if is_newcomer and window.clients_with_money >= self._clients_max:
                known = window.find(OVERFLOW)
            return 0 if known is None else known.parts.spent + known.coming_nanousd

    def highest(self) -> Iterator[tuple[str, int, str, Known]]:
        """Every account with money in a newest window: its counter, the start of the window, its kind."""
        with self._lock:
            found = [
                (counter, window.start, kind, known)
                for counter, window in self._windows.items()
                for kind, known in (*window.others.items(), *window.clients.items())
                if known.highest_nanousd
            ]
        return iter(found)

    def latest(self) -> int:
        """The second at which the newest window of all counters began, whether or not it holds money yet."""
        with self._lock:
            return max([window.start for window in self._windows.values()], default=0)

    def _learn(self, account: Account, reply: Reply) -> bool:
        counter, start, kind = split(account.field)
        window = self._windows.get(counter)
        if window is None or window.start < start:
            if window is not None:
                self._past.append(window.clients)
            window = self._windows[counter] = KnownWindow(start, LRUCache(self._clients_max))
        elif window.start > start:
            return True
        if account.clients is not None:
            window.clients_with_money = account.clients
        known = window.find(kind)
        if known is None:
            if account.parts.charged or not kind.startswith(CLIENT):
                window.put(kind, Known(account.parts, reply.now_us, account.parts.charged, reply.adjusts))
            return True
        return _learn_more(known, account.parts, reply.now_us, reply.adjusts)

    def _free_some(self) -> None:
        for _ in range(FREED_PER_ANSWER):
            if not self._past:
                return
            if self._past[-1]:
                self._past[-1].popitem()
            else:
                self._past.pop()


def _learn_more(known: Known, parts: Parts, now_us: int, adjusts: int) -> bool:
    """Take in what an account holds by now. False when money that cannot go away has gone."""
    if known.seen_us - TAKEN_IN_LATE_US < now_us < known.seen_us:
        # An answer that another event loop of this process took in late. There was that much all the same.
        if adjusts == known.adjusts:
            known.highest_nanousd = max(known.highest_nanousd, parts.charged)
        return True
    if adjusts > known.adjusts:
        # An operator may have lowered it; from here on this is the most that it is known to have held.
        known.parts, known.highest_nanousd = parts, parts.charged
        known.seen_us, known.adjusts = now_us, adjusts
        return True
    is_whole = parts.firm >= known.parts.firm
    known.highest_nanousd = max(known.highest_nanousd, parts.charged)
    known.seen_us = now_us
    if is_whole:
        known.parts = parts
    return is_whole


def is_account(name: str) -> bool:
    """Whether a name is that of an account, so that `split` can read it."""
    parts = name.split("|", 4)
    return len(parts) == 5 and parts[3].isdecimal()


def split(name: str) -> tuple[str, int, str]:
    """Counter, start of the window, and kind of an account, from its field."""
    label, zone, per_client, start, kind = name.split("|", 4)
    return f"{label}|{zone}|{per_client}", int(start), kind
