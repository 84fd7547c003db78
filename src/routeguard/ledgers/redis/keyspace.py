"""The names of a namespace's keys. One hash tag holds them all, so that in a cluster they live together."""

from routeguard.limiter import EXACT_MAX
from routeguard.policy import Rate


class Keyspace:
    """Keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"{{rg:{namespace}}}"
        self.slots = f"{self._prefix}:slots"
        #: The keys every script gets, in the order `common.lua` reads them.
        self.common = (
            *[f"{self._prefix}:{kind}" for kind in ("ledger", "calls", "due")],
            self.slots,
            f"{self._prefix}:unwritten",
        )
        #: For the start-up check, which leaves them empty.
        self.check = tuple([f"{self._prefix}:check:{kind}" for kind in ("hash", "zset", "string")])
        #: What an access list has to allow.
        self.pattern = f"{self._prefix}:*"

    def slots_of(self, partition: str) -> str:
        """Slots of a client, or of everybody for an empty partition."""
        return f"{self.slots}:{partition}" if partition else self.slots

    def rate(self, rate: Rate, partition: str) -> str:
        """The log of a rate. Quotas over one window share it, so that a changed quota keeps what was claimed."""
        return f"{self._prefix}:rate:{rate.window_ns // 1000}:{kind_of_log(rate)}:{partition}"


def kind_of_log(rate: Rate) -> str:
    """How its claims are written down: a `log` of all of them, or `buckets`."""
    return "log" if rate.quota <= EXACT_MAX else "buckets"
