"""Every framework on every server, with everything a client may do to a stream. `MATRIX=full` runs all of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix.expected import COMBINATIONS, CORE, STOP, expected
from tests.matrix.scenarios import SCENARIOS, observe
from tests.matrix.servers import Site, running
from tests.matrix.stopping import stop_in_mid_stream

RUN = COMBINATIONS if os.environ.get("MATRIX") == "full" else CORE


def _name(combination: tuple[str, str]) -> str:
    return " on ".join(combination)


@pytest.fixture(scope="session", params=RUN, ids=_name)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    framework, server = request.param
    with running(framework, server, tmp_path_factory.mktemp("server")) as site:
        yield site


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_ledger_and_the_client_see_what_the_table_says(site: Site, scenario: str) -> None:
    outcome = observe(site, SCENARIOS[scenario])

    assert outcome == expected(site.framework, site.server, scenario)


@pytest.mark.parametrize("combination", RUN, ids=_name)
def test_what_sigterm_cuts_in_mid_stream_stays_charged(combination: tuple[str, str], tmp_path: Path) -> None:
    outcome = stop_in_mid_stream(*combination, tmp_path)

    assert outcome == expected(*combination, STOP)
