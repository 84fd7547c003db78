"""What a refusal looks like on the wire: status, headers and body in four formats.

What real clients do with each is measured: `x-should-retry: false` is what stops the OpenAI and Anthropic SDKs
from retrying, a long `Retry-After` makes some of them sleep, and only an `error` object with `message` and
`code` is shown to their users.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Literal

from routeguard.errors import Rejected
from routeguard.limiter import Left
from routeguard.money import ceil_div
from routeguard.policy import NANOSECONDS, Rate

ErrorFormat = Literal["openai", "anthropic", "text", "problem"]
Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Advice:
    """How one reason is presented to clients."""

    openai_type: str
    code: str
    #: Bounds of the Retry-After header in seconds; None: no header.
    retry_after: tuple[int, int] | None
    #: Sent as `x-should-retry: false`.
    final: bool


QUOTA = Advice("insufficient_quota", "insufficient_quota", (61, 3600), final=True)
ADVICE = {
    "rate_limited": Advice("rate_limit_error", "rate_limit_exceeded", (1, 60), final=False),
    "busy": Advice("rate_limit_error", "rate_limit_exceeded", (1, 5), final=False),
    "budget_exhausted": QUOTA,
    "client_budget_exhausted": QUOTA,
    "service_paused": Advice("service_unavailable", "service_paused", (61, 61), final=True),
    "guard_unavailable": Advice("service_unavailable", "guard_unavailable", (5, 5), final=False),
    "stream_timeout": Advice("timeout_error", "stream_timeout", None, final=True),
}
BUDGET_REASONS = frozenset({"budget_exhausted", "client_budget_exhausted"})
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    403: "permission_error",
    408: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def answer(rejected: Rejected, *, request_id: str, error_format: ErrorFormat) -> tuple[Headers, bytes]:
    """Headers and body of a refusal, without CORS and connection headers."""
    advice = ADVICE.get(rejected.reason) or Advice("invalid_request_error", rejected.reason, None, final=True)
    content_type, body = _BODIES[error_format](rejected, advice, request_id)
    headers: Headers = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode("ascii")),
    ]
    if error_format == "text":
        headers.append((b"x-routeguard-reason", rejected.reason.encode("ascii")))
    if advice.retry_after is not None:
        least, most = advice.retry_after
        # A budget that never resets has no true number of seconds: the longest polite wait.
        seconds = most if rejected.retry_after is None else min(max(rejected.retry_after, least), most)
        headers.append((b"retry-after", str(seconds).encode()))
    if advice.final:
        headers.append((b"x-should-retry", b"false"))
    return headers, body


def policy_header(rates: Sequence[Rate]) -> tuple[bytes, bytes]:
    """`RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers): the policies of a client, quota and seconds."""
    policies = ", ".join(f'"{rate.name}";q={rate.quota};w={ceil_div(rate.window_ns, NANOSECONDS)}' for rate in rates)
    return (b"ratelimit-policy", policies.encode("ascii"))


def rate_header(left: Left) -> tuple[bytes, bytes]:
    """`RateLimit`: the policy with the fewest slots left, how many, and seconds until one comes back."""
    reset = max(0, ceil_div(left.reset_ns, NANOSECONDS))
    return (b"ratelimit", f'"{left.rate.name}";r={max(0, left.remaining)};t={reset}'.encode("ascii"))


def cors_headers(origins: Sequence[str], request_headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """CORS headers for the guard's own answers; nothing for an origin that is not configured."""
    if not origins:
        return []
    exposed = (b"access-control-expose-headers", b"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id")
    if "*" in origins:
        return [(b"access-control-allow-origin", b"*"), exposed]
    origin = next((value for name, value in request_headers if name == b"origin"), None)
    vary = (b"vary", b"Origin")
    if origin is None or origin.decode("latin-1") not in origins:
        return [vary]
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-credentials", b"true"),
        vary,
        exposed,
    ]


def preflight_headers(origins: Sequence[str], request_headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Headers of a preflight that the guard answers itself with 204."""
    headers = cors_headers(origins, request_headers)
    if any(name == b"access-control-allow-origin" for name, _ in headers):
        for name, value in request_headers:
            if name == b"access-control-request-method":
                headers.append((b"access-control-allow-methods", value))
            elif name == b"access-control-request-headers":
                headers.append((b"access-control-allow-headers", value))
    return [*headers, (b"cache-control", b"no-store")]


def rfc3339(moment: datetime | None) -> str | None:
    """UTC seconds with `Z`, or None."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _openai(rejected: Rejected, advice: Advice, request_id: str) -> tuple[bytes, bytes]:
    error = {
        "message": rejected.message,
        "type": advice.openai_type,
        "code": advice.code,
        "param": None,
        "reason": rejected.reason,
        "retry_after": rejected.retry_after,
        "resets_at": rfc3339(rejected.resets_at),
    }
    return b"application/json", _json({"type": "error", "error": error, "request_id": request_id})


def _anthropic(rejected: Rejected, advice: Advice, request_id: str) -> tuple[bytes, bytes]:
    kind = "rate_limit_error" if rejected.reason in BUDGET_REASONS else ANTHROPIC_TYPES[rejected.status]
    error = {
        "type": kind,
        "message": rejected.message,
        "reason": rejected.reason,
        "retry_after": rejected.retry_after,
        "resets_at": rfc3339(rejected.resets_at),
    }
    return b"application/json", _json({"type": "error", "error": error, "request_id": request_id})


def _text(rejected: Rejected, advice: Advice, request_id: str) -> tuple[bytes, bytes]:
    return b"text/plain; charset=utf-8", rejected.message.encode(errors="replace")


def _problem(rejected: Rejected, advice: Advice, request_id: str) -> tuple[bytes, bytes]:
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(rejected.status).phrase,
        "status": rejected.status,
        "detail": rejected.message,
        "reason": rejected.reason,
        "retry_after": rejected.retry_after,
        "resets_at": rfc3339(rejected.resets_at),
        "request_id": request_id,
    }
    return b"application/problem+json", _json(problem)


def _json(value: dict[str, object]) -> bytes:
    # A message from the environment holds surrogates where its bytes were not UTF-8: no reason to fail a refusal.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


_BODIES = {"openai": _openai, "anthropic": _anthropic, "text": _text, "problem": _problem}
