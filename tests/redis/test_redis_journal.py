"""What the ledger of several machines tells the journal, and what an operator changes in it by hand."""

import random
import re
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest

from routeguard.auditing import Adjustment, AdjustmentRefused, Statement
from routeguard.journal import SqliteJournal
from routeguard.journal.audit import Line, compare
from routeguard.journal.reading import reading
from routeguard.ledgers.redis import RedisLedger
from routeguard.ledgers.redis.line import Timing
from routeguard.money import NANOUSD_MAX
from routeguard.policy import Budget, Claim, LedgerUnavailable, Parallel, Reservation, Window
from routeguard.records import Note
from routeguard.testing import FakeClock
from tests.journal.rows import doubles, journal_at, select, until_idle
from tests.redis.calls import CALL, EVER, QUICK, SLOT, balance, reserve, reserved, settle, try_reserve, until
from tests.redis.conftest import Opens, fresh_namespace
from tests.redis.server import RedisServer
from tests.sqlite.files import close_all

MINE = Budget("total", Window("total", ZoneInfo("UTC")), 1000 * CALL, per_client=True)
DAY = Budget("day", Window("day", ZoneInfo("UTC")), 1000 * CALL)
#: A lease that is over as soon as somebody looks.
MOMENT = Parallel(1000, lease_ns=1)


@pytest.fixture
def path(tmp_path: Path) -> object:
    """Where the journal will be."""
    yield tmp_path / "journal.db"
    close_all()


async def test_the_rows_of_any_day_add_up_to_its_counters(opens: Opens, redis_url: str, path: Path) -> None:
    rng, journal = random.Random(3), journal_at(path)
    ledger = _journaled(opens(redis_url, timing=QUICK), journal)
    ended: list[Reservation] = []

    for step in range(60):
        money = [Claim(EVER, "", CALL), Claim(MINE, rng.choice("abc"), CALL)]
        one = await ledger.reserve(f"{step}", money=money, slots=[Claim(rng.choice([SLOT, MOMENT]), "", 1)])
        if rng.random() < 0.3:
            continue
        if rng.random() < 0.1:
            free = await ledger.reserve(f"free-{step}", money=[], slots=[])
            await ledger.settle(free, state="released", settled_nanousd=0, kept_nanousd=0)
        bill = rng.randrange(2 * CALL)
        await ledger.settle(one, state="settled", settled_nanousd=bill, kept_nanousd=0, note=Note("/chat"))
        ended.append(one)
        if rng.random() < 0.3:
            ledger.charge_late(rng.choice(ended), charge_id=f"late-{step}", extra_nanousd=rng.randrange(CALL))
    await _until_written(ledger, journal)

    assert {row[0] for row in select(path, "SELECT event FROM journal")} == {"settle", "late", "orphan", "release"}
    assert doubles([str(row) for row in select(path, "SELECT id, event FROM journal")]) == []
    lines = await _lines(ledger, path)
    assert [line.problems for line in lines if line.problems] == []
    assert len(lines) == 4


async def test_a_statement_may_take_longer_than_a_decision(opens: Opens, own_server: RedisServer) -> None:
    """Of 100,000 accounts it takes the server as long as a request may wait for everything."""
    ledger = opens(own_server.url, timing=Timing())
    await reserved(ledger)
    await anyio.to_thread.run_sync(own_server.command, "CLIENT", "PAUSE", "1000")

    statement = await ledger.statement()

    assert [sums.open for sums in statement.counted.values()] == [CALL]


@pytest.mark.parametrize("share", ["a", "o", "c|0123456789abcdef"])
async def test_an_account_that_cannot_be_read_is_named_and_not_left_out(
    opens: Opens, shared_server: RedisServer, share: str
) -> None:
    namespace = fresh_namespace()
    ledger = opens(shared_server.url, namespace=namespace)
    await reserved(ledger)
    shared_server.command("HSET", f"{{rg:{namespace}}}:ledger", f"other|UTC|0|0|{share}", "-5 0 0 0 0")

    with pytest.raises(LedgerUnavailable, match=re.escape(f"other|UTC|0|0|{share} cannot be read")):
        await ledger.statement()


async def test_what_a_dead_process_left_behind_is_handed_over_by_the_next(
    opens: Opens, redis_url: str, path: Path
) -> None:
    namespace = fresh_namespace()
    dead = _journaled(opens(redis_url, namespace=namespace, timing=QUICK), journal_at(path, group_seconds=3_600))
    for number in range(5):
        await settle(dead, await reserve(dead, f"{number}"), number)
    before = select(path, "SELECT id FROM journal")
    journal = journal_at(path)
    living = _journaled(opens(redis_url, namespace=namespace, timing=QUICK), journal)

    await _until_written(living, journal)

    assert before == []
    assert sorted(select(path, "SELECT id FROM journal")) == [(f"{number}",) for number in range(5)]
    assert (await living.statement()).unwritten == ()


async def test_a_journal_that_is_new_to_a_store_begins_with_what_is_charged(
    opens: Opens, redis_url: str, path: Path
) -> None:
    namespace, journal = fresh_namespace(), journal_at(path)
    before = opens(redis_url, namespace=namespace, timing=QUICK)
    await settle(before, await reserve(before, "1"), 5)

    for _ in range(2):
        ledger = _journaled(opens(redis_url, namespace=namespace, timing=QUICK), journal)
        await _until_written(ledger, journal)

    assert select(path, "SELECT event, settled_nanousd FROM journal") == [("opening", 5)]
    assert [line.problems for line in await _lines(ledger, path)] == [()]


async def test_what_was_lowered_by_hand_is_no_loss_to_those_who_remember_more(
    opens: Opens, own_server: RedisServer, path: Path
) -> None:
    """And a store that forgets afterwards is raised to what it held since."""
    namespace, journal = fresh_namespace(), journal_at(path)
    ledger = _journaled(opens(own_server.url, namespace=namespace, timing=QUICK), journal)
    by_hand = journal_at(path)
    operator = _journaled(opens(own_server.url, namespace=namespace, timing=QUICK), by_hand)
    await settle(ledger, await reserve(ledger, "1"), 5 * CALL)
    await until_idle(journal)

    await operator.adjust(Adjustment("adjust-1", "the invoice", -3 * CALL, EVER))
    await until_idle(by_hand)
    await balance(ledger)
    is_healthy = await try_reserve(ledger, "2") is not None
    lowered = await balance(ledger)
    own_server.command("FLUSHALL")
    await until(lambda: _admits(ledger, "3"))

    assert is_healthy
    assert lowered.settled_nanousd == 2 * CALL
    assert (await balance(ledger)).settled_nanousd == 2 * CALL


async def test_a_store_that_forgot_is_raised_to_what_the_journal_knows(
    opens: Opens, own_server: RedisServer, path: Path
) -> None:
    """Of what a dead process spent, no living one has seen anything."""
    namespace, journal = fresh_namespace(), journal_at(path)
    living = _journaled(opens(own_server.url, namespace=namespace, timing=QUICK), journal)
    dead = _journaled(RedisLedger(own_server.url, namespace=namespace, timing=QUICK), journal_at(path))
    await reserve(living, "1")
    lost = await dead.reserve("2", money=[Claim(MINE, "a", CALL)], slots=[])
    await dead.settle(lost, state="kept", settled_nanousd=0, kept_nanousd=CALL)
    await living.reserve("3", money=[Claim(MINE, "b", CALL)], slots=[])
    await _until_written(dead, journal)
    await dead.aclose()

    own_server.command("FLUSHALL")
    await until(lambda: _admits(living, "4"))

    counted = (await living.statement()).counted
    assert counted["total|UTC|1|0|c|a"].kept == CALL


async def test_a_day_that_has_left_the_store_is_no_difference_and_one_that_was_lost_is(
    own_server: RedisServer, path: Path
) -> None:
    """The accounts of a past window go two days after it; the journal keeps its rows."""
    clock, journal, namespace = FakeClock(), journal_at(path), fresh_namespace()
    ledger = RedisLedger(own_server.url, namespace=namespace, timing=QUICK, test_clock=clock)
    ledger.journal = journal
    problems = []

    for day in range(5):
        await settle(ledger, await reserve(ledger, f"{day}", budget=DAY), 7)
        await _until_written(ledger, journal)
        problems.append([line.problems for line in await _lines(ledger, path) if line.problems])
        clock.advance(86_400)
    # Whatever is due goes with a look at the store, which a statement takes only where the last one is old.
    await ledger.in_flight()
    counted = (await ledger.statement()).counted
    own_server.command("HDEL", f"{{rg:{namespace}}}:ledger", max(counted))
    lost = [line for line in await _lines(ledger, path) if line.problems]
    await ledger.aclose()

    assert problems == [[], [], [], [], []]
    assert len(counted) == 2
    assert [(line.counter, line.problems) for line in lost] == [
        (max(counted), ("settled: the counter has 0 USD, the journal 0.000000007 USD",))
    ]


async def test_a_record_that_this_version_cannot_read_stops_nobody_and_stays(
    opens: Opens, own_server: RedisServer, path: Path
) -> None:
    """It is for the process that wrote it, in a deploy that is under way; every look used to end at it."""
    namespace, journal = fresh_namespace(), journal_at(path)
    ledger = _journaled(opens(own_server.url, namespace=namespace, timing=QUICK), journal)
    await settle(ledger, await reserve(ledger, "1"), 7)
    strange = "some later event in words\n-\n-"
    own_server.command("ZADD", f"{{rg:{namespace}}}:unwritten", "1", strange)

    await ledger.in_flight()
    await until_idle(journal)
    statement = await ledger.statement()

    assert [record.id for record in statement.unwritten if record.id != "1"] == []
    assert own_server.command("ZSCORE", f"{{rg:{namespace}}}:unwritten", strange) is not None
    assert select(path, "SELECT id FROM journal") == [("1",)]


async def test_an_orphan_is_ended_by_its_bill_once(opens: Opens, redis_url: str, path: Path) -> None:
    journal = journal_at(path)
    ledger = _journaled(opens(redis_url, timing=QUICK), journal)
    await ledger.reserve("lost", money=[Claim(EVER, "", CALL)], slots=[Claim(MOMENT, "", 1)])
    orphaned = await balance(ledger)

    for _ in range(2):
        await ledger.adjust(Adjustment("lost", "found on the invoice", 7, None))
    await _until_written(ledger, journal)

    settled = await balance(ledger)
    assert (orphaned.orphaned_nanousd, settled.orphaned_nanousd, settled.settled_nanousd) == (CALL, 0, 7)
    assert select(path, "SELECT id, reason FROM journal WHERE event = 'adjust'") == [("lost", "found on the invoice")]
    assert [line.problems for line in await _lines(ledger, path)] == [()]


async def test_an_orphan_is_known_as_long_as_its_money_is_charged(redis_url: str) -> None:
    clock = FakeClock()
    ledger = RedisLedger(redis_url, namespace=fresh_namespace(), timing=QUICK, test_clock=clock)
    await ledger.reserve("lost", money=[Claim(EVER, "", CALL)], slots=[Claim(MOMENT, "", 1)])
    for _ in range(5):
        clock.advance(8 * 86_400)
        await ledger.in_flight()

    await ledger.adjust(Adjustment("lost", "found on the invoice", 7, None))

    found = await balance(ledger)
    await ledger.aclose()
    assert (found.orphaned_nanousd, found.settled_nanousd) == (0, 7)


async def test_money_that_a_store_was_raised_by_is_taken_away_from_its_budget(
    opens: Opens, own_server: RedisServer
) -> None:
    """The reservation is known to nobody: who made it has died, and the store has forgotten it."""
    namespace = fresh_namespace()
    living = opens(own_server.url, namespace=namespace, timing=QUICK)
    dead = RedisLedger(own_server.url, namespace=namespace, timing=QUICK)
    await reserve(dead, "forgotten")
    await dead.aclose()
    await settle(living, await reserve(living, "1"), CALL // 2)
    own_server.command("FLUSHALL")
    await until(lambda: _admits(living, "2"))
    raised = await balance(living)

    await living.adjust(Adjustment("a", "the invoice has no such call", -CALL - CALL // 2, EVER))

    found = await balance(living)
    assert raised.orphaned_nanousd >= CALL
    assert (found.settled_nanousd, found.orphaned_nanousd) == (0, raised.orphaned_nanousd - CALL)
    with pytest.raises(AdjustmentRefused):
        await living.adjust(Adjustment("b", "more than is there", -CALL, EVER))


@pytest.mark.parametrize(
    "adjustment",
    [
        Adjustment("a", "more than is there", -CALL - 1, EVER),
        Adjustment("a", "nobody there", 1, MINE, "stranger"),
        Adjustment("a", "above the largest budget", NANOUSD_MAX - 2 * CALL + 1, EVER),
        Adjustment("nobody", "no such reservation", 1, None),
        Adjustment("2", "still open", 1, None),
        Adjustment("1", "ended", 1, None),
    ],
    ids=lambda adjustment: adjustment.reason,
)
async def test_what_cannot_be_adjusted_changes_nothing(opens: Opens, redis_url: str, adjustment: Adjustment) -> None:
    ledger = opens(redis_url, timing=QUICK)
    await settle(ledger, await reserve(ledger, "1"), CALL)
    await reserve(ledger, "2")

    with pytest.raises(AdjustmentRefused):
        await ledger.adjust(adjustment)

    found = await balance(ledger)
    assert (found.settled_nanousd, found.open_nanousd) == (CALL, CALL)


def _journaled(ledger: RedisLedger, journal: SqliteJournal) -> RedisLedger:
    ledger.journal = journal
    return ledger


async def _until_written(ledger: RedisLedger, journal: SqliteJournal) -> None:
    """Nothing waits in the store; what is left behind is handed over after two seconds."""

    async def written() -> bool:
        await ledger.in_flight()
        await until_idle(journal)
        return not (await ledger.statement()).unwritten

    await until(written)


async def _admits(ledger: RedisLedger, name: str) -> bool:
    try:
        return await try_reserve(ledger, name) is not None
    except LedgerUnavailable:
        return False


async def _lines(ledger: RedisLedger, path: Path) -> list[Line]:
    return await anyio.to_thread.run_sync(_compared, await ledger.statement(), path)


def _compared(statement: Statement, path: Path) -> list[Line]:
    with reading(str(path)) as journal:
        damaged = journal.damaged("default", statement.ledger)
        return compare(statement, journal.standing("default", statement.ledger, statement.unwritten), damaged)
