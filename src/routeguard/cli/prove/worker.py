"""The other process of the proof: `python -m routeguard.cli.prove.worker NAME`, told what to do on its stdin.

It says `ready`, waits for a line, asks for everything at once, says how many were admitted, and holds their streams
open until the next line.
"""

import asyncio
import json
import sys
from typing import Final

import anyio

from routeguard.asgi import RouteGuard
from routeguard.build import build_guard
from routeguard.cli.prove.application import Chat
from routeguard.cli.prove.errand import WORDS, Told
from routeguard.cli.prove.waiting import wait_until
from routeguard.clock import SystemClock
from routeguard.config import Settings
from routeguard.ledgers import open_ledger
from routeguard.money import format_usd
from routeguard.testing.driver import Client
from routeguard.testing.scripted import Script

#: What it may take until each request is admitted or refused.
DECIDED_SECONDS: Final = 10.0


async def main() -> None:
    name = sys.argv[1]
    told = Told(**json.loads(await _line()))
    settings = Settings(
        environ={},
        paths=["/chat"],
        price_in=0,
        price_out=100,
        max_output_tokens=1000,
        system_prompt_bytes=0,
        budget=f"{format_usd(told.budget.limit_nanousd)}/total",
        client_budget="unlimited",
        rate="unlimited",
        global_rate="unlimited",
        max_parallel="unlimited",
        max_parallel_per_client="unlimited",
        ledger=told.ledger,
        namespace=told.namespace,
    )
    clock = SystemClock()
    ledger = open_ledger(
        settings.ledger, namespace=settings.namespace, clock=clock, clients_max=settings.max_clients, shared=False
    )
    chat = Chat(output_tokens_max=1000, script=Script(words=WORDS), gate=anyio.Event())
    guard = RouteGuard.around(chat, settings, build_guard(settings, clock=clock, ledger=ledger, outward=False))
    await ledger.refresh()
    _say("ready")
    await _line()
    clients = [Client(peer=(f"203.0.113.{number + 1}", 50_000)) for number in range(told.asks)]
    streams = [asyncio.create_task(client.call(guard)) for client in clients]
    await wait_until(
        lambda: chat.calls + sum(client.complete for client in clients) >= told.asks, seconds=DECIDED_SECONDS
    )
    _say(str(chat.calls))
    await _line()
    assert chat.gate is not None
    chat.gate.set()
    await asyncio.gather(*streams)
    await ledger.aclose()
    _say(f"{name} ended")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main())
