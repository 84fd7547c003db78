"""Rows about what passes the guard beside an ordinary request: the answer, a preflight, a look at the status."""

import secrets
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Final, cast

from routeguard.admitted import SCOPE_KEY, Admission
from routeguard.cli.prove.application import QUESTION
from routeguard.cli.prove.findings import Findings, NotRun
from routeguard.cli.prove.stage import VISITOR, Bench, Stage
from routeguard.replay import Message, Receive, Scope, Send
from routeguard.testing.driver import CancelAt, Client

#: An event stream with something of everything: no usage, usage, an end, and a chunk that is cut anywhere.
CHUNKS: Final = (
    b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
    b'data: {"object":"chat.completion.ch',
    b'unk","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
    b"data: [DONE]\n\n",
)
STEERED: Final = (("GET", ""), ("GET", "status"), ("GET", "metrics"), ("POST", "pause"), ("POST", "resume"))


async def answer(stage: Stage, found: Findings) -> None:
    """A stream whose every chunk has to be at the server before the application goes on."""
    arrived: list[bytes] = []
    late, waits = 0, 0
    ended: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal late, waits
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, chunk in enumerate(CHUNKS):
            sending = send({"type": "http.response.body", "body": chunk, "more_body": True})
            # No number of waits is -1: it is driven to its end, and they are counted.
            driven = CancelAt(cast("Coroutine[object, object, None]", sending), -1, RuntimeError())
            await driven
            waits += driven.suspensions
            late += len(arrived) <= number
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        admission: Admission = scope[SCOPE_KEY]
        ended.append(admission.ended)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            arrived.append(message["body"])

    async with stage.bench(app) as bench:
        client = bench.client()
        await bench.guard(client.scope(), client.receive, send)
        await bench.quiet()
    found.equal(f"of {len(CHUNKS)} chunks held back", expected=0, seen=late)
    found.equal("waits before they went on", expected=0, seen=waits)
    found.true("ended with the last", otherwise=None if ended == [True] else "not ended with the last")
    found.true("unchanged", otherwise=None if arrived == list(CHUNKS) else "changed")


async def preflight(stage: Stage, found: Findings) -> None:
    """A preflight with a body behind it, announced and not, and one that is answered with something."""
    methods = stage.settings.methods
    if methods is not None and "OPTIONS" not in methods:
        raise NotRun("METHODS: OPTIONS is not guarded")
    asked = _Asked()
    async with stage.bench(asked, rate="1/minute") as bench:
        await _preflight(bench, Client(body=[QUESTION], plain_headers=False))
        found.equal("bytes delivered behind a preflight", expected=0, seen=sum(map(len, asked.bodies)))
        announced = [await _preflight(bench, Client(body=[QUESTION])) for _ in range(2)]
        found.equal("of 2 with a body pass for more than a request", expected=1, seen=_passed(announced))
    async with stage.bench(asked, rate="1/minute") as bench:
        await _preflight(bench, Client(body=[]))
        found.money("charged for an empty answer", expected=0, seen=(await bench.quiet()).charged_nanousd)
        asked.answer = b"words"
        await _preflight(bench, Client(body=[]))
        reserved = asked.admissions[-1].ceiling_nanousd
        found.money("for one with words", expected=reserved, seen=(await bench.quiet()).charged_nanousd)


async def status(stage: Stage, found: Findings) -> None:
    """The status routes without their token, with a wrong one, and with it."""
    token = secrets.token_urlsafe()
    async with stage.bench(stage.chat(), admin_token=token) as bench:
        opened = []
        for method, route in STEERED:
            for bearer in (b"", b"Bearer ", b"Bearer wrong", token.encode()):
                client = await _steer(bench, method, route, bearer)
                if client.status != 401:
                    opened.append(f"{method} {route or '/'}: {client.status}")
            # The wrong tokens of a client are counted, and a right one is not heard behind too many.
            bench.clock.advance(61)
        paused = bench.ledger.paused
        shown = await _steer(bench, "GET", "status", f"Bearer {token}".encode())
    found.true(f"{len(STEERED)} routes closed without the token", otherwise="; ".join(opened) or None)
    found.equal("pauses without it", expected=0, seen=int(paused))
    found.equal("with it", expected=200, seen=shown.status or 0)


@dataclass(slots=True, eq=False)
class _Asked:
    """An application that reads what it gets and answers a word or none."""

    answer: bytes = b""
    bodies: list[bytes] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.admissions.append(scope[SCOPE_KEY])
        self.bodies.append((await receive()).get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.answer, "more_body": False})


async def _preflight(bench: Bench, client: Client) -> Client:
    bench.shaped(client)
    client.method = "OPTIONS"
    headers, client.peer = bench.visitors.arrive(VISITOR)
    client.headers += [
        *headers,
        (b"origin", b"https://shop.example"),
        (b"access-control-request-method", b"POST"),
    ]
    return await client.call(bench.guard)


async def _steer(bench: Bench, method: str, route: str, bearer: bytes) -> Client:
    client = bench.client()
    client.method, client.path, client.body = method, f"{bench.settings.status_path}/{route}", []
    if bearer:
        client.headers.append((b"authorization", bearer))
    return await client.call(bench.guard)


def _passed(clients: list[Client]) -> int:
    return sum(client.status == 200 for client in clients)
