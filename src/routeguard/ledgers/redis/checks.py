"""What is asked of a store before the first request: whether it can keep money, and whether we may use it."""

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from routeguard.errors import ConfigError
from routeguard.ledgers.redis.keyspace import Keyspace
from routeguard.ledgers.redis.scripts import CHECK
from routeguard.ledgers.redis.session import FAILURES, Session, error_code, said_of

OLDEST_SERVER = (6, 2)
#: What the scripts call and how they are called, as `ACL SETUSER` reads it.
COMMANDS = (
    "+eval +evalsha +time +hget +hgetall +hmget +hset +hsetnx +hdel +hincrby +zadd +zrem +zscore +zcount "
    "+zrangebyscore +zremrangebyscore +mget +set +pexpire"
)
#: Only for these checks and a database other than 0.
OPTIONAL_COMMANDS = "+info +select"
#: Asks to run a script that nobody has sent: NOSCRIPT where that is permitted, NOPERM where it is not.
EVALSHA_OF_NOTHING = ("EVALSHA", "0" * 40, "0")


async def check_store(
    connect: Callable[[], AbstractConnection], keyspace: Keyspace, *, seconds_max: float
) -> tuple[str, ...]:
    """Warnings about the store behind `connect`.

    Raises:
        ConfigError: It cannot be used as it is.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        problem = "ROUTEGUARD_LEDGER: redis:// needs asyncio, and this server runs trio: run it on asyncio"
        raise ConfigError([problem]) from None
    session = Session(connect())
    try:
        async with asyncio.timeout(seconds_max):
            return await _check(session, keyspace)
    except AuthenticationError:
        problem = "ROUTEGUARD_LEDGER: the store refuses the user or the password; check both in the address"
        raise ConfigError([problem]) from None
    except FAILURES as failure:
        return (f"the ledger's store cannot be reached ({said_of(failure)}): requests get 503 until it answers",)
    finally:
        await session.close()


async def _check(session: Session, keyspace: Keyspace) -> tuple[str, ...]:
    access = f"ACL SETUSER <user> ~{keyspace.pattern} {COMMANDS} {OPTIONAL_COMMANDS}"
    try:
        await session.open()
    except NoPermissionError:
        raise ConfigError([_denied("select", access)]) from None
    scripts, by_digest, info = await session.exchange(
        [("EVAL", CHECK, "3", *keyspace.check), EVALSHA_OF_NOTHING, ("INFO",)]
    )
    problems = _check_access(scripts, by_digest, access)
    if not isinstance(info, str):
        if problems:
            raise ConfigError(problems)
        return (
            "ROUTEGUARD_LEDGER: the store's eviction policy cannot be read: allow +info, and make sure that "
            "maxmemory-policy is noeviction, or a budget may be forgotten",
        )
    found = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    problems += _check_server(found)
    if problems:
        raise ConfigError(problems)
    return _warnings(found)


def _check_access(scripts: object, by_digest: object, access: str) -> list[str]:
    denied = {name for name, answer in (("eval", scripts), ("evalsha", by_digest)) if _is_denied(answer)}
    if isinstance(scripts, list):
        denied |= {name for name, words in zip(scripts[::2], scripts[1::2], strict=True) if "OOM" not in words[:12]}
    else:
        # LOADING, READONLY and the like pass by themselves.
        assert isinstance(scripts, ResponseError), "check.lua answers with a list"
    return [_denied(", ".join(sorted(denied)), access)] if denied else []


def _is_denied(answer: object) -> bool:
    if not isinstance(answer, ResponseError):
        return False
    return error_code(answer) == "NOPERM" or isinstance(answer, NoPermissionError)


def _denied(commands: str, access: str) -> str:
    return f"ROUTEGUARD_LEDGER: the store's user may not use {commands}; what it needs: {access}"


def _check_server(info: dict[str, str]) -> list[str]:
    problems = []
    version = info.get("redis_version", "")
    digits = tuple([int(part) for part in version.split(".")[:2] if part.isdigit()])
    if "valkey_version" not in info and digits and digits < OLDEST_SERVER:
        problems.append(f"ROUTEGUARD_LEDGER: the server is Redis {version}; it has to be 6.2 or newer, or Valkey")
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        problems.append(
            f"ROUTEGUARD_LEDGER: the server's maxmemory-policy is {policy}, which forgets budgets when memory is "
            "short; set it to noeviction (CONFIG SET maxmemory-policy noeviction), or use a server of its own"
        )
    if info.get("cluster_enabled") == "1":
        problems.append("ROUTEGUARD_LEDGER: the server is part of a cluster, which redis:// does not follow yet")
    return problems


def _warnings(info: dict[str, str]) -> tuple[str, ...]:
    found = []
    if not info.get("maxmemory_policy"):
        found.append(
            "ROUTEGUARD_LEDGER: the store does not say its eviction policy; make sure that it is noeviction, or a "
            "budget may be forgotten"
        )
    if info.get("aof_enabled") == "0":
        found.append(
            "ROUTEGUARD_LEDGER: the store writes no append-only file, so a restart of the store forgets what was "
            "spent but for what running processes know (CONFIG SET appendonly yes)"
        )
    if info.get("role") == "slave":
        found.append("ROUTEGUARD_LEDGER: the server is a replica and takes no writes; point at its primary")
    return tuple(found)
