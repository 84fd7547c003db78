"""What an operator asks of a store and changes in it by hand, as the scripts read and say it."""

import json

from routeguard.auditing import Adjustment, Statement
from routeguard.ledgers.redis.reply import Reply
from routeguard.ledgers.redis.store_clock import Calendar
from routeguard.ledgers.redis.written import readable, split_records
from routeguard.records import Note, Sums

#: How long after its window the account of everybody stays; see `PAST_KEPT` in `common.lua`.
PAST_KEPT_SECONDS = 2 * 86_400
ONLY_ORPHANS = "only what is orphaned can be ended by hand"
#: What `adjust.lua` says, as a sentence.
REFUSALS = {
    "nothing": "nothing was ever charged to this counter, so there is nothing to adjust",
    "too_much": (
        "more than what is settled and kept there; open money ends by itself, and orphaned money by --reservation"
    ),
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
