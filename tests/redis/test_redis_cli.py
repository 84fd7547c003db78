"""The command line on a Redis ledger."""

import asyncio
import os
import subprocess
import sys

import pytest

from routeguard.money import NANOUSD_PER_USD, format_usd
from routeguard.policy import Claim, Parallel
from tests.redis.calls import CALL, EVER, balance, reserve, settle
from tests.redis.conftest import Opens, fresh_namespace

ENOUGH = {"PATHS": "/chat", "PRICE_IN": "0", "PRICE_OUT": "1", "SYSTEM_PROMPT_BYTES": "0", "BUDGET": "5/total"}


async def cli(url: str, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`routeguard <arguments>`, as a shell runs it."""
    given = {**ENOUGH, "LEDGER": url, "NAMESPACE": namespace}
    environ = {**os.environ, **{f"ROUTEGUARD_{name}": value for name, value in given.items()}}
    program = [sys.executable, "-m", "routeguard", *arguments]
    return await asyncio.to_thread(subprocess.run, program, env=environ, capture_output=True, text=True, timeout=150)


async def test_the_command_line_turns_the_switch_of_everybody_and_says_where_it_stands(
    opens: Opens, redis_url: str
) -> None:
    namespace = fresh_namespace()
    ledger = opens(redis_url, namespace=namespace)
    await settle(ledger, await reserve(ledger, "one"), CALL)

    paused = await cli(redis_url, namespace, "pause")
    status = await cli(redis_url, namespace, "status")
    await ledger.in_flight()
    while_paused = ledger.paused
    resumed = await cli(redis_url, namespace, "resume")
    await ledger.in_flight()

    assert [(one.returncode, one.stderr) for one in (paused, status, resumed)] == [(0, "")] * 3
    assert (
        paused.stdout == f"paused: everybody who shares this redis ledger and the namespace {namespace}, within 2 s\n"
    )
    first, second = status.stdout.splitlines()
    assert first.startswith("paused, 0 in flight")
    remaining = format_usd(5 * NANOUSD_PER_USD - CALL)
    parts = f"{format_usd(CALL)} settled, 0 open, 0 kept, 0 orphaned, {remaining} remaining"
    assert second == f"budget 5 USD per total: {parts}; never resets"
    assert (while_paused, ledger.paused) == (True, False)


async def test_an_orphan_that_was_ended_by_another_bill_is_not_said_to_be_ended_by_this_one(
    opens: Opens, redis_url: str
) -> None:
    namespace = fresh_namespace()
    ledger = opens(redis_url, namespace=namespace)
    await ledger.reserve("lost", money=[Claim(EVER, "", CALL)], slots=[Claim(Parallel(1, lease_ns=1), "", 1)])
    await ledger.in_flight()
    end_it = ["ledger", "adjust", "--reservation", "lost", "--reason", "found on the invoice", "--settled-usd"]

    ended, again, other = [await cli(redis_url, namespace, *end_it, usd) for usd in ("0.001", "0.001", "0.002")]

    assert [one.returncode for one in (ended, again, other)] == [0, 0, 2]
    assert "settled +0.001 USD, orphaned -0.0024 USD (lost)" in ended.stdout
    assert again.stdout == ended.stdout
    assert "--reservation lost was used before, for total" in other.stderr
    assert (await balance(ledger)).settled_nanousd == 1_000_000


@pytest.mark.parametrize("command", ["status", "pause", "resume"])
async def test_the_command_line_says_that_the_store_is_away_without_its_password(command: str) -> None:
    result = await cli("redis://shop:hunter2@127.0.0.1:1/0", "default", command)

    assert result.returncode == 2
    assert result.stderr.startswith(f"routeguard {command}: the store does not answer")
    assert "hunter2" not in result.stderr + result.stdout
    assert "Traceback" not in result.stderr
