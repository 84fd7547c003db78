"""What clients do to a guarded stream, by hand over a socket, and what they saw of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.matrix.edge import BODY_TIMEOUT_SECONDS, MAX_BODY_BYTES
from tests.matrix.servers import Site
from tests.sockets.wire import CHAT, JSON, Answer, Wire, request

#: How long the end of an answer may take to arrive after its application has returned.
END_SECONDS = 2.0
#: A server that has the guard's `receive` in its hands answers a slow upload after `BODY_TIMEOUT_SECONDS`.
SLOW_SECONDS = BODY_TIMEOUT_SECONDS + 1.5
LARGE = b'{"messages":[{"role":"user","content":"%s"}]}' % (b"x" * 300_000)
TOO_LARGE = b'{"messages":[{"role":"user","content":"%s"}]}' % (b"x" * (MAX_BODY_BYTES + 100_000))
#: Frameworks that cancel a view when its client leaves. The others let it run to its end.
CANCEL_VIEWS = {"django", "quart"}
FREE = request("/free", method="GET", body=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scenario came to."""

    #: What the client saw: `200 whole`, `200 cut`, `413 whole`, `left`; several answers in their order.
    wire: str
    #: What the ledger and the guard's counts say: `settled`, `kept`, `released`, `refused`, `nothing`.
    ledger: str

    def __str__(self) -> str:
        return f"{self.wire}; {self.ledger}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that happens to a request."""

    #: What the client does, for people.
    text: str
    #: Plays the client; gives what it saw.
    play: Callable[[Site], str]
    #: What comes of it unless `expected.py` says otherwise.
    usual: Outcome


def observe(site: Site, scenario: Scenario) -> Outcome:
    """Play a scenario, wait until the server is done with it, and see what the ledger says.

    Holds for every server and framework, and is checked here: at most one response start a request; nothing stays
    open, neither money nor slot; and the money is that of the endings.
    """
    before = site.status()
    wire = scenario.play(site)
    site.wait("every request has returned", lambda: _is_done(site.edge()))
    site.wait("no stream holds a slot", lambda: site.status()["in_flight"] == 0)
    after = site.status()
    assert site.edge()["starts_max"] <= 1, "a request was answered twice"
    endings, refused = _gained(before, after, "endings"), _gained(before, after, "rejected")
    money = {part: _moved(before, after, f"{part}_usd") for part in ("settled", "kept", "open", "orphaned")}
    cents = {"settled": endings.get("settled", 0), "kept": 10 * endings.get("kept", 0), "open": 0, "orphaned": 0}
    assert money == cents, (money, endings)
    words = [name if count == 1 else f"{name} x {count}" for name, count in sorted(endings.items())]
    words += [f"refused {reason}" for reason in sorted(refused)]
    return Outcome(wire, ", ".join(words) or "nothing")


def _is_done(edge: Any) -> bool:
    return bool(edge["done"] == edge["begun"])


def _gained(before: Any, after: Any, what: str) -> dict[str, int]:
    earlier, later = before["requests"][what], after["requests"][what]
    return {name: count - earlier.get(name, 0) for name, count in later.items() if count > earlier.get(name, 0)}


def _moved(before: Any, after: Any, part: str) -> int:
    """US cents, which every amount of the matrix is whole in."""
    return round(100 * (float(after["budgets"][0][part]) - float(before["budgets"][0][part])))


def _finished(answer: Answer) -> str:
    return f"{answer.status} {'whole' if answer.complete else 'cut'}"


def _ask(play: str, *, method: str = "POST", body: bytes | None = CHAT) -> Callable[[Site], str]:
    def scenario(site: Site) -> str:
        with site.connect() as wire:
            wire.send(request(f"/chat/{play}", method=method, body=body))
            answer = wire.answer(to=method)
            if method == "HEAD":
                # The answer is whole with its headers; leaving then would be leaving in mid-stream.
                site.wait("the request has returned", lambda: _is_done(site.edge()))
            return _finished(answer)

    return scenario


def _fail_in_mid_stream(site: Site) -> str:
    with site.connect() as wire:
        wire.send(request("/chat/fails"))
        head = wire.head()
        wire.chunk()
        site.wait_at_the_door()
        site.go()
        site.wait("the stream has failed", lambda: _is_done(site.edge()))
        wire.wait_at_most(END_SECONDS)
        try:
            return _finished(wire.rest(head))
        except TimeoutError:
            return f"{head.status} left open"


def _leave_before_the_first_byte(site: Site) -> str:
    with site.connect() as wire:
        wire.send(request("/chat/late"))
        site.wait_at_the_door()
        wire.reset()
    if site.framework in CANCEL_VIEWS:
        site.wait("the view was cancelled", lambda: _is_done(site.edge()))
    site.go()
    return "left"


def _leave_in_mid_stream(leave: Callable[[Wire], None]) -> Callable[[Site], str]:
    def scenario(site: Site) -> str:
        with site.connect() as wire:
            wire.send(request("/chat/hangs"))
            wire.head()
            wire.chunk()
            leave(wire)
            # A half-closed connection is still ours, and its end closes it.
            site.wait("the stream was stopped", lambda: _is_done(site.edge()))
        return "left"

    return scenario


def _leave_after_the_last_byte(site: Site) -> str:
    with site.connect() as wire:
        wire.send(request("/chat/whole"))
        answer = wire.answer()
        wire.reset()
    return _finished(answer)


def _leave_during_the_upload(site: Site) -> str:
    with site.connect() as wire:
        wire.send(request("/chat/whole")[:-10])
        wire.reset()
    return "left"


def _background(site: Site) -> str:
    before = site.status()
    with site.connect() as wire:
        wire.send(request("/chat/background"))
        answer = wire.answer()
        site.wait("the slot is free", lambda: site.status()["in_flight"] == 0)
        assert _gained(before, site.status(), "endings") == {"settled": 1}, "the background task held the money"
    site.wait_at_the_door()
    site.go()
    return _finished(answer)


def _preflight(site: Site) -> str:
    headers = ["origin: https://shop.example", "access-control-request-method: POST"]
    with site.connect() as wire:
        wire.send(request("/chat/empty", method="OPTIONS", headers=headers, body=None))
        return _finished(wire.answer())


def _keep_alive(site: Site) -> str:
    with site.connect() as wire:
        answers = []
        for _ in range(2):
            wire.send(request("/chat/whole"))
            answers.append(_finished(wire.answer()))
    return ", ".join(answers)


def _then_free(body: bytes, *, pipelined: bool) -> Callable[[Site], str]:
    """A guarded request, and an unguarded one behind it on the same connection, that sees nothing of the first."""

    def scenario(site: Site) -> str:
        with site.connect() as wire:
            wire.send(request("/chat/whole", body=body) + (FREE if pipelined else b""))
            first = wire.answer()
            if not pipelined:
                wire.send(FREE)
            second = wire.answer()
        return f"{_finished(first)}, {second.body.decode()}"

    return scenario


def _expect(body: bytes) -> Callable[[Site], str]:
    """Asks before it sends, and sends when it is told to."""

    def scenario(site: Site) -> str:
        whole = request("/chat/whole", headers=(JSON, "expect: 100-continue"), body=body)
        with site.connect() as wire:
            wire.send(whole[: -len(body)])
            head = wire.head()
            if head.status != 100:
                return _finished(wire.rest(head))
            wire.send(body)
            return f"100, {_finished(wire.answer())}"

    return scenario


def _lie_about_the_length(site: Site) -> str:
    head = request("/chat/whole", headers=(JSON, "transfer-encoding: chunked"), body=b"").replace(
        b"content-length: 0", b"content-length: 5"
    )
    with site.connect() as wire:
        wire.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT))
        return _finished(wire.answer())


def _upload_slowly(site: Site) -> str:
    whole = request("/chat/whole")
    with site.connect() as wire:
        wire.send(whole[:-10])
        if wire.is_readable_within(SLOW_SECONDS):
            return _finished(wire.answer())
        wire.send(whole[-10:])
        return f"nothing until the end, {_finished(wire.answer())}"


def _websocket(site: Site) -> str:
    headers = ["upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13"]
    headers += ["sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg=="]
    with site.connect() as wire:
        wire.send(request("/chat/whole", method="GET", headers=headers, body=None))
        return str(wire.head().status)


SETTLED, KEPT = "settled", "kept"

SCENARIOS: dict[str, Scenario] = {
    "normal": Scenario("reads the stream to its end", _ask("whole"), Outcome("200 whole", SETTLED)),
    "raises mid-stream": Scenario("reads until the stream raises", _fail_in_mid_stream, Outcome("200 cut", KEPT)),
    "raises before start": Scenario("asks a view that raises", _ask("fails-at-once"), Outcome("500 whole", KEPT)),
    "leaves before first byte": Scenario(
        "leaves while the view prepares its answer", _leave_before_the_first_byte, Outcome("left", SETTLED)
    ),
    "leaves mid-stream": Scenario(
        "closes the connection in mid-stream", _leave_in_mid_stream(Wire.close), Outcome("left", KEPT)
    ),
    "half-close": Scenario(
        "says in mid-stream that it sends no more", _leave_in_mid_stream(Wire.half_close), Outcome("left", KEPT)
    ),
    "reset": Scenario("resets the connection in mid-stream", _leave_in_mid_stream(Wire.reset), Outcome("left", KEPT)),
    "leaves after last byte": Scenario(
        "resets the connection right after the last byte", _leave_after_the_last_byte, Outcome("200 whole", SETTLED)
    ),
    "leaves mid-upload": Scenario(
        "resets the connection before its body is complete", _leave_during_the_upload, Outcome("left", "nothing")
    ),
    "background task": Scenario(
        "reads a stream behind which a task works on", _background, Outcome("200 whole", SETTLED)
    ),
    "HEAD": Scenario(
        "asks for the head of the stream", _ask("whole", method="HEAD", body=None), Outcome("200 whole", SETTLED)
    ),
    "OPTIONS": Scenario(
        "asks with OPTIONS, which is no preflight",
        _ask("whole", method="OPTIONS", body=None),
        Outcome("200 whole", SETTLED),
    ),
    "preflight": Scenario("asks whether it may ask", _preflight, Outcome("204 whole", "released")),
    "kept-alive": Scenario("asks twice on one connection", _keep_alive, Outcome("200 whole, 200 whole", "settled x 2")),
    "pipelined": Scenario(
        "sends an unguarded request right behind",
        _then_free(CHAT, pipelined=True),
        Outcome("200 whole, no admission", SETTLED),
    ),
    "300 kB, then another": Scenario(
        "sends 300 kB, then an unguarded request",
        _then_free(LARGE, pipelined=False),
        Outcome("200 whole, no admission", SETTLED),
    ),
    "too large": Scenario(
        "sends more than MAX_BODY", _ask("whole", body=TOO_LARGE), Outcome("413 whole", "refused request_too_large")
    ),
    "100-continue": Scenario("asks before it sends", _expect(CHAT), Outcome("100, 200 whole", SETTLED)),
    "100-continue, too large": Scenario(
        "asks before it sends more than MAX_BODY", _expect(TOO_LARGE), Outcome("413 whole", "refused request_too_large")
    ),
    "lying length": Scenario(
        "sends chunks and a length that is not theirs",
        _lie_about_the_length,
        Outcome("400 whole", "refused bad_request"),
    ),
    "slow upload": Scenario("stops sending in mid-body", _upload_slowly, Outcome("408 whole", "refused body_timeout")),
    "websocket": Scenario("asks for a websocket", _websocket, Outcome("403", "refused websocket_refused")),
}
