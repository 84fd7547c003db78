"""One root for everything routeguard raises: catch `RouteguardError`, or the kind you can act on."""

from collections.abc import Iterable
from datetime import datetime


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
    """A metered provider call that the reservation cannot pay for. It was never sent."""
