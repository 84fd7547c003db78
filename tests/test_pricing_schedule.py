"""A price that changes by date or by hour: what holds when, and what a ceiling reserves for."""

from fractions import Fraction

import pytest

from routeguard.prices import FOREVER_NS, NS_PER_SECOND, Era, Price, Schedule
from routeguard.usage import Usage
from tests.tariffs import ARGON, MIDNIGHT, NOW, cost, model, rates, tariff

#: Off-peak but for 01:00 to 04:00 and 06:00 to 10:00 UTC.
OFF_PEAK = Price.flat(rates(input="0.66", output="1.98"))
PEAK = Price.flat(rates(input="1.32", output="3.96"))
DEEPSEEK = model(
    "deepseek-v4-pro",
    standard=Schedule(
        (Era(0, ((0, OFF_PEAK), (3_600, PEAK), (4 * 3_600, OFF_PEAK), (6 * 3_600, PEAK), (10 * 3_600, OFF_PEAK))),)
    ),
)


def test_a_price_that_never_changes_has_no_end() -> None:
    price = Price.flat(rates(input="3", output="15"))

    assert Schedule.always(price).at(NOW) == (price, FOREVER_NS)


def test_a_day_of_two_prices_turns_at_its_second_and_at_midnight() -> None:
    night, day = (Price.flat(rates(input=usd, output=usd)) for usd in ("1", "2"))
    six = MIDNIGHT + 6 * 3_600 * NS_PER_SECOND
    next_midnight = MIDNIGHT + 86_400 * NS_PER_SECOND
    schedule = Schedule((Era(0, ((0, night), (6 * 3_600, day))),))

    found = [schedule.at(wall_ns) for wall_ns in (MIDNIGHT - 1, MIDNIGHT, six - 1, six, next_midnight - 1)]

    assert found == [(day, MIDNIGHT), (night, six), (night, six), (day, next_midnight), (day, next_midnight)]


def test_an_hour_that_outlives_its_era_ends_with_it() -> None:
    night, day, later = (Price.flat(rates(input=usd, output=usd)) for usd in ("1", "2", "3"))
    noon = MIDNIGHT + 12 * 3_600 * NS_PER_SECOND
    schedule = Schedule((Era(0, ((0, night), (6 * 3_600, day))), Era(noon, ((0, later),))))

    assert schedule.at(noon - 1) == (day, noon)
    assert schedule.at(noon) == (later, FOREVER_NS)


def test_a_flat_price_holds_from_the_first_token_and_one_that_never_changes_from_the_first_second() -> None:
    price = Price.flat(rates(input="3", output="15"))

    assert price.steps == ((-1, rates(input="3", output="15")),)
    assert Schedule.always(price).eras == (Era(0, ((0, price),)),)


def test_a_price_change_at_midnight_is_charged_from_midnight_on() -> None:
    argon = tariff(ARGON)
    longest = Usage(input_tokens=0, output_tokens=1_048_576)

    costs = [argon.cost(longest, wall_ns=wall_ns, input_bytes=0) for wall_ns in (MIDNIGHT - 1, MIDNIGHT)]

    assert costs == [10_485_760_000, 20_971_520_000]


def test_a_clock_that_goes_back_goes_back_to_the_old_price() -> None:
    argon = tariff(ARGON)
    longest = Usage(input_tokens=0, output_tokens=1_048_576)
    argon.cost(longest, wall_ns=MIDNIGHT, input_bytes=0)

    again = argon.cost(longest, wall_ns=MIDNIGHT - 1, input_bytes=0)

    assert again == 10_485_760_000


@pytest.mark.parametrize(
    ("hour", "minute", "input_usd"),
    [
        (0, 59, "0.66"),
        (1, 0, "1.32"),
        (3, 59, "1.32"),
        (4, 0, "0.66"),
        (6, 0, "1.32"),
        (10, 0, "0.66"),
        (23, 59, "0.66"),
    ],
)
def test_a_price_by_the_hour_follows_the_utc_clock(hour: int, minute: int, input_usd: str) -> None:
    wall_ns = MIDNIGHT + (hour * 60 + minute) * 60 * NS_PER_SECOND

    assert cost(DEEPSEEK, Usage(input_tokens=1_000_000, output_tokens=0), wall_ns=wall_ns) == 10**9 * Fraction(
        input_usd
    )


@pytest.mark.parametrize(
    ("wall_ns", "output_usd"),
    [
        pytest.param(MIDNIGHT - 300 * NS_PER_SECOND - 1, 10, id="a stream that ends before"),
        pytest.param(MIDNIGHT - 300 * NS_PER_SECOND, 20, id="a stream that may touch it"),
        pytest.param(MIDNIGHT, 20, id="after"),
    ],
)
def test_a_ceiling_knows_the_price_that_starts_during_the_stream(wall_ns: int, output_usd: int) -> None:
    argon = tariff(ARGON, max_output_tokens=1_000_000)

    assert argon.ceiling(input_bytes=0, wall_ns=wall_ns) == output_usd * 10**9


def test_a_ceiling_forgets_a_dearer_hour_when_it_is_over() -> None:
    deepseek = tariff(DEEPSEEK, max_output_tokens=1_000_000)
    four = MIDNIGHT + 4 * 3_600 * NS_PER_SECOND

    ceilings = [deepseek.ceiling(input_bytes=0, wall_ns=wall_ns) for wall_ns in (four - 1, four, four - 1)]

    assert ceilings == [3_960_000_000, 1_980_000_000, 3_960_000_000]


def test_a_stream_longer_than_a_dear_hour_reserves_for_that_hour() -> None:
    whole_day = tariff(DEEPSEEK, max_output_tokens=1_000_000, stream_seconds_max=12 * 3_600)
    evening = MIDNIGHT - 3_600 * NS_PER_SECOND

    assert whole_day.ceiling(input_bytes=0, wall_ns=evening) == 3_960_000_000
