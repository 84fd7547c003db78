"""One provider call from its request to the end of its answer: the logic that the shells of `transports` share.

Nothing here waits or knows an HTTP library.
"""

import json
from collections.abc import Iterable, Mapping

from routeguard.errors import BudgetExceeded
from routeguard.meter.answer import Answer, answer_of
from routeguard.meter.endpoints import Endpoint
from routeguard.meter.payer import Ticket
from routeguard.telemetry import logger

#: Statuses with which a provider refuses before it generates anything.
RELEASED_STATUSES = frozenset({401, 403, 404, 429})
#: OpenAI's SDK lets exceptions of others through since this version.
FIRST_WITHOUT_WRAPPING = 3
#: Exceptions of httpx and httpx2, by name, that are raised before a byte of the request is written.
NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"})


class Exchange:
    """One metered call. No method raises."""

    __slots__ = ("_answer", "_ended", "_endpoint", "_ticket")

    def __init__(self, endpoint: Endpoint, ticket: Ticket) -> None:
        self._endpoint = endpoint
        self._ticket = ticket
        self._answer: Answer | None = None
        self._ended = False

    def failed(self, error: BaseException) -> None:
        """No answer came."""
        if type(error).__name__ in NEVER_SENT and type(error).__module__.partition(".")[0] in {"httpx", "httpx2"}:
            self._ticket.payment.release()

    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """An answer has begun."""
        if status in RELEASED_STATUSES:
            self._ticket.payment.release()
        elif 200 <= status < 300:
            # We asked for a plain answer. Whoever compresses it all the same is charged the worst case.
            self._answer = answer_of(
                self._endpoint,
                headers,
                report=self._ticket.payment.report,
                hides_usage=self._ticket.outgoing.hides_usage,
                has_one_choice=self._ticket.outgoing.answers == 1,
            )

    def passes(self, chunk: bytes) -> bytes:
        """What of this chunk the caller gets now."""
        if self._answer is None:
            return chunk
        try:
            return self._answer.passes(chunk)
        except Exception as error:  # noqa: BLE001 - a bug here must not break the answer that passes by
            self._give_up(error)
            return chunk

    def ends(self, *, complete: bool) -> bytes:
        """What the caller still gets; once, later calls do nothing. `complete`: the answer came to its own end."""
        if self._ended or self._answer is None:
            return b""
        self._ended = True
        try:
            return self._answer.ends(complete=complete)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
            return b""

    def _give_up(self, error: Exception) -> None:
        self._answer = None
        logger.warning("a provider's answer could not be read: %s", type(error).__name__)


def refusal_body(refused: BudgetExceeded) -> bytes:
    """The answer that stands in for a call that was not sent, as Anthropic words errors."""
    error = {
        "type": "rate_limit_error",
        "code": "insufficient_quota",
        "message": str(refused),
        "reason": refused.reason,
        "resets_at": None if refused.resets_at is None else refused.resets_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json.dumps({"type": "error", "error": error}).encode()


def wraps_exceptions(headers: Mapping[str, str]) -> bool:
    """Whether the request is of an SDK that takes every exception for a lost connection, and tries again.

    Anthropic's does, and so do all others of its make (`x-stainless-*`), OpenAI's before 3.0 included.
    """
    if "x-stainless-lang" not in headers:
        return False
    major = headers.get("x-stainless-package-version", "").partition(".")[0]
    return "anthropic-version" in headers or not major.isdecimal() or int(major) < FIRST_WITHOUT_WRAPPING
