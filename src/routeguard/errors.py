"""One root for everything routeguard raises: catch `RouteguardError`, or the kind you can act on."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal


class RouteguardError(Exception):
    """Root of every exception routeguard raises."""


class ConfigError(RouteguardError):
    """The configuration cannot be used. Raised when a guard is built, never during a request.

    The message lists every problem at once, one a line, each naming the variable, what was found and
    what would be right.
    """

    #: One sentence a problem.
    problems: tuple[str, ...]

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"routeguard cannot start: {count} problem{'s' if count != 1 else ''} in the configuration"
        super().__init__("\n".join([head, *(f"  - {problem}" for problem in self.problems)]))


class Rejected(RouteguardError):
    """One request the guard refuses. The application is not called.

    `reason` is stable and machine-readable; the message is for people and may change.
    """

    #: HTTP status of the answer, for example 429.
    status: int
    #: Stable name of the refusal, for example `rate_limited`.
    reason: str
    #: True whole seconds after which a retry can succeed, or None when waiting does not help.
    retry_after: int | None
    #: When the latest budget in the way resets, or None.
    resets_at: datetime | None

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        status: int,
        retry_after: int | None = None,
        resets_at: datetime | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.resets_at = resets_at


class BudgetExceeded(RouteguardError):
    """A metered provider call that was never sent: nobody can pay for its worst case, or nobody can tell it.

    `reason` is stable and machine-readable; the message is for people and may change.
    """

    #: What stood in the way: `reservation`, `calls_per_request`, `budget_exhausted`, `client_budget_exhausted`,
    #: `too_expensive`, `busy`, `service_paused`, `guard_unavailable`, `unknown_price`, `output_cap`, `media` or
    #: `unreadable`.
    reason: str
    #: Worst case of the call in USD, or None when it is not known.
    ceiling_usd: Decimal | None
    #: When the latest budget in the way resets, or None.
    resets_at: datetime | None

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        ceiling_usd: Decimal | None = None,
        resets_at: datetime | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.ceiling_usd = ceiling_usd
        self.resets_at = resets_at
