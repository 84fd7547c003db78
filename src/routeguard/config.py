"""The settings of one guard: read from keywords, environment and Django, checked together, then frozen."""

import os
from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Final, Literal, Unpack
from zoneinfo import ZoneInfo

from routeguard.body import BodyRules
from routeguard.client_ip import Network, Strategy
from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.policy import Budget, Rate
from routeguard.pricing import Tariff
from routeguard.replay import Scope
from routeguard.settings import build, checks, table
from routeguard.settings.keywords import SettingsKeywords
from routeguard.settings.sources import Source, Values
from routeguard.settings.summary import start_line

__all__ = ["Settings", "SettingsKeywords", "start_line"]

#: Attributes that `repr` masks, and those it leaves out as too large to read.
MASKED: Final = frozenset({"edge_secret", "admin_token", "webhook_url"})
HIDDEN: Final = frozenset(
    {"tariff", "other_tariffs", "body_rules", "sources", "written", "warnings", "_keywords", "_frozen"}
)


class Settings:
    """What one guard enforces. Immutable; every value is parsed and fits the others.

    Durations are seconds, money is nano-USD, None means no limit or not set. With the memory ledger and `PROCESSES`
    the budgets, rates and parallel limits are this process's part.
    """

    #: Path patterns, as written.
    paths: tuple[str, ...]
    #: Guarded methods in upper case, HEAD beside GET; None: all.
    methods: frozenset[str] | None
    websocket: Literal["refuse", "ignore"]
    cors_origins: tuple[str, ...]
    mode: Literal["enforce", "observe", "off"]
    paused: bool
    #: Most bytes of body, path and query together.
    max_body: int
    body_timeout: float
    body_types: frozenset[str]
    max_input_chars: int
    max_output_tokens: int
    system_prompt_bytes: int
    extra_input_bytes: int
    calls_per_request: int
    extra_nanousd: int
    #: Price of one media part; None: media is refused.
    media_nanousd: int | None
    #: Price-changing fields let through.
    allowed_fields: frozenset[str]
    #: The complete list of top-level fields; None: any.
    only_fields: frozenset[str] | None
    #: Configured names; empty where only prices are given.
    models: tuple[str, ...]
    #: In the order of `BUDGET`; empty: unlimited.
    budgets: tuple[Budget, ...]
    client_budgets: tuple[Budget, ...]
    reset_tz: ZoneInfo
    #: Named `client-1`, `client-2`, …; empty: unlimited.
    rates: tuple[Rate, ...]
    #: Named `global-1`, …
    global_rates: tuple[Rate, ...]
    max_parallel: int | None
    max_parallel_per_client: int | None
    max_stream: float
    max_clients: int
    platform: str | None
    strategy: Strategy
    #: What people are shown: `x-real-ip (vercel)`, `the peer address`.
    client_source: str
    ipv6_prefix: int
    unknown_client: Literal["shared", "reject"]
    #: Lower-cased header name, and its value.
    edge_secret: tuple[bytes, bytes] | None
    exempt_clients: tuple[Network, ...]
    ledger: str
    namespace: str
    processes: int
    #: Worker processes the process manager was told to run (`WEB_CONCURRENCY`), where it says.
    workers: int | None
    budget_status: Literal[503, 429, 402]
    error_format: Literal["openai", "anthropic", "text", "problem"]
    message_resting: str
    message_limited: str
    on_failure: Literal["keep", "exact"]
    no_call: Literal["keep", "release"]
    release_statuses: frozenset[int]
    read_response: Literal["stream", "all", "none"]
    admin_token: str | None
    #: Without a trailing slash.
    status_path: str
    #: Where a row of every ending goes; None: nowhere.
    journal: str | None
    webhook_url: str | None
    #: Who is asking, when the application knows.
    client: Callable[[Scope], str | None] | None
    #: The application's own check.
    admit: Callable[[Scope], Awaitable[bool]] | None
    tariff: Tariff
    #: Tariffs of the models in `PRICES` that are not in `MODEL`, by their names in lower case.
    other_tariffs: Mapping[str, Tariff]
    body_rules: BodyRules
    #: Variable (without prefix) to where it was found.
    sources: Mapping[str, Source]
    #: Variable (without prefix) to its value as written or by default, secrets masked; None: not set.
    written: Mapping[str, str | None]
    #: What to say at start, one sentence each.
    warnings: tuple[str, ...]

    def __init__(self, **keywords: Unpack[SettingsKeywords]) -> None:
        """
        Args:
            keywords: The settings of `docs/settings.md`, in lower case without the prefix, the hooks `client` and
                `admit`, and `environ`, where variables are looked up instead of the process's environment.

        Raises:
            ConfigError: With every problem at once.
        """
        environ = keywords.get("environ")
        values = Values(keywords, os.environ if environ is None else environ)
        completeness = () if values.is_off() else (checks.check_complete,)
        take = (self._take_requests, self._take_limits, self._take_clients, self._take_answers, self._take_tariff)
        for step in (*completeness, *take):
            with values.step():
                step(values)
        with values.step():
            self._take_hooks(keywords.get("client"), keywords.get("admit"))
        if not values.is_off():
            self._check(values)
        if values.problems:
            raise ConfigError(values.problems)
        self.sources = MappingProxyType({row.name: values.source(row) for row in table.TABLE.values()})
        self.written = MappingProxyType({row.name: values.text(row) for row in table.TABLE.values()})
        self.warnings = tuple(values.warnings)
        self._keywords: SettingsKeywords = keywords.copy()
        self._frozen = True

    def changed(self, **keywords: Unpack[SettingsKeywords]) -> "Settings":
        """These settings with some written anew, read and checked again as a whole.

        Raises:
            ConfigError: They do not fit together.
        """
        together = self._keywords.copy()
        together.update(keywords)
        return Settings(**together)

    def __setattr__(self, name: str, value: object) -> None:
        if "_frozen" in self.__dict__:
            raise AttributeError(f"settings are immutable; build new ones to change {name!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError("settings are immutable")

    def __repr__(self) -> str:
        shown = (_shown(name, value) for name, value in vars(self).items() if name not in HIDDEN)
        return f"Settings({', '.join(shown)})"

    def _take_requests(self, values: Values) -> None:
        self.paths = values.get(table.PATHS) or ()
        self.methods = values[table.METHODS]
        self.websocket = values[table.WEBSOCKET]
        self.cors_origins = values.get(table.CORS_ORIGINS) or ()
        self.mode = values[table.MODE]
        self.paused = values[table.PAUSED]
        self.max_body = values[table.MAX_BODY]
        self.body_timeout = build.seconds(values, table.BODY_TIMEOUT)
        self.body_types = values[table.BODY_TYPES]
        self.max_input_chars = values[table.MAX_INPUT_CHARS]
        self.max_output_tokens = values[table.MAX_OUTPUT_TOKENS]
        self.system_prompt_bytes = build.system_prompt_bytes(values)
        self.extra_input_bytes = values[table.EXTRA_INPUT_BYTES]
        self.calls_per_request = values[table.CALLS_PER_REQUEST]
        self.extra_nanousd = values[table.EXTRA_USD]
        self.media_nanousd = values.get(table.MEDIA_USD)
        self.allowed_fields, self.only_fields = build.allowed_fields(values)
        self.models = values.get(table.MODEL) or ()
        self.body_rules = build.body_rules(values)

    def _take_limits(self, values: Values) -> None:
        self.budgets = build.budgets(values)
        self.client_budgets = build.client_budgets(values)
        self.reset_tz = values[table.RESET_TZ]
        self.rates = build.rates(values, table.RATE)
        self.global_rates = build.rates(values, table.GLOBAL_RATE)
        self.max_parallel = build.parallel(values, table.MAX_PARALLEL)
        self.max_parallel_per_client = build.parallel(values, table.MAX_PARALLEL_PER_CLIENT)
        self.max_stream = build.seconds(values, table.MAX_STREAM)
        self.max_clients = values[table.MAX_CLIENTS]
        self.ledger = values[table.LEDGER]
        self.journal = values.get(table.JOURNAL)
        self.namespace = values[table.NAMESPACE]
        self.processes = values[table.PROCESSES]
        self.workers = values.workers

    def _take_clients(self, values: Values) -> None:
        self.platform = values.get(table.PLATFORM)
        self.strategy, self.client_source = build.client_address(values)
        self.ipv6_prefix = values[table.IPV6_PREFIX]
        self.unknown_client = values[table.UNKNOWN_CLIENT]
        self.edge_secret = values.get(table.EDGE_SECRET)
        self.exempt_clients = values.get(table.EXEMPT_CLIENTS) or ()

    def _take_answers(self, values: Values) -> None:
        self.budget_status = values[table.BUDGET_STATUS]
        self.error_format = values[table.ERROR_FORMAT]
        self.message_resting = values[table.MESSAGE_RESTING]
        self.message_limited = values[table.MESSAGE_LIMITED]
        self.on_failure = values[table.ON_FAILURE]
        self.no_call = values[table.NO_CALL]
        self.release_statuses = values[table.RELEASE_STATUSES]
        self.read_response = values[table.READ_RESPONSE]
        self.admin_token = values.get(table.ADMIN_TOKEN)
        self.status_path = values[table.STATUS_PATH]
        self.webhook_url = values.get(table.WEBHOOK_URL)

    def _take_tariff(self, values: Values) -> None:
        self.tariff = build.tariff(values)
        self.other_tariffs = build.other_tariffs(values)

    def _take_hooks(
        self, client: Callable[[Scope], str | None] | None, admit: Callable[[Scope], Awaitable[bool]] | None
    ) -> None:
        if client is not None and (not _is_callable(client) or iscoroutinefunction(client)):
            raise ValueError("client= is not a plain function; write client=lambda scope: …, giving a str or None")
        if admit is not None and not _is_callable(admit):
            raise ValueError("admit= is not a function; write an async function that gets the scope and gives a bool")
        self.client, self.admit = client, admit

    def _check(self, values: Values) -> None:
        for check in (
            checks.check_pairs,
            checks.check_status_path,
            checks.warn_about_requests,
            checks.warn_about_clients,
            checks.warn_about_quotes,
            checks.warn_about_processes,
        ):
            with values.step():
                check(values)
        if not values.problems:
            wall_ns = SystemClock().wall_ns()
            checks.check_fit(values, table.BUDGET, self.budgets, self.tariff, wall_ns)
            checks.check_fit(values, table.CLIENT_BUDGET, self.client_budgets, self.tariff, wall_ns)


def _is_callable(hook: object) -> bool:
    # The annotations promise it, and nobody has to follow annotations.
    return callable(hook)


def _shown(name: str, value: object) -> str:
    if name in MASKED and value is not None:
        return f"{name}='***'"
    if name in {"ledger", "journal"} and value is not None:
        # Everything before the host may be a password, and so may what follows a question mark.
        scheme, separator, rest = str(value).partition("://")
        host = rest.rpartition("@")[2].partition("?")[0]
        value = f"{scheme}{separator}{'***@' if '@' in rest else ''}{host}{'?***' if '?' in rest else ''}"
    return f"{name}={value!r}"
