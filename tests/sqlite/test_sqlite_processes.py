"""Several processes on one ledger file, and what is left when they are killed, forked, or out of disk."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from routeguard.testing.ledger_contract.claims import CALL
from tests.sqlite.files import check_sums, locked, number, rows
from tests.sqlite.worker import CAP, ROUNDS

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_SECONDS = 120
#: How long the killing goes on, and how often.
KILLS = 10
KILL_EVERY_SECONDS = 0.05


class Worker:
    """A process that runs one function of `tests.sqlite.worker`."""

    def __init__(self, name: str, path: Path, argument: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite.worker", name, str(path), argument],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == '"ready"\n', line or self.process.communicate()[1]

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def found(self) -> Any:
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def kill(self) -> str:
        """Kill it at once. Returns what it had said."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.communicate(timeout=WAIT_SECONDS)[0]


@contextmanager
def workers(name: str, path: Path, argument: str = "", *, count: int = 1) -> Iterator[list[Worker]]:
    """So many processes, all ready before the first begins."""
    started = [Worker(name, path, argument) for _ in range(count)]
    try:
        for worker in started:
            worker.wait_until_ready()
        for worker in started:
            worker.begin()
        yield started
    finally:
        for worker in started:
            if worker.process.poll() is None:
                worker.kill()


def test_of_two_hundred_at_once_in_four_processes_exactly_ten_are_admitted(path: Path) -> None:
    with workers("stampede", path, count=4) as running:
        admitted = [worker.found() for worker in running]

    assert [sum(of_round) for of_round in zip(*admitted, strict=True)] == [10] * ROUNDS
    assert rows(path, "SELECT DISTINCT open, settled FROM counters WHERE partition = ''") == [(10 * CALL, 0)]
    assert number(path, "SELECT sum(used) FROM slots WHERE partition = ''") == 10 * ROUNDS
    check_sums(path)


def test_killing_processes_at_random_loses_no_money_and_admits_none_too_much(path: Path) -> None:
    rng = random.Random(11)
    said: list[str] = []
    running: list[Worker] = []
    try:
        for _ in range(KILLS):
            while len(running) < 4:
                running.append(Worker("spend", path))
                running[-1].wait_until_ready()
                running[-1].begin()
            _wait_until_billed(path)
            time.sleep(KILL_EVERY_SECONDS)
            said.append(running.pop(rng.randrange(len(running))).kill())
    finally:
        said += [worker.kill() for worker in running]

    billed = sum(int(line) for text in said for line in text.splitlines())
    ((settled, is_open),) = rows(
        path, "SELECT settled, open FROM counters JOIN budgets ON budgets.id = budget WHERE NOT per_client"
    )
    assert isinstance(settled, int)
    assert isinstance(is_open, int)
    check_sums(path)
    assert 0 < billed <= settled + is_open <= CAP
    assert is_open <= 64 * CALL


def _wait_until_billed(path: Path) -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while True:
        # Before the first of them has opened the file there is no table.
        with suppress(sqlite3.OperationalError):
            if number(path, "SELECT coalesce(sum(settled), 0) FROM counters"):
                return
        assert time.monotonic() < ends, "nobody has settled anything"
        time.sleep(0.005)


def test_a_process_that_was_killed_leaves_its_money_charged_and_its_slot_leased(path: Path) -> None:
    with workers("hold", path) as (held,):
        pass
    with workers("hold", path) as (late,):
        found = late.found()

    assert held.process.returncode == -signal.SIGKILL
    assert found == "refused"
    assert number(path, "SELECT open FROM counters") == CALL
    assert number(path, "SELECT count(*) FROM entries WHERE lease_ends_ns IS NOT NULL") == 1


def test_what_is_queued_when_a_process_ends_is_written_before_it_does(path: Path) -> None:
    with workers("leave", path) as (worker,):
        worker.found()

    assert rows(path, "SELECT settled, open, overrun FROM counters") == [(7, 0, 4)]
    check_sums(path)


def test_both_sides_of_a_fork_go_on_with_connections_of_their_own(path: Path) -> None:
    with workers("fork", path) as (worker,):
        found = worker.found()

    assert found == [200, 200]
    assert number(path, "SELECT open FROM counters") == 400 * CALL
    check_sums(path)


def test_a_full_disk_refuses_and_writes_what_ended_once_there_is_room(path: Path) -> None:
    with workers("fill", path) as (worker,):
        found = worker.found()

    assert len(found["errors"]) == 20
    assert "free some disk space" in found["errors"][0] or "look at the disk" in found["errors"][0]
    assert found["slowest"] < 1
    assert found["waiting"] == 50
    assert (found["settled"], found["open"], found["after"]) == (50, 0, True)
    check_sums(path)


@pytest.mark.parametrize("has_file", [False, True])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, *, has_file: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    path = folder / "ledger.db"
    if has_file:
        with workers("leave", path) as (worker,):
            worker.found()
        path.chmod(0o444)
    folder.chmod(0o555)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    tmp_path.chmod(0o755)

    with workers("unwritable", path) as (worker,):
        found = worker.found()

    assert "this process" in found
    assert str(folder) in found
    assert "may write" in found or "let this process write" in found


def test_guards_in_four_processes_share_one_cap(path: Path) -> None:
    """One dollar, ten cents a call that nobody reports, and forty requests at once."""
    with workers("serve", path, "10", count=4) as running:
        found = [worker.found() for worker in running]

    assert sum(statuses.get("200", 0) for statuses in found) == 10
    assert sum(statuses["calls"] for statuses in found) == 10
    refused = [statuses.get(status, 0) for statuses in found for status in ("429", "503")]
    assert sum(refused) == 30
    check_sums(path)


def test_a_guard_whose_file_is_locked_answers_503_within_a_second(path: Path) -> None:
    with workers("leave", path) as (worker,):
        worker.found()

    with locked(path), workers("refuse", path, "5") as (worker,):
        found = worker.found()

    assert found == {"503": 5, "calls": 0}


def cli(path: Path, *arguments: str, budget: str = "1/total, 5/day") -> subprocess.CompletedProcess[str]:
    """The command line, as an operator uses it beside the guard."""
    environ = {
        "ROUTEGUARD_PATHS": "/chat",
        "ROUTEGUARD_PRICE_IN": "0",
        "ROUTEGUARD_PRICE_OUT": "100",
        "ROUTEGUARD_BUDGET": budget,
        "ROUTEGUARD_LEDGER": f"sqlite:///{path}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    return subprocess.run(
        [sys.executable, "-m", "routeguard", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def test_the_command_line_pauses_guards_of_other_processes_and_resumes_them(path: Path) -> None:
    served = []
    with workers("serve", path, "1") as (worker,):
        served.append(worker.found())
    paused = cli(path, "pause")
    with workers("serve", path, "3") as (worker,):
        served.append(worker.found())
    status = cli(path, "status")
    resumed = cli(path, "resume")
    with workers("serve", path, "1") as (worker,):
        served.append(worker.found())

    assert served == [{"200": 1, "calls": 1}, {"503": 3, "calls": 0}, {"200": 1, "calls": 1}]
    assert [(one.returncode, one.stderr) for one in (paused, status, resumed)] == [(0, "")] * 3
    assert paused.stdout == ("paused: everybody who shares this sqlite ledger and the namespace default, within 2 s\n")
    lines = status.stdout.splitlines()
    assert lines[0].startswith("paused, 0 in flight")
    assert lines[1] == "budget 1 USD per total: 0 settled, 0 open, 0.1 kept, 0 orphaned, 0.9 remaining; never resets"
    assert lines[2].startswith("budget 5 USD per day: 0 settled, 0 open, 0 kept, 0 orphaned, 5 remaining; resets at")
    assert resumed.stdout.startswith("resumed: ")


@pytest.mark.parametrize("command", ["status", "pause", "resume"])
def test_the_command_line_doubts_a_namespace_in_which_nothing_was_ever_charged(
    path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers("serve", path, "1") as (worker,):
        worker.found()
    monkeypatch.setenv("ROUTEGUARD_NAMESPACE", "defualt")

    result = cli(path, command)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1].startswith("nothing is charged or open here")


def test_the_command_line_doubts_nothing_where_no_budget_could_tell(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers("serve", path, "1") as (worker,):
        worker.found()
    monkeypatch.setenv("ROUTEGUARD_NAMESPACE", "defualt")

    result = cli(path, "pause", budget="unlimited")

    assert result.stdout == "paused: everybody who shares this sqlite ledger and the namespace defualt, within 2 s\n"


@pytest.mark.parametrize("command", ["status", "pause", "resume"])
def test_the_command_line_makes_no_ledger_where_there_is_none(path: Path, command: str) -> None:
    result = cli(path, command)

    assert result.returncode == 2
    assert f"there is no ledger at {path}" in result.stderr
    assert not path.exists()


def test_the_command_line_says_that_a_file_is_no_ledger(path: Path) -> None:
    path.write_bytes(b"notes\n" * 1000)

    result = cli(path, "status")

    assert result.returncode == 2
    assert "name another file" in result.stderr
    assert "Traceback" not in result.stderr
