"""A namespace that is forgotten leaves nothing behind, and nobody else's keys."""

import pytest

from routeguard.policy import Claim, LedgerUnavailable, Rate
from routeguard.testing.ledger_contract.claims import CALL, budget, slot
from tests.redis.conftest import Opens
from tests.redis.server import RedisServer


def keys(server: RedisServer, namespace: str) -> int:
    """How many keys of a namespace the server holds."""
    answer = server.command("EVAL", "return #redis.call('KEYS', ARGV[1])", "0", f"{{rg:{namespace}}}:*")
    return int(answer.removeprefix(":"))


async def test_a_forgotten_namespace_leaves_no_key_and_its_neighbour_every_one(
    opens: Opens, own_server: RedisServer
) -> None:
    both = {name: opens(own_server.url, namespace=name) for name in ("kept", "forgotten")}
    for ledger in both.values():
        await ledger.reserve(
            "1",
            money=[Claim(budget(9 * CALL), "", CALL), Claim(budget(9 * CALL, per_client=True), "a", CALL)],
            slots=[Claim(slot(3), "", 1)],
            rates=[Claim(Rate("client-1", 3, 60 * 10**9), "a", 1)],
        )
    before = keys(own_server, "forgotten")

    await both["forgotten"].forget()

    assert before >= 4
    assert keys(own_server, "forgotten") == 0
    assert keys(own_server, "kept") == before


async def test_a_store_that_does_not_permit_it_says_which_command_is_missing(
    opens: Opens, own_server: RedisServer
) -> None:
    own_server.command("ACL", "SETUSER", "default", "-scan")
    ledger = opens(own_server.url)

    with pytest.raises(LedgerUnavailable, match="does not permit SCAN"):
        await ledger.forget()
