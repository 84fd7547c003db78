"""The tables of `docs/servers.md`: what the matrix has shown, and what follows from it.

`python -m tests.matrix.table` writes them between their marks; `make matrix` does so after it has passed.
"""

from collections.abc import Iterable
from pathlib import Path

from routeguard.caveats import CAVEATS
from tests.matrix.expected import COMBINATIONS, DIFFERENCES, STOP, STOP_TEXT, STOP_USUAL, Difference
from tests.matrix.scenarios import SCENARIOS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "servers.md"

OLDEST_PYTHON = (3, 11)
FRAMEWORK_NAMES = {
    "starlette": "Starlette",
    "fastapi": "FastAPI",
    "fastapi-middleware": 'FastAPI with `@app.middleware("http")`',
    "fastapi-events": "FastAPI's event streams",
    "django": "Django",
    "litestar": "Litestar",
    "quart": "Quart",
}
SERVER_NAMES = {
    "uvicorn": "uvicorn",
    "uvicorn-h11": "uvicorn with h11",
    "hypercorn": "hypercorn",
    "hypercorn-trio": "hypercorn on trio",
    "granian": "granian",
    "daphne": "daphne",
    "gunicorn": "gunicorn's ASGI worker",
}


def matrix() -> str:
    """Each scenario and its usual outcome, and every difference with its reason."""
    usual = [(name, scenario.text, scenario.usual) for name, scenario in SCENARIOS.items()]
    usual.append((STOP, STOP_TEXT, STOP_USUAL))
    return "\n".join(
        [
            f"{len(COMBINATIONS)} combinations, {len(usual)} scenarios each; this is what comes of them:",
            "",
            *_rows(
                ["scenario", "the client …", "and sees", "the ledger"],
                ([name, text, outcome.wire, outcome.ledger] for name, text, outcome in usual),
            ),
            "",
            "Except here:",
            "",
            *_rows(
                ["scenario", "where", "the client sees", "the ledger", "why"],
                (
                    [each.scenario, _where(each), each.outcome.wire, each.outcome.ledger, each.why]
                    for each in DIFFERENCES
                ),
            ),
        ]
    )


def caveats() -> str:
    """What a server or framework cannot give, with its remedy."""
    return "\n".join(_rows(["", "what it cannot give", "what to do"], ([c.about, c.limit, c.remedy] for c in CAVEATS)))


def _where(each: Difference) -> str:
    servers = "every server" if each.servers is None else _listed(SERVER_NAMES, each.servers)
    frameworks = "every framework" if each.frameworks is None else _listed(FRAMEWORK_NAMES, each.frameworks)
    but = "".join(f", but not {FRAMEWORK_NAMES[framework]} on {SERVER_NAMES[server]}" for framework, server in each.but)
    since = "" if each.since == OLDEST_PYTHON else f", on Python {each.since[0]}.{each.since[1]} or newer"
    return f"{frameworks}; {servers}{but}{since}"


def _listed(names: dict[str, str], chosen: Iterable[str]) -> str:
    return ", ".join(names[name] for name in chosen)


def _rows(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [_row(head), "|---" * len(head) + "|", *map(_row, rows)]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


TABLES = {"matrix": matrix, "caveats": caveats}


def written(page: str) -> str:
    """The page with its tables as they should be."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{table()}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
