"""`routeguard prove` as an operator runs it: a table, an exit code, and nobody's application called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from routeguard.cli.prove.rows import ROWS
from routeguard.ledgers.redis.checks import COMMANDS
from tests.prove.copies import SETTINGS
from tests.redis.server import RedisServer, needed_server

APP = """
from fastapi import FastAPI
from routeguard import RouteGuard
app = FastAPI()
app.add_middleware(RouteGuard, paths=["/chat"], price_in=1, price_out=1, budget="5/day", system_prompt_bytes=0)
@app.post("/chat")
async def chat():
    raise SystemExit("the application was called")
"""


def run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "routeguard", "prove", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROUTEGUARD_")}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=90, env={**clean, **environ}, check=False
    )


def test_the_table_has_a_line_for_each_row_and_is_plain_when_piped(tmp_path: Path) -> None:
    environ = {f"ROUTEGUARD_{name}": value for name, value in SETTINGS.items()}

    result = run("--seed", "7", cwd=tmp_path, **environ, PYTHONIOENCODING="utf-8")

    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert all(row.name in result.stdout for row in ROWS)
    assert "ledger memory · seed 7" in result.stdout
    assert "not run: memory:// counts in each process for itself" in " ".join(result.stdout.split())


def test_a_terminal_without_signs_gets_letters(tmp_path: Path) -> None:
    environ = {f"ROUTEGUARD_{name}": value for name, value in SETTINGS.items()}

    result = run(cwd=tmp_path, **environ, PYTHONIOENCODING="ascii")

    assert result.returncode == 0
    assert result.stdout.isascii()
    assert "10 of 40 admitted | 10 provider calls" in result.stdout


def test_the_settings_of_an_application_are_taken_and_the_application_is_not_called(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)

    result = run("shop:app", "--json", cwd=tmp_path)

    report = json.loads(result.stdout)
    assert (result.returncode, report["ok"], report["breaches"]) == (0, True, 0)
    assert report["namespace"].startswith("prove-")
    assert {row["name"] for row in report["rows"]} == {row.name for row in ROWS}
    assert {"name", "proves", "verdict", "expected", "seen", "seconds"} == set(report["rows"][0])


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"ROUTEGUARD_BUDGT": "5/day"}, "did you mean"),
        ({"ROUTEGUARD_MODE": "off"}, "there is no guard"),
        ({"ROUTEGUARD_LEDGER": "redis://shop:hunter2@127.0.0.1:1/0"}, "does not answer"),
        ({"ROUTEGUARD_MAX_INPUT_CHARS": "1"}, "an ordinary request is refused: 413 input_too_long"),
        ({"ROUTEGUARD_EXEMPT_CLIENTS": "203.0.113.0/24"}, "EXEMPT_CLIENTS holds the addresses of documentation"),
    ],
)
def test_what_cannot_be_played_exits_2_and_says_why(environ: dict[str, str], says: str, tmp_path: Path) -> None:
    given = {f"ROUTEGUARD_{name}": value for name, value in SETTINGS.items()}

    result = run(cwd=tmp_path, **{**given, **environ})

    assert result.returncode == 2
    assert says in result.stderr
    assert "hunter2" not in result.stderr
    assert "Traceback" not in result.stderr


def test_what_cannot_be_played_is_json_too(tmp_path: Path) -> None:
    result = run("nowhere:app", "--json", cwd=tmp_path)

    assert result.returncode == 2
    assert json.loads(result.stdout) == {
        "ok": False,
        "problems": ["routeguard: 'nowhere' cannot be imported: No module named 'nowhere'"],
        "rows": [],
    }


@pytest.mark.parametrize(
    ("allowed", "code", "says"),
    [
        (["~{rg:prove-*}:*", "+scan", "+unlink"], 0, ""),
        (["~{rg:prove-*}:*"], 2, "does not permit SCAN"),
        (["~{rg:default}:*", "+scan", "+unlink"], 2, "~{rg:prove-"),
    ],
    ids=["as documented", "may not remove", "other keys"],
)
def test_a_redis_user_that_may_not_remove_it_writes_nothing(
    allowed: list[str], code: int, says: str, tmp_path: Path
) -> None:
    program = needed_server("no user was tried")
    environ = {f"ROUTEGUARD_{name}": value for name, value in SETTINGS.items()}

    with RedisServer(program) as server:
        server.command("ACL", "SETUSER", "shop", "on", ">hunter2", *COMMANDS.split(), *allowed)
        url = f"redis://shop:hunter2@127.0.0.1:{server.port}/0"
        result = run(cwd=tmp_path, **{**environ, "ROUTEGUARD_LEDGER": url})
        keys = server.command("KEYS", "*")

    assert result.returncode == code, result.stdout
    assert says in result.stderr
    assert bool(result.stderr) == bool(code)
    assert "hunter2" not in result.stderr + result.stdout
    # What the start check tried out is gone a second later.
    assert [key for key in keys.split() if key.startswith("{") and ":check:" not in key] == []
