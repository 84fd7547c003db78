"""When the ledger, or the reading of an answer, fails under a metered call: no spoilt answer and no gift."""

from typing import Any

import pytest

from routeguard import BudgetExceeded
from routeguard.formats.body import BodyReader
from routeguard.formats.stream import StreamReader
from routeguard.policy import LedgerUnavailable
from tests.meter.played import ASYNC, COMPLETION, Caller, Kind, chat_stream, every_kind, whole

PRICES: dict[str, Any] = {"price_in": 0, "price_out": 100}
TEN_CENTS = 100_000_000


def breaks(*_: object, **__: object) -> Any:
    raise ZeroDivisionError


async def kept(caller: Caller) -> int:
    allowance = caller.client._transport._allowance
    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert (found.open_nanousd, found.settled_nanousd) == (0, 0)
    kept: int = found.kept_nanousd
    return kept


@every_kind
async def test_a_bug_in_reading_a_body_leaves_the_answer_whole_and_its_worst_case_charged(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caller = Caller(kind, whole(), budget="1/day", **PRICES)
    monkeypatch.setattr(BodyReader, "result", breaks)

    answer = await caller.post()

    assert answer.json() == COMPLETION
    assert await kept(caller) == TEN_CENTS
    assert "a provider's answer could not be read: ZeroDivisionError" in caplog.messages


@every_kind
async def test_a_bug_in_reading_a_stream_leaves_its_events_whole_and_its_worst_case_charged(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = chat_stream()
    caller = Caller(kind, played, budget="1/day", **PRICES)
    monkeypatch.setattr(StreamReader, "feed", breaks)

    got = await caller.stream()

    assert b"".join(got) == b"".join(played.chunks)
    assert await kept(caller) == TEN_CENTS


async def test_a_ledger_that_does_not_answer_refuses_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(ASYNC, whole(), budget="1/day", **PRICES)
    monkeypatch.setattr(caller.client._transport._allowance.ledger, "reserve", unavailable)

    with pytest.raises(BudgetExceeded, match="the ledger does not answer") as refused:
        await caller.post()

    assert (refused.value.reason, caller.sent) == ("guard_unavailable", [])


async def test_a_ledger_that_cannot_write_an_ending_leaves_the_answer_whole_and_the_charge_standing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caller = Caller(ASYNC, whole(), budget="1/day", **PRICES)
    allowance = caller.client._transport._allowance
    monkeypatch.setattr(allowance.ledger, "settle", unavailable)

    answer = await caller.post()

    assert answer.json() == COMPLETION
    (found,) = await allowance.ledger.balances(allowance.budgets)
    assert found.open_nanousd == TEN_CENTS
    assert "ledger_error: settle a call: LedgerUnavailable" in caplog.messages


async def unavailable(*_: object, **__: object) -> Any:
    raise LedgerUnavailable("gone")
