"""What a refusal looks like on the wire: the table of the contract, in all four formats."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.answers import ErrorFormat, answer, cors_headers, policy_header, preflight_headers, rate_header
from routeguard.errors import Rejected
from routeguard.limiter import Left
from routeguard.policy import NANOSECONDS, Rate

MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)
FORMATS: list[ErrorFormat] = ["openai", "anthropic", "text", "problem"]
EXPOSED = (b"access-control-expose-headers", b"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id")

#: reason, status, openai type, code, anthropic type, Retry-After of 7 and of 100,000 true seconds, final
TABLE = [
    ("rate_limited", 429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", "7", "60", False),
    ("busy", 429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", "5", "5", False),
    ("budget_exhausted", 503, "insufficient_quota", "insufficient_quota", "rate_limit_error", "61", "3600", True),
    ("budget_exhausted", 429, "insufficient_quota", "insufficient_quota", "rate_limit_error", "61", "3600", True),
    ("budget_exhausted", 402, "insufficient_quota", "insufficient_quota", "rate_limit_error", "61", "3600", True),
    (
        "client_budget_exhausted",
        429,
        "insufficient_quota",
        "insufficient_quota",
        "rate_limit_error",
        "61",
        "3600",
        True,
    ),
    ("service_paused", 503, "service_unavailable", "service_paused", "overloaded_error", "61", "61", True),
    ("guard_unavailable", 503, "service_unavailable", "guard_unavailable", "overloaded_error", "5", "5", False),
    ("stream_timeout", 504, "timeout_error", "stream_timeout", "timeout_error", None, None, True),
    *[
        (reason, status, "invalid_request_error", reason, anthropic_type, None, None, True)
        for status, anthropic_type, reasons in [
            (400, "invalid_request_error", "bad_request no_client_address model_not_allowed unsupported_field"),
            (400, "invalid_request_error", "media_not_allowed output_too_large"),
            (403, "permission_error", "edge_secret not_admitted websocket_refused"),
            (408, "invalid_request_error", "body_timeout"),
            (413, "request_too_large", "request_too_large input_too_long too_expensive"),
            (415, "invalid_request_error", "unsupported_type unsupported_encoding"),
        ]
        for reason in reasons.split()
    ],
]


def rejected(
    reason: str, status: int, *, retry_after: int | None = None, resets_at: datetime | None = None
) -> Rejected:
    return Rejected(reason, "Schöne Pause.", status=status, retry_after=retry_after, resets_at=resets_at)


def answered(refusal: Rejected, error_format: ErrorFormat = "openai") -> tuple[dict[str, str], bytes]:
    headers, body = answer(refusal, request_id="request-1", error_format=error_format)
    assert len({name for name, _ in headers}) == len(headers), "no header twice"
    return {name.decode(): value.decode() for name, value in headers}, body


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_each_reason_has_its_type_code_and_headers(
    row: tuple[str, int, str, str, str, str | None, str | None, bool],
) -> None:
    reason, status, kind, code, anthropic_kind, soon, late, final = row

    for retry_after, wanted in ((7, soon), (100_000, late)):
        headers, body = answered(rejected(reason, status, retry_after=retry_after))
        error = json.loads(body)["error"]

        assert (error["type"], error["code"], error["reason"]) == (kind, code, reason)
        assert headers.get("retry-after") == wanted
        assert headers.get("x-should-retry") == ("false" if final else None)
        assert error["retry_after"] == retry_after, "the body says the true number"
    _, body = answered(rejected(reason, status), "anthropic")
    assert json.loads(body)["error"]["type"] == anthropic_kind


@pytest.mark.parametrize(
    ("reason", "true_seconds", "header"),
    [
        ("rate_limited", 0, "1"),
        ("rate_limited", 1, "1"),
        ("rate_limited", 60, "60"),
        ("rate_limited", 61, "60"),
        ("busy", 1, "1"),
        ("busy", 2, "2"),
        ("busy", 6, "5"),
        ("budget_exhausted", 60, "61"),
        ("budget_exhausted", 62, "62"),
        ("budget_exhausted", 3600, "3600"),
        ("budget_exhausted", 3601, "3600"),
        ("budget_exhausted", None, "3600"),  # a total never resets
        ("client_budget_exhausted", None, "3600"),
    ],
)
def test_a_wait_is_clipped_in_the_header(reason: str, true_seconds: int | None, header: str) -> None:
    """Longer ones make some SDKs sleep, shorter ones make others hurry."""
    headers, body = answered(rejected(reason, 429, retry_after=true_seconds))

    assert headers["retry-after"] == header
    assert json.loads(body)["error"]["retry_after"] == true_seconds


def test_the_openai_shape_is_whole() -> None:
    headers, body = answered(rejected("budget_exhausted", 503, retry_after=43_200, resets_at=MIDNIGHT))

    assert json.loads(body) == {
        "type": "error",
        "error": {
            "message": "Schöne Pause.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
            "param": None,
            "reason": "budget_exhausted",
            "retry_after": 43_200,
            "resets_at": "2026-12-01T00:00:00Z",
        },
        "request_id": "request-1",
    }
    assert headers == {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "x-request-id": "request-1",
        "retry-after": "3600",
        "x-should-retry": "false",
    }


def test_the_anthropic_shape_is_whole() -> None:
    _, body = answered(rejected("bad_request", 400), "anthropic")

    assert json.loads(body) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Schöne Pause.",
            "reason": "bad_request",
            "retry_after": None,
            "resets_at": None,
        },
        "request_id": "request-1",
    }


def test_the_text_shape_is_the_message_and_a_header() -> None:
    headers, body = answered(rejected("busy", 429, retry_after=2), "text")

    assert body.decode() == "Schöne Pause."
    assert headers == {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "x-request-id": "request-1",
        "x-routeguard-reason": "busy",
        "retry-after": "2",
    }


def test_the_problem_shape_is_whole() -> None:
    headers, body = answered(rejected("budget_exhausted", 429, retry_after=9, resets_at=MIDNIGHT), "problem")

    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body) == {
        "type": "about:blank",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Schöne Pause.",
        "reason": "budget_exhausted",
        "retry_after": 9,
        "resets_at": "2026-12-01T00:00:00Z",
        "request_id": "request-1",
    }


@pytest.mark.parametrize("error_format", FORMATS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_every_refusal_can_be_said_in_every_format(
    error_format: ErrorFormat, row: tuple[str, int, str, str, str, str | None, str | None, bool]
) -> None:
    headers, body = answered(rejected(row[0], row[1], retry_after=5), error_format)

    assert headers["content-length"] == str(len(body))
    assert headers["cache-control"] == "no-store"
    assert headers["x-request-id"] == "request-1"
    assert headers.get("retry-after") == (row[5] if row[0] not in {"rate_limited"} else "5")
    assert headers.get("x-should-retry") == ("false" if row[7] else None)
    assert "Schöne Pause." in body.decode()


@pytest.mark.parametrize("error_format", FORMATS)
def test_a_message_that_is_no_unicode_does_not_stop_a_refusal(error_format: ErrorFormat) -> None:
    """As an environment variable in Latin-1 arrives under a UTF-8 locale."""
    refusal = Rejected("busy", 'Gesch\udcfctzt\n"quoted"', status=429)

    headers, body = answered(refusal, error_format)

    assert headers["content-length"] == str(len(body))
    assert b"Gesch?tzt" in body
    if error_format != "text":
        json.loads(body)


def test_rate_headers_name_every_policy_and_the_tightest_state() -> None:
    rates = [Rate("client-1", 10, 60 * NANOSECONDS), Rate("client-2", 200, 86_400 * NANOSECONDS)]

    headers = [policy_header(rates), rate_header(Left(rates[0], 9, 60 * NANOSECONDS))]

    assert headers == [
        (b"ratelimit-policy", b'"client-1";q=10;w=60, "client-2";q=200;w=86400'),
        (b"ratelimit", b'"client-1";r=9;t=60'),
    ]


@pytest.mark.parametrize(("reset_ns", "seconds"), [(0, 0), (1, 1), (NANOSECONDS, 1), (NANOSECONDS + 1, 2), (-5, 0)])
def test_a_reset_is_rounded_up_to_whole_seconds(reset_ns: int, seconds: int) -> None:
    """Whoever waits as long as it says finds a slot."""
    rate = Rate("client-1", 10, 60 * NANOSECONDS)

    _, state = rate_header(Left(rate, 3, reset_ns))

    assert state == f'"client-1";r=3;t={seconds}'.encode()


def test_what_is_left_is_never_negative() -> None:
    rate = Rate("client-1", 10, 60 * NANOSECONDS)

    _, state = rate_header(Left(rate, -2, NANOSECONDS))

    assert state == b'"client-1";r=0;t=1'


class TestCors:
    def test_nothing_is_said_when_no_origin_is_configured(self) -> None:
        assert cors_headers([], [(b"origin", b"https://shop.example")]) == []

    def test_a_configured_origin_may_read_the_refusal(self) -> None:
        headers = cors_headers(["https://shop.example"], [(b"host", b"x"), (b"origin", b"https://shop.example")])

        assert sorted(headers) == sorted(
            [
                (b"access-control-allow-origin", b"https://shop.example"),
                (b"access-control-allow-credentials", b"true"),
                (b"vary", b"Origin"),
                EXPOSED,
            ]
        )

    @pytest.mark.parametrize(
        "origin",
        [
            b"https://evil.example",
            b"https://shop.example.evil.example",
            b"https://shop",
            b"http://shop.example",
            b"https://shop.example/",
            b"HTTPS://SHOP.EXAMPLE",
            b"null",
            b"",
            b"\xff",
            b"*",
        ],
        ids=repr,
    )
    def test_any_other_origin_gets_nothing_but_a_note_for_caches(self, origin: bytes) -> None:
        assert cors_headers(["https://shop.example"], [(b"origin", origin)]) == [(b"vary", b"Origin")]

    def test_a_request_without_origin_gets_the_same_note(self) -> None:
        assert cors_headers(["https://shop.example"], []) == [(b"vary", b"Origin")]

    @pytest.mark.parametrize("headers", [[], [(b"origin", b"https://any.example")]], ids=["none", "any"])
    def test_with_a_star_everybody_may_read_it_without_credentials(self, headers: list[tuple[bytes, bytes]]) -> None:
        assert cors_headers(["*"], headers) == [(b"access-control-allow-origin", b"*"), EXPOSED]

    def test_a_preflight_is_allowed_what_it_asks_for(self) -> None:
        asked = [
            (b"origin", b"https://shop.example"),
            (b"access-control-request-method", b"POST"),
            (b"access-control-request-headers", b"content-type, x-a"),
            (b"x-other", b"1"),
        ]

        headers = dict(preflight_headers(["https://shop.example"], asked))

        assert headers[b"access-control-allow-origin"] == b"https://shop.example"
        assert headers[b"access-control-allow-methods"] == b"POST"
        assert headers[b"access-control-allow-headers"] == b"content-type, x-a"
        assert headers[b"cache-control"] == b"no-store"

    @pytest.mark.parametrize("origins", [[], ["https://shop.example"]], ids=["none", "another"])
    def test_a_preflight_of_a_foreign_origin_is_allowed_nothing(self, origins: list[str]) -> None:
        asked = [
            (b"origin", b"https://evil.example"),
            (b"access-control-request-method", b"POST"),
            (b"access-control-request-headers", b"x-a"),
        ]

        headers = preflight_headers(origins, asked)

        assert not any(name.startswith(b"access-control") for name, _ in headers)
        assert (b"cache-control", b"no-store") in headers


@given(st.text(max_size=60), st.sampled_from(FORMATS))
def test_any_message_is_sent_whole_and_as_long_as_announced(message: str, error_format: ErrorFormat) -> None:
    headers, body = answered(Rejected("busy", message, status=429), error_format)

    assert int(headers["content-length"]) == len(body)
    body.decode("utf-8", "strict")
