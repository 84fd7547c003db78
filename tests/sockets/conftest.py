"""Both of uvicorn's parsers, each running for the whole session."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.sockets.server import STACKS, Edge, Serve, Site, running
from tests.sockets.wire import HOST


@pytest.fixture(scope="session", params=STACKS, ids=str)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Edge, int]]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def serve(server: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Real clients ask the environment for a proxy; none of them gets one."""
    monkeypatch.setenv("NO_PROXY", HOST)
    monkeypatch.setenv("no_proxy", HOST)
    edge, port = server
    yield partial(Site, edge, port)
    # What a test began does not run into the next one.
    edge.wait_done()
