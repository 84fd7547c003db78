"""The settings as keyword arguments, so that editors complete them. Each also takes the text of its variable."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from datetime import timedelta
from decimal import Decimal
from typing import Literal, TypedDict
from zoneinfo import ZoneInfo

from routeguard.replay import Scope

#: Comma-separated text, or the entries.
Names = str | Sequence[str] | Set[str]
#: Text with a unit; a number is seconds.
Duration = str | int | float | timedelta
#: USD; a float is read by its shortest form.
Amount = str | int | float | Decimal
#: A number, also as text.
Count = int | str
#: `5/day, 50/month`, also as entries; 0; `unlimited`.
Limits = str | Sequence[str] | Literal[0]


class SettingsKeywords(TypedDict, total=False):
    """Keyword arguments of `RouteGuard` and `Settings`. None counts as not given. See `docs/settings.md`."""

    paths: Names | None
    methods: Names | None
    websocket: Literal["refuse", "ignore"] | None
    cors_origins: Names | None
    mode: Literal["enforce", "observe", "off"] | None
    paused: bool | str | None
    max_body: Count | None
    body_timeout: Duration | None
    body_types: Names | None
    max_input_chars: Count | None
    max_output_tokens: Count | None
    system_prompt: str | None
    system_prompt_bytes: Count | None
    extra_input_bytes: Count | None
    calls_per_request: Count | None
    extra_usd: Amount | None
    media_usd: Amount | None
    allow_fields: Names | None
    model: Names | None
    price_in: Amount | None
    price_out: Amount | None
    price_cached_in: Amount | None
    price_cache_write: Amount | None
    prices: str | None
    budget: Limits | None
    client_budget: Limits | None
    reset_tz: str | ZoneInfo | None
    rate: str | Sequence[str] | None
    global_rate: str | Sequence[str] | None
    max_parallel: Count | None
    max_parallel_per_client: Count | None
    max_stream: Duration | None
    max_clients: Count | None
    platform: str | None
    client_ip: str | None
    ipv6_prefix: Count | None
    unknown_client: Literal["shared", "reject"] | None
    edge_secret: str | None
    exempt_clients: Names | None
    ledger: str | None
    namespace: str | None
    processes: Count | None
    budget_status: Literal[503, 429, 402] | str | None
    error_format: Literal["openai", "anthropic", "text", "problem"] | None
    message_resting: str | None
    message_limited: str | None
    on_failure: Literal["keep", "exact"] | None
    no_call: Literal["keep", "release"] | None
    release_statuses: str | Sequence[int | str] | Set[int] | None
    read_response: Literal["stream", "all", "none"] | None
    admin_token: str | None
    status_path: str | None
    journal: str | None
    webhook_url: str | None

    #: Who is asking, when you know it: gets the ASGI scope, gives a name, or None for the address.
    client: Callable[[Scope], str | None] | None
    #: Your own check: gets the ASGI scope; False refuses with 403.
    admit: Callable[[Scope], Awaitable[bool]] | None
    #: Where `ROUTEGUARD_…` variables are looked up; the process's environment by default.
    environ: Mapping[str, str] | None
