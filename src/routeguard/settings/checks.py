"""Whether the settings fit each other: what stops the server, and what only deserves a warning at start."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_network
from typing import Final

from routeguard.client_ip import PLATFORMS
from routeguard.money import format_usd
from routeguard.policy import Budget
from routeguard.pricing import Tariff
from routeguard.settings import table
from routeguard.settings.build import system_prompt_bytes
from routeguard.settings.grammar import QUOTES, comma
from routeguard.settings.limits import Cap, Share
from routeguard.settings.sources import Values
from routeguard.settings.table import Setting

#: Models that think before they answer, by the last part of their name in lower case. What they think counts as
#: output, so a small cap ends in an empty answer. Exceptions first.
PLAIN_MODELS: Final = ("*non-reasoning*", "gpt-5*-chat*", "*-no-thinking*")
REASONING_MODELS: Final = (
    "gpt-5*",
    "gpt-6*",
    "gpt-oss*",
    "o1*",
    "o3*",
    "o4*",
    "gemini-2.5*",
    "gemini-[3-9]*",
    "grok-4*",
    "grok-3-mini*",
    "deepseek-r*",
    "magistral*",
    "qwq*",
    "*reason*",
    "*thinking*",
)
REASONING_OUTPUT_TOKENS: Final = 2_000
SECRET_CHARS: Final = 16
#: Addresses that proxies have: loopback, private, shared (RFC 6598), link-local, unique local.
PROXY_NETWORKS: Final = (
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
)


def check_complete(values: Values) -> None:
    """What has no default is written. (`MODEL` is asked for where prices are.)"""
    if values.get(table.PATHS) is None:
        raise ValueError(
            f"{values.name(table.PATHS)} is not set: which routes cost money? "
            'Set it, for example ROUTEGUARD_PATHS=/api/chat or paths=["/api/chat"]'
        )


def check_pairs(values: Values) -> None:
    """What excludes each other is not both written, and what needs another has it."""
    for one, other in ((table.PLATFORM, table.CLIENT_IP), (table.SYSTEM_PROMPT, table.SYSTEM_PROMPT_BYTES)):
        if values.is_given(one) and values.is_given(other):
            values.problem(f"{values.says(one)} and {values.says(other)} say the same thing twice; keep one of them")
    media = values[table.BODY_TYPES] & {"multipart", "binary"}
    if media and not values.is_given(table.MEDIA_USD):
        values.problem(
            f"{values.says(table.BODY_TYPES)} lets in {comma(sorted(media))} without a price: bytes do not bound what "
            "media costs; set the price of one part, for example ROUTEGUARD_MEDIA_USD=0.01"
        )


def check_status_path(values: Values) -> None:
    """No guarded route is hidden behind the status routes, which answer first."""
    if not values.is_given(table.ADMIN_TOKEN):
        return
    status = values[table.STATUS_PATH]
    free = "/_status" if status.lower().startswith("/_routeguard") else "/_routeguard"
    for path in values.get(table.PATHS) or ():
        if f"{path.rstrip('/')}/".lower().startswith(f"{status}/".lower()):
            values.problem(
                f"{values.says(table.STATUS_PATH)} would answer instead of the guarded path '{path}'; "
                f"write a path that nothing else uses, for example '{free}'"
            )


def check_fit(values: Values, row: Setting[object], budgets: Sequence[Budget], tariff: Tariff, wall_ns: int) -> None:
    """The smallest possible call fits each budget; a warning if the largest one does not."""
    smallest, largest = tariff.smallest(wall_ns), tariff.largest(wall_ns)
    paused = _paused_windows(values, row)
    # Exempt clients have no budget of their own: then one that fits nothing still lets somebody in.
    spares_some = row is table.CLIENT_BUDGET and values.is_given(table.EXEMPT_CLIENTS)
    for budget in budgets:
        limit = f"${format_usd(budget.limit_nanousd)} per {budget.name}".replace("per total", "in total")
        if budget.name in paused:
            if smallest:
                values.warn(f"{values.says(row)}: a budget of 0 refuses every request that costs anything.")
        elif budget.limit_nanousd < smallest:
            say = values.warn if spares_some else values.problem
            say(
                f"{values.says(row)} comes to {limit}, and the smallest possible call may cost "
                f"${format_usd(smallest)}, so nothing would be admitted; raise it, or lower MAX_OUTPUT_TOKENS, "
                "SYSTEM_PROMPT, EXTRA_INPUT_BYTES or CALLS_PER_REQUEST"
            )
        elif budget.limit_nanousd < largest:
            values.warn(
                f"{values.says(row)} comes to {limit}, and the largest possible call may cost ${format_usd(largest)}: "
                "such requests are answered 413 too_expensive. Lower MAX_BODY, or raise it."
            )


def warn_about_requests(values: Values) -> None:
    """Requests that pass unguarded, or cost more than the ceiling knows."""
    if values[table.WEBSOCKET] == "ignore":
        values.warn(f"{values.says(table.WEBSOCKET)}: websockets on guarded paths are not guarded.")
    if not values.is_given(table.SYSTEM_PROMPT) and not values.is_given(table.SYSTEM_PROMPT_BYTES):
        assert system_prompt_bytes(values) == 0
        values.warn(
            "0 bytes of system prompt assumed: set ROUTEGUARD_SYSTEM_PROMPT (text or @file) or "
            "ROUTEGUARD_SYSTEM_PROMPT_BYTES, also when it is 0."
        )
    thinking = [name for name in values.get(table.MODEL) or () if is_reasoning(name)]
    if thinking and values[table.MAX_OUTPUT_TOKENS] < REASONING_OUTPUT_TOKENS:
        values.warn(
            f"{values.says(table.MAX_OUTPUT_TOKENS)} is little for {comma(thinking)}, which thinks before it answers: "
            f"thinking counts, and answers may end empty. {REASONING_OUTPUT_TOKENS} or more is usual."
        )


def warn_about_clients(values: Values) -> None:
    """Addresses and secrets that are weaker than they look."""
    platform = values.get(table.PLATFORM)
    if platform and PLATFORMS[platform].needs_edge_secret and not values.is_given(table.EDGE_SECRET):
        values.warn(
            f"{values.says(table.PLATFORM)} without ROUTEGUARD_EDGE_SECRET: whoever reaches the server around the edge "
            "can claim any address. Let the edge add a secret header."
        )
    for network in values.get(table.EXEMPT_CLIENTS) or ():
        if _may_be_a_proxy(network.cidr):
            values.warn(
                f"{values.name(table.EXEMPT_CLIENTS)} holds {network.cidr}, where a proxy may be: whoever comes "
                "through it without a client address of their own is exempt from every limit per client."
            )
    edge = values.get(table.EDGE_SECRET)
    secrets = ((table.EDGE_SECRET, edge and edge[1]), (table.ADMIN_TOKEN, values.get(table.ADMIN_TOKEN)))
    for row, secret in secrets:
        if secret and len(secret) < SECRET_CHARS:
            values.warn(f"{values.name(row)} is shorter than {SECRET_CHARS} characters and can be guessed.")


def warn_about_quotes(values: Values) -> None:
    """Quotes that a reader of `.env` files left around a value: a token in them opens nothing."""
    edge = values.get(table.EDGE_SECRET)
    written = {
        table.ADMIN_TOKEN: values.get(table.ADMIN_TOKEN),
        table.EDGE_SECRET: edge and edge[1].decode("ascii"),
        table.MESSAGE_RESTING: values[table.MESSAGE_RESTING],
        table.MESSAGE_LIMITED: values[table.MESSAGE_LIMITED],
    }
    for row, text in written.items():
        if values.source(row) == "environment" and text and text[0] in QUOTES and text[0] == text[-1]:
            values.warn(f"{values.name(row)} is in quotes, and they are part of it. Write it without.")


def warn_about_processes(values: Values) -> None:
    """More processes than the limits are divided by: each memory ledger counts for itself."""
    processes = values[table.PROCESSES]
    if values.workers is not None and values.workers > processes and values[table.LEDGER].startswith("memory:"):
        values.warn(
            f"WEB_CONCURRENCY={values.workers} and {values.name(table.PROCESSES)} is {processes}: each process counts "
            f"for itself, so up to {-(-values.workers // processes)} times every limit may be spent. Set "
            f"ROUTEGUARD_PROCESSES={values.workers}, or use a shared ledger."
        )


def is_reasoning(model: str) -> bool:
    """Whether the model of this name is known to think before it answers."""
    name = model.lower().rpartition("/")[2]
    return _matches(name, REASONING_MODELS) and not _matches(name, PLAIN_MODELS)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _paused_windows(values: Values, row: Setting[object]) -> set[str]:
    """The windows whose budget was written as 0; one that became 0 by division is too small."""
    written = values.get(row)
    if isinstance(written, Share):
        written = values[table.BUDGET]
    assert isinstance(written, tuple)
    return {cap.unit for cap in written if isinstance(cap, Cap) and cap.limit_nanousd == 0}


def _may_be_a_proxy(cidr: str) -> bool:
    network = ip_network(cidr)
    others = (ip_network(proxies) for proxies in PROXY_NETWORKS)
    return any(network.version == other.version and network.overlaps(other) for other in others)
