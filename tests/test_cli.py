"""`routeguard check` as an operator runs it: a process, an environment, an exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
from fastapi import FastAPI
from routeguard import RouteGuard
app = FastAPI()
app.add_middleware(RouteGuard, paths=["/api/chat"], price_in=1, price_out=1, budget="5/day", system_prompt_bytes=0)
bare = FastAPI()
"""


def run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "routeguard", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=50,
        env={**os.environ, **environ},
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def test_check_says_each_setting_with_its_source_and_ends_well(folder: Path) -> None:
    result = run("check", "shop:app", cwd=folder, ROUTEGUARD_MAX_BODY="32kB")

    assert (result.returncode, result.stderr) == (0, "")
    assert ["BUDGET", "5/day", "keyword"] in [line.split() for line in result.stdout.splitlines()]
    assert ["MAX_BODY", "32kB", "environment"] in [line.split() for line in result.stdout.splitlines()]
    assert "routeguard: /api/chat · $5.00/day" in result.stdout


def test_check_lists_every_problem_and_fails(folder: Path) -> None:
    result = run("check", cwd=folder, ROUTEGUARD_BUDGT="5/day", ROUTEGUARD_RATE="often")

    assert result.returncode == 2
    assert "did you mean 'ROUTEGUARD_BUDGET'" in result.stderr
    assert "ROUTEGUARD_RATE='often'" in result.stderr


def test_check_warns_with_one(folder: Path) -> None:
    environ = {"ROUTEGUARD_PATHS": "/chat", "ROUTEGUARD_PRICE_IN": "1", "ROUTEGUARD_PRICE_OUT": "1"}

    result = run("check", cwd=folder, **environ)

    assert result.returncode == 1
    assert "warning: 0 bytes of system prompt assumed" in result.stdout


def test_check_prints_json_without_secrets(folder: Path) -> None:
    result = run("check", "shop:app", "--json", cwd=folder, ROUTEGUARD_ADMIN_TOKEN="a-token-nobody-may-see")

    report = json.loads(result.stdout)
    assert report["settings"]["ADMIN_TOKEN"] == {"value": "***", "source": "environment"}
    assert report["budgets"][0]["name"] == "day"
    assert "nobody-may-see" not in result.stdout


@pytest.mark.parametrize(("target", "says"), [("shop:bare", "no RouteGuard"), ("nowhere:app", "cannot be imported")])
def test_check_of_an_application_without_a_guard_fails(folder: Path, target: str, says: str) -> None:
    result = run("check", target, cwd=folder)

    assert result.returncode == 2
    assert says in result.stderr


@pytest.mark.parametrize("command", ["status", "pause", "resume"])
def test_steering_a_memory_ledger_from_outside_names_the_way_out(folder: Path, command: str) -> None:
    result = run(command, "shop:app", cwd=folder)

    assert result.returncode == 2
    assert "sqlite://" in result.stderr
