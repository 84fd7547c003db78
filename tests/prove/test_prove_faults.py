"""The proof notices: each fault is put into a copy of the package, and the row that is about it must say so."""

import os
from pathlib import Path

import pytest

from tests.prove.copies import Fault, breaches, broken_copy, proved
from tests.redis.server import RedisServer, needed_server

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
        "admitted.py",
        "return Bill(\n            reported,",
        "return Bill(\n            min(reported, self.ceiling_nanousd),",
        "overrun",
    ),
    fault(
        "an overrun teaches nothing",
        GUARD,
        "self.seen_nanousd = max(self.seen_nanousd, admission.charged_nanousd)",
        "self.seen_nanousd = 0",
        "overrun",
    ),
    fault(
        "a cost is rounded down",
        "pricing.py",
        "return ceil_div(numerator, self._per)\n",
        "return numerator // self._per\n",
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
        "account.open += amount\n                kept_as",
        "account.open += 0\n                kept_as",
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
        "left = in_use[partition] - 1",
        "left = in_use[partition]",
        "parallel streams",
        "disconnect",
    ),
    fault(
        "nobody counts the streams",
        MEMORY,
        "parallel.quota is not None and in_use.get(partition, 0) + claimed > parallel.quota",
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
        "a cancelled request without a call is given back",
        "asgi.py",
        'failure = "cancelled"\n            raise',
        'failure = "cancelled"\n            if attempt.admission:\n                attempt.admission.nothing_sent()\n'
        "            raise",
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
        "return ceil_div(numerator, self._per) + self._extra_nanousd",
        "return numerator // self._per + self._extra_nanousd",
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
    fault(
        "of two reports the last one counts",
        "admitted.py",
        "self._whole_nanousd += cost_nanousd",
        "self._whole_nanousd = cost_nanousd",
        "reports",
    ),
    fault(
        "a negative cost is an answer",
        "money.py",
        "if not amount.is_finite() or amount < 0 or amount > NANOUSD_MAX",
        "if not amount.is_finite() or amount > NANOUSD_MAX",
        "reports",
    ),
    fault(
        "a failure is charged what was reported until then",
        ENDING,
        'if failure is not None and rules.on_failure == "keep":',
        'if failure is not None and rules.on_failure == "never":',
        "reports",
    ),
    fault(
        "what came from a cache is free",
        "counts.py",
        "            + cached * rates.cached_input\n",
        "",
        "token prices",
    ),
    fault(
        "an output that is not said is none",
        "counts.py",
        "        output_tokens = output_tokens_max\n",
        "        output_tokens = 0\n",
        "token prices",
    ),
    fault(
        "the window of a rate begins anew all at once",
        "limiter.py",
        "        if times and times[0] <= now_ns - window_ns:\n            horizon = now_ns - window_ns",
        "        if times and times[0] <= now_ns - window_ns:\n            horizon = now_ns",
        "rates",
    ),
    fault(
        "a bucket leaves with its oldest claim",
        "limiter.py",
        "buckets[gone][1] <= now_ns - window_ns",
        "buckets[gone][0] <= now_ns - window_ns",
        "rates",
    ),
    fault(
        "who is told to wait for a slot has used one of the rate",
        GUARD,
        "            self.limiter.give_back(attempt.ticket)\n",
        "",
        "rates",
    ),
    fault(
        "newcomers have a budget each, however many there are",
        MEMORY,
        "return Account() if len(book.clients) < self._clients_max else book.overflow",
        "return Account()",
        "client's share",
    ),
    fault(
        "a client may have as many streams as there are slots",
        GUARD,
        "slots.append(Claim(rules.client_parallel, client, 1))",
        "pass",
        "parallel streams",
    ),
    fault(
        "orphaned money is free to spend",
        MEMORY,
        "account.settled + account.kept + account.orphaned + account.open + amount >",
        "account.settled + account.kept + account.open + amount >",
        "crash",
    ),
    fault(
        "a clock set back opens the old window again",
        MEMORY,
        "elif book.span.end is not None and wall_seconds >= book.span.end:",
        "elif book.span != budget.window.span(wall_seconds):",
        "midnight",
    ),
    fault(
        "a JSON body is read for usage unasked",
        "tap.py",
        'read_bodies=self._read_response == "all"',
        "read_bodies=True",
        "usage from the stream",
    ),
    fault(
        "an answer is held back until it is whole",
        "tap.py",
        "            return send(message)\n",
        "            return send(message) if len(held) > 1 else asyncio.sleep(0)\n",
        "stream",
    ),
    fault(
        "what follows a preflight is delivered",
        "asgi.py",
        '[{"type": "http.request", "body": b"", "more_body": False}]',
        "[]",
        "preflight",
    ),
    fault(
        "a preflight is free whatever it is answered",
        GUARD,
        '"release" if preflight_is_free else "keep"',
        '"release"',
        "preflight",
    ),
    fault(
        "a websocket goes through",
        "asgi.py",
        'if path is None or self.settings.websocket == "ignore":',
        "if True:",
        "side doors",
    ),
    fault(
        "of several lines the first one is the proxy's",
        "client_ip/strategies.py",
        "for line in reversed(lines):\n            entries = line.rsplit",
        "for line in lines:\n            entries = line.rsplit",
        "spoofed addresses",
    ),
    fault(
        "without the header the proxy is the client",
        "client_ip/strategies.py",
        "return self.parse(lines[0]) if len(lines) == 1 else None",
        "return self.parse(lines[0]) if len(lines) == 1 else parse_address(peer or '')",
        "spoofed addresses",
    ),
    fault(
        "a body may take as long as it likes",
        GUARD,
        "attempt.time_limit.set(rules.body_timeout_seconds)",
        "attempt.time_limit.set(3600)",
        "lying lengths",
    ),
    fault(
        "JSON that is called text is text",
        "body/checks.py",
        'if kind != "json" and not opens_container(text):',
        'if kind != "json":',
        "disguises",
    ),
    fault(
        "path and query are free",
        "body/checks.py",
        "received_bytes = len(body) + len(query) + path_bytes",
        "received_bytes = len(body)",
        "disguises",
    ),
    fault(
        "a query is not looked into",
        "body/checks.py",
        "[*content.texts, *query_form.texts]",
        "[*content.texts]",
        "disguises",
    ),
    fault(
        "anybody may see and steer",
        "status/routes.py",
        "            if proof is None:",
        "            if False:",
        "status routes",
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
    fault(
        "a rate is not written down",
        "ledgers/sqlite/book.py",
        "rate_rows.take(now_ns, clients_max=self._clients_max)",
        "pass",
        "rates",
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
    fault(
        "a slot of a rate comes back early",
        "ledgers/redis/reserve.lua",
        "16) + rate.window - now)\nend",
        "16) + rate.window * 0.9 - now)\nend",
        "rates",
    ),
    fault(
        "a clock set back opens the old window again",
        "ledgers/redis/reserve.lua",
        "if latest > wall then",
        "if false then",
        "midnight",
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
    program = needed_server("the faults of the redis ledger were not tried")

    with RedisServer(program) as server:
        code, rows, _ = proved(broken_copy(broken, tmp_path), LEDGER=server.url)

    assert broken.caught_by <= breaches(rows)
    assert code == 1
