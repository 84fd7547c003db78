"""Which combinations there are, and where one of them differs from the usual outcome of a scenario, and why."""

import sys
from collections.abc import Collection
from dataclasses import dataclass

from tests.matrix.apps import FRAMEWORKS
from tests.matrix.scenarios import CANCEL_VIEWS, SCENARIOS, Outcome
from tests.matrix.servers import SERVERS

#: These run on asyncio alone.
ASYNCIO_ONLY = {"django", "quart"}
COMBINATIONS = [
    (framework, server)
    for framework in FRAMEWORKS
    for server in SERVERS
    if not (server == "hypercorn-trio" and framework in ASYNCIO_ONLY)
]
#: What CI runs; the rest is for `make matrix`.
CORE = [
    *(
        (framework, server)
        for framework in ("starlette", "fastapi-middleware", "django")
        for server in ("uvicorn", "hypercorn", "granian")
    ),
    ("django", "daphne"),
]

STOP = "SIGTERM"
STOP_TEXT = "is in mid-stream when the server is told to stop, with a grace of 1 s"
STOP_USUAL = Outcome("200 cut", "kept")


@dataclass(frozen=True, slots=True)
class Difference:
    """An outcome that is not the usual one."""

    scenario: str
    outcome: Outcome
    why: str
    #: None: all of them.
    frameworks: Collection[str] | None = None
    servers: Collection[str] | None = None
    #: Combinations that are as usual nevertheless.
    but: Collection[tuple[str, str]] = ()
    #: The first Python where it is so.
    since: tuple[int, int] = (3, 11)

    def __str__(self) -> str:
        return f"{self.scenario} {self.outcome}"

    def is_about(self, framework: str, server: str) -> bool:
        return (
            (self.frameworks is None or framework in self.frameworks)
            and (self.servers is None or server in self.servers)
            and (framework, server) not in self.but
        )


CUTS_NOTHING = ("fastapi-middleware", "fastapi-events")

DIFFERENCES = [
    Difference(
        "raises mid-stream",
        Outcome("200 whole", "kept"),
        '`@app.middleware("http")` and FastAPI\'s event streams end a failed stream well; only the ledger knows better',
        frameworks=CUTS_NOTHING,
        but=[("fastapi-events", "hypercorn-trio")],
    ),
    Difference(
        "raises mid-stream",
        Outcome("200 left open", "kept"),
        "daphne leaves the connection of a failed stream open; the client waits for its own timeout",
        frameworks=[name for name in FRAMEWORKS if name not in CUTS_NOTHING],
        servers=["daphne"],
    ),
    Difference(
        "leaves before first byte",
        Outcome("left", "kept"),
        "the view is cancelled with its client; in the others it runs to its end and reports",
        frameworks=sorted(CANCEL_VIEWS),
    ),
    Difference(
        "100-continue, too large",
        Outcome("100, 413 whole", "refused request_too_large"),
        'the server says "go on" before it asks the application, so the body is sent and thrown away',
        servers=["hypercorn", "hypercorn-trio", "daphne"],
    ),
    Difference(
        "lying length",
        Outcome("400 whole", "nothing"),
        "the server refuses it before the guard sees it",
        servers=["uvicorn", "daphne", "gunicorn"],
    ),
    Difference(
        "lying length",
        Outcome("200 whole", "settled"),
        "granian drops the length and reads the chunks, as RFC 9112 allows; the guard counts what arrives",
        servers=["granian"],
    ),
    Difference(
        "slow upload",
        Outcome("nothing until the end, 200 whole", "settled"),
        "daphne reads the whole body before it calls anyone, so the guard cannot time it",
        servers=["daphne"],
    ),
    Difference(
        "HEAD",
        Outcome("405 whole", "released"),
        "Litestar answers HEAD only where a route names it",
        frameworks=["litestar"],
    ),
    Difference(
        "OPTIONS",
        Outcome("204 whole", "kept"),
        "Litestar answers OPTIONS itself, and no call was reported; `METHODS=POST` leaves it unguarded",
        frameworks=["litestar"],
    ),
    Difference(
        STOP,
        Outcome("200 cut", "open"),
        "the server kills its worker and tells nobody; the money stays charged, the slot until its lease ends",
        servers=["granian", "gunicorn"],
    ),
    Difference(
        STOP,
        Outcome("200 left open", "kept"),
        "the server first waits until the last connection is closed, whatever grace it was given",
        servers=["hypercorn"],
        since=(3, 12),
    ),
]


def expected(framework: str, server: str, scenario: str) -> Outcome:
    """What a scenario comes to in this combination."""
    about = [each for each in DIFFERENCES if each.scenario == scenario and each.is_about(framework, server)]
    found = [each for each in about if sys.version_info >= each.since]
    assert len(found) <= 1, f"{framework} on {server} differs twice in {scenario}"
    if found:
        return found[0].outcome
    return STOP_USUAL if scenario == STOP else SCENARIOS[scenario].usual
