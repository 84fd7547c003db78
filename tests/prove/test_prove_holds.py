"""The proof of an unbroken guard: it holds with every kind of settings, and leaves nothing behind."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from routeguard.cli.prove.rows import ROWS
from routeguard.cli.prove.run import Proof, proof
from routeguard.config import Settings
from tests.patience import PATIENT_SECONDS
from tests.redis.server import RedisServer, needed_server

GIVEN: dict[str, Any] = {
    "environ": {},
    "paths": ["/api/**"],
    "price_in": "1",
    "price_out": "2",
    "budget": "5/day",
    "system_prompt_bytes": 100,
}
#: How long its rows wait for what they bring about.
BOUNDS = (
    "endings.CALLED_SECONDS",
    "endings.STOPPED_SECONDS",
    "money.DECIDED_SECONDS",
    "rates.CALLED_SECONDS",
    "run.ROW_SECONDS",
    "run.TOTAL_SECONDS",
    "sharing.WORKER_SECONDS",
    "stage.QUIET_SECONDS",
    "stage.QUIET_SECONDS_HERE",
    "strangers.ANSWERED_SECONDS",
)
#: Rows that start processes or wait for a network; one ledger at a time is enough.
SHARED = {"two processes", "lost reply"}


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proof waits for comes when the machine comes to it."""
    for bound in BOUNDS:
        monkeypatch.setattr(f"routeguard.cli.prove.{bound}", PATIENT_SECONDS)


def played(*, leave_out: set[str] = frozenset(), **changes: Any) -> Proof:  # type: ignore[assignment]  # never changed
    settings = Settings(**{**GIVEN, **changes})
    rows = tuple(row for row in ROWS if row.name not in leave_out)
    return proof(settings, seed=7, progress=lambda *_: None, rows=rows)


def verdicts(done: Proof) -> dict[str, str]:
    return {outcome.name: outcome.verdict for outcome in done.outcomes}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"client_ip": "xff:2", "reset_tz": "Australia/Lord_Howe", "budget": "1/hour, 5/week, 50/month"},
        {"budget": "1/hour", "max_stream": "70m"},
        {"platform": "cloudflare", "edge_secret": "X-Edge:0123456789abcdef", "error_format": "anthropic"},
        {"platform": "cloudfront", "edge_secret": "X-Edge:0123456789abcdef"},
        {"client_ip": "forwarded:2", "unknown_client": "reject"},
        {"client_ip": "ranges:10.0.0.0/8,192.168.0.0/16", "budget_status": 429},
        {"platform": "heroku", "on_failure": "exact", "no_call": "release", "calls_per_request": 3},
        {"calls_per_request": 3, "extra_input_bytes": 100, "max_clients": 1, "admin_token": "0123456789abcdef"},
        {"body_types": "json, binary, multipart", "media_usd": "0.01", "websocket": "ignore", "status_path": "/ops"},
        {"read_response": "none", "budget": "unlimited", "mode": "observe", "paused": True},
        {"read_response": "all", "budget": "20/total", "rate": "1/day", "max_parallel": 1, "processes": 4},
        {"methods": "GET", "max_body": "512", "max_input_chars": 20, "body_types": "text"},
        {"allow_fields": "=question", "max_body": "2MB", "extra_usd": "0.01", "ipv6_prefix": 56},
        {"model": "gpt-5-mini, claude-haiku-4-5", "price_in": None, "price_out": None, "max_output_tokens": 4000},
    ],
    ids=lambda changes: ", ".join(f"{name}={value}" for name, value in changes.items()) or "plain",
)
def test_a_sound_guard_holds_with_these_settings(changes: dict[str, Any]) -> None:
    done = played(**changes)

    assert [outcome for outcome in done.outcomes if outcome.verdict == "breach"] == []
    assert done.is_complete
    assert list(verdicts(done).values()).count("held") >= len(ROWS) - 4


def test_hooks_of_the_application_are_not_called() -> None:
    called: list[str] = []

    async def admit(_: object) -> bool:
        called.append("admit")
        return False

    done = played(client=lambda _: called.append("client"), admit=admit)

    assert done.breaches == 0
    assert called == []


def test_free_calls_leave_only_what_is_not_about_money() -> None:
    done = played(price_in=0, price_out=0)

    assert done.breaches == 0
    assert verdicts(done)["stampede"] == "not run"
    assert verdicts(done)["hostile limits"] == "held"


def test_the_same_seed_plays_the_same() -> None:
    first, second = played(), played()

    assert [(one.name, one.expected, one.seen) for one in first.outcomes] == [
        (one.name, one.expected, one.seen) for one in second.outcomes
    ]


def test_a_shared_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    played(ledger=f"sqlite:///{path}", leave_out=SHARED)
    made = list(tmp_path.iterdir())
    # Somebody's ledger, in use.
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version")
    path.touch()

    done = played(ledger=f"sqlite:///{path}", leave_out={"cancel", "client's share"})

    assert made == [], "a file that was not there is not made"
    assert done.breaches == 0
    assert verdicts(done)["two processes"] == "held"
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert tables != []
        assert {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables} == dict.fromkeys(
            tables, 0
        )


def test_a_redis_is_left_as_it_was() -> None:
    program = needed_server("the proof was not played on one")

    with RedisServer(program) as server:
        server.command("SET", "{rg:default}:ledger", "somebody's")
        done = played(ledger=server.url)
        keys = server.command("KEYS", "*")

    assert done.breaches == 0
    assert [name for name, verdict in verdicts(done).items() if verdict != "held"] == []
    assert keys.split() == ["*1", "$19", "{rg:default}:ledger"]
