"""What the server is told, by its environment or on its own command line, that changes what the guard sees."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from routeguard.client_ip import Strategy

#: Options that set the number of worker processes: uvicorn, hypercorn, granian, gunicorn.
WORKER_OPTIONS = frozenset({"--workers", "-w"})
#: Of uvicorn and of gunicorn.
TRUST_OPTIONS = frozenset({"--forwarded-allow-ips"})


@dataclass(frozen=True, slots=True)
class Told:
    """One thing the server was told, and where."""

    where: str
    value: str


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What is known of the server's options; empty where nobody said."""

    trusts: tuple[Told, ...]
    workers: tuple[Told, ...]
    #: `--no-proxy-headers`, or the like, was found.
    leaves_peer: bool
    #: The command line was given.
    is_known: bool


def server_options(environ: Mapping[str, str], command: Sequence[str] | None) -> ServerOptions:
    """Read the environment of uvicorn and gunicorn, and a command line where there is one."""
    trusts = [
        Told(name, environ[name]) for name in ("FORWARDED_ALLOW_IPS", "UVICORN_FORWARDED_ALLOW_IPS") if name in environ
    ]
    workers = [Told(name, environ[name]) for name in ("WEB_CONCURRENCY", "UVICORN_WORKERS") if name in environ]
    lines = {"the server's command": list(command or ())}
    if "GUNICORN_CMD_ARGS" in environ:
        lines["GUNICORN_CMD_ARGS"] = _words(environ["GUNICORN_CMD_ARGS"])
    leaves_peer = environ.get("UVICORN_PROXY_HEADERS", "").lower() in {"0", "false", "no", "off"}
    for where, words in lines.items():
        leaves_peer = leaves_peer or "--no-proxy-headers" in words
        for option, value in _options(words):
            if option in TRUST_OPTIONS:
                trusts.append(Told(f"{option} in {where}", value))
            elif option in WORKER_OPTIONS:
                workers.append(Told(f"{option} in {where}", value))
    return ServerOptions(tuple(trusts), tuple(workers), leaves_peer, command is not None)


def trust_warnings(options: ServerOptions, strategy: Strategy) -> Iterator[str]:
    """Where the server puts an address in the place of the peer that a client can write."""
    if strategy.headers and not strategy.name.startswith("ranges"):
        return  # the peer is not looked at
    if options.leaves_peer:
        return
    for told in options.trusts:
        if "*" in told.value:
            yield (
                f"{told.where} is {told.value!r}: uvicorn then takes the leftmost entry of X-Forwarded-For for the "
                f"peer, which the client writes, and {strategy.name} believes it. Use --no-proxy-headers, or set "
                "PLATFORM"
            )
        elif told.value.strip():
            yield (
                f"{told.where} is {told.value!r}: behind these proxies the server replaces the peer by an entry of "
                f"X-Forwarded-For, and {strategy.name} judges that. Use --no-proxy-headers, and set PLATFORM or "
                "CLIENT_IP"
            )


def worker_warnings(options: ServerOptions, *, processes: int, is_memory: bool) -> Iterator[str]:
    """More workers than the limits are divided by. `WEB_CONCURRENCY` is the settings' own warning."""
    for told in options.workers:
        number = int(told.value) if re.fullmatch(r"[0-9]{1,6}", told.value.strip()) else 0
        if is_memory and number > processes and told.where != "WEB_CONCURRENCY":
            yield (
                f"{told.where} is {number} and PROCESSES is {processes}: memory:// counts in each process for itself, "
                f"so up to {-(-number // processes)} times every limit may be spent. Set PROCESSES={number}, or "
                "LEDGER=sqlite:///routeguard.db"
            )


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option with its value: `--name value`, `--name=value`, `-w 4`, `-w4`."""
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if word.startswith("-w") and word[2:].isdecimal():
            yield "-w", word[2:]
        elif word.startswith("-") and equals:
            yield option, value
        elif word.startswith("-") and number + 1 < len(words):
            yield word, words[number + 1]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an unclosed quote
        return line.split()
