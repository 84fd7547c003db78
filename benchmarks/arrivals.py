"""Arrivals at random moments, whatever becomes of those before them: what is slow then holds up what it would hold up.

They come from another process through a pipe, as requests come from other machines through a socket. A timer of the
event loop that is measured would begin them up to a millisecond late, and those of that millisecond together.
"""

import asyncio
import os
import random
import struct
import sys
import time
from collections.abc import Callable, Coroutine

MOMENT = struct.Struct("q")
#: Seconds that the process from which they come is given to start.
READY_SECONDS = 1.0


async def at_random_moments(
    per_second: float,
    seconds: float,
    seed: int,
    arrive: Callable[[int, int], Coroutine[None, None, None]],
    *,
    begin: float | None = None,
) -> None:
    """Have them arrive, so many a second on average, and wait for all of them.

    The first may come at `begin`, a moment of `time.monotonic` at which all who share the load have to be ready, or in
    a moment. What is needed once in the life of a process the caller has done before.
    Each gets its number and the moment at which it came, in nanoseconds of `time.monotonic_ns`, which is one clock for
    all processes. An event loop that is busy begins it later.
    """
    numbers = iter(range(sys.maxsize))
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    ours, theirs = os.pipe()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        *map(str, (per_second, seconds, seed, begin or time.monotonic() + READY_SECONDS)),
        stdout=theirs,
    )
    os.close(theirs)
    async with asyncio.TaskGroup() as group:

        def take() -> None:
            moments = os.read(ours, 512 * MOMENT.size)
            if not moments:
                loop.remove_reader(ours)
                ended.set()
            for (moment_ns,) in MOMENT.iter_unpack(moments):
                group.create_task(arrive(next(numbers), moment_ns))

        loop.add_reader(ours, take)
        await ended.wait()
    os.close(ours)
    await child.wait()


def main() -> None:
    """In the other process: write each moment when it has come."""
    per_second, seconds, seed, begin = map(float, sys.argv[1:])
    assert time.monotonic() < begin, "nobody arrives before everybody is ready"
    rng = random.Random(seed)
    due = begin
    while due < begin + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        os.write(sys.stdout.fileno(), MOMENT.pack(time.monotonic_ns()))
        due += rng.expovariate(per_second)


if __name__ == "__main__":
    main()
