"""The settings, one row a variable: its name, its grammar, its default, what it means.

The order is that of the reference page. A row's meaning is one or two sentences for `docs/settings.md`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar
from zoneinfo import ZoneInfo

from routeguard.client_ip import Network, Strategy
from routeguard.policy import Rate
from routeguard.settings import names
from routeguard.settings.grammar import (
    Parser,
    count,
    duration_ns,
    file_text,
    flag,
    header_and_secret,
    matching,
    one_of,
    secret,
    size,
    text,
    text_or_file_bytes,
    usd_per_mtok,
    words,
)
from routeguard.settings.limits import Cap, Share, caps, caps_or_share, count_or_unlimited, rates, usd

PREFIX: Final = "ROUTEGUARD_"

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Setting(Generic[T_co]):
    """One variable."""

    #: Without the prefix: `MAX_BODY`.
    name: str
    parse: Parser[T_co]
    #: As one would write it in the environment; None: nothing.
    default: str | None
    meaning: str
    #: What the reference page shows as its default when that is no text one can write.
    shown: str = "none"
    #: Never repeated in a message: keys, passwords, prompts.
    secret: bool = False

    @property
    def keyword(self) -> str:
        """Its name as a keyword argument."""
        return self.name.lower()


PATHS: Final[Setting[tuple[str, ...]]] = Setting(
    "PATHS",
    names.paths,
    None,
    "The routes that cost money, comma-separated; `*` matches within a segment, `**` across segments. Matching "
    "over-matches on purpose: case, doubled and trailing slashes do not get around it.",
    shown="required",
)
METHODS: Final[Setting[frozenset[str] | None]] = Setting(
    "METHODS", names.methods, "all", "Which methods are guarded; `GET` includes `HEAD`."
)
WEBSOCKET: Final[Setting[Literal["refuse", "ignore"]]] = Setting(
    "WEBSOCKET",
    one_of("refuse", "ignore"),
    "refuse",
    "A websocket on a guarded path: `refuse`, or `ignore` (it is not guarded).",
)
CORS_ORIGINS: Final[Setting[tuple[str, ...]]] = Setting(
    "CORS_ORIGINS", names.origins, None, "Exact origins, or `*`, that may read the guard's own answers."
)
MODE: Final[Setting[Literal["enforce", "observe", "off"]]] = Setting(
    "MODE",
    one_of("enforce", "observe", "off"),
    "enforce",
    "`observe` refuses nothing and counts what it would have refused; `off` is as if not installed, and then "
    "neither `PATHS` nor `MODEL` is needed.",
)
PAUSED: Final[Setting[bool]] = Setting(
    "PAUSED", flag, "false", "Start paused: every guarded request is answered 503 until someone resumes."
)
MAX_BODY: Final[Setting[int]] = Setting(
    "MAX_BODY", size(most=1 << 30), "64kB", "Bytes of body, path and query together."
)
BODY_TIMEOUT: Final[Setting[int]] = Setting(
    "BODY_TIMEOUT", duration_ns(least="1ms", most="1h"), "10s", "The whole body must arrive within it."
)
BODY_TYPES: Final[Setting[frozenset[str]]] = Setting(
    "BODY_TYPES",
    words("json", "text", "form", "multipart", "binary"),
    "json,text,form",
    "Content types let in: `json`, `text`, `form`, and with `MEDIA_USD` also `multipart` and `binary`.",
)
MAX_INPUT_CHARS: Final[Setting[int]] = Setting(
    "MAX_INPUT_CHARS", count(least=1, most=10**9), "20000", "Characters over all text of a request."
)
MAX_OUTPUT_TOKENS: Final[Setting[int]] = Setting(
    "MAX_OUTPUT_TOKENS",
    count(least=1, most=10**7),
    "1000",
    "What one call may produce, hidden reasoning included. It is part of every ceiling and is sent upstream by a "
    "metered client; without one your code must send it.",
)
SYSTEM_PROMPT: Final[Setting[int]] = Setting(
    "SYSTEM_PROMPT",
    text_or_file_bytes,
    None,
    "Your system prompt, as text or `@file`: its UTF-8 bytes are part of every ceiling.",
    shown="empty",
    secret=True,
)
SYSTEM_PROMPT_BYTES: Final[Setting[int]] = Setting(
    "SYSTEM_PROMPT_BYTES",
    count(least=0, most=10**9),
    None,
    "The size of the system prompt instead of the prompt itself.",
)
EXTRA_INPUT_BYTES: Final[Setting[int]] = Setting(
    "EXTRA_INPUT_BYTES",
    count(least=0, most=10**9),
    "0",
    "UTF-8 bytes your code adds to each call besides: history, documents, tool schemas and results.",
)
CALLS_PER_REQUEST: Final[Setting[int]] = Setting(
    "CALLS_PER_REQUEST",
    count(least=1, most=1000),
    "1",
    "Provider calls one request may make: tool loops and the SDK's own retries (the OpenAI and Anthropic clients "
    "retry twice).",
)
EXTRA_USD: Final[Setting[int]] = Setting(
    "EXTRA_USD", usd, "0", "Fixed extra cost of a request, for example a paid tool."
)
MEDIA_USD: Final[Setting[int]] = Setting(
    "MEDIA_USD", usd, None, "Flat price of one image, sound or file in a request; without it such requests are refused."
)
ALLOW_FIELDS: Final[Setting[tuple[frozenset[str], bool]]] = Setting(
    "ALLOW_FIELDS",
    names.fields,
    None,
    "Price-changing fields let through, for example `model, tools`; a list that starts with `=` is the complete "
    "list of top-level fields.",
)
MODEL: Final[Setting[tuple[str, ...]]] = Setting(
    "MODEL",
    names.models,
    None,
    "The models your code calls, comma-separated, as `provider/model` where several providers serve one; the "
    "dearest is reserved.",
    shown="required, or `PRICE_IN` and `PRICE_OUT`",
)
PRICE_IN: Final[Setting[Decimal]] = Setting(
    "PRICE_IN",
    usd_per_mtok,
    None,
    "USD per million input tokens; overrides the rates of `MODEL`, or replaces it. An explicit 0 claims no money.",
)
PRICE_OUT: Final[Setting[Decimal]] = Setting(
    "PRICE_OUT", usd_per_mtok, None, "USD per million output tokens; goes with `PRICE_IN`."
)
PRICE_CACHED_IN: Final[Setting[Decimal]] = Setting(
    "PRICE_CACHED_IN", usd_per_mtok, None, "USD per million input tokens read from a cache.", shown="`PRICE_IN`"
)
PRICE_CACHE_WRITE: Final[Setting[Decimal]] = Setting(
    "PRICE_CACHE_WRITE", usd_per_mtok, None, "USD per million input tokens written to a cache.", shown="`PRICE_IN`"
)
PRICES: Final[Setting[str]] = Setting(
    "PRICES", file_text, None, "`@prices.toml`, [your own price table](prices.md): wins over every other source."
)
BUDGET: Final[Setting[tuple[Cap, ...]]] = Setting(
    "BUDGET",
    caps,
    "1/day",
    "USD per calendar window, several allowed: `5/day, 50/month`. Windows: `hour day week month total`. `unlimited` "
    "must be written out; 0 refuses everything.",
)
CLIENT_BUDGET: Final[Setting[tuple[Cap, ...] | Share]] = Setting(
    "CLIENT_BUDGET", caps_or_share, "25%", "The same for each client, or a share of each `BUDGET`."
)
RESET_TZ: Final[Setting[ZoneInfo]] = Setting("RESET_TZ", names.zone, "UTC", "Time zone of the calendar windows.")
RATE: Final[Setting[tuple[Rate, ...]]] = Setting(
    "RATE",
    rates("client"),
    "10/minute, 200/day",
    "Requests of one client, at most so many in any window of that length; `20/30s` style allowed, or `unlimited`.",
)
GLOBAL_RATE: Final[Setting[tuple[Rate, ...]]] = Setting(
    "GLOBAL_RATE", rates("global"), "600/minute", "The same over all clients."
)
MAX_PARALLEL: Final[Setting[int | None]] = Setting(
    "MAX_PARALLEL", count_or_unlimited(most=10**6), "32", "Streams open at once, or `unlimited`."
)
MAX_PARALLEL_PER_CLIENT: Final[Setting[int | None]] = Setting(
    "MAX_PARALLEL_PER_CLIENT",
    count_or_unlimited(most=10**6),
    "4",
    "Streams of one client open at once, or `unlimited`.",
)
MAX_STREAM: Final[Setting[int]] = Setting(
    "MAX_STREAM",
    duration_ns(least="1ms", most="24h"),
    "5m",
    "From admission to the end of the answer; then the application is cancelled and the money kept.",
)
MAX_CLIENTS: Final[Setting[int]] = Setting(
    "MAX_CLIENTS", count(least=1, most=10**7), "50000", "Size of every map that holds clients."
)
PLATFORM: Final[Setting[str]] = Setting(
    "PLATFORM",
    names.platform,
    None,
    "Where the application runs, which decides how the client address is found: see [platforms](platforms.md).",
)
CLIENT_IP: Final[Setting[Strategy]] = Setting(
    "CLIENT_IP",
    names.strategy,
    None,
    "How the client address is found, instead of a platform: `direct`, `header:<name>`, `xff:<n>`, `forwarded:<n>` "
    "or `ranges:<cidr,…>`.",
    shown="`direct`",
)
IPV6_PREFIX: Final[Setting[int]] = Setting(
    "IPV6_PREFIX", count(least=48, most=128), "64", "Bits of an IPv6 address that make one client."
)
UNKNOWN_CLIENT: Final[Setting[Literal["shared", "reject"]]] = Setting(
    "UNKNOWN_CLIENT",
    one_of("shared", "reject"),
    "shared",
    "Requests without a trustworthy address: they share one client, or get 400 (`reject`).",
)
EDGE_SECRET: Final[Setting[tuple[bytes, bytes]]] = Setting(
    "EDGE_SECRET",
    header_and_secret,
    None,
    "`Header-Name:value` that your edge adds; a request without it is refused, so nobody gets around the edge.",
    secret=True,
)
EXEMPT_CLIENTS: Final[Setting[tuple[Network, ...]]] = Setting(
    "EXEMPT_CLIENTS",
    names.networks,
    None,
    "Addresses and CIDR blocks without `RATE`, `MAX_PARALLEL_PER_CLIENT` and `CLIENT_BUDGET`.",
)
LEDGER: Final[Setting[str]] = Setting(
    "LEDGER",
    names.ledger,
    "memory://",
    "Where budgets, rates and streams are counted: `memory://` in each process, and a restart forgets; "
    "`sqlite:///routeguard.db` in a file (four slashes: an absolute path) that all processes of a host share; "
    "`redis://`, `rediss://` or `unix://` in a Redis or Valkey server that all machines share (docs/redis.md).",
    secret=True,
)
NAMESPACE: Final[Setting[str]] = Setting(
    "NAMESPACE",
    matching(r"[a-z0-9._-]{1,64}", what="1 to 64 of a-z 0-9 . _ -; write for example 'chat'"),
    "default",
    "Guards with the same ledger and namespace share their counters.",
)
PROCESSES: Final[Setting[int]] = Setting(
    "PROCESSES",
    count(least=1, most=10_000),
    "1",
    "Worker processes over all machines. With `memory://` money is divided by it (down), and so are rates and "
    "streams (up).",
)
BUDGET_STATUS: Final[Setting[Literal[503, 429, 402]]] = Setting(
    "BUDGET_STATUS", one_of(503, 429, 402), "503", "Status of a refusal because the budget is spent: 503, 429 or 402."
)
ERROR_FORMAT: Final[Setting[Literal["openai", "anthropic", "text", "problem"]]] = Setting(
    "ERROR_FORMAT",
    one_of("openai", "anthropic", "text", "problem"),
    "openai",
    "Shape of refusals: `openai`, `anthropic`, `text` or `problem` (RFC 9457).",
)
MESSAGE_RESTING: Final[Setting[str]] = Setting(
    "MESSAGE_RESTING",
    text(most=1000, example="Back tomorrow."),
    "The assistant is resting. Please come back later.",
    "Text of a refusal because the budget is spent or the guard is paused.",
)
MESSAGE_LIMITED: Final[Setting[str]] = Setting(
    "MESSAGE_LIMITED",
    text(most=1000, example="Please slow down."),
    "Too many requests for now. Please try again later.",
    "Text of a refusal because of a rate, a client's budget, or too many streams.",
)
ON_FAILURE: Final[Setting[Literal["keep", "exact"]]] = Setting(
    "ON_FAILURE",
    one_of("keep", "exact"),
    "keep",
    "What a failed request costs: the whole reservation, or (`exact`) what was reported.",
)
NO_CALL: Final[Setting[Literal["keep", "release"]]] = Setting(
    "NO_CALL",
    one_of("keep", "release"),
    "keep",
    "What a request costs in which no provider call was seen. `release` is only for applications whose every call "
    "goes through `metered()` or `begin()`.",
)
RELEASE_STATUSES: Final[Setting[frozenset[int]]] = Setting(
    "RELEASE_STATUSES",
    names.statuses,
    "404,405",
    "Answers of the application that cost nothing when no provider call was seen; `none` for no such answer.",
)
READ_RESPONSE: Final[Setting[Literal["stream", "all", "none"]]] = Setting(
    "READ_RESPONSE",
    one_of("stream", "all", "none"),
    "stream",
    "Where usage is read from the answer: event streams of a provider, also JSON bodies (`all`: only for routes "
    "that relay the provider's own body), or nowhere.",
)
ADMIN_TOKEN: Final[Setting[str]] = Setting(
    "ADMIN_TOKEN", secret, None, "Opens the status routes; without it they do not exist.", secret=True
)
STATUS_PATH: Final[Setting[str]] = Setting(
    "STATUS_PATH",
    names.status_path,
    "/_routeguard",
    "Where the status routes are. They answer before the guard, so no guarded path may lie below it.",
)
JOURNAL: Final[Setting[str]] = Setting(
    "JOURNAL",
    names.journal,
    None,
    "A row for every ending, never changed afterwards: `sqlite:///routeguard-journal.db`, or the file of the ledger; "
    "see [the journal](journal.md).",
    secret=True,
)
WEBHOOK_URL: Final[Setting[str]] = Setting(
    "WEBHOOK_URL",
    names.webhook_url,
    None,
    "Gets one POST when 80 % and when 100 % of a `BUDGET` are charged, once per window (docs/status.md).",
    secret=True,
)

#: Every row by its name, in order.
TABLE: Mapping[str, Setting[object]] = MappingProxyType(
    {row.name: row for row in list(globals().values()) if isinstance(row, Setting)}
)
