"""What strangers do to an open AI route, done on purpose over real sockets.

Sockets rather than an HTTP client, because most of this cannot be sent by a well-behaved client. Every attack comes
from a loopback address of its own, so that one attacker's share is not the visitor's. Where the system has only
127.0.0.1 (macOS), they share it.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

QUESTION = "Which lamp is best for reading in bed?"
HUGE_PROMPT_BYTES = 2_000_000
HUGE_OUTPUT_TOKENS = 100_000
#: English text; only used to say what an unguarded route would have paid.
BYTES_PER_TOKEN = 4
#: A whole attack request may take this long: an unguarded burst waits for a small machine.
ANSWER_SECONDS = 120
#: A lie about the length has an unguarded route wait for a body that never comes, as long as the liar likes. The guard
#: gives up after ten seconds, and one that only observes has noted so by then.
LIE_SECONDS = 12
ANSWER_BYTES_MAX = 1_000_000
#: How long the money may take to stop moving after the last answer.
SETTLE_SECONDS = 10

_REASON = re.compile(rb'"reason": ?"([a-z_]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A guarded route on this machine, and where its guard tells its state."""

    port: int
    path: str
    status_path: str
    admin_token: str


@dataclass(frozen=True, slots=True)
class Attack:
    """One button. `run` returns what each request got, as `"200"` or `"429 busy"`."""

    title: str
    #: One sentence: what is about to happen.
    plan: str
    run: Callable[["Attacker"], Awaitable[list[str]]]
    #: What a route without a guard pays: answers begun, input and output tokens of each, and why.
    unguarded: "Bill"


@dataclass(frozen=True, slots=True)
class Bill:
    """Provider calls of an unguarded route. None as output stands for the application's own cap."""

    calls: int
    input_tokens: int
    output_tokens: int | None
    why: str


async def run_attack(
    name: str, target: Target, *, price_in: int, price_out: int, output_tokens: int
) -> dict[str, object]:
    """Attack `target`; prices are USD per million tokens, `output_tokens` the application's own cap.

    Returns what each request got, the money that moved in the first budget, and the unguarded bill.
    """
    attack = ATTACKS[name]
    attacker = Attacker(target, address=f"127.0.0.{10 + list(ATTACKS).index(name)}")
    before = await attacker.read_status()
    answers = await attack.run(attacker)
    after = await attacker.read_settled_status(before)
    bill = attack.unguarded
    per_call = bill.input_tokens * price_in + (bill.output_tokens or output_tokens) * price_out
    return {
        "title": attack.title,
        "answers": dict(Counter(answers)),
        "settled_usd": _moved("settled_usd", before, after),
        "kept_usd": _moved("kept_usd", before, after),
        "would_reject": _count(after["would_reject"]) - _count(before["would_reject"]),
        "unguarded_usd": f"{Decimal(bill.calls * per_call) / 1_000_000:f}",
        "unguarded_why": bill.why,
    }


def _moved(part: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{Decimal(after['budgets'][0][part]) - Decimal(before['budgets'][0][part]):f}"


def _count(by_reason: dict[str, int]) -> int:
    return sum(by_reason.values())


@dataclass(frozen=True, slots=True)
class Attacker:
    """Raw requests from one loopback address."""

    target: Target
    address: str

    async def ask(
        self, content: str = QUESTION, *, headers: Iterable[str] = (), fields: dict[str, object] | None = None
    ) -> str:
        """An honest request with any header and any extra body field."""
        body = json.dumps({"messages": [{"role": "user", "content": content}], **(fields or {})}).encode()
        return await self.send([f"Content-Length: {len(body)}", *headers], body)

    async def send(
        self,
        headers: Iterable[str],
        body: bytes,
        *,
        leave_after: bytes | None = None,
        patience_seconds: float = ANSWER_SECONDS,
    ) -> str:
        """Exactly these headers and bytes; `leave_after` closes the connection once the answer holds it."""
        head = [f"POST {self.target.path} HTTP/1.1", f"Host: 127.0.0.1:{self.target.port}", "Connection: close"]
        request = "\r\n".join([*head, "Content-Type: application/json", *headers, "", ""]).encode() + body
        try:
            async with asyncio.timeout(patience_seconds):
                answer = await self._exchange(request, leave_after=leave_after)
        except (OSError, TimeoutError):
            return "no answer"
        status = answer[9:12].decode("ascii", "replace")
        reason = _REASON.search(answer)
        return f"{status} {reason[1].decode()}" if reason else status or "no answer"

    async def read_status(self) -> dict[str, Any]:
        """The guard's own account."""
        request = [
            f"GET {self.target.status_path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.target.port}",
            f"Authorization: Bearer {self.target.admin_token}",
            "Connection: close",
        ]
        answer = await self._exchange("\r\n".join([*request, "", ""]).encode())
        status: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return status

    async def read_settled_status(self, before: dict[str, Any]) -> dict[str, Any]:
        """The account once no more calls are open than before the attack, or after `SETTLE_SECONDS`."""
        status = await self.read_status()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while status["in_flight"] > before["in_flight"]:
                    await asyncio.sleep(0.1)
                    status = await self.read_status()
        return status

    async def _exchange(self, request: bytes, *, leave_after: bytes | None = None) -> bytes:
        reader, writer = await self._connect()
        sending = asyncio.create_task(_write(writer, request))
        answer = bytearray()
        try:
            while part := await reader.read(65536):
                answer += part[: ANSWER_BYTES_MAX - len(answer)]
                if leave_after is not None and leave_after in answer:
                    break
        except ConnectionError:
            pass  # What was read before the reset is the answer.
        finally:
            sending.cancel()
            writer.transport.abort()
        return bytes(answer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection("127.0.0.1", self.target.port, local_addr=(self.address, 0))
        except OSError:
            return await asyncio.open_connection("127.0.0.1", self.target.port)


async def _write(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Writes beside the reader: a guard answers a body that is too large before it has read it."""
    with suppress(ConnectionError):
        writer.write(request)
        await writer.drain()


async def _twenty_at_once(attacker: Attacker) -> list[str]:
    return await asyncio.gather(*(attacker.ask() for _ in range(20)))


async def _spoof(attacker: Attacker) -> list[str]:
    fakes = [f"X-Forwarded-For: 203.0.113.{number}" for number in range(1, 51)]
    answers: list[str] = []
    for start in range(0, 50, 2):
        answers += await asyncio.gather(*(attacker.ask(headers=[fake]) for fake in fakes[start : start + 2]))
    return answers


async def _huge_prompt(attacker: Attacker) -> list[str]:
    return [await attacker.ask("lamp " * (HUGE_PROMPT_BYTES // 5))]


async def _huge_answer(attacker: Attacker) -> list[str]:
    return [await attacker.ask(fields={"max_tokens": HUGE_OUTPUT_TOKENS})]


async def _close_the_tab(attacker: Attacker) -> list[str]:
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me all about lamps."}]}).encode()
    return [await attacker.send([f"Content-Length: {len(body)}"], body, leave_after=b'"content":')]


async def _provider_fails(attacker: Attacker) -> list[str]:
    return [await attacker.ask("script: words=200 fail_after=20")]


async def _lie_about_the_length(attacker: Attacker) -> list[str]:
    body = json.dumps({"messages": [{"role": "user", "content": "lamp " * (HUGE_PROMPT_BYTES // 5)}]}).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return [
        # Only this one has a route wait for the rest.
        await attacker.send(["Content-Length: 10000000000"], body[:100], patience_seconds=LIE_SECONDS),
        await attacker.send(["Content-Length: 100", "Content-Length: 2000000"], body[:100]),
        await attacker.send(["Content-Length: 100", "Transfer-Encoding: chunked"], chunked),
        await attacker.send(["Transfer-Encoding: chunked"], chunked),
    ]


#: Tokens of the system prompt and a short question.
_SHORT = 130
_HUGE = HUGE_PROMPT_BYTES // BYTES_PER_TOKEN

ATTACKS = {
    "burst": Attack(
        "20 at once",
        "Twenty requests in the same moment, all before the first answer is paid.",
        _twenty_at_once,
        Bill(20, _SHORT, None, "20 full answers; a check that reads the spend first sees $0 twenty times"),
    ),
    "spoof": Attack(
        "50 made-up addresses",
        "Fifty requests, each with another X-Forwarded-For.",
        _spoof,
        Bill(50, _SHORT, None, "50 full answers; a limit that believes the header sees 50 visitors"),
    ),
    "huge-prompt": Attack(
        "2 MB prompt",
        "One question as long as three novels.",
        _huge_prompt,
        Bill(1, _HUGE, None, f"2 MB of text is about {_HUGE:,} input tokens"),
    ),
    "huge-answer": Attack(
        "100,000 tokens, please",
        "A short question whose body asks for max_tokens: 100000.",
        _huge_answer,
        Bill(1, _SHORT, HUGE_OUTPUT_TOKENS, "a route that passes the number on"),
    ),
    "hangup": Attack(
        "Close the tab",
        "Leave after the first word, before the provider has said what it costs.",
        _close_the_tab,
        Bill(1, _SHORT, None, "one full answer, and no counter ever hears of it"),
    ),
    "failure": Attack(
        "Provider fails",
        "The provider dies in mid-answer; its bill does not.",
        _provider_fails,
        Bill(1, _SHORT, 20, "20 words were generated and are billed, and no usage was reported"),
    ),
    "length": Attack(
        "Lie about the length",
        "Four bodies that are not as long as they say: 10 GB announced, two lengths, length and chunks, no length.",
        _lie_about_the_length,
        Bill(1, _HUGE, None, "one of the four carries 2 MB past a check that trusts the header"),
    ),
}
