"""Where budgets are counted. `open_ledger` turns the `LEDGER` setting into a ledger."""

import threading
from pathlib import Path
from typing import Literal

from routeguard.clock import Clock
from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import Ledger

# Guards of one process with the same namespace share their counters. A ledger is never forgotten while the
# process lives: an application that rebuilds its middleware must not get a fresh budget with it.
_opened: dict[tuple[str, str], Ledger] = {}
_lock = threading.Lock()
#: Plain, over TLS, and through a socket of the same host.
REDIS_SCHEMES = frozenset({"redis", "rediss", "unix"})


def open_ledger(
    url: str,
    *,
    namespace: str,
    clock: Clock,
    clients_max: int,
    shared: bool = True,
    rules_the_store: bool = False,
) -> Ledger:
    """The ledger of a namespace; opens no connection, file or thread.

    Args:
        url: The `LEDGER` setting.
        namespace: Guards with the same `url` and namespace get the same counters.
        clock: Time, for a ledger that is not open yet.
        clients_max: Size of its maps, likewise.
        shared: False gives an object of its own, for a guard with a clock of its own.
        rules_the_store: `clock` also takes the place of a server's own, for a namespace that nobody else uses.

    Raises:
        ValueError: The URL is not that of a ledger, or what the ledger needs is not installed.
    """
    if not shared:
        return _new_ledger(url, namespace, clock, clients_max, rules_the_store=rules_the_store)
    with _lock:
        ledger = _opened.get((url, namespace))
        if ledger is None:
            ledger = _opened[url, namespace] = _new_ledger(url, namespace, clock, clients_max)
        return ledger


def ledger_kind(url: str) -> str:
    """What the ledger of a URL is called: `memory`, `sqlite` or `redis`."""
    scheme = url.partition(":")[0]
    return "redis" if scheme in REDIS_SCHEMES else scheme


def sqlite_file(url: str) -> tuple[Path, Literal["normal", "full"]]:
    """The file of a `sqlite://` ledger, and how carefully it is written; opens nothing.

    Three slashes begin a path relative to the working directory, four an absolute one.

    Raises:
        ValueError: What is wrong with the URL. The text does not hold it.
    """
    location, _, query = url.removeprefix("sqlite://").partition("?")
    name = location.removeprefix("/")
    if not location.startswith("/") or not name:
        raise ValueError(
            "names no file; write 'sqlite:///routeguard.db' for one in the working directory, or an absolute path "
            "after four slashes"
        )
    if name == ":memory:" or name.endswith("/") or "#" in name:
        raise ValueError("names no file that processes could share; write 'sqlite:///routeguard.db', or 'memory://'")
    if query not in {"", "synchronous=normal", "synchronous=full"}:
        raise ValueError("asks for what is not known after the question mark; write '?synchronous=full', or nothing")
    return Path(name), "full" if query == "synchronous=full" else "normal"


def check_redis_url(url: str) -> None:
    """A Redis ledger at `url` could be opened. Opens nothing.

    Raises:
        ValueError: What is wrong with the URL, or with this installation. The text does not hold the URL.
    """
    try:
        from routeguard.ledgers.redis.session import connection_for
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise ValueError("needs redis-py: pip install 'routeguard[redis]'") from None
    connection_for(url)


def _new_ledger(url: str, namespace: str, clock: Clock, clients_max: int, *, rules_the_store: bool = False) -> Ledger:
    scheme = url.partition("://")[0]
    if url == "memory://":
        return MemoryLedger(clock=clock, clients_max=clients_max)
    if scheme == "sqlite":
        # Only here, because the module starts what runs at a fork and at the end of the process.
        from routeguard.ledgers.sqlite import SqliteLedger

        path, synchronous = sqlite_file(url)
        return SqliteLedger(
            str(path), namespace=namespace, clock=clock, clients_max=clients_max, synchronous=synchronous
        )
    if scheme in REDIS_SCHEMES:
        check_redis_url(url)
        from routeguard.ledgers.redis import RedisLedger

        # The server's clock decides; `clock` is not asked.
        test_clock = clock if rules_the_store else None
        return RedisLedger(url, namespace=namespace, clients_max=clients_max, test_clock=test_clock)
    raise ValueError(f"no ledger for {scheme}://")
