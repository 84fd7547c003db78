"""`routeguard check` as an operator runs it: a process, an environment, an exit code."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
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
        timeout=150,
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
    assert ["PATHS", "/api/chat", "keyword"] in [line.split() for line in result.stdout.splitlines()]
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


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        ("status", "Use GET /_routeguard/status with ADMIN_TOKEN, or share the ledger"),
        ("pause", "Use POST /_routeguard/pause with ADMIN_TOKEN, or share the ledger"),
        ("resume", "Use POST /_routeguard/resume with ADMIN_TOKEN, or share the ledger"),
        ("ledger verify", "reach it. Share the ledger"),
        ("ledger adjust --budget day --usd 1 --reason invoice", "reach it. Share the ledger"),
    ],
)
def test_a_memory_ledger_asked_from_outside_names_the_way_out(folder: Path, command: str, way_out: str) -> None:
    result = run(*command.split(), "shop:app", cwd=folder)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"{way_out} with LEDGER=sqlite:///routeguard.db" in result.stderr


@pytest.mark.parametrize("command", ["check", "prove", "pause", "ledger verify"])
def test_a_command_that_finds_no_settings_says_that_an_application_can_be_named(folder: Path, command: str) -> None:
    result = run(*command.split(), cwd=folder)

    assert result.returncode == 2
    assert "ROUTEGUARD_PATHS is not set" in result.stderr
    assert "name the application" in result.stderr


def test_settings_of_the_environment_that_are_wrong_need_no_application(folder: Path) -> None:
    result = run("check", cwd=folder, ROUTEGUARD_PATHS="/chat")

    assert result.returncode == 2
    assert "name the application" not in result.stderr


def test_the_version_is_that_of_the_package(folder: Path) -> None:
    result = run("--version", cwd=folder)

    assert (result.returncode, result.stdout) == (0, f"routeguard {version('routeguard')}\n")


def test_what_an_application_prints_while_it_is_imported_is_not_in_the_json(folder: Path) -> None:
    (folder / "loud.py").write_text("print('loading the shop')\n" + APP)

    result = run("check", "loud:app", "--json", cwd=folder)

    assert (result.returncode, result.stderr) == (0, "loading the shop\n")
    assert json.loads(result.stdout)["ok"] is True


def test_a_function_that_makes_the_application_is_not_called(folder: Path) -> None:
    (folder / "factory.py").write_text("def create_app():\n    raise SystemExit('called')\n")

    result = run("check", "factory:create_app", cwd=folder)

    assert result.returncode == 2
    assert "'factory:create_app' is a function" in result.stderr


@pytest.mark.parametrize("arguments", [("check", "shop:app"), ("check", "shop:app", "--json")])
def test_a_reader_who_has_seen_enough_is_no_crash(folder: Path, arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    ended = subprocess.run(
        [sys.executable, "-m", "routeguard", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        timeout=150,
        check=False,
    )
    os.close(writing)

    assert ended.returncode == 2, "what nobody has read is not fine, nor only a warning"
    assert ended.stderr == ""


@pytest.mark.parametrize("arguments", [("check", "shop:app"), ("check", "shop:app", "--json")])
def test_a_command_whose_output_is_closed_does_its_work(folder: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "routeguard", *arguments]

    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        timeout=50,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_crash_of_a_command_does_not_look_like_warnings(folder: Path) -> None:
    (folder / "hostile.py").write_text(
        "class App:\n    @property\n    def routes(self):\n        raise RuntimeError('not now')\napp = App()\n"
    )

    result = run("check", "hostile:app", cwd=folder)

    assert result.returncode == 2
    assert "RuntimeError: not now" in result.stderr
