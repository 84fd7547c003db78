"""The journal behind a guard: a row for every ending, and no request that nobody could write down."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from routeguard.errors import ConfigError
from routeguard.journal import SqliteJournal
from tests.driver import App, CancelAt, Client, chat_chunks, stream_app
from tests.guarding import CEILING, Counting, guarded, parts, reporting
from tests.journal.rows import select, sums, until_idle
from tests.patience import as_promised
from tests.sqlite.files import locked, write

ROW = "SELECT event, settled_nanousd, kept_nanousd, overrun_nanousd, why FROM journal ORDER BY seq"


@pytest.mark.parametrize(
    ("app", "row"),
    [
        (reporting(cost_usd="0.01"), ("settle", 10_000_000, 0, 0, "reported")),
        (reporting(cost_usd="0.3"), ("settle", 300_000_000, 0, 200_000_000, "reported")),
        (reporting(), ("keep", 0, CEILING, 0, "no_usage")),
        (reporting(before=lambda admission: admission.nothing_sent()), ("release", 0, 0, 0, "nothing_sent")),
        (stream_app([], status=404), ("release", 0, 0, 0, "status_404")),
        (stream_app([], status=500), ("keep", 0, CEILING, 0, "status_5xx")),
    ],
)
async def test_each_ending_has_its_row(path: Path, app: App, row: tuple[object, ...]) -> None:
    guard, journal = _journaled(app, path)

    await Client().call(guard)
    await until_idle(journal)

    assert select(path, ROW) == [row]


async def test_a_row_names_route_client_model_and_what_was_used(path: Path) -> None:
    usage = {"prompt_tokens": 250, "completion_tokens": 20, "total_tokens": 270}
    app = Counting(stream_app(chat_chunks(usage=usage)))
    guard, journal = _journaled(app, path, client_budget="50%")

    await Client().call(guard)
    await until_idle(journal)

    (admission,) = app.admissions
    assert admission is not None
    assert select(path, "SELECT id, path, client, input_tokens, output_tokens, ceiling_nanousd FROM journal") == [
        (admission.id, "/chat", admission.client, 250, 20, CEILING)
    ]
    assert {counter.rpartition("|")[2] for counter in sums(path)} == {"a", admission.client}


async def test_a_bill_after_the_ending_has_a_row_of_its_own(path: Path) -> None:
    app = Counting(reporting(cost_usd="0.01"))
    guard, journal = _journaled(app, path)
    await Client().call(guard)

    assert app.admissions[0] is not None
    app.admissions[0].report(cost_usd="0.02")
    await until_idle(journal)

    assert select(path, ROW)[1] == ("late", 20_000_000, 0, 20_000_000, "late")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio has no other way in than its scopes
async def test_what_a_cancelled_request_is_charged_has_exactly_one_row(path: Path) -> None:
    """Cancelled at each of its awaits."""
    app = Counting(reporting(cost_usd="0.01"))
    guard, journal = _journaled(app, path, budget="1000/day", rate="unlimited", global_rate="unlimited")

    for number in range(100):
        client = Client()
        driven = CancelAt(guard(client.scope(), client.receive, client.send), number, asyncio.CancelledError())
        with suppress(asyncio.CancelledError):
            await driven
        if driven.suspensions <= number:
            break
    await until_idle(journal)
    admitted = guard._guard.telemetry.counts.admitted

    rows = select(path, "SELECT id FROM journal")
    assert number > 2
    assert len(rows) == len(set(rows)) == admitted


async def test_nothing_is_admitted_when_the_journal_cannot_keep_up_and_nothing_is_counted(path: Path) -> None:
    app = Counting(reporting(cost_usd="0.01"))
    guard, journal = _journaled(app, path, rows_max=2, rate="3/minute", admin_token="a-token-of-16-bytes")
    await journal.check()

    with as_promised(), locked(path):
        admitted = [(await Client().call(guard)).status for _ in range(2)]
        refused = await Client().call(guard)
        before = await parts(guard)
        assert guard._status is not None
        healthy: Any = (await guard._status.status())["ledger"]
    await until_idle(journal)
    after = await Client().call(guard)

    assert admitted == [200, 200]
    assert (refused.status, refused.reason, refused.response_headers["retry-after"]) == (503, "guard_unavailable", "5")
    assert (before["settled"], before["open"], healthy["healthy"]) == ("0.02", "0", False)
    assert after.status == 200, "the refusal took no slot of the rate"
    assert app.calls == 3


async def test_a_hundred_endings_during_an_outage_delay_no_answer_and_lose_no_row(path: Path) -> None:
    app = Counting(reporting(cost_usd="0.001"))
    guard, journal = _journaled(app, path, budget="1000/day", rate="unlimited", max_parallel_per_client="unlimited")
    await journal.check()
    statuses: list[int | None] = []

    async def one() -> None:
        statuses.append((await Client().call(guard)).status)

    with as_promised(), locked(path), anyio.fail_after(10):
        for _ in range(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(one)
        answered_while_locked = len(statuses)
        while_locked = select(path, "SELECT id FROM journal")
    await until_idle(journal)

    assert answered_while_locked == statuses.count(200) == 100
    assert while_locked == []
    assert sorted(select(path, "SELECT id FROM journal")) == sorted((one.id,) for one in app.admissions if one)
    assert [row[0] for row in sums(path).values()] == [100_000_000]


async def test_the_shutdown_writes_what_waits(path: Path) -> None:
    guard, _ = _journaled(reporting(cost_usd="0.01"), path, group_seconds=3_600)
    await Client().call(guard)
    before = select(path, ROW)

    assert guard._guard is not None
    await guard._guard.books.aclose()

    assert (before, len(select(path, ROW))) == ([], 1)


async def test_a_journal_that_can_never_be_written_fails_the_start(path: Path) -> None:
    write(path, b"notes")
    guard, _ = _journaled(reporting(), path)

    with pytest.raises(ConfigError, match="ROUTEGUARD_JOURNAL"):
        await guard._start()


def _journaled(app: App, path: Path, *, rows_max: int = 10_000, group_seconds: float = 0.001, **settings: Any) -> Any:
    guard = guarded(app, **settings)
    own = guard._guard
    assert own is not None
    journal = SqliteJournal(str(path), namespace="default", group_seconds=group_seconds, rows_max=rows_max)
    own.journal = own.ledger.journal = journal
    return guard, journal
