"""The proof notices: each fault is put into a copy of the package, and the row that is about it must say so."""

import os
from pathlib import Path

import pytest

from tests.prove.copies import Fault, breaches, broken_copy, proved
from tests.redis.server import RedisServer, find_server

MEMORY, ENDING, GUARD = "ledgers/memory/ledger.py", "ending.py", "guard.py"


def fault(name: str, file: str, before: str, after: str, *caught_by: str) -> Fault:
    return Fault(name, file, before, after, frozenset(caught_by))


FAULTS = [
    fault(
        "a failure gives the money back",
        ENDING,
        'return Charge("kept", 0, ceiling_nanousd, failure)',
        'return Charge("released", 0, 0, failure)',
        "failure",
        "disconnect",
    ),
    fault(
        "no usage counts as no cost",
        ENDING,
        'return Charge("kept", 0, ceiling_nanousd, failure or "no_usage")',
        'return Charge("settled", 0, 0, failure or "no_usage")',
        "missing usage",
    ),
    fault(
        "a begun call that nobody reports costs nothing",
        ENDING,
        "kept = bill.unreported_nanousd\n        settled = bill.total_nanousd - kept",
        "kept = 0\n        settled = bill.reported_nanousd",
        "missing usage",
    ),
    fault(
        "a call is never charged above its ceiling",
        ENDING,
        "    known = _known_charge(bill)\n    if failure",
        "    known = _known_charge(bill)\n    if known and known.total_nanousd > ceiling_nanousd:\n"
        '        known = Charge("settled", ceiling_nanousd, 0, "reported")\n    if failure',
        "overrun",
    ),
    fault(
        "an overrun teaches nothing",
        GUARD,
        "self.seen_nanousd = max(self.seen_nanousd, charge.total_nanousd)",
        "self.seen_nanousd = 0",
        "overrun",
    ),
    fault(
        "a cost is rounded down",
        "pricing.py",
        "return ceil_div(self._numerator_of(usage, positions, quotes, input_tokens_max), self._per)",
        "return self._numerator_of(usage, positions, quotes, input_tokens_max) // self._per",
        "rounding",
    ),
    fault(
        "text is reserved for as it is written and not as a provider reads it",
        "body/text_size.py",
        '    return max(raw_bytes, len(normalize("NFC", text).encode()), len(normalize("NFKC", text).encode()))',
        "    return raw_bytes",
        "ceiling",
    ),
    fault(
        "the output cap is left out of the ceiling",
        "pricing.py",
        "output_tokens = calls * self.max_output_tokens\n        numerator",
        "output_tokens = 0\n        numerator",
        "ceiling",
    ),
    fault(
        "checked without being debited",
        MEMORY,
        "account.open += claim.amount\n",
        "account.open += 0\n",
        "stampede",
        "double settle",
    ),
    fault(
        "one call too many fits",
        MEMORY,
        "+ account.open + amount > budget.limit_nanousd",
        "+ account.open > budget.limit_nanousd",
        "stampede",
    ),
    fault(
        "a second ending counts",
        MEMORY,
        "if reservation.state in ENDED:\n                self.double_settlements += 1\n                return False",
        "if reservation.state in ENDED:\n                self.double_settlements += 1",
        "double settle",
    ),
    fault(
        "the window is looked up again when the stream ends",
        MEMORY,
        "            for account, book, partition in reservation.accounts:\n                if was_orphaned:",
        "            now = self._clock.wall_ns() // NANOSECONDS\n"
        "            for account, book, partition in reservation.accounts:\n"
        "                if book.span.end is not None and now >= book.span.end:\n"
        "                    (key,) = [k for k, b in self._books.items() if b.span == book.span] or [None]\n"
        "                    if key:\n"
        "                        span = Span(book.span.end, book.span.end + 86400)\n"
        "                        book = self._books[key] = Book(book.budget, span)\n"
        "                        account = book.everybody\n"
        "                if was_orphaned:",
        "midnight",
    ),
    fault(
        "the end of a lease gives the money back",
        MEMORY,
        "account.orphaned += amount",
        "account.orphaned += 0",
        "crash",
    ),
    fault(
        "a lease never ends",
        MEMORY,
        "if ends_ns > now_ns:\n                    break",
        "if ends_ns >= 0:\n                    break",
        "crash",
    ),
    fault(
        "a slot is never given back",
        MEMORY,
        "left = self._slots_in_use[partition] - 1",
        "left = self._slots_in_use[partition]",
        "parallel streams",
        "disconnect",
    ),
    fault(
        "nobody counts the streams",
        MEMORY,
        "policy.quota is not None and in_use.get(partition, 0) + amount > policy.quota",
        "False",
        "parallel streams",
    ),
    fault(
        "a late bill is lost",
        MEMORY,
        "charged.settled += extra_nanousd",
        "charged.settled += 0",
        "late report",
    ),
    fault(
        "a client has no budget of its own",
        GUARD,
        "money += [Claim(budget, client, ceiling_nanousd) for budget in rules.client_budgets]",
        "pass",
        "client's share",
    ),
    fault(
        "a cancelled request is never ended",
        "asgi.py",
        'failure = "cancelled"\n            raise\n        finally:\n',
        'failure = "cancelled"\n            raise\n        else:\n',
        "cancel",
    ),
    fault(
        "the address is taken from the left",
        "client_ip/strategies.py",
        "return parse_address(entries[-hops])",
        "return parse_address(lines[0].split(b',')[0])",
        "spoofed addresses",
    ),
    fault(
        "each address of a home is a client",
        "clients.py",
        "cut(address, rules.ipv6_prefix)",
        "cut(address, 128)",
        "spoofed addresses",
    ),
    fault(
        "what arrives is not counted, only what is declared",
        GUARD,
        "bytes_max=rules.body.bytes_max - attempt.target_bytes",
        "bytes_max=2**40",
        "lying lengths",
    ),
    fault(
        "two lengths are no problem",
        "body/headers.py",
        "    if len(lengths) > 1:\n",
        "    lengths = {min(lengths)}\n    if len(lengths) > 1:\n",
        "lying lengths",
    ),
    fault(
        "the output cap of a request is believed",
        "body/fields.py",
        "elif type(value) is not int or not 0 < value <= rules.output_tokens_max:",
        "elif type(value) is not int or not 0 < value:",
        "hostile limits",
    ),
    fault(
        "an unlimited output is let through",
        "body/fields.py",
        "elif type(value) is not int or not 0 < value <= rules.output_tokens_max:",
        "elif type(value) is not int or value > rules.output_tokens_max:",
        "hostile limits",
    ),
    fault(
        "a ceiling is rounded down",
        "pricing.py",
        "return ceil_div(numerator, self._per) + media_parts",
        "return numerator // self._per + media_parts",
        "rounding",
    ),
    fault(
        "a path is compared as it is written",
        "paths.py",
        "plain = _canonical(path)",
        "plain = path",
        "side doors",
    ),
    fault(
        "a stream may take as long as it likes",
        "asgi.py",
        "time_limit.set(guard.rules.stream_timeout_seconds)",
        "time_limit.set(3600)",
        "hanging provider",
    ),
    fault(
        "nobody looks for the secret of the edge",
        GUARD,
        "if secret is None:\n            return",
        "if secret is not None:\n            return",
        "side doors",
    ),
    fault(
        "the kill switch is not looked at",
        GUARD,
        "if self.ledger.paused:\n            raise self.refusals.paused()",
        "if False:\n            raise self.refusals.paused()",
        "kill switch",
    ),
]
SQLITE_FAULTS = [
    fault(
        "each process counts for itself",
        "ledgers/sqlite/book.py",
        "self._name = namespace",
        'self._name = f"{namespace}-{os.getpid()}"',
        "two processes",
    ),
    fault(
        "a second ending counts",
        "ledgers/sqlite/book.py",
        "if entry is None or entry.state in ENDED:",
        "if entry is None:",
        "double settle",
    ),
]
REDIS_FAULTS = [
    fault(
        "a question that is asked again debits again",
        "ledgers/redis/reserve.lua",
        "if record then\n  return reply('known', record)\nelseif",
        "if false then\n  return reply('known', record)\nelseif",
        "lost reply",
        "double settle",
    ),
    fault(
        "an ending that is sent again counts again",
        "ledgers/redis/settle.lua",
        "  redis.call('HSET', CALLS, id, state .. ' ' .. amount)\n",
        "",
        "lost reply",
    ),
    fault(
        "what nobody waits for stays reserved",
        "ledgers/redis/ledger.py",
        "        self._store.owe(Debt(SETTLE, keys, arguments))",
        "        return",
        "lost reply",
    ),
    fault(
        "a script counts the budget as it was asked and not as it is",
        "ledgers/redis/reserve.lua",
        "local admitted = force or not refused",
        "local admitted = true",
        "stampede",
        "two processes",
    ),
]


def test_an_unbroken_copy_holds(tmp_path: Path) -> None:
    """Else every fault below would be caught for the wrong reason."""
    code, rows, stderr = proved(broken_copy(None, tmp_path))

    assert (code, breaches(rows), stderr) == (0, set(), "")


def tried(faults: list[Fault]) -> list[Fault]:
    """Every third of them with every run of the tests, all with `make soak`."""
    return faults if os.environ.get("FAULTS") == "all" else faults[::3]


@pytest.mark.parametrize("broken", tried(FAULTS), ids=lambda broken: broken.name)
def test_a_fault_is_caught(broken: Fault, tmp_path: Path) -> None:
    code, rows, _ = proved(broken_copy(broken, tmp_path))

    assert broken.caught_by <= breaches(rows)
    assert code == 1


@pytest.mark.parametrize("broken", SQLITE_FAULTS, ids=lambda broken: broken.name)
def test_a_fault_of_the_sqlite_ledger_is_caught(broken: Fault, tmp_path: Path) -> None:
    code, rows, _ = proved(broken_copy(broken, tmp_path / "copy"), LEDGER=f"sqlite:///{tmp_path / 'ledger.db'}")

    assert broken.caught_by <= breaches(rows)
    assert code == 1


@pytest.mark.parametrize("broken", tried(REDIS_FAULTS), ids=lambda broken: broken.name)
def test_a_fault_of_the_redis_ledger_is_caught(broken: Fault, tmp_path: Path) -> None:
    program = find_server()
    if program is None:
        pytest.skip("no redis-server: the faults of the redis ledger were not tried")

    with RedisServer(program) as server:
        code, rows, _ = proved(broken_copy(broken, tmp_path), LEDGER=server.url)

    assert broken.caught_by <= breaches(rows)
    assert code == 1
