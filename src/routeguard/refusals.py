"""Every refusal the guard itself gives, worded once."""

from datetime import UTC, datetime

from routeguard.clock import Clock
from routeguard.errors import Rejected
from routeguard.money import ceil_div
from routeguard.policy import NANOSECONDS, Refused
from routeguard.rules import GuardRules

#: Seconds after which a refusal for slots or open reservations may be tried again.
BUSY_RETRY_SECONDS = 2
PAUSED_RETRY_SECONDS = 61
UNAVAILABLE_RETRY_SECONDS = 5


class Refusals:
    """The refusals of one guard."""

    def __init__(self, rules: GuardRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def of_ledger(self, refused: Refused) -> Rejected:
        """The refusal for what the ledger has no room for."""
        if refused.cause == "too_expensive":
            return self.too_expensive()
        if refused.cause == "budget_exhausted":
            return self.budget_exhausted(refused.resets_at, per_client=refused.per_client)
        if refused.cause == "rate_limited":
            return self.rate_limited(refused.retry_ns)
        return self.busy()

    def too_large(self) -> Rejected:
        """The refusal for more bytes than `MAX_BODY`, declared or received."""
        return Rejected(
            "request_too_large",
            f"The request is too large; at most {self._rules.body.bytes_max} bytes are accepted.",
            status=413,
        )

    def too_slow(self) -> Rejected:
        """The refusal for a body that took longer than `BODY_TIMEOUT`."""
        return Rejected(
            "body_timeout",
            f"The request body did not arrive within {self._rules.body_timeout_seconds:g} seconds.",
            status=408,
        )

    def timed_out(self) -> Rejected:
        """The answer for a stream that took longer than `MAX_STREAM` before it began."""
        return Rejected("stream_timeout", "The answer took too long.", status=504)

    def unavailable(self) -> Rejected:
        """The refusal for a ledger that does not answer, or a bug of ours."""
        return Rejected(
            "guard_unavailable",
            "The assistant is not available right now. Please try again in a moment.",
            status=503,
            retry_after=UNAVAILABLE_RETRY_SECONDS,
        )

    def budget_exhausted(self, resets_at: int | None, *, per_client: bool) -> Rejected:
        """The refusal for a budget, or one client's budget, that is spent until `resets_at` (Unix seconds)."""
        rules = self._rules
        retry_after = None
        moment = None
        if resets_at is not None:
            retry_after = max(1, ceil_div(resets_at * NANOSECONDS - self._clock.wall_ns(), NANOSECONDS))
            moment = datetime.fromtimestamp(resets_at, UTC)
        if per_client:
            return Rejected(
                "client_budget_exhausted",
                rules.message_limited,
                status=429,
                retry_after=retry_after,
                resets_at=moment,
            )
        return Rejected(
            "budget_exhausted",
            rules.message_resting,
            status=rules.budget_status,
            retry_after=retry_after,
            resets_at=moment,
        )

    def rate_limited(self, retry_ns: int) -> Rejected:
        """The refusal for a rate without a free slot."""
        return Rejected(
            "rate_limited",
            self._rules.message_limited,
            status=429,
            retry_after=max(1, ceil_div(retry_ns, NANOSECONDS)),
        )

    def too_expensive(self) -> Rejected:
        """The refusal for a ceiling above a whole budget."""
        return Rejected("too_expensive", "This request is too large for the budget of this service.", status=413)

    def busy(self) -> Rejected:
        """The refusal for slots or open reservations that are in the way for now."""
        return Rejected("busy", self._rules.message_limited, status=429, retry_after=BUSY_RETRY_SECONDS)

    def paused(self) -> Rejected:
        """The refusal while the kill switch is on."""
        return Rejected("service_paused", self._rules.message_resting, status=503, retry_after=PAUSED_RETRY_SECONDS)
