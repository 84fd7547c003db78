"""Rows about what is reserved and what is charged."""

import json
import unicodedata
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from random import Random

import anyio
import anyio.lowlevel

from routeguard.admitted import SCOPE_KEY, Admission
from routeguard.cli.prove.application import QUESTION, Chat
from routeguard.cli.prove.findings import Findings, NotRun
from routeguard.cli.prove.stage import UNKNOWN_OVERHEAD_TOKENS, Bench, Stage
from routeguard.cli.prove.waiting import wait_until
from routeguard.clock import SystemClock
from routeguard.money import ceil_div, format_usd
from routeguard.policy import Claim
from routeguard.replay import Receive, Scope, Send
from routeguard.testing.driver import App, Client
from routeguard.testing.scripted import Script
from routeguard.usage import Usage

STAMPEDE = 40
FITTING = 10
STREAMS = 3
#: One character that becomes eighteen, 33 bytes of UTF-8 instead of 3, when a provider normalises it (NFKC).
EXPANDING = "\ufdfa"
#: So many of them, where the limits let them in.
EXPANDING_MAX = 60
#: Characters of the dearest request besides those.
CHARS_BESIDE = 60
#: What it may take until each of many requests is admitted or refused.
DECIDED_SECONDS = 5.0
#: Answers of an application's own in which a small usage stands, as a model may be talked into printing it.
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[%b]%b}\n\n'
CHOICE = b'{"index":0,"delta":{"content":"a"},"finish_reason":null}'
USAGE = b',"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
PRINTED = {
    b"text/event-stream": CHUNK % (CHOICE, b"")
    + b'data: {"said":"a"}\n\n'
    + CHUNK % (b"", USAGE)
    + b"data: [DONE]\n\n",
    b"text/plain": CHUNK % (CHOICE, b"") + CHUNK % (b"", USAGE) + b"data: [DONE]\n\n",
    b"application/json": b'{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"a"},"finish_reason":"stop"}]%b}' % USAGE,
}


async def ceiling(stage: Stage, found: Findings) -> None:
    """The dearest thing that a small request can do, counted without the guard's own formula."""
    settings = stage.settings
    text = EXPANDING * min(EXPANDING_MAX, max(1, settings.max_input_chars - CHARS_BESIDE))
    content: list[dict[str, str]] = [{"type": "text", "text": text}]
    fixed_nanousd = settings.extra_nanousd
    if settings.media_nanousd is not None:
        content.append({"type": "image_url", "image_url": "https://shop.example/a.png"})
        fixed_nanousd += settings.media_nanousd
    body = json.dumps({"messages": [{"role": "user", "content": content}]}, ensure_ascii=False).encode()
    tokens = len(unicodedata.normalize("NFKC", body.decode()).encode())
    tokens += settings.system_prompt_bytes + settings.extra_input_bytes + settings.tariff.overhead_tokens
    output = settings.tariff.max_output_tokens

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        admission: Admission = scope[SCOPE_KEY]
        for made in range(settings.calls_per_request):
            admission.begin().report(_dearest(stage, input_tokens=tokens + made * output, output_tokens=output))
        admission.begin().report(cost_usd=format_usd(fixed_nanousd))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with stage.bench(app) as bench:
        client = await bench.ask(body=body)
        balance = await bench.quiet()

    calls = f"the dearest request ({settings.calls_per_request} calls of {tokens} bytes and more)"
    if client.status != 200:
        raise NotRun(f"{calls} is refused: {client.status} {client.reason}")
    found.money("above its ceiling", expected=0, seen=balance.overrun_nanousd)


async def rounding(stage: Stage, found: Findings) -> None:
    """Prices of fractions of a nano-dollar, and a bill kept in exact fractions beside."""
    price_in, price_out = Fraction(1, 10), Fraction(3, 10)
    settings = stage.priced(price_in="0.0001", price_out="0.0003")
    chat = Chat(output_tokens_max=settings.max_output_tokens)
    exact, rounded = Fraction(0), 0
    async with stage.bench(chat, settings=settings) as bench:
        for words in (1, 2, 3, 5, 8, 13, 21):
            chat.script = Script(words=words)
            before = chat.provider.input_tokens_billed, chat.provider.output_tokens_billed
            await bench.ask()
            bill = (chat.provider.input_tokens_billed - before[0]) * price_in
            bill += (chat.provider.output_tokens_billed - before[1]) * price_out
            exact, rounded = exact + bill, rounded + ceil(bill)
        balance = await bench.quiet()

    tokens = len(QUESTION) + len("/chat") + UNKNOWN_OVERHEAD_TOKENS
    most = ceil(tokens * price_in + settings.max_output_tokens * price_out)
    found.money("reserved", expected=most, seen=chat.admissions[0].ceiling_nanousd if chat.admissions else 0)
    found.money("charged for 7 calls", expected=rounded, seen=balance.settled_nanousd)
    short = None if balance.charged_nanousd >= exact else f"{float(exact - balance.charged_nanousd)} nano-USD short"
    found.true("bill covered", otherwise=short)


async def stampede(stage: Stage, found: Findings) -> None:
    """Many at once, from as many clients, none of whom has cost anything yet when the others arrive."""
    chat = stage.chat()
    async with stage.bench(chat, budget=stage.ceilings(FITTING)) as bench:
        clients = await _at_once(bench, chat, stage.rng, number=STAMPEDE)
        balance = await bench.quiet()

        admitted = [client for client in clients if client.status == 200]
        refused = {f"{client.status} {client.reason}" for client in clients if client.status != 200}
        found.equal(f"of {STAMPEDE} admitted", expected=FITTING, seen=len(admitted))
        found.equal("provider calls", expected=FITTING, seen=chat.provider.calls)
        found.true("others 429 busy", otherwise=None if refused == {"429 busy"} else ", ".join(sorted(refused)))
        found.money("charged", expected=FITTING * _bill_each(bench, chat), seen=balance.charged_nanousd)


async def parallel(stage: Stage, found: Findings) -> None:
    """More streams than slots, and the same again when they have ended."""
    chat = stage.chat()
    async with stage.bench(chat, max_parallel=STREAMS) as bench:
        for when in ("at first", "then"):
            clients = await _at_once(bench, chat, stage.rng, number=3 * STREAMS)
            await bench.quiet()
            admitted = sum(client.status == 200 for client in clients)
            found.equal(f"of {3 * STREAMS} admitted {when}", expected=STREAMS, seen=admitted)
    async with stage.bench(chat, max_parallel_per_client=STREAMS) as bench:
        clients = await _at_once(bench, chat, stage.rng, number=3 * STREAMS, addresses=1)
        admitted = sum(client.status == 200 for client in clients)
        found.equal(f"of {3 * STREAMS} of one client", expected=STREAMS, seen=admitted)


async def double_settle(stage: Stage, found: Findings) -> None:
    """The same ending again, later and at once, and the same reservation asked for twice."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        await bench.ask()
        await bench.quiet()
        reservation = chat.admissions[0].reservation
        settle = partial(bench.ledger.settle, reservation, state="settled", settled_nanousd=1, kept_nanousd=0)
        again = [await settle()]

        async def at_once() -> None:
            if bench.ledger.scope != "process":
                # As another process knows it, or this one before it had an answer: the store has to know better.
                reservation.state = "open"
            again.append(await settle())

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(at_once)
        twice = await bench.balance()
        found.money("charged", expected=_bill_each(bench, chat), seen=twice.charged_nanousd)
        found.equal("of 5 repeats counted", expected=0, seen=sum(again))

        claims = [Claim(budget, "", stage.ceiling) for budget in bench.engine.rules.budgets]
        first = await bench.ledger.reserve("prove-twice", money=claims, slots=[])
        second = await bench.ledger.reserve("prove-twice", money=claims, slots=[])
        opened = (await bench.balance()).open_nanousd
        await bench.ledger.settle(first, state="released", settled_nanousd=0, kept_nanousd=0)
        found.money("open for one id", expected=stage.ceiling, seen=opened)
        found.true("same reservation", otherwise=None if first.id == second.id else "another reservation")


async def late_report(stage: Stage, found: Findings) -> None:
    """A bill that turns out higher is charged after the ending, one that turns out lower is not given back."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        await bench.ask()
        charged = (await bench.quiet()).charged_nanousd
        call = chat.began[0]
        call.report(cost_usd=0)
        lower = (await bench.balance()).charged_nanousd
        call.report(cost_usd=format_usd(charged + stage.ceiling))

        async def raised() -> bool:
            return (await bench.balance()).charged_nanousd > lower

        higher = (await bench.until(raised)).charged_nanousd
        found.money("after a lower report", expected=_bill_each(bench, chat), seen=lower)
        found.money("after a higher one", expected=charged + stage.ceiling, seen=higher)


async def overrun(stage: Stage, found: Findings) -> None:
    """A call that costs three ceilings is charged three, and whoever comes next has to bring as much."""
    chat = stage.chat()
    chat.begins = False
    async with stage.bench(_overspending(chat, 3 * stage.ceiling), budget=stage.ceilings(9)) as bench:
        await bench.ask()
        balance = await bench.quiet()
        found.money("charged", expected=3 * stage.ceiling, seen=balance.charged_nanousd)
        found.money("of it overrun", expected=2 * stage.ceiling, seen=balance.overrun_nanousd)
        await bench.ask()
        seen = chat.admissions[-1].ceiling_nanousd if len(chat.admissions) > 1 else 0
        found.money("reserved next", expected=3 * stage.ceiling, seen=seen)


async def missing_usage(stage: Stage, found: Findings) -> None:
    """Nobody says what the call cost: it counts at the most it can be."""
    chat = stage.chat()
    chat.script = Script(words=5, usage=False)
    async with stage.bench(chat) as bench:
        await bench.ask()
        begun = (await bench.quiet()).kept_nanousd
        each = ceil_div(stage.ceiling, bench.settings.calls_per_request)
        found.money("kept for a begun call", expected=each, seen=begun)
        if bench.settings.no_call == "keep":
            chat.begins = False
            await bench.ask()
            untold = (await bench.quiet()).kept_nanousd - begun
            found.money("for an unseen one", expected=stage.ceiling, seen=untold)


async def read_usage(stage: Stage, found: Findings) -> None:
    """An application that says nothing and passes on the provider's stream, or something that looks like one."""
    if stage.settings.read_response == "none":
        raise NotRun("READ_RESPONSE=none: no answer is read")
    chat = stage.chat()
    chat.begins = False
    async with stage.bench(chat) as bench:
        await bench.ask()
        whole = await bench.quiet()
        found.money("settled from a whole stream", expected=_bill_each(bench, chat), seen=whole.settled_nanousd)
        chat.script = Script(words=5, fail_after=3)
        await bench.ask()
        broken = (await bench.quiet()).kept_nanousd
        found.money("kept for a broken one", expected=stage.ceiling, seen=broken)
    if stage.settings.no_call == "keep":
        found.true("a usage that a model could have printed is not read", otherwise=await _read_from_others(stage))


async def _read_from_others(stage: Stage) -> str | None:
    """What was read from answers that are no provider's stream, or None."""
    answers = dict(PRINTED)
    if stage.settings.read_response != "stream":
        del answers[b"application/json"]  # read on the operator's word
    believed = []
    for media_type, body in answers.items():
        async with stage.bench(_answering(media_type, body)) as bench:
            await bench.ask()
            if (await bench.quiet()).kept_nanousd != stage.ceiling:
                believed.append(media_type.decode())
    return "read from " + ", ".join(believed) if believed else None


def _dearest(stage: Stage, *, input_tokens: int, output_tokens: int) -> Usage:
    """The dearest way to read so many tokens: plainly, or into one of the provider's caches."""
    plain = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    ways = (plain, replace(plain, cache_write_tokens=input_tokens), replace(plain, cache_write_1h_tokens=input_tokens))
    price, now_ns = stage.settings.tariff.cost, SystemClock().wall_ns()
    return max(ways, key=lambda usage: price(usage, wall_ns=now_ns, input_bytes=0) or 0)


def _answering(media_type: bytes, body: bytes) -> App:
    """An application that answers with this."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", media_type)]})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return app


def _overspending(chat: Chat, nanousd: int) -> App:
    """The application, whose first request makes a call at this cost before."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not chat.admissions:
            admission: Admission = scope[SCOPE_KEY]
            admission.begin().report(cost_usd=format_usd(nanousd))
        await chat(scope, receive, send)

    return app


async def _at_once(bench: Bench, chat: Chat, rng: Random, *, number: int, addresses: int = 250) -> list[Client]:
    """So many requests, from as many clients as there are addresses for, in an order of the seed.

    No call is made before all are decided.
    """
    chat.gate = anyio.Event()
    admitted_before = chat.calls
    clients = [bench.client(f"203.0.113.{visitor % addresses + 1}") for visitor in range(number)]

    async def one(client: Client, waits: int) -> None:
        for _ in range(waits):
            await anyio.lowlevel.checkpoint()
        await client.call(bench.guard)

    async with anyio.create_task_group() as tasks:
        for client in rng.sample(clients, number):
            tasks.start_soon(one, client, rng.randrange(4))
        await wait_until(
            lambda: chat.calls - admitted_before + sum(client.complete for client in clients) >= number,
            seconds=DECIDED_SECONDS,
        )
        chat.gate.set()
    return clients


def _bill_each(bench: Bench, chat: Chat) -> int:
    """What one of the provider's equal calls costs."""
    provider = chat.provider
    calls = max(1, provider.calls)
    return bench.cost(
        input_tokens=provider.input_tokens_billed // calls, output_tokens=provider.output_tokens_billed // calls
    )
