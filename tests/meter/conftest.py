"""A provider on a real socket, for the SDKs."""

from collections.abc import Iterator

import pytest

from tests.meter.served import Served
from tests.sockets.server import STACKS, Edge, running
from tests.sockets.wire import HOST


@pytest.fixture(scope="session")
def provider_server() -> Iterator[tuple[Edge, int]]:
    with running(STACKS[0]) as server:
        yield server


@pytest.fixture
def provider(provider_server: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Fresh for each test. Real clients ask the environment for a proxy; none of them gets one."""
    monkeypatch.setenv("NO_PROXY", HOST)
    monkeypatch.setenv("no_proxy", HOST)
    edge, port = provider_server
    served = Served(port)
    edge.app = served
    edge.exchanges = []
    yield served
    edge.wait_done()
