"""Which clients the status page still knows, and how long a question to the ledger took."""

import pytest

from routeguard.telemetry import TOP_CLIENTS_REMEMBERED, Telemetry
from routeguard.testing import FakeClock


def seen(telemetry: Telemetry, *clients: str) -> None:
    for client in clients:
        telemetry.rejected("busy", request_id="request-1", path="/chat", client=client)


def known(telemetry: Telemetry) -> list[str]:
    return sorted(client for client, _ in telemetry.top_clients(2 * TOP_CLIENTS_REMEMBERED))


def test_the_client_seen_least_recently_is_forgotten_first() -> None:
    telemetry = Telemetry(clock=FakeClock(), clients_max=3)

    seen(telemetry, "a", "b", "c", "a", "d", "e")

    assert known(telemetry) == ["a", "d", "e"]


def test_who_looks_at_the_page_keeps_nobody_in_it() -> None:
    telemetry = Telemetry(clock=FakeClock(), clients_max=2)
    seen(telemetry, "a", "b", "a")

    assert known(telemetry) == ["a", "b"]
    seen(telemetry, "c")

    assert known(telemetry) == ["a", "c"]


def test_a_client_is_counted_where_it_was_left() -> None:
    telemetry = Telemetry(clock=FakeClock(), clients_max=2)

    seen(telemetry, "a", "b", "a")

    assert [(client, counts.rejected) for client, counts in telemetry.top_clients(2)] == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("clients_max", [TOP_CLIENTS_REMEMBERED, 10**7])
def test_no_more_clients_are_remembered_than_a_page_can_sort(clients_max: int) -> None:
    telemetry = Telemetry(clock=FakeClock(), clients_max=clients_max)

    seen(telemetry, *map(str, range(TOP_CLIENTS_REMEMBERED + 1)))

    assert len(known(telemetry)) == TOP_CLIENTS_REMEMBERED


async def test_a_question_to_the_ledger_is_answered_and_its_time_told() -> None:
    clock, took = FakeClock(), list[int]()
    telemetry = Telemetry(clock=clock, clients_max=1)

    async def question() -> str:
        clock.advance(3)
        return "answer"

    unmeasured = await telemetry.timed(question())
    telemetry.ledger_seconds = took.append
    measured = await telemetry.timed(question())

    assert (unmeasured, measured, took) == ("answer", "answer", [3_000_000_000])
