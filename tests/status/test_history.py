"""The last day and the last events, within their bounds."""

import threading
from typing import Any

from routeguard.history import HOURS, LINES, History
from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import CEILING, Counting, reporting
from tests.status.asking import history_of, watched

HOUR = 3600


def refuse(history: History, number: int = 1, *, reason: str = "busy", client: str | None = "a") -> None:
    for _ in range(number):
        history.refused("rejected", reason, path="/chat", client=client)


async def test_an_hour_counts_what_happened_in_it() -> None:
    clock = FakeClock()
    guard = watched(Counting(reporting(cost_usd="0.05")), clock=clock, rate="2/hour", budget="9/day")
    for _ in range(3):
        await Client().call(guard)
    clock.advance(HOUR)
    await Client().call(guard)

    last, now = history_of(guard).hours()[-2:]

    assert (last.admitted, last.refused, last.charged_nanousd) == (2, 1, CEILING)
    assert (now.admitted, now.refused, now.charged_nanousd) == (1, 0, CEILING // 2)


def test_the_day_has_24_hours_whether_or_not_anything_happened() -> None:
    clock = FakeClock()
    history = History(clock)
    refuse(history)
    clock.advance(23 * HOUR)
    a_day = history.hours()
    clock.advance(HOUR)

    assert [hour.refused for hour in a_day] == [1] + [0] * 23
    assert [hour.starts_at - a_day[0].starts_at for hour in a_day] == [at * HOUR for at in range(24)]
    assert [hour.refused for hour in history.hours()] == [0] * 24


def test_a_month_of_hours_keeps_one_day() -> None:
    clock = FakeClock()
    history = History(clock)

    for _ in range(700):
        refuse(history)
        clock.advance(HOUR)

    assert len(history._hours) == HOURS


def test_a_clock_that_jumps_back_goes_on_with_the_youngest_hour() -> None:
    clock = FakeClock()
    history = History(clock)
    refuse(history)
    clock.jump(-2 * HOUR)
    refuse(history)
    clock.jump(2 * HOUR)

    assert history.hours()[-1].refused == 2


def test_what_happens_often_within_a_moment_is_one_line() -> None:
    history = History(FakeClock())

    refuse(history, 1000)
    refuse(history, 10, reason="rate_limited")
    refuse(history, 1)

    assert [(line.detail, line.times, line.client) for line in history.lines()] == [
        ("rate_limited", 10, "a"),
        ("busy", 1001, "a"),
    ]


def test_a_line_of_several_clients_names_none() -> None:
    history = History(FakeClock())
    refuse(history, client="a")
    refuse(history, client="b")
    refuse(history, client="b")

    assert [(line.times, line.client) for line in history.lines()] == [(3, None)]


def test_a_later_moment_is_another_line() -> None:
    clock = FakeClock()
    history = History(clock)
    refuse(history)
    clock.advance(2)
    refuse(history)

    assert [line.times for line in history.lines()] == [1, 1]


def test_the_feed_keeps_the_last_fifty_lines() -> None:
    clock = FakeClock()
    history = History(clock)

    for number in range(3 * LINES):
        refuse(history, reason=f"reason {number}")
        clock.advance(2)

    lines = history.lines()
    assert len(lines) == LINES
    assert (lines[0].detail, lines[-1].detail) == ("reason 149", "reason 100")


async def test_a_late_bill_is_charged_to_the_hour_and_told() -> None:
    admissions: list[Any] = []
    guard = watched(Counting(reporting(before=admissions.append, cost_usd="0.05")))
    await Client().call(guard)

    admissions[0].report(cost_usd="0.2")

    history = history_of(guard)
    assert history.hours()[-1].charged_nanousd == 250_000_000
    assert (history.lines()[0].event, history.lines()[0].nanousd) == ("overrun", 200_000_000)


def test_threads_lose_no_event() -> None:
    history = History(FakeClock())
    threads = [threading.Thread(target=refuse, args=(history, 2000)) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert history.hours()[-1].refused == history.lines()[0].times == 16_000
