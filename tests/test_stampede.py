"""The proof on the README's first screen: twenty requests at once, a budget for one, real sockets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    return run_stampede("enforce")


def test_of_twenty_simultaneous_requests_a_budget_for_one_admits_one(
    finished: subprocess.CompletedProcess[str],
) -> None:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert " 20 x 200              spent $0.60" in finished.stdout
    assert "  1 x 200, 19 x 429    spent $0.03" in finished.stdout


def test_the_readme_shows_what_the_stampede_prints(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.stdout in (ROOT / "README.md").read_text()


def test_the_stampede_exits_with_1_when_the_guard_only_observes() -> None:
    finished = run_stampede("observe")

    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "BREACH: spent $0.60 of $0.05" in finished.stdout


def run_stampede(mode: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "examples/stampede.py", "--mode", mode],
        cwd=ROOT,
        # The checkout's own package, also where none is installed.
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
