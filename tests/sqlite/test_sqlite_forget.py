"""A namespace that is forgotten leaves nothing behind, and nobody else's rows."""

from pathlib import Path

from routeguard.auditing import Adjustment
from routeguard.policy import Claim, Rate
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, budget, slot
from tests.journal.rows import journal_at
from tests.sqlite.files import ledger_at, number, rows


async def test_a_forgotten_namespace_leaves_no_row_and_its_neighbour_every_one(path: Path, clock: FakeClock) -> None:
    kept, forgotten = ledger_at(path, clock, namespace="kept"), ledger_at(path, clock, namespace="forgotten")
    # It writes nothing while we look, so that what is adjusted waits for it.
    journal = journal_at(path.with_name("journal.db"), group_seconds=3_600)
    day = budget(9 * CALL)
    for ledger in (kept, forgotten):
        ledger.journal = journal
        await ledger.reserve(
            "1",
            money=[Claim(day, "", CALL), Claim(budget(9 * CALL, per_client=True), "a", CALL)],
            slots=[Claim(slot(3), "", 1)],
            rates=[Claim(Rate("client-1", 3, 60 * 10**9), "a", 1)],
        )
        await ledger.adjust(Adjustment("2", "a call beside the guard", 7, day))
        await ledger.first("warned", by="us", until=None)
    before = counts(path)

    await forgotten.forget()

    assert len(before) == 9
    assert all(count > 0 for count in before.values())
    assert {table: 2 * count for table, count in counts(path).items()} == before
    assert number(path, "SELECT count(*) FROM namespaces WHERE name = 'kept'") == 1
    await forgotten.aclose()
    await kept.aclose()


def counts(path: Path) -> dict[str, int]:
    """Rows of every table that is in the file."""
    tables = rows(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {str(table): number(path, f"SELECT count(*) FROM {table}") for (table,) in tables}
