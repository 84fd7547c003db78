"""`routeguard ledger`: the books are compared, changed by hand and taken elsewhere."""

import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from routeguard import RouteGuard, cli
from routeguard.auditing import Statement
from routeguard.ledgers.sqlite import SqliteLedger
from tests.driver import Client
from tests.guarding import CEILING, reporting
from tests.sqlite.files import close_all

#: A reservation on the counters of another one.
RESERVATION = (
    "INSERT INTO entries SELECT namespace, '{id}', '{state}', {amount}, 0, 0, debits, slots, NULL, NULL, NULL "
    "FROM entries LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Shop:
    """A guarded application that has answered: its files, and how to run a command on them."""

    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    def change(self, file: Path, *statements: str) -> None:
        """What somebody with an editor does."""
        close_all()
        with closing(sqlite3.connect(file)) as db, db:
            for statement in statements:
                db.execute(statement)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Three calls at a cent, one of which nobody reported."""
    shop = Shop(tmp_path)
    variables = {"PATHS": "/chat", "PRICE_IN": "0", "PRICE_OUT": "100", "MAX_OUTPUT_TOKENS": "1000"}
    variables |= {"BUDGET": "1/day, 5/month", "CLIENT_BUDGET": "0.5/day", "SYSTEM_PROMPT_BYTES": "0"}
    variables |= {"LEDGER": f"sqlite:///{shop.ledger}", "JOURNAL": f"sqlite:///{shop.journal}"}
    for name, value in variables.items():
        monkeypatch.setenv(f"ROUTEGUARD_{name}", value)
    anyio.run(_serve)
    return shop


async def _serve() -> None:
    for app in (reporting(cost_usd="0.01"), reporting(cost_usd="0.01"), reporting()):
        guard = RouteGuard(app)
        assert (await Client().call(guard)).status == 200
        assert guard._guard is not None
        await guard._guard.books.aclose()


def run(*arguments: str) -> int:
    """In this process: the command opens the files as any other process would."""
    try:
        return cli.main(["ledger", *arguments])
    finally:
        close_all()


def test_equal_books_are_said_to_be_equal(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("verify")

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert lines[0] == ["budget", "window", "share", "part", "counter", "reservations", "journal"]
    assert ["everybody", "settled", "0.02", "-", "0.02"] in [line[2:] for line in lines if line[0] == "day"]
    assert ["everybody", "kept", "0.1", "-", "0.1"] in [line[2:] for line in lines if line[0] == "month"]
    assert lines[-1] == ["equal:", "3", "counters"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_ends_beside_a_look_makes_no_difference(
    shop: Shop, moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store with many clients takes a while to read, and something ends all the time."""
    ask, looks = SqliteLedger.statement, 0

    async def ask_while_others_serve(ledger: SqliteLedger) -> Statement:
        nonlocal looks
        looks += 1
        if moment == "before" and looks == 1:
            await _serve()
        statement = await ask(ledger)
        if moment == "after":
            await _serve()
        return statement

    monkeypatch.setattr(SqliteLedger, "statement", ask_while_others_serve)

    code = run("verify")

    assert capsys.readouterr().out.splitlines()[-1] == "equal: 3 counters"
    assert (code, looks) == (0, 2 if moment == "before" else 1)


@pytest.mark.parametrize(
    ("file", "statements", "says"),
    [
        (
            "ledger",
            ["UPDATE counters SET kept = kept + 1"],
            "kept: the counter has 0.100000001 USD, the journal 0.1 USD",
        ),
        (
            "ledger",
            [RESERVATION.format(id="x", state="open", amount=5)],
            "open: the counter has 0 USD, its reservations add up to 0.000000005 USD",
        ),
        (
            "journal",
            ["DROP TRIGGER journal_is_not_cut", "DELETE FROM journal WHERE event = 'keep'"],
            "the rows of the journal do not add up to the sums beside them",
        ),
        (
            "journal",
            ["UPDATE journal_sums SET settled_nanousd = 0"],
            "settled: the counter has 0.02 USD, the journal 0 USD",
        ),
    ],
)
def test_a_difference_in_any_of_the_three_is_named(
    shop: Shop, file: str, statements: Sequence[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.change(getattr(shop, file), *statements)

    code = run("verify")

    out = capsys.readouterr().out
    assert code == 1
    assert says in out
    assert out.splitlines()[-1].startswith("DIFFERENT: 3 counters")


def test_verify_prints_json_for_programs(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("verify", "--json")

    found = json.loads(capsys.readouterr().out)
    (day,) = [line for line in found["counters"] if (line["budget"], line["share"]) == ("day", "everybody")]
    assert (code, found["ok"], found["unwritten"]) == (0, True, 0)
    assert day["counted"] == {
        "settled_usd": "0.02",
        "kept_usd": "0.1",
        "orphaned_usd": "0",
        "overrun_usd": "0",
        "open_usd": "0",
    }
    assert day["journal"] == {"settled_usd": "0.02", "kept_usd": "0.1", "orphaned_usd": "0", "overrun_usd": "0"}


def test_verify_changes_nothing(shop: Shop) -> None:
    before = [_dump(shop.ledger), _dump(shop.journal)]

    run("verify")

    assert [_dump(shop.ledger), _dump(shop.journal)] == before


def test_verify_without_a_journal_compares_counters_and_reservations(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ROUTEGUARD_JOURNAL")

    equal = run("verify")
    shop.change(shop.ledger, "UPDATE counters SET open = 1")
    different = run("verify")

    assert (equal, different) == (0, 1)
    assert "its reservations add up to 0 USD" in capsys.readouterr().out


@pytest.mark.parametrize("action", [["verify"], ["adjust", "--budget", "day", "--usd", "1", "--reason", "r"]])
def test_the_books_of_a_process_cannot_be_reached(
    shop: Shop, action: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUTEGUARD_LEDGER", "memory://")

    code = run(*action)

    assert code == 2
    assert "sqlite://" in capsys.readouterr().err


def test_a_journal_that_is_not_there_is_not_made_by_looking(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = shop.folder / "nowhere.db"
    monkeypatch.setenv("ROUTEGUARD_JOURNAL", f"sqlite:///{nowhere}")

    codes = [run("verify"), run("export")]

    assert codes == [2, 2]
    assert "there is no journal at" in capsys.readouterr().err
    assert not nowhere.exists()


def test_an_adjustment_has_a_row_with_its_reason_and_the_books_stay_equal(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [
        run("adjust", "--budget", "day", "--usd", "-0.11", "--reason", "provider invoice 2026-11"),
        run("adjust", "--budget", "month", "--usd", "0.25", "--reason", "a script without the guard"),
        run("verify"),
    ]

    out = capsys.readouterr().out
    assert codes == [0, 0, 0]
    assert "everybody: settled -0.01 USD, kept -0.1 USD" in out
    assert "everybody: settled +0.25 USD" in out
    assert _select(shop.journal, "SELECT reason FROM journal WHERE event = 'adjust'") == [
        ("provider invoice 2026-11",),
        ("a script without the guard",),
    ]
    assert _select(shop.ledger, "SELECT reason FROM adjustments ORDER BY wall_ns")[0] == ("provider invoice 2026-11",)


def test_a_client_is_adjusted_by_its_hash(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    ((client,),) = _select(shop.journal, "SELECT DISTINCT client FROM journal")

    code = run("adjust", "--budget", "day", "--client", str(client), "--usd", "-0.05", "--reason", "goodwill")

    assert code == 0
    assert f"{client}: kept -0.05 USD" in capsys.readouterr().out
    assert run("verify") == 0


def test_an_adjustment_repeated_with_its_id_is_done_once(shop: Shop) -> None:
    for _ in range(2):
        code = run("adjust", "--budget", "day", "--usd", "0.25", "--reason", "once", "--id", "mine")

    assert code == 0
    assert _select(
        shop.ledger,
        "SELECT DISTINCT settled FROM counters c JOIN budgets b ON b.id = c.budget "
        "WHERE b.unit = 'day' AND b.per_client = 0",
    ) == [(270_000_000,)]
    assert run("verify") == 0


@pytest.mark.parametrize("other", [("day", "0.5"), ("month", "0.25")])
def test_another_adjustment_with_a_used_id_is_not_said_to_be_done(
    shop: Shop, other: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    run("adjust", "--budget", "day", "--usd", "0.25", "--reason", "once", "--id", "mine")
    before = _select(shop.ledger, "SELECT * FROM counters")
    budget, usd = other

    code = run("adjust", "--budget", budget, "--usd", usd, "--reason", "another", "--id", "mine")

    assert code == 2
    said = capsys.readouterr().err
    assert "--id mine was used before, for day " in said
    assert "everybody: settled +0.25 USD" in said
    assert _select(shop.ledger, "SELECT * FROM counters") == before


def test_an_orphan_is_ended_by_its_bill(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.change(
        shop.ledger,
        RESERVATION.format(id="lost", state="orphaned", amount=CEILING),
        "UPDATE counters SET orphaned = 100000000",
    )
    journal_lacks_it = run("verify")

    codes = [
        run("adjust", "--reservation", "lost", "--settled-usd", "0.0123", "--reason", "found on the invoice"),
        run("adjust", "--reservation", "lost", "--settled-usd", "0.0123", "--reason", "found on the invoice"),
    ]

    assert journal_lacks_it == 1
    assert codes == [0, 2]
    assert "orphaned -0.1 USD" in capsys.readouterr().out
    assert _select(shop.ledger, "SELECT DISTINCT settled, kept, orphaned FROM counters") == [
        (32_300_000, 100_000_000, 0)
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", "day", "--usd", "-3"], "more than what is settled and kept"),
        (["--budget", "week", "--usd", "1"], "BUDGET has no window 'week': day, month"),
        (["--budget", "day", "--usd", "0"], "changes nothing"),
        (["--budget", "day", "--usd", "a lot"], "is not an amount"),
        (["--budget", "day"], "name --budget and --usd"),
        (["--reservation", "x", "--usd", "1"], "goes with --settled-usd"),
        (["--reservation", "x", "--settled-usd", "1"], "not known any more"),
        (["--budget", "day", "--client", "stranger", "--usd", "1"], "nothing was ever charged"),
        (["--budget", "day", "--usd", "1", "--reason", "two\nlines"], "characters that can be printed"),
        (["--budget", "day", "--usd", "1", "--reason", " "], "characters that can be printed"),
        (["--budget", "day", "--usd", "1", "--id", "two words"], "without spaces"),
        (["--budget", "day", "--usd", "1", "--id", "two\nlines"], "without spaces"),
        (["--budget", "day", "--usd", "1", "--id", "x" * 101], "1 to 100"),
    ],
)
def test_an_adjustment_that_cannot_be_changes_nothing(
    shop: Shop, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("adjust", "--reason", "why", *arguments)

    assert code == 2
    assert says in capsys.readouterr().err
    assert run("verify") == 0


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_an_export_holds_every_row_and_every_cent(shop: Shop, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("adjust", "--budget", "day", "--usd", "-0.000000001", "--reason", 'a, "b"; c')
    capsys.readouterr()

    code = run("export", "--format", kind)

    rows = _parse(capsys.readouterr().out, kind)
    assert code == 0
    assert [row["event"] for row in rows] == ["settle", "settle", "keep", "adjust"]
    assert [row["kept_usd"] for row in rows] == ["0", "0", "0.1", "-0.000000001"]
    assert rows[-1]["reason"] == 'a, "b"; c'
    assert all(re.fullmatch(r"20..-..-..T..:..:..\.\d{9}Z", str(row["at"])) for row in rows)
    assert {row["path"] for row in rows[:3]} == {"/chat"}
    counters = rows[0]["counters"]
    assert len(counters if isinstance(counters, list) else str(counters).split()) == 3


@pytest.mark.parametrize("reason", ["=cmd|'/C calc'!A1", "+1", "-1", "@SUM(A1)"])
def test_a_text_that_a_spreadsheet_would_run_is_made_harmless(
    shop: Shop, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("adjust", "--budget", "day", "--usd", "-0.01", f"--reason={reason}")
    capsys.readouterr()

    run("export")
    text = capsys.readouterr().out
    run("export", "--format", "json")

    last = list(csv.DictReader(io.StringIO(text)))[-1]
    assert last["reason"] == f"'{reason}"
    assert last["kept_usd"] == "-0.01", "a number stays one"
    assert json.loads(capsys.readouterr().out)[-1]["reason"] == reason


def test_an_export_begins_where_it_is_told_to(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    run("export", "--format", "json", "--since", "2999-01-01")
    later = capsys.readouterr().out
    run("export", "--format", "json", "--since", "2020-01-01T00:00:00+02:00")

    assert json.loads(later) == []
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_the_rows_of_a_memory_ledger_can_be_exported(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUTEGUARD_LEDGER", "memory://")

    code = run("export")

    assert code == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_whoever_reads_an_export_may_stop_early(shop: Shop) -> None:
    for _ in range(2):
        shop.change(
            shop.journal,
            *[
                "INSERT INTO journal SELECT NULL, namespace, ledger, id || hex(randomblob(8)), event, at_ns, path, "
                "client, model, input_tokens, output_tokens, ceiling_nanousd, 0, 0, 0, 0, '[]', why, reason "
                "FROM journal"
            ]
            * 5,
        )

    with subprocess.Popen(
        [sys.executable, "-m", "routeguard", "ledger", "export"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        complaints = process.stderr.read()

    assert (process.returncode, complaints) == (0, b"")


def _parse(text: str, kind: str) -> list[dict[str, object]]:
    if kind == "json":
        found: list[dict[str, object]] = json.loads(text)
        return found
    return [dict(row) for row in csv.DictReader(io.StringIO(text))]


def _dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as db:
        return [line for line in db.iterdump() if "namespaces" not in line]


def _select(file: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(query).fetchall()
