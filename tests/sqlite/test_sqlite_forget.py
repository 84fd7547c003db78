"""A namespace that is forgotten leaves nothing behind, and nobody else's rows."""

from pathlib import Path

from routeguard.policy import Claim, Rate
from routeguard.testing import FakeClock
from routeguard.testing.ledger_contract.claims import CALL, budget, slot
from tests.sqlite.files import ledger_at, number

TABLES = ("namespaces", "budgets", "entries", "leases", "slots", "rates")


async def test_a_forgotten_namespace_leaves_no_row_and_its_neighbour_every_one(path: Path, clock: FakeClock) -> None:
    kept, forgotten = ledger_at(path, clock, namespace="kept"), ledger_at(path, clock, namespace="forgotten")
    for ledger in (kept, forgotten):
        await ledger.reserve(
            "1",
            money=[Claim(budget(9 * CALL), "", CALL), Claim(budget(9 * CALL, per_client=True), "a", CALL)],
            slots=[Claim(slot(3), "", 1)],
            rates=[Claim(Rate("client-1", 3, 60 * 10**9), "a", 1)],
        )
    before = {table: number(path, f"SELECT count(*) FROM {table}") for table in (*TABLES, "counters")}

    await forgotten.forget()

    after = {table: number(path, f"SELECT count(*) FROM {table}") for table in (*TABLES, "counters")}
    assert all(count > 0 for count in before.values())
    assert {table: 2 * count for table, count in after.items()} == before
    assert number(path, "SELECT count(*) FROM namespaces WHERE name = 'kept'") == 1
    await forgotten.aclose()
    await kept.aclose()
