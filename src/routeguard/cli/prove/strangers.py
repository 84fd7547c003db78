"""Rows about visitors who lie: about who they are, how much they send, and what may be spent on them."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from routeguard.cli.prove.application import QUESTION, Chat
from routeguard.cli.prove.findings import Findings
from routeguard.cli.prove.stage import NEIGHBOUR, VISITOR, Bench, Stage
from routeguard.cli.prove.visitors import Visitors
from routeguard.client_ip import parse_address, parse_strategy
from routeguard.replay import Message
from routeguard.testing.driver import Client

TRIES: Final = 20
RATE: Final = 5
#: Every kind of strategy, whichever is configured.
KINDS: Final = ("direct", "header:x-real-ip", "xff:1", "xff:2", "forwarded:1", "forwarded:2", "ranges:10.0.0.0/8")
#: Documentation's IPv6 (RFC 3849); a home owns at least a /64 of its own.
HOME: Final = "2001:db8:5:6:"
#: Clients with money of their own; who comes later shares one budget.
SHARES: Final = 3
#: `BODY_TIMEOUT`, made this short, and how much longer it may take on a busy machine.
BODY_SECONDS: Final = 0.1
ANSWERED_SECONDS: Final = 5.0
#: Where an application may be mounted.
ROOT: Final = "/mounted"
#: Declared when there is more.
SMALL_LIE: Final = b"10"
#: What follows when the limit is passed, and how much of all may be read before the answer.
CHUNKS_TOO_MANY: Final = 20
CHUNKS_READ_MAX: Final = 3
#: Blanks that JSON allows and a provider may count.
FILLER: Final = b" " * 500


async def spoofed(stage: Stage, found: Findings) -> None:
    """One visitor who writes another address into every place a visitor can write to, each time."""
    async with stage.bench(stage.chat(), rate=f"{RATE}/minute") as bench:
        forging = [await bench.ask(forged=stage.rng) for _ in range(TRIES)]
        neighbour = await bench.ask(NEIGHBOUR)
        found.equal(f"of {TRIES} with forged headers admitted", expected=RATE, seen=_admitted(forging))
        found.equal("neighbour admitted", expected=1, seen=_admitted([neighbour]))
    found.equal(f"of {len(KINDS)} strategies forged", expected=0, seen=sum(_is_forged(kind, stage) for kind in KINDS))
    if stage.settings.ipv6_prefix <= 64:
        async with stage.bench(stage.chat(), rate=f"{RATE}/minute") as bench:
            home = [await bench.ask(f"{HOME}:{number + 1:x}") for number in range(TRIES)]
            found.equal(f"of {TRIES} addresses of one /64 admitted", expected=RATE, seen=_admitted(home))


async def side_doors(stage: Stage, found: Findings) -> None:
    """Other spellings of a guarded path, and other methods: none reaches the application without an admission."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        plain = bench.client()
        path, method = plain.path, plain.method
        paths = [
            f"http://shop.example{path}",
            f"/{path}",
            f"{path}/",
            f"{path}\n",
            path.upper(),
            f"{path}//",
            f"/./{path}",
            path.replace("/", "//"),
        ]
        doors = [("", other, method) for other in paths]
        doors += [(ROOT, path, method), (ROOT, ROOT + path, method)]
        if bench.settings.methods is None:
            doors += [("", path, other) for other in ("GET", "HEAD", "OPTIONS", "PUT", "QUERY", "post")]
        unguarded: list[str] = []
        for number, (root, door, verb) in enumerate(doors):
            client = bench.client(f"203.0.113.{number + 1}")
            client.root_path, client.path, client.method = root, door, verb
            await client.call(bench.guard)
            if isinstance(client.error, KeyError):
                unguarded.append(f"{verb} {door!r}")
        found.equal(f"of {len(doors)} go around the guard", expected=0, seen=len(unguarded))
        if bench.settings.edge_secret is not None:
            client = bench.client()
            client.headers.remove(bench.settings.edge_secret)
            await client.call(bench.guard)
            found.equal("is the answer without EDGE_SECRET", expected=403, seen=client.status or 0)
        if bench.settings.websocket == "refuse":
            found.equal("websockets let in", expected=0, seen=await _websocket(bench, chat))

    async def nobody(_: object) -> bool:
        return False

    async with stage.bench(chat, admit=nobody) as bench:
        found.equal("is the answer where admit= says no", expected=403, seen=(await bench.ask()).status or 0)


async def share(stage: Stage, found: Findings) -> None:
    """One client with a budget of two ceilings, beside another one."""
    chat = stage.chat()
    chat.reports = False
    each = stage.ceiling * 2
    async with stage.bench(chat, client_budget=stage.budget(each), budget=stage.ceilings(10)) as bench:
        greedy = [await bench.ask() for _ in range(TRIES)]
        spent = (await bench.quiet()).charged_nanousd
        neighbour = await bench.ask(NEIGHBOUR)
        found.true("its share and no more", otherwise=None if 0 < spent <= each else f"{spent / each:.2f} shares")
        last = f"{greedy[-1].status} {greedy[-1].reason}"
        found.true("then 429", otherwise=None if last == "429 client_budget_exhausted" else last)
        found.equal("neighbour admitted", expected=1, seen=_admitted([neighbour]))
    async with stage.bench(chat, client_budget=stage.ceilings(1), max_clients=SHARES) as bench:
        crowd = [await bench.ask(f"203.0.113.{number + 1}") for number in range(2 * SHARES)]
        found.equal(f"of {2 * SHARES} where {SHARES} have a share", expected=SHARES + 1, seen=_admitted(crowd))
        again = [await bench.ask(f"203.0.113.{number + 1}") for number in range(SHARES)]
        found.equal("shares given twice", expected=0, seen=_admitted(again))


async def lengths(stage: Stage, found: Findings) -> None:
    """Bodies that are larger than they say, and headers that two servers would read differently."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        wrong = []
        for case in _lies(bench.settings.max_body):
            client = bench.shaped(case.client)
            headers, client.peer = bench.visitors.arrive(VISITOR)
            client.headers += headers
            received = await _received_when_answered(client, bench)
            if client.status not in case.statuses:
                wrong.append(f"{case.name}: {client.status}")
            elif received > CHUNKS_READ_MAX:
                wrong.append(f"{case.name}: read on for {received} chunks")
        found.true(f"{len(_lies(1))} lies refused", otherwise="; ".join(wrong) or None)
        found.equal("calls", expected=0, seen=chat.calls)
        client = bench.client(body=QUESTION + FILLER)
        client.headers += [(b"content-type", b"application/json"), (b"content-length", SMALL_LIE)]
        await client.call(bench.guard)
        size = len(QUESTION + FILLER)
        least = bench.settings.tariff.ceiling(input_bytes=size, wall_ns=bench.clock.wall_ns())
        is_short = chat.calls > 0 and chat.admissions[-1].ceiling_nanousd < least
        found.true("reserved for every byte", otherwise="reserved for fewer bytes than came" if is_short else None)
    async with stage.bench(chat, body_timeout=BODY_SECONDS) as bench:
        found.equal("is the answer to half a body", expected=408, seen=await _half_a_body(bench))


async def limits(stage: Stage, found: Findings) -> None:
    """Output caps and price-changing fields that a visitor's JSON asks for."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        wrong = []
        hostile = _hostile(bench)
        for fields in hostile:
            body = fields if isinstance(fields, bytes) else json.dumps({**json.loads(QUESTION), **fields}).encode()
            client = await bench.ask(body=body)
            if client.status is None or not 400 <= client.status < 429:
                wrong.append(f"{body[-40:].decode(errors='replace')}: {client.status}")
        balance = await bench.quiet()
        found.true(f"{len(hostile)} hostile fields refused", otherwise="; ".join(wrong) or None)
        found.equal("calls", expected=0, seen=chat.calls)
        found.money("charged", expected=0, seen=balance.charged_nanousd)


async def kill_switch(stage: Stage, found: Findings) -> None:
    """Paused, and resumed."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        await bench.ledger.set_paused(paused=True)
        paused = await bench.ask()
        calls = chat.calls
        await bench.ledger.set_paused(paused=False)
        resumed = await bench.ask()
        seen = f"{paused.status} {paused.reason}"
        found.true("503 while paused", otherwise=None if seen == "503 service_paused" else seen)
        found.equal("calls", expected=0, seen=calls)
        found.equal("admitted when resumed", expected=1, seen=_admitted([resumed]))


def _is_forged(kind: str, stage: Stage) -> bool:
    """Whether a strategy, also one that is not configured, finds something else than the visitor under forgery."""
    strategy, visitor = parse_strategy(kind), parse_address(VISITOR)
    headers, peer = Visitors(strategy).arrive(VISITOR, forged=stage.rng)
    if strategy.find(headers, peer[0]) != visitor:
        return True
    if not strategy.headers:
        return False
    trusted, forged = strategy.headers[0], NEIGHBOUR.encode()
    if kind.startswith("ranges"):
        # Whoever is no proxy is the visitor, whatever it says.
        return strategy.find([(trusted, forged)], VISITOR) != visitor
    twice = [strategy.find(lines, peer[0]) for lines in ([*headers, (trusted, forged)], [(trusted, forged), *headers])]
    if kind.startswith("header") and any(found is not None for found in twice):
        return True
    # Without the header nobody knows, and the peer is the proxy.
    return strategy.find([], peer[0]) is not None


async def _websocket(bench: Bench, chat: Chat) -> int:
    """How many of one websocket the application gets."""
    client = bench.client()
    scope = {**client.scope(), "type": "websocket"}
    del scope["method"]
    calls, client.body = chat.calls, []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(_: Message) -> None: ...

    # The application of the proof has no websockets: it would be called and fail.
    with suppress(KeyError):
        await bench.guard(scope, receive, send)
    return chat.calls - calls


async def _half_a_body(bench: Bench) -> int:
    """The status of a request whose body does not go on."""
    client = bench.client()

    async def receive() -> Message:
        client.received += 1
        if client.received > 1:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": QUESTION[:5], "more_body": True}

    with anyio.move_on_after(BODY_SECONDS + ANSWERED_SECONDS):
        await bench.guard(client.scope(), receive, client.send)
    return client.status or 0


async def _received_when_answered(client: Client, bench: Bench) -> int:
    """How many chunks had been taken from the client when its answer began."""
    received: list[int] = []

    async def send(message: Message) -> None:
        received.append(client.received)
        await client.send(message)

    await bench.guard(client.scope(), client.receive, send)
    return received[0] if received else client.received


@dataclass(frozen=True, slots=True)
class _Lie:
    name: str
    client: Client
    statuses: frozenset[int]


def _lies(body_bytes_max: int) -> list[_Lie]:
    """What a client or a proxy may send, and what it must be answered."""
    large = [QUESTION, b" " * body_bytes_max, *[b" "] * CHUNKS_TOO_MANY]
    json_type = (b"content-type", b"application/json")
    return [
        _lie("a small length declared", large, [json_type, (b"content-length", SMALL_LIE)], {400, 413}),
        _lie("chunks without a length", large, [json_type, (b"transfer-encoding", b"chunked")], {413}),
        _lie("a large length declared", [], [json_type, (b"content-length", b"%d" % (body_bytes_max + 1))], {413}),
        _lie("a length of +45", [QUESTION], [json_type, (b"content-length", b"+45")], {400}),
        _lie("two lengths", [QUESTION], [json_type, (b"content-length", b"45"), (b"content-length", b"4")], {400}),
        _lie(
            "a length and chunks",
            [QUESTION],
            [json_type, (b"content-length", b"45"), (b"transfer-encoding", b"chunked")],
            {400},
        ),
        _lie("a compressed body", [QUESTION], [json_type, (b"content-encoding", b"gzip")], {415}),
        _Lie(
            "a long query",
            Client(headers=[json_type], query=b"q=" + b"a" * body_bytes_max),
            frozenset({413}),
        ),
    ]


def _lie(name: str, body: Sequence[bytes], headers: list[tuple[bytes, bytes]], statuses: set[int]) -> _Lie:
    return _Lie(name, Client(body=body, headers=headers, plain_headers=False), frozenset(statuses))


def _hostile(bench: Bench) -> list[dict[str, object] | bytes]:
    settings = bench.settings
    above = settings.max_output_tokens + 1
    caps: list[dict[str, object] | bytes] = [
        {"max_tokens": above},
        {"max_tokens": 10**18},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": 1.5},
        {"max_tokens": "1e9"},
        {"max_tokens": True},
        {"max_completion_tokens": above},
        {"max_output_tokens": above},
        {"generationConfig": {"maxOutputTokens": above}},
        {"options": {"num_predict": -1}},
        {"n": 100},
        {"best_of": 20},
        b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"max_tokens":%d}' % above,
    ]
    priced: list[dict[str, object]] = [
        {"model": "the-dearest-there-is"},
        {"service_tier": "priority"},
        {"tools": [{"type": "web_search"}]},
        {"previous_response_id": "resp_1"},
    ]
    allowed = settings.allowed_fields
    return [*caps, *(fields for fields in priced if allowed.isdisjoint(fields))]


def _admitted(clients: Sequence[Client]) -> int:
    return sum(client.status == 200 for client in clients)
