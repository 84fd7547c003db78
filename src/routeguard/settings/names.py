"""The grammar of names: paths, methods, origins, zones, platforms, networks, ledgers.

What names nothing is refused with the nearest name that does. Parsers follow the rules of `grammar`.
"""

import re
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from struct import pack
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from routeguard.client_ip import PLATFORMS, Network, Strategy, parse_networks, parse_strategy
from routeguard.ledgers import REDIS_SCHEMES, check_redis_url, sqlite_file
from routeguard.settings.grammar import Parser, comma, count, either, entries, nearest, one_of, plain

#: RFC 9110 §9.3, RFC 5789 (PATCH) and the QUERY draft: a misspelt method would leave a route unguarded.
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY")
#: Kinds of ledger by the scheme of their URL, with an example each.
LEDGERS: Mapping[str, str] = MappingProxyType(
    {
        "memory": "memory://",
        "sqlite": "sqlite:///routeguard.db",
        "redis": "redis://localhost:6379/0",
        "rediss": "rediss://redis.example.net:6379/0",
        "unix": "unix:///run/redis.sock",
    }
)
#: Kinds that a later version brings; they move up one by one.
LATER_LEDGERS: Final = ("redis+sentinel", "redis+cluster", "postgresql")

#: A preset for the client address.
platform: Parser[str] = one_of(*PLATFORMS)

#: No path of a URL holds these unescaped (RFC 3986 §3.3).
_PATH = re.compile(r"(?:/|\*\*)[^\s?#\\\x00-\x1f\x7f{}<>\[\]|^\"`]*")
#: How frameworks write a part that stands for any segment, or with `path` for several: `{id}`, `<int:id>`, `/:id`.
_PARAMETER = re.compile(r"\{[^{}/]*\}|<[^<>/]*>|(?<=/):[A-Za-z_]\w*")
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[^\s/?#@*:\[\]]+)(?P<port>:[0-9]{1,5})?"
)
_DEFAULT_PORTS = {("http", ":80"), ("https", ":443")}
_STATUS_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
_WEBHOOK_URL = re.compile(r"(?i:https?)://(?P<host>[^\s/?#]+)(?:[/?][^\s#]*)?")
_SCHEME = re.compile(r"[a-z][a-z0-9+]{0,31}")
_JOURNAL_EXAMPLE = "write 'sqlite:///routeguard-journal.db'"
#: UTC as a time zone file (RFC 9636 §3.1): small container images ship without the database, and UTC needs none.
_UTC_FILE = b"TZif" + bytes(16) + pack(">6l", 0, 0, 0, 0, 1, 4) + pack(">lBB", 0, 0, 0) + b"UTC\0"


def paths(value: object) -> tuple[str, ...]:
    """Path patterns, each from the root of the application or `**`.

    A framework's parameter is refused: taken as it is written it would guard nothing.
    """
    found = entries(value, example="'/api/chat' or '/api/chat, /api/img/**'")
    for path in found:
        if _PARAMETER.search(path):
            remedy = _PARAMETER.sub(lambda parameter: "**" if "path" in parameter[0] else "*", path)
            if _is_path(remedy):
                raise ValueError(f"holds '{path}', whose parameter no request would match; write '{remedy}'")
        if not _is_path(path):
            remedy = f"'/{path}'" if _is_path("/" + path) and ":" not in path else "'/api/chat'"
            raise ValueError(f"holds '{path}', which is not a path; write for example {remedy}, or '**' for all")
    return tuple(dict.fromkeys(found))


def methods(value: object) -> frozenset[str] | None:
    """Methods in upper case, HEAD with GET; None for `all`."""
    found = [entry.upper() for entry in entries(value, example="'POST', 'GET, POST' or 'all'")]
    if found == ["ALL"]:
        return None
    for method in found:
        if method not in METHODS:
            raise ValueError(f"holds '{method}', which is not known{nearest(method, METHODS)} Known: {comma(METHODS)}")
    return frozenset(found) | ({"HEAD"} if "GET" in found else set())


def origins(value: object) -> tuple[str, ...]:
    """Exact origins as browsers send them (lower case, no default port), or `*`."""
    found = entries(value, example="'https://shop.example' or '*'")
    return tuple(dict.fromkeys(_origin(entry) for entry in found))


def status_path(value: object) -> str:
    """A path of at least one segment, without a trailing slash."""
    path = plain(value).rstrip("/")
    if _STATUS_PATH.fullmatch(path) is None or any(not segment.strip(".") for segment in path[1:].split("/")):
        raise ValueError("is not a path of its own; write for example '/_routeguard'")
    return path


def fields(value: object) -> tuple[frozenset[str], bool]:
    """Field names, and whether a leading `=` makes them the complete list."""
    found = entries(value, example="'model, tools' or '=messages, stream'")
    complete = found[0].startswith("=")
    names = [name for name in (found[0].removeprefix("=").strip(), *found[1:]) if name]
    for name in names:
        if _FIELD.fullmatch(name) is None:
            raise ValueError(f"holds '{name}', which is not a field name; write 'model, tools' or '=messages, stream'")
    if not names:
        raise ValueError("is a complete list without a field; write for example '=messages, stream'")
    return frozenset(names), complete


def models(value: object) -> tuple[str, ...]:
    """Model names; whether they exist and have a price is asked later."""
    found = entries(value, example="'gpt-5-mini' or 'gpt-5-mini, claude-haiku-4-5'")
    for name in found:
        if len(name) > 200 or not name.isprintable() or " " in name:
            raise ValueError("holds a name that no model has; write for example 'gpt-5-mini' or 'openai/gpt-5-mini'")
    return tuple(dict.fromkeys(found))


def statuses(value: object) -> frozenset[int]:
    """Statuses of failed answers; empty for `none`."""
    if isinstance(value, list | tuple | set | frozenset) and not value:
        return frozenset()
    found = entries(value, example="'404, 405' or 'none'")
    if [entry.lower() for entry in found] == ["none"]:
        return frozenset()
    status = count(least=400, most=599)
    try:
        return frozenset(status(entry) for entry in found)
    except ValueError:
        raise ValueError("holds something else than statuses from 400 to 599; write '404, 405' or 'none'") from None


def zone(value: object) -> ZoneInfo:
    """A zone of the IANA database; `UTC` needs no database."""
    name = value.key if isinstance(value, ZoneInfo) else plain(value)
    if name.upper() == "UTC":
        return _utc()
    try:
        return ZoneInfo(name)
    # Unknown, "../x", a folder of zones, a surrogate, a thousand folders.
    except (KeyError, ValueError, OSError, UnicodeError, RecursionError):
        known = available_timezones()
        if not known:
            raise ValueError("needs the time zone database: pip install tzdata, or write 'UTC'") from None
        raise ValueError(f"is not a time zone{nearest(name, known)} Write for example 'Europe/Berlin'") from None


def strategy(value: object) -> Strategy:
    """How the client address is found."""
    try:
        return parse_strategy(plain(value))
    except ValueError as error:
        raise ValueError(f"cannot be used: {error}") from None


def networks(value: object) -> tuple[Network, ...]:
    """CIDR blocks and single addresses."""
    try:
        return parse_networks(", ".join(entries(value, example="'203.0.113.7, 2001:db8::/48'")))
    except ValueError as error:
        raise ValueError(f"cannot be used: {error}") from None


def ledger(value: object) -> str:
    """A ledger's URL, as it is. No message holds it: it may carry a password."""
    url = plain(value)
    scheme, separator, rest = url.partition("://")
    examples = either(LEDGERS.values())
    if not separator or _SCHEME.fullmatch(scheme) is None:
        raise ValueError(f"is not the URL of a ledger; write {examples}")
    if scheme in LATER_LEDGERS:
        raise ValueError(f"is a ledger ('{scheme}') that is not available in this version; write {examples}")
    if scheme not in LEDGERS:
        raise ValueError(f"is a ledger ('{scheme}') that is not known{nearest(scheme, LEDGERS)} Write {examples}")
    if scheme == "memory" and rest:
        raise ValueError("adds something to the memory ledger, which takes nothing; write 'memory://'")
    if scheme == "sqlite":
        sqlite_file(url)
    if scheme in REDIS_SCHEMES:
        check_redis_url(url)
    return url


def journal(value: object) -> str:
    """A journal's URL, as it is."""
    url = plain(value)
    scheme = url.partition("://")[0]
    if scheme != "sqlite" or "://" not in url:
        if scheme == "postgresql":
            raise ValueError("is a journal ('postgresql') that is not available in this version; " + _JOURNAL_EXAMPLE)
        raise ValueError("is not the URL of a journal; " + _JOURNAL_EXAMPLE)
    sqlite_file(url)
    return url


def webhook_url(value: object) -> str:
    """Where alerts go. No message holds it: its path or query may be the secret."""
    url = plain(value)
    match = _WEBHOOK_URL.fullmatch(url)
    if match is None or not (url.isascii() and url.isprintable()) or not _has_host(url):
        raise ValueError("is not the address of a receiver; write for example 'https://hooks.example.com/routeguard'")
    if "@" in match["host"]:
        raise ValueError("holds a user name or password, which are not sent; put the secret into the path or the query")
    return url


@cache
def _utc() -> ZoneInfo:
    try:
        return ZoneInfo("UTC")
    except KeyError:
        return utc_without_database()


def utc_without_database() -> ZoneInfo:
    """UTC as a zone of its own."""
    return ZoneInfo.from_file(BytesIO(_UTC_FILE), key="UTC")


def _is_path(path: str) -> bool:
    # What cannot be seen, as a zero-width blank that came with a copied line, would make a route that nobody asks.
    return _PATH.fullmatch(path) is not None and ".." not in path.split("/") and path.isprintable()


def _has_host(url: str) -> bool:
    """Whether there is a host in it, and a port that one can connect to, if any."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _origin(entry: str) -> str:
    origin = entry.lower()
    if origin == "*":
        return origin
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        before_path = _ORIGIN.match(origin)
        is_longer = before_path is not None and origin.startswith(f"{before_path[0]}/")
        remedy = before_path[0] if before_path and is_longer else "https://shop.example"
        raise ValueError(f"holds '{entry}', which is not an exact origin; write for example '{remedy}', or '*'")
    if (match["scheme"], match["port"]) in _DEFAULT_PORTS:
        return origin.removesuffix(match["port"])
    return origin
