"""A process that calls a model its guard was not configured with: `python -m tests.meter.first_call PRICES`.

Whatever routeguard would wait for on the event loop is an error here.
"""

import asyncio
import sys

from blockbuster import blockbuster_ctx

from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.played import ASYNC, COMPLETION, HI, Caller, calling, whole

USED = {**COMPLETION, "model": "gpt-5", "usage": {"prompt_tokens": 0, "completion_tokens": 100}}
BODY = {"model": "gpt-5", "messages": HI, "max_tokens": 200}


def say(name: str, value: object) -> None:
    sys.stdout.write(f"{name}: {value}\n")


async def main(prices: str) -> None:
    caller = Caller(ASYNC, whole(USED))
    guard = guarded(
        calling(lambda: caller.post(BODY)), model="mine", prices=f"@{prices}", price_in=None, price_out=None
    )
    say("imported", "genai_prices.data" in sys.modules)
    with blockbuster_ctx("routeguard"):
        client = await Client().call(guard)
    if client.error is not None:
        raise client.error
    say("settled", (await parts(guard))["settled"])
    say("imported", "genai_prices.data" in sys.modules)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
