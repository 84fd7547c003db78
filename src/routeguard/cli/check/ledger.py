"""Whether the ledger answers, whether what is behind it can keep money, and whether the journal can be written."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.journal import open_journal
from routeguard.ledgers import ledger_kind, open_ledger, sqlite_file
from routeguard.policy import LedgerUnavailable

if TYPE_CHECKING:
    from routeguard.config import Settings

#: How long to wait for it.
PING_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ping:
    """How the ledger answered."""

    #: One line for people.
    says: str
    answers: bool
    milliseconds: float | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def ping(settings: "Settings") -> Ping:
    """Ask the ledger of these settings; bounded."""
    kind = ledger_kind(settings.ledger)
    if kind == "memory":
        return Ping("in the process itself: nothing to ask", answers=True)
    if kind == "sqlite" and not (path := sqlite_file(settings.ledger)[0]).exists():
        # Not made here: its owner would be whoever runs this command.
        folder = path.absolute().parent
        if folder.is_dir():
            return Ping(f"{path.absolute()} is made with the first request", answers=True)
        problem = f"LEDGER: there is no folder {folder} to make the ledger file in"
        return Ping("it cannot be made", answers=False, problems=(problem,))
    # What goes wrong is said once, here.
    logging.getLogger("routeguard").addHandler(logging.NullHandler())
    return anyio.run(_ping, settings)


def ask_journal(settings: "Settings") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stops the server because of the journal, and what the server would warn of."""
    if settings.journal is None:
        return (), ()
    path = sqlite_file(settings.journal)[0]
    if path.exists():
        logging.getLogger("routeguard").addHandler(logging.NullHandler())
        return anyio.run(_ask_journal, settings)
    folder = path.absolute().parent
    if folder.is_dir():
        return (), ()
    return (), (
        f"JOURNAL: there is no folder {folder} to make the file in; its rows wait, and in the end requests get 503",
    )


async def _ask_journal(settings: "Settings") -> tuple[tuple[str, ...], tuple[str, ...]]:
    assert settings.journal is not None
    journal = open_journal(settings.journal, namespace=settings.namespace)
    try:
        return (), await journal.check()
    except ConfigError as error:
        return error.problems, ()
    finally:
        await journal.aclose()


async def _ping(settings: "Settings") -> Ping:
    ledger = open_ledger(
        settings.ledger,
        namespace=settings.namespace,
        clock=SystemClock(),
        clients_max=settings.max_clients,
        shared=False,
    )
    warnings: tuple[str, ...] = ()
    began = anyio.current_time()
    try:
        with anyio.fail_after(PING_SECONDS):
            warnings = await ledger.check()
            began = anyio.current_time()
            await ledger.refresh()
            milliseconds = (anyio.current_time() - began) * 1000
    except ConfigError as error:
        return Ping("it cannot be used", answers=False, problems=error.problems)
    except (LedgerUnavailable, TimeoutError) as error:
        says = str(error) or f"no answer within {PING_SECONDS:.0f} s"
        return Ping("it does not answer", answers=False, problems=(f"LEDGER: {says}; every request would get 503",))
    finally:
        await ledger.aclose()
    state = "paused" if ledger.paused else "not paused"
    says = f"answers in {milliseconds:.1f} ms, {state}"
    return Ping(says, answers=True, milliseconds=round(milliseconds, 3), warnings=warnings)
