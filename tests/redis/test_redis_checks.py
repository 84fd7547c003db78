"""What is said before the first request, and that what the documentation tells to permit is enough."""

import re
from pathlib import Path

import pytest
import trio

from routeguard.errors import ConfigError
from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.checks import COMMANDS, OPTIONAL_COMMANDS, _check_server
from routeguard.ledgers.redis.claims import Claims
from routeguard.policy import NANOSECONDS, Claim, LedgerUnavailable, Rate
from tests.redis.calls import CALL, balance, reserve, settle
from tests.redis.conftest import Opens
from tests.redis.server import RedisServer

DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


async def test_a_store_that_keeps_everything_is_fine(opens: Opens, own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "appendonly", "yes")

    assert await opens(own_server.url).check() == ()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_store_that_evicts_budgets_is_refused(opens: Opens, own_server: RedisServer, policy: str) -> None:
    own_server.command("CONFIG", "SET", "maxmemory-policy", policy)

    with pytest.raises(ConfigError, match=f"{policy}.*noeviction"):
        await opens(own_server.url).check()


async def test_an_eviction_policy_that_cannot_be_read_is_a_warning(opens: Opens, own_server: RedisServer) -> None:
    _add_user(own_server, COMMANDS)

    (warning,) = await opens(_as_user(own_server)).check()

    assert "noeviction" in warning
    assert "+info" in warning


async def test_a_store_without_an_append_only_file_is_a_warning(opens: Opens, own_server: RedisServer) -> None:
    (warning,) = await opens(own_server.url).check()

    assert "appendonly" in warning


@pytest.mark.parametrize("missing", COMMANDS.split())
async def test_a_command_that_is_not_permitted_is_named_with_the_whole_remedy(
    opens: Opens, own_server: RedisServer, missing: str
) -> None:
    _add_user(own_server, re.sub(re.escape(missing) + r"\b", "", f"{COMMANDS} {OPTIONAL_COMMANDS}"))

    with pytest.raises(ConfigError) as found:
        await opens(_as_user(own_server), namespace="ns").check()

    assert f"may not use {missing[1:]}" in str(found.value)
    assert f"ACL SETUSER <user> ~{{rg:ns}}:* {COMMANDS}" in str(found.value)


async def test_keys_that_are_not_permitted_are_named(opens: Opens, own_server: RedisServer) -> None:
    own_server.command("ACL", "SETUSER", "guard", "on", ">secret", "~other:*", *COMMANDS.split(), "+info", "+select")

    with pytest.raises(ConfigError, match="may not use"):
        await opens(_as_user(own_server)).check()


async def test_a_wrong_password_is_an_error_that_does_not_repeat_it(opens: Opens, own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "right")

    with pytest.raises(ConfigError) as found:
        await opens(f"redis://:wrong-secret@127.0.0.1:{own_server.port}/0").check()

    assert "password" in str(found.value)
    assert "wrong-secret" not in str(found.value)


async def test_a_store_that_is_away_is_a_warning(opens: Opens, own_server: RedisServer) -> None:
    own_server.kill()

    (warning,) = await opens(own_server.url).check()

    assert "503 until it answers" in warning


def test_under_trio_it_is_a_start_error_and_every_question_is_refused() -> None:
    ledger = RedisLedger("redis://127.0.0.1:1", namespace="trio")

    with pytest.raises(ConfigError, match="asyncio"):
        trio.run(ledger.check)
    with pytest.raises(LedgerUnavailable):
        trio.run(ledger.refresh)


@pytest.mark.parametrize(
    ("info", "named"),
    [
        ({"redis_version": "6.0.16"}, "6.2"),
        ({"redis_version": "5.0.7"}, "6.2"),
        ({"redis_version": "7.0.0", "cluster_enabled": "1"}, "cluster"),
    ],
)
def test_a_server_that_cannot_be_used_is_named(info: dict[str, str], named: str) -> None:
    (problem,) = _check_server(info)

    assert named in problem


@pytest.mark.parametrize("info", [{"redis_version": "6.2.0"}, {"redis_version": "10.0"}, {"valkey_version": "8.0"}, {}])
def test_a_server_that_can_be_used_is_not_named(info: dict[str, str]) -> None:
    assert _check_server(info) == []


async def test_the_access_list_in_the_documentation_is_enough_for_everything(
    opens: Opens, own_server: RedisServer
) -> None:
    (line,) = re.findall(r"^ACL SETUSER (.*)$", DOCS.read_text(), re.MULTILINE)
    own_server.command("CONFIG", "SET", "appendonly", "yes")
    own_server.command("ACL", "SETUSER", *line.replace("routeguard", "guard").replace("<password>", "secret").split())
    ledger = opens(_as_user(own_server), namespace="default")

    assert await ledger.check() == ()
    held = await reserve(ledger, "1")
    assert await settle(ledger, held, CALL)
    ledger.charge_late(held, charge_id="late", extra_nanousd=1)
    lost = Claims("2", [], [], [Claim(Rate("client-1", 9, NANOSECONDS), "a", 1)], force=False)
    await ledger.reserve(lost.id, money=[], slots=[], rates=lost.rates)
    ledger._release(lost)
    await ledger.set_paused(paused=True)
    assert (await balance(ledger)).settled_nanousd == CALL + 1
    assert len(ledger._store.debts) == 0, "the store took everything"


@pytest.mark.parametrize(
    "url",
    ["http://x", "redis://:sec/ret@host/0", "redis://host:sec", "redis://host?sec=1", "redis://h?socket_timeout=x"],
)
def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|question mark") as found:
        RedisLedger(url, namespace="x")

    assert "sec" not in str(found.value).replace("second", "")


def _add_user(server: RedisServer, commands: str) -> None:
    assert server.command("ACL", "SETUSER", "guard", "on", ">secret", "~{rg:*", *commands.split()) == "+OK\r\n"


def _as_user(server: RedisServer) -> str:
    return f"redis://guard:secret@127.0.0.1:{server.port}/0"
