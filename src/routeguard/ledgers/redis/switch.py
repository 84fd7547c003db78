"""The kill switch of everybody who shares the store.

Rules that live here:

- The store tells the time first, and whoever turns the switch says that time with each try. A copy of a try that the
  network held back finds a later turn, or is too old, and changes nothing; no clock but the store's decides.
- Of two who turn it at once, whoever pauses wins: a pause that somebody undid meanwhile is asked again, a resume is
  not.
"""

import asyncio

from routeguard.ledgers.redis.reply import Reply
from routeguard.ledgers.redis.scripts import PAUSE
from routeguard.ledgers.redis.store import ASKED_AGAIN_MAX, Store
from routeguard.policy import LedgerUnavailable


async def turn_switch(store: Store, *, paused: bool) -> None:
    """Turn it, within a decision's time.

    Raises:
        LedgerUnavailable: It is not known to stand as asked. What was sent may still turn it within the next seconds,
            unless somebody else does so first.
    """
    until = asyncio.get_running_loop().time() + store.timing.decision
    again = {"stale", "late"} if paused else {"stale"}
    reply = await _ask(store, paused=paused, asked="", until=until)
    for _ in range(1 + ASKED_AGAIN_MAX):
        if reply.status in again:
            reply = await _ask(store, paused=paused, asked=str(reply.now_us), until=until)
    if reply.status == "late":
        store.paused = not paused
        raise LedgerUnavailable("somebody else has turned the switch meanwhile; see how it stands, and ask again")
    if reply.status != "ok":
        raise LedgerUnavailable(f"the switch was not turned ({reply.status})")
    store.paused = paused


async def _ask(store: Store, *, paused: bool, asked: str, until: float) -> Reply:
    keys, arguments = list(store.keyspace.common), [asked, "1" if paused else "0"]
    return await store.wait(store.request(PAUSE, lambda: (keys, arguments)), until=until)
