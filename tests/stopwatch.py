"""A clock for what is promised within a time: it stands still while this thread waits for a processor.

A busy machine keeps a thread from running for longer than the margin of any bound, and that says nothing of the bound.
"""

import time

#: Nanoseconds on a processor, nanoseconds of waiting for one, and turns (Linux, "Scheduler Statistics").
SCHEDULED = "/proc/thread-self/schedstat"


def seconds() -> float:
    """Now. Only the difference of two of them says something, and only in one thread."""
    return time.monotonic() - _kept_waiting_seconds()


def _kept_waiting_seconds() -> float:
    try:
        with open(SCHEDULED) as counters:
            return int(counters.read().split()[1]) / 10**9
    except OSError:
        return 0.0  # no Linux, or one that does not count
