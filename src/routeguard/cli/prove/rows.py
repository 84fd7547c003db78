"""Everything that is proved, in the order in which it is printed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from routeguard.cli.prove import disguises, endings, money, passing, rates, reports, sharing, strangers
from routeguard.cli.prove.findings import Findings
from routeguard.cli.prove.stage import Stage


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is proved, and how."""

    name: str
    #: What holds when it passes, as one sentence.
    proves: str
    run: Callable[[Stage, Findings], Awaitable[None]]
    #: Nothing to see where calls cost nothing.
    needs_money: bool = True


ROWS: Final = (
    Row("ceiling", "The dearest call a request can lead to costs no more than was reserved.", money.ceiling),
    Row("rounding", "Fractions of a nano-dollar are charged upwards, once a call.", money.rounding, needs_money=False),
    Row(
        "token prices",
        "Every kind of token has its price, and a missing count is the most it can be.",
        reports.tokens,
        needs_money=False,
    ),
    Row("stampede", "Many at once never spend more than the budget.", money.stampede),
    Row(
        "parallel streams", "No more streams than slots, and every slot comes back.", money.parallel, needs_money=False
    ),
    Row(
        "rates",
        "No window of a rate's length holds more than its quota, wherever it begins.",
        rates.rates,
        needs_money=False,
    ),
    Row("client's share", "One client cannot use up more than its budget.", strangers.share),
    Row("double settle", "An ending counts once, and an id stands for one reservation.", money.double_settle),
    Row("reports", "Reports add up, and what cannot be used counts at its most.", reports.reports),
    Row("late report", "After the ending no money moves back, and a higher bill is charged.", money.late_report),
    Row("overrun", "A call above its ceiling is charged in full and raises the next ceiling.", money.overrun),
    Row("usage from the stream", "A whole stream is settled exactly, a broken one is kept.", money.read_usage),
    Row("missing usage", "Unknown usage is the whole ceiling, not zero.", money.missing_usage),
    Row("failure", "What fails may have been billed, and stays charged.", endings.failure),
    Row("stream", "An answer goes on chunk by chunk, unchanged and at once.", passing.answer, needs_money=False),
    Row("hanging provider", "A stream that does not end is stopped, and its money kept.", endings.hang),
    Row("disconnect", "A client that leaves before the usage pays the ceiling.", endings.disconnect),
    Row("cancel", "No await can be cancelled so that a slot or money is lost.", endings.cancel),
    Row("crash", "A lease gives the slot back and never the money.", endings.crash),
    Row("midnight", "A stream settles in the window it was reserved in.", endings.midnight),
    Row("two processes", "Processes share one cap, and one that is killed frees no money.", sharing.two_processes),
    Row("lost reply", "An answer that gets lost neither debits twice nor holds money.", sharing.lost_reply),
    Row("spoofed addresses", "Whatever a visitor writes, it stays one client.", strangers.spoofed, needs_money=False),
    Row(
        "side doors",
        "No spelling and no method goes around a guarded path.",
        strangers.side_doors,
        needs_money=False,
    ),
    Row("preflight", "A preflight carries nothing in, and is free only where nothing comes of it.", passing.preflight),
    Row("lying lengths", "What arrives is counted, not what is declared.", strangers.lengths, needs_money=False),
    Row("hostile limits", "No field of a visitor's JSON raises the price.", strangers.limits, needs_money=False),
    Row(
        "disguises",
        "A body is judged by what is in it, whatever it says it is.",
        disguises.disguises,
        needs_money=False,
    ),
    Row("kill switch", "Paused, nothing reaches the application.", strangers.kill_switch, needs_money=False),
    Row("status routes", "Without the admin token nobody sees or steers.", passing.status, needs_money=False),
)
