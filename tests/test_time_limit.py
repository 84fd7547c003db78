"""The time of a request: moved outwards, inwards, lifted, over. On asyncio one timer has to do for all of it."""

import anyio
import pytest

from routeguard.time_limit import AsyncioTimeLimit, ScopeTimeLimit, TimeLimit, time_limit

#: The timers of one loop ring in the order of their deadlines, so the length of these decides nothing.
SOON = 0.001
LATER = 0.002
NEVER = 3600.0


async def over(seconds: float) -> None:
    """Wait until everything due within this time has rung."""
    with anyio.move_on_after(seconds):
        await anyio.sleep_forever()


async def cut(limit: TimeLimit) -> bool:
    """Whether the limit ends what would never end."""
    with limit:
        await anyio.sleep_forever()
    return limit.passed


async def test_what_runs_inside_is_cancelled_when_its_time_is_over() -> None:
    limit = time_limit()

    limit.set(SOON)

    assert await cut(limit)


async def test_a_deadline_can_be_brought_forward() -> None:
    limit = time_limit()

    limit.set(NEVER)
    limit.set(SOON)

    assert await cut(limit)


async def test_nothing_is_cancelled_at_a_deadline_that_was_moved_away() -> None:
    limit = time_limit()

    with limit:
        limit.set(SOON)
        limit.set(NEVER)
        await over(LATER)

    assert not limit.passed


async def test_a_deadline_that_was_moved_away_comes_in_the_end() -> None:
    limit = time_limit()

    limit.set(SOON)
    limit.set(LATER)

    assert await cut(limit)


async def test_nothing_is_cancelled_once_the_limit_is_lifted() -> None:
    limit = time_limit()

    with limit:
        limit.set(SOON)
        limit.lift()
        await over(LATER)

    assert not limit.passed


async def test_a_lifted_limit_can_be_set_again() -> None:
    limit = time_limit()

    with limit:
        limit.set(SOON)
        limit.lift()
        await over(LATER)
        limit.set(SOON)
        await anyio.sleep_forever()

    assert limit.passed


async def test_a_limit_that_was_left_in_time_has_not_passed_later() -> None:
    limit = time_limit()

    with limit:
        limit.set(SOON)
    await over(LATER)

    assert not limit.passed


async def test_a_limit_that_was_brought_forward_and_left_in_time_has_not_passed_later() -> None:
    limit = time_limit()

    with limit:
        limit.set(LATER)
        limit.set(SOON)
    await over(2 * LATER)

    assert not limit.passed


async def test_what_goes_on_after_being_cancelled_is_cancelled_again() -> None:
    limit = time_limit()
    cancelled = 0

    with limit:
        limit.set(SOON)
        for _ in range(3):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                cancelled += 1

    assert (cancelled, limit.passed) == (3, True)


async def test_a_cancel_from_outside_is_not_swallowed() -> None:
    limit = time_limit()

    with anyio.CancelScope() as outer:
        outer.cancel()
        with limit:
            limit.set(NEVER)
            await anyio.sleep_forever()
        pytest.fail("the cancel of an outer scope ends in the inner one")

    assert not limit.passed


async def test_the_limit_is_the_one_of_the_library_that_runs(anyio_backend_name: str) -> None:
    expected = {"asyncio": AsyncioTimeLimit, "trio": ScopeTimeLimit}

    limit = time_limit()

    assert type(limit) is expected[anyio_backend_name]
