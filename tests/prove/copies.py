"""Copies of the package with one line changed, and what `routeguard prove` says about each."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import routeguard

PACKAGE = Path(routeguard.__path__[0])
SETTINGS = {
    "PATHS": "/api/chat",
    "PRICE_IN": "1",
    "PRICE_OUT": "2",
    "BUDGET": "5/day, 50/month",
    "SYSTEM_PROMPT_BYTES": "100",
    "CLIENT_IP": "xff:1",
    "EDGE_SECRET": "X-Edge:0123456789abcdef",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One change to the source."""

    name: str
    file: str
    before: str
    after: str
    #: Rows that must notice; others may.
    caught_by: frozenset[str]


def broken_copy(fault: Fault | None, folder: Path) -> Path:
    """A folder to put in front of the path, with a copy of the package in it."""
    copy = folder / "routeguard"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if fault is not None:
        file = copy / fault.file
        text = file.read_text()
        assert text.count(fault.before) == 1, f"{fault.name}: {fault.file} has changed; the fault needs its new text"
        file.write_text(text.replace(fault.before, fault.after))
    return folder


def proved(copy: Path, **changes: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit code, the rows by name, and what was said on stderr."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ROUTEGUARD_")}
    environ |= {f"ROUTEGUARD_{name}": value for name, value in {**SETTINGS, **changes}.items()}
    # `-P` leaves the working directory out; a copy without byte code is compiled in memory.
    environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "routeguard", "prove", "--json", "--seed", "7"]
    result = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=280, check=False, cwd=copy)
    assert result.stdout, result.stderr
    rows = {row["name"]: row for row in json.loads(result.stdout)["rows"]}
    return result.returncode, rows, result.stderr


def breaches(rows: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, row in rows.items() if row["verdict"] == "breach"}
