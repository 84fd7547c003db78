"""What an operator asks of a store and changes in it by hand, as the scripts read and say it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from routeguard.auditing import Adjustment, Statement
from routeguard.ledgers.redis.reply import Reply, read_reply
from routeguard.ledgers.redis.scripts import STATEMENT
from routeguard.ledgers.redis.session import FAILURES, Session, error_code, said_of
from routeguard.ledgers.redis.store_clock import Calendar
from routeguard.ledgers.redis.written import readable, split_records
from routeguard.money import NANOUSD_MAX, format_usd
from routeguard.policy import LedgerUnavailable
from routeguard.records import Note, Sums

#: How long after its window the account of everybody stays; see `PAST_KEPT` in `common.lua`.
PAST_KEPT_SECONDS = 2 * 86_400
#: What a statement may take: of 100,000 accounts the server needs a quarter of a second, and their reader one more.
STATEMENT_SECONDS: Final = 30.0
ONLY_ORPHANS = "only what is orphaned can be ended by hand"
#: What `adjust.lua` says, as a sentence.
REFUSALS = {
    "nothing": "nothing was ever charged to this counter, so there is nothing to adjust",
    "too_much": (
        "more than what is settled and kept there; open money ends by itself, and orphaned money by --reservation"
    ),
    "too_high": f"more than {format_usd(NANOUSD_MAX)} USD would be charged there, and no budget is as large",
    "forgotten": f"the reservation is not known any more: {ONLY_ORPHANS}",
}


def adjust_arguments(adjustment: Adjustment, calendar: Calendar, wall_seconds: int) -> list[str]:
    """As `adjust.lua` reads them."""
    note = json.dumps(Note(why="adjusted", reason=adjustment.reason))
    found = [adjustment.id, str(adjustment.nanousd), note]
    if adjustment.budget is None:
        return [*found, "", "", "", "", ""]
    budget, client = adjustment.budget, adjustment.client
    share = f"c|{client}" if client else "o" if budget.per_client else "a"
    return [*found, *calendar.windows(budget, wall_seconds).arguments(), share]


async def ask_for_statement(
    connect: Callable[[], AbstractConnection], keys: Sequence[str], *, epoch: str, moment: str
) -> Reply:
    """What `statement.lua` says, on a connection of its own: a decision could not wait for it.

    Raises:
        LedgerUnavailable: The store did not answer, or has an account that cannot be read.
    """
    session = Session(connect())
    try:
        async with asyncio.timeout(STATEMENT_SECONDS):
            await session.open()
            text = STATEMENT.source(allow_oom=session.allow_oom).text
            (answer,) = await session.exchange([("EVAL", text, str(len(keys)), *keys, epoch, moment, "")])
    except FAILURES as failure:
        raise LedgerUnavailable(f"the store does not answer ({said_of(failure)})") from None
    finally:
        await session.close()
    if isinstance(answer, ResponseError):
        raise LedgerUnavailable(f"the store refused to run a script ({error_code(answer)})")
    assert isinstance(answer, list), "every script of ours answers with a list"
    reply = read_reply(answer)
    if reply.status == "unreadable":
        raise LedgerUnavailable(
            f"what the store has for {reply.first} cannot be read: somebody wrote it by hand; delete that field of the "
            "hash while a process runs, which then raises it to what it knows"
        )
    return reply


def read_statement(reply: Reply, ledger: str) -> Statement:
    """What `statement.lua` says."""
    counted = {
        account.field: Sums(
            account.parts.settled,
            account.parts.kept,
            account.parts.orphaned,
            account.parts.overrun,
            account.parts.open,
        )
        for account in reply.accounts
    }
    recorded = {}
    for line in reply.second.splitlines():
        field, opened, orphaned = line.split(" ")
        recorded[field] = Sums(orphaned=int(orphaned), open=int(opened))
    unwritten = tuple([record for _, record in readable(split_records(reply.first))])
    return Statement(ledger, counted, recorded, unwritten, reply.wall_seconds - PAST_KEPT_SECONDS)
