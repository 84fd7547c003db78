"""The rates of a namespace: for each client one row with all its windows, counted as the limiter of a process does.

A row goes when its windows are over, or when it is the one untouched for longest and its place is needed. What
everybody shares is never given up for a newcomer.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from routeguard.ledgers.sqlite.entries import json_text
from routeguard.limiter import BucketWindow, ClientState, ExactWindow, RateWindow
from routeguard.policy import Claim, Rate

#: Whose windows are everybody's.
EVERYBODY: Final = ""
_NO_WINDOWS: Final = json_text([])


class RateRows:
    """The windows that one reservation claims, as they stand."""

    #: Clients with a row, and the longest window that was ever claimed, in the namespace.
    _clients: int
    _longest_ns: int

    def __init__(self, db: sqlite3.Connection, namespace: int, claims: Sequence[Claim[Rate]]) -> None:
        self._db = db
        self._namespace = namespace
        self._claims = claims
        self._states = {claim.partition: ClientState() for claim in claims}
        self._known: set[str] = set()
        rows = db.execute(
            "SELECT n.rated_clients, n.longest_rate_ns, r.partition, r.windows FROM namespaces n "  # noqa: S608 - marks
            f"LEFT JOIN rates r ON r.namespace = n.id AND r.partition IN ({', '.join('?' * len(self._states))}) "
            "WHERE n.id = ?",
            (*self._states, namespace),
        )
        for self._clients, self._longest_ns, partition, windows in rows:
            if partition is not None:
                self._known.add(partition)
                self._states[partition].windows = _load(windows)

    def in_the_way(self, now_ns: int) -> tuple[list[Claim[Rate]], int]:
        """Claims without a free slot, and the nanoseconds until each of them has one."""
        full: list[Claim[Rate]] = []
        retry_ns = 0
        for claim in self._claims:
            rate, window = claim.policy, self._window(claim)
            if window.used(now_ns, rate.window_ns) >= rate.quota:
                full.append(claim)
                retry_ns = max(retry_ns, window.wait_ns(now_ns, rate.window_ns, rate.quota))
        return full, retry_ns

    def take(self, now_ns: int, *, clients_max: int) -> None:
        """Take one slot of each."""
        for claim in self._claims:
            self._window(claim).add(now_ns, claim.policy.window_ns)
        self._make_room(len(self._states.keys() - self._known - {EVERYBODY}), clients_max)
        self._db.executemany(
            "INSERT INTO rates (namespace, partition, touched_ns, windows) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET touched_ns = excluded.touched_ns, windows = excluded.windows",
            [(self._namespace, partition, now_ns, _dump(state, now_ns)) for partition, state in self._states.items()],
        )
        longest_ns = max(claim.policy.window_ns for claim in self._claims)
        if longest_ns > self._longest_ns:
            self._db.execute("UPDATE namespaces SET longest_rate_ns = ? WHERE id = ?", (longest_ns, self._namespace))

    def give_back(self, claimed_ns: int, now_ns: int) -> None:
        """Return what `take` took at that moment, where it is still counted. A row without a claim goes."""
        for claim in self._claims:
            self._window(claim).give_back(claimed_ns)
        for partition in self._known:
            windows = _dump(self._states[partition], now_ns)
            if windows != _NO_WINDOWS:
                self._db.execute(
                    "UPDATE rates SET windows = ? WHERE namespace = ? AND partition = ?",
                    (windows, self._namespace, partition),
                )
                continue
            self._db.execute("DELETE FROM rates WHERE namespace = ? AND partition = ?", (self._namespace, partition))
            if partition != EVERYBODY:
                _count(self._db, self._namespace, -1)

    def _window(self, claim: Claim[Rate]) -> RateWindow:
        return self._states[claim.partition].window(claim.policy)

    def _make_room(self, newcomers: int, clients_max: int) -> None:
        gone = 0
        if self._clients + newcomers > clients_max:
            gone = self._db.execute(
                "DELETE FROM rates WHERE namespace = ?1 AND partition IN (SELECT partition FROM rates "
                "WHERE namespace = ?1 AND partition <> '' ORDER BY touched_ns LIMIT ?2)",
                (self._namespace, newcomers),
            ).rowcount
        _count(self._db, self._namespace, newcomers - gone)


def forget_old_rates(db: sqlite3.Connection, namespace: int, now_ns: int, *, rows_max: int) -> None:
    """Drop rows whose windows are all over, at most so many."""
    gone = db.execute(
        "DELETE FROM rates WHERE namespace = ?1 AND partition IN (SELECT partition FROM rates WHERE namespace = ?1 "
        "AND partition <> '' AND touched_ns <= ?2 - (SELECT longest_rate_ns FROM namespaces WHERE id = ?1) LIMIT ?3)",
        (namespace, now_ns, rows_max),
    ).rowcount
    if gone:
        _count(db, namespace, -gone)


def _count(db: sqlite3.Connection, namespace: int, change: int) -> None:
    if change:
        db.execute("UPDATE namespaces SET rated_clients = rated_clients + ? WHERE id = ?", (change, namespace))


def _dump(state: ClientState, now_ns: int) -> str:
    rows = []
    for window_ns, window in state.windows:
        if window.used(now_ns, window_ns):
            rows.append([window_ns, window.times if isinstance(window, ExactWindow) else window.buckets])
    return json_text(rows)


def _load(text: str) -> list[tuple[int, RateWindow]]:
    """The windows of one row: a list of times, or of `[first, last, count]`, tells which kind it is."""
    windows: list[tuple[int, RateWindow]] = []
    for window_ns, content in json.loads(text):
        if isinstance(content[0], int):
            exact = ExactWindow()
            exact.times = content
            windows.append((window_ns, exact))
        else:
            buckets = BucketWindow()
            buckets.buckets, buckets.total = content, sum([count for _, _, count in content])
            windows.append((window_ns, buckets))
    return windows
