"""What a request is charged, decided once, by cause and never by mood.

- *settled*: the bill is known, and it is charged exactly.
- *kept*: something may have been billed that nobody reported, and it is charged at its worst case.
- *released*: provably nothing left for a provider.

No usage is not zero usage.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from routeguard.policy import State

#: Why a request counts as failed.
Failure = Literal["exception", "status_5xx", "stream_timeout", "disconnect", "cancelled"]


@dataclass(frozen=True, slots=True)
class EndingRules:
    """The three settings that decide an ending."""

    on_failure: Literal["keep", "exact"] = "keep"
    no_call: Literal["keep", "release"] = "keep"
    release_statuses: frozenset[int] = frozenset({404, 405})


class Bill(NamedTuple):
    """What is known of a request's provider calls, in nano-USD.

    A named tuple, as the charge is, because each request makes one of each: a frozen dataclass takes twice as long.
    """

    #: Sum of the begun and metered calls that were reported.
    reported_nanousd: int = 0
    #: Sum of the worst cases of begun calls that were not reported.
    unreported_nanousd: int = 0
    #: Sum of the reports that describe the request as a whole.
    whole_nanousd: int = 0
    #: A call was begun, reported or metered.
    any_call: bool = False
    #: Cost of the usage read from the answer; None when none was read.
    read_nanousd: int | None = None
    #: A provider's answer was recognised in the response.
    provider_seen: bool = False
    #: The application said that nothing was sent.
    nothing_sent: bool = False

    @property
    def total_nanousd(self) -> int:
        """The larger of what was reported as a whole and what the calls add up to."""
        return max(self.whole_nanousd, self.reported_nanousd + self.unreported_nanousd)


class Charge(NamedTuple):
    """The ending of a reservation, in nano-USD."""

    state: State
    settled_nanousd: int
    kept_nanousd: int
    #: One word for the log and the metrics.
    why: str

    @property
    def total_nanousd(self) -> int:
        return self.settled_nanousd + self.kept_nanousd


def decide(
    bill: Bill, *, ceiling_nanousd: int, failure: Failure | None, status: int | None, rules: EndingRules
) -> Charge:
    """The ending of a request whose reservation was `ceiling_nanousd`.

    Args:
        bill: What is known.
        ceiling_nanousd: What was reserved.
        failure: Why the request failed, or None.
        status: Status of the answer, None when there was none.
        rules: The operator's settings.
    """
    if bill.nothing_sent and not bill.any_call:
        return Charge("released", 0, 0, "nothing_sent")
    known = _known_charge(bill)
    if failure is not None and rules.on_failure == "keep":
        if known is not None and known.total_nanousd > ceiling_nanousd:
            return known
        return Charge("kept", 0, ceiling_nanousd, failure)
    if known is not None:
        return known
    if not bill.provider_seen:
        if status in rules.release_statuses:
            return Charge("released", 0, 0, f"status_{status}")
        if rules.no_call == "release":
            return Charge("released", 0, 0, "no_call")
    return Charge("kept", 0, ceiling_nanousd, failure or "no_usage")


def _known_charge(bill: Bill) -> Charge | None:
    if bill.any_call:
        kept = bill.unreported_nanousd
        settled = bill.total_nanousd - kept
        return Charge("kept" if kept else "settled", settled, kept, "unreported_call" if kept else "reported")
    if bill.read_nanousd is not None:
        return Charge("settled", bill.read_nanousd, 0, "read")
    return None
