"""The page about servers says what the matrix expects, and every row of it is about something."""

import sys

import pytest

from tests.matrix.apps import FRAMEWORKS
from tests.matrix.expected import COMBINATIONS, DIFFERENCES, STOP, Difference, expected
from tests.matrix.scenarios import SCENARIOS
from tests.matrix.servers import SERVERS
from tests.matrix.table import FRAMEWORK_NAMES, PAGE, SERVER_NAMES, written

SCENARIO_NAMES = [*SCENARIOS, STOP]


def test_the_page_shows_the_expected_outcomes() -> None:
    page = PAGE.read_text()

    assert page == written(page), "run: python -m tests.matrix.table"


def test_every_server_and_framework_has_a_name_for_people() -> None:
    assert list(FRAMEWORK_NAMES) == list(FRAMEWORKS)
    assert list(SERVER_NAMES) == list(SERVERS)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
def test_a_difference_is_about_a_scenario_and_a_combination(difference: Difference) -> None:
    about = [combination for combination in COMBINATIONS if difference.is_about(*combination)]

    assert difference.scenario in SCENARIO_NAMES
    assert about
    is_so_here = sys.version_info >= difference.since
    assert not is_so_here or all(
        expected(*combination, difference.scenario) == difference.outcome for combination in about
    )
