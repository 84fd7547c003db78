"""The long form of the simulation: `python -m tests.simulation.soak --seeds 100000`, on every core.

Prints the seeds that broke something; each can be run again with `--first SEED --seeds 1`.
"""

import argparse
import multiprocessing
import os
import sys
import time

from tests.simulation.broken import Broken
from tests.simulation.world import play


def broken(seed: int) -> tuple[int, str]:
    """What broke in this run, and how many requests it admitted."""
    try:
        return play(seed).admitted, ""
    except Broken as problem:
        return 0, str(problem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    began, done, admitted, problems = time.monotonic(), 0, 0, 0
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for number, problem in pool.imap_unordered(broken, seeds, chunksize=20):
            done, admitted = done + 1, admitted + number
            if problem:
                problems += 1
                _say(problem)
            if done % 1_000 == 0:
                _say(f"{done} runs, {admitted} requests admitted, {time.monotonic() - began:.0f} s, {problems} broken")
    _say(f"seeds {seeds.start} to {seeds.stop - 1}: {done} runs, {admitted} requests admitted, {problems} broken")
    sys.exit(1 if problems else 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
