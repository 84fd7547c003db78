"""Calendar windows: every moment is in exactly one, in every zone, whatever its clocks do."""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.policy import Budget, Span, Window, WindowUnit

HOUR = 3600
DAY = 86_400
UNITS: list[WindowUnit] = ["hour", "day", "week", "month"]
ZONES = sorted(available_timezones())
#: Where clocks do something odd: at midnight, over midnight, by half an hour, by two hours, by a whole day.
ODD_ZONES = [
    "Africa/Cairo",  # back from 24:00 to 23:00
    "Africa/Casablanca",  # back for Ramadan
    "America/Asuncion",  # forward at midnight, and then no more
    "America/Caracas",  # by half an hour, 2007 and 2016
    "America/Havana",  # midnight does not exist in spring, and comes twice in autumn
    "America/Nuuk",  # back from midnight
    "America/Santiago",
    "America/St_Johns",  # at 00:01 until 2011, so that a date came twice
    "Antarctica/Casey",  # by three hours, back over midnight
    "Antarctica/Troll",  # by two hours
    "Asia/Beirut",
    "Asia/Pyongyang",  # by half an hour, 2015 and 2018
    "Australia/Lord_Howe",  # by half an hour each time
    "Europe/Berlin",
    "Pacific/Apia",  # 30 December 2011 did not exist
]


def at(text: str) -> int:
    """Unix seconds of a moment in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def window(unit: WindowUnit, zone: str = "UTC") -> Window:
    return Window(unit, ZoneInfo(zone))


@pytest.mark.parametrize(
    ("unit", "zone", "moment", "start", "end"),
    [
        ("hour", "UTC", "2026-11-30T12:34:56", "2026-11-30T12:00", "2026-11-30T13:00"),
        ("hour", "Asia/Kolkata", "2026-11-30T12:29:59", "2026-11-30T11:30", "2026-11-30T12:30"),
        ("hour", "Asia/Kathmandu", "2026-11-30T12:15:00", "2026-11-30T12:15", "2026-11-30T13:15"),
        ("day", "UTC", "2026-11-30T00:00:00", "2026-11-30T00:00", "2026-12-01T00:00"),
        ("day", "UTC", "2026-11-30T23:59:59", "2026-11-30T00:00", "2026-12-01T00:00"),
        ("day", "UTC", "2028-02-29T12:00:00", "2028-02-29T00:00", "2028-03-01T00:00"),
        ("day", "UTC", "2026-12-31T23:59:59", "2026-12-31T00:00", "2027-01-01T00:00"),
        ("day", "Asia/Kolkata", "2026-11-30T18:30:00", "2026-11-30T18:30", "2026-12-01T18:30"),
        ("day", "Pacific/Kiritimati", "2026-11-30T12:00:00", "2026-11-30T10:00", "2026-12-01T10:00"),
        ("week", "UTC", "2026-11-30T00:00:00", "2026-11-30T00:00", "2026-12-07T00:00"),
        ("week", "UTC", "2026-11-29T23:59:59", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("week", "UTC", "2027-01-01T12:00:00", "2026-12-28T00:00", "2027-01-04T00:00"),
        ("week", "Europe/Berlin", "2024-10-27T12:00:00", "2024-10-20T22:00", "2024-10-27T23:00"),
        ("month", "UTC", "2028-02-10T00:00:00", "2028-02-01T00:00", "2028-03-01T00:00"),
        ("month", "UTC", "2100-02-28T23:59:59", "2100-02-01T00:00", "2100-03-01T00:00"),
        ("month", "UTC", "2026-12-31T23:59:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "America/New_York", "2024-12-01T04:59:59", "2024-11-01T04:00", "2024-12-01T05:00"),
    ],
)
def test_a_window_is_aligned_to_the_calendar_of_its_zone(
    unit: WindowUnit, zone: str, moment: str, start: str, end: str
) -> None:
    assert window(unit, zone).span(at(moment)) == Span(at(start), at(end))


@pytest.mark.parametrize(
    ("zone", "moment", "start", "end", "hours"),
    # Of years that are over: governments change what is to come, and the machine's zones with it.
    [
        ("Europe/Berlin", "2024-03-31T12:00", "2024-03-30T23:00", "2024-03-31T22:00", 23),
        ("Europe/Berlin", "2024-10-27T12:00", "2024-10-26T22:00", "2024-10-27T23:00", 25),
        # Midnight does not exist: the day begins at the jump.
        ("America/Havana", "2024-03-10T05:00", "2024-03-10T05:00", "2024-03-11T04:00", 23),
        # Midnight comes twice: the day begins at the first.
        ("America/Havana", "2024-11-03T05:00", "2024-11-03T04:00", "2024-11-04T05:00", 25),
        ("Africa/Cairo", "2024-10-31T21:30", "2024-10-30T21:00", "2024-10-31T22:00", 25),
        ("Australia/Lord_Howe", "2024-04-07T00:00", "2024-04-06T13:00", "2024-04-07T13:30", 24.5),
        # Back from 00:01 to 23:01: the new day that has begun stays, and its first hour comes twice.
        ("America/St_Johns", "2010-11-07T02:30", "2010-11-07T02:30", "2010-11-08T03:30", 25),
        ("America/St_Johns", "2010-11-07T02:31", "2010-11-07T02:30", "2010-11-08T03:30", 25),
        ("America/St_Johns", "2010-11-07T02:29:59", "2010-11-06T02:30", "2010-11-07T02:30", 24),
        ("Pacific/Apia", "2011-12-30T09:59:59", "2011-12-29T10:00", "2011-12-30T10:00", 24),
    ],
)
def test_a_day_is_as_long_as_the_clocks_make_it(zone: str, moment: str, start: str, end: str, hours: float) -> None:
    span = window("day", zone).span(at(moment))

    assert span == Span(at(start), at(end))
    assert span.end is not None
    assert span.end - span.start == hours * HOUR


def test_the_repeated_hour_of_autumn_is_two_windows() -> None:
    hours = window("hour", "Europe/Berlin")

    first, second = hours.span(at("2024-10-27T00:30")), hours.span(at("2024-10-27T01:30"))

    assert first == Span(at("2024-10-27T00:00"), at("2024-10-27T01:00"))
    assert second == Span(at("2024-10-27T01:00"), at("2024-10-27T02:00"))


def test_a_total_begins_with_time_and_never_ends() -> None:
    assert window("total", "Asia/Kolkata").span(at("2026-11-30T12:00")) == Span(0, None)


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_windows_follow_one_another_wherever_clocks_move(zone: str) -> None:
    """Where a window were missing, a ledger would open a new and empty one with each request."""
    turns = list(_turns(zone, at("2007-01-01"), at("2033-01-01")))

    torn = [
        (unit, turn, moment)
        for turn in turns
        for unit in UNITS
        for moment in (turn - DAY, turn - HOUR, turn - 60, turn - 1, turn, turn + 59, turn + 1800, turn + HOUR)
        if not _is_whole(window(unit, zone), moment)
    ]

    assert turns, "this zone is in the list for its odd clocks"
    assert torn == []


@settings(max_examples=300)
@given(st.sampled_from(UNITS), st.sampled_from(ZONES), st.integers(at("1985-01-01"), at("2040-01-01")))
def test_every_moment_is_in_exactly_one_window(unit: WindowUnit, zone: str, moment: int) -> None:
    assert _is_whole(window(unit, zone), moment)


@settings(max_examples=200)
@given(st.sampled_from(ZONES), st.integers(at("1985-01-01"), at("2040-01-01")))
def test_weeks_and_months_are_made_of_whole_days(zone: str, moment: int) -> None:
    """No two budgets of one zone disagree about when a day is over."""
    day = window("day", zone).span(moment)

    longer_units: list[WindowUnit] = ["week", "month"]
    for unit in longer_units:
        longer = window(unit, zone).span(moment)

        assert longer.start <= day.start
        assert day.end is not None
        assert longer.end is not None
        assert day.end <= longer.end


def test_a_counter_is_named_by_window_zone_and_share_but_not_by_its_limit() -> None:
    berlin = Window("day", ZoneInfo("Europe/Berlin"))

    counters = [
        Budget("day", window("day"), 1).counter,
        Budget("day", window("day"), 2).counter,
        Budget("day", berlin, 1).counter,
        Budget("day", window("day"), 1, per_client=True).counter,
        Budget("week", window("week"), 1).counter,
    ]

    assert counters[0] == counters[1]
    assert len(set(counters)) == 4


def _is_whole(of: Window, moment: int) -> bool:
    """The window holds the moment, all of its moments agree, and the next one begins where it ends."""
    span = of.span(moment)
    assert span.end is not None
    return (
        span.start <= moment < span.end
        and of.span(span.start) == span
        and of.span(span.end - 1) == span
        and of.span(span.end).start == span.end
        and of.span(span.start - 1).end == span.start
    )


def _turns(zone: str, begin: int, end: int) -> Iterator[int]:
    """The moments at which the clocks of a zone are moved."""
    for week in range(begin, end, 7 * DAY):
        low, high = week, week + 7 * DAY
        before = _offset(zone, low)
        if _offset(zone, high) == before:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
        yield high


def _offset(zone: str, moment: int) -> object:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).utcoffset()
