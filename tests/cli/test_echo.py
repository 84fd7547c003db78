"""Which header may be trusted, told from two requests; and the page that sees them."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from routeguard.cli.echo.asgi import app as echo_app
from routeguard.cli.echo.page import REQUESTS_AT_ONCE, EchoServer, commands
from routeguard.cli.echo.verdict import FORGED_ADDRESS, Arrived, forged_headers, judge, judge_alone
from routeguard.client_ip import PLATFORMS
from tests.driver import Client
from tests.ports import KeptPort

Headers = list[tuple[str, str]]
Edge = Callable[[Headers], Headers]

VISITOR = "81.2.69.142"
PROXY = "172.16.0.9"
EDGE_ADDRESS = "162.158.1.2"


def arrived(edge: Edge, *, forged: bool, peer: str = PROXY) -> Arrived:
    """What comes out behind an edge."""
    headers = edge(list(forged_headers().items()) if forged else [])
    return Arrived(tuple((name.encode(), value.encode()) for name, value in headers), peer)


def overwriting(*names: str, value: str = VISITOR) -> Edge:
    """Drops what the visitor sent under these names and writes its own."""

    def edge(headers: Headers) -> Headers:
        return [pair for pair in headers if pair[0] not in names] + [(name, value) for name in names]

    return edge


def appending(*addresses: str) -> Edge:
    """Adds to the visitor's own `X-Forwarded-For`."""

    def edge(headers: Headers) -> Headers:
        sent = [value for name, value in headers if name == "x-forwarded-for"]
        rest = [pair for pair in headers if pair[0] != "x-forwarded-for"]
        return [*rest, ("x-forwarded-for", ", ".join([*sent, *addresses]))]

    return edge


def both(one: Edge, other: Edge) -> Edge:
    return lambda headers: other(one(headers))


def second_line(headers: Headers) -> Headers:
    """As HAProxy does it: a line of its own below the visitor's."""
    return [*headers, ("x-forwarded-for", VISITOR)]


def through(headers: Headers) -> Headers:
    """A port forwarding: nothing is changed."""
    return headers


@pytest.mark.parametrize(
    ("edge", "environ", "recommended"),
    [
        (overwriting("x-real-ip", "x-forwarded-for", "x-vercel-forwarded-for"), {"VERCEL": "1"}, "PLATFORM=vercel"),
        (both(overwriting("fly-client-ip"), appending(VISITOR, EDGE_ADDRESS)), {"FLY_APP_NAME": "a"}, "PLATFORM=fly"),
        (both(overwriting("fly-client-ip"), appending(VISITOR, EDGE_ADDRESS)), {}, "PLATFORM=fly"),
        (both(overwriting("cf-connecting-ip"), appending(VISITOR, EDGE_ADDRESS)), {"RENDER": "1"}, "PLATFORM=render"),
        (overwriting("cf-connecting-ip"), {}, "CLIENT_IP=header:cf-connecting-ip"),
        (overwriting("x-nf-client-connection-ip"), {}, "PLATFORM=netlify"),
        (overwriting("cloudfront-viewer-address", value=f"{VISITOR}:5123"), {}, "PLATFORM=cloudfront"),
        (overwriting("x-azure-socketip"), {}, "PLATFORM=azure-front-door"),
        (appending(VISITOR), {"DYNO": "web.1"}, "PLATFORM=heroku"),
        (appending(VISITOR), {}, "CLIENT_IP=xff:1"),
        (appending(f"{VISITOR}:51234"), {}, "CLIENT_IP=xff:1"),
        (appending(VISITOR, EDGE_ADDRESS), {}, "PLATFORM=gcp-lb"),
        (second_line, {}, "CLIENT_IP=xff:1"),
        (overwriting("forwarded", value=f"for={VISITOR}"), {}, "CLIENT_IP=forwarded:1"),
    ],
)
def test_the_source_that_survives_forgery_is_recommended(edge: Edge, environ: dict[str, str], recommended: str) -> None:
    verdict = judge(arrived(edge, forged=False), arrived(edge, forged=True), environ)

    assert verdict.recommended == f"ROUTEGUARD_{recommended}"
    assert VISITOR in verdict.says


@pytest.mark.parametrize(
    "edge",
    [
        through,
        # An edge that keeps what the visitor sent, and writes only where nothing is (Traefik's X-Real-IP).
        lambda headers: headers if headers else [("x-real-ip", VISITOR)],
        # One that puts the visitor in front.
        lambda headers: [*headers, ("x-forwarded-for", f"{VISITOR}, {dict(headers).get('x-forwarded-for', PROXY)}")],
    ],
    ids=["nothing is changed", "only where nothing is", "in front"],
)
def test_nothing_is_recommended_where_a_forged_address_survives(edge: Edge) -> None:
    verdict = judge(arrived(edge, forged=False), arrived(edge, forged=True), {})

    assert verdict.recommended is None
    assert all(one.result != "holds" or one.source == "direct" for one in verdict.candidates)


@pytest.mark.parametrize(
    ("edge", "recommended"),
    [
        (overwriting("x-real-ip", "x-forwarded-for", "x-vercel-forwarded-for"), "ROUTEGUARD_PLATFORM=vercel"),
        (both(overwriting("fly-client-ip"), appending(VISITOR, EDGE_ADDRESS)), "ROUTEGUARD_PLATFORM=fly"),
        (appending(VISITOR, EDGE_ADDRESS), "ROUTEGUARD_PLATFORM=gcp-lb"),
        (through, None),
    ],
)
def test_the_forged_request_alone_leads_to_the_same(edge: Edge, recommended: str | None) -> None:
    environ = {"VERCEL": "1"} if recommended == "ROUTEGUARD_PLATFORM=vercel" else {}

    assert judge_alone(arrived(edge, forged=True), environ).recommended == recommended


async def test_the_page_is_an_application_too() -> None:
    """Of a request with cookies it shows the address headers alone, and remembers nothing."""
    headers = [*overwriting("x-real-ip")(list(forged_headers().items())), ("cookie", "session=secret")]
    client = Client(query=b"forged", headers=[(name.encode(), value.encode()) for name, value in headers])

    await client.call(echo_app)

    assert client.json["says"].startswith("ROUTEGUARD_CLIENT_IP=header:x-real-ip finds 81.2.69.142")
    assert ["x-real-ip", VISITOR] in client.json["headers"]
    assert "secret" not in str(client.chunks)


def test_without_a_proxy_it_is_the_connection() -> None:
    plain, forged = (arrived(through, forged=forged, peer=VISITOR) for forged in (False, True))

    assert judge(plain, forged, {}).recommended == "ROUTEGUARD_PLATFORM=direct"


def test_sources_that_hold_and_disagree_are_left_to_the_visitor() -> None:
    """Cloudflare in front of a platform: the platform's own header names Cloudflare."""
    edge = both(overwriting("cf-connecting-ip"), overwriting("x-real-ip", value=EDGE_ADDRESS))

    verdict = judge(arrived(edge, forged=False), arrived(edge, forged=True), {})

    assert verdict.recommended is None
    assert f"{VISITOR} by header:cf-connecting-ip" in verdict.says
    assert f"{EDGE_ADDRESS} by header:x-real-ip" in verdict.says


def test_an_inner_address_is_said_to_be_one() -> None:
    edge = overwriting("x-real-ip", value="10.1.2.3")

    assert "not a public one" in judge(arrived(edge, forged=False), arrived(edge, forged=True), {}).says


def test_a_visitor_who_moves_between_the_requests_is_noticed() -> None:
    plain, forged = overwriting("x-real-ip"), overwriting("x-real-ip", value="81.2.69.143")

    verdict = judge(arrived(plain, forged=False), arrived(forged, forged=True), {})

    assert verdict.recommended is None
    assert [one.result for one in verdict.candidates if one.source == "header:x-real-ip"] == ["changes"]


def test_every_preset_is_among_what_is_forged() -> None:
    trusted = {name for platform in PLATFORMS.values() for name in platform.strategy.headers}

    assert {name.decode() for name in trusted} <= forged_headers().keys()


@contextmanager
def serving(told: Callable[[str, Arrived], str]) -> Iterator[str]:
    server = EchoServer(0, told)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_page_shows_address_headers_and_nothing_else() -> None:
    heard: list[tuple[str, Arrived]] = []

    def told(asked: str, one: Arrived) -> str:
        heard.append((asked, one))
        return "heard"

    headers = [("X-Real-IP", VISITOR), ("X-Real-IP", "6.6.6.6"), ("Cookie", "session=secret"), ("Authorization", "key")]
    with serving(told) as url:
        answer = httpx.request("DELETE", f"{url}/any/path?plain", headers=headers)

    assert answer.json() == {
        "peer": "127.0.0.1",
        "headers": [["x-real-ip", VISITOR], ["x-real-ip", "6.6.6.6"]],
        "says": "heard",
    }
    assert answer.headers["cache-control"] == "no-store"
    asked, one = heard[0]
    assert asked == "plain"
    assert one.headers == ((b"x-real-ip", VISITOR.encode()), (b"x-real-ip", b"6.6.6.6"))


def test_more_connections_than_it_holds_are_closed_and_not_kept() -> None:
    waiting: list[socket.socket] = []
    with serving(lambda *_: "heard") as url:
        port = int(url.rpartition(":")[2])
        here = ("127.0.0.1", port)
        waiting += [socket.create_connection(here, timeout=60) for _ in range(REQUESTS_AT_ONCE)]
        one_more = socket.create_connection(here, timeout=60)

        closed = one_more.recv(1)
        for connection in [*waiting, one_more]:
            connection.close()

    assert closed == b""


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, as it runs on a platform: its log is a pipe, its port a variable."""
    kept = KeptPort()
    environ = {**os.environ, "PORT": str(kept.port), "FLY_APP_NAME": "shop", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "routeguard", "check", "--echo"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environ
    )
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    kept.close()


def test_the_two_printed_commands_lead_to_the_preset(echo: subprocess.Popen[str]) -> None:
    assert echo.stdout is not None
    head = [echo.stdout.readline() for _ in range(7)]
    port = re.search(r"port (\d+)", head[0])
    assert port is not None
    printed = [shlex.split(line) for line in head if line.startswith("curl")]
    url = f"http://127.0.0.1:{port[1]}"

    health = httpx.get(f"{url}/health").json()["says"]
    edge = overwriting("fly-client-ip")
    told = []
    for words in printed:
        headers = [tuple(value.split(": ")) for value in words if ": " in value]
        path = next(word for word in words if "://" in word).rpartition("/")[2]
        sent = edge([(name, value) for name, value in headers])
        told.append(httpx.get(f"{url}/{path}", headers=sent).json()["says"])
    out, err = echo.communicate(timeout=60)

    assert "Its terminal shows the two commands" in health
    assert told[0] == "Now the other command, with ?forged."
    assert told[1].startswith(f"ROUTEGUARD_PLATFORM=fly finds {VISITOR}")
    assert (echo.returncode, err) == (0, "")
    assert f"fly-client-ip: {VISITOR}" in out
    assert "header:fly-client-ip" in out


def test_a_port_in_use_is_said_and_exits_2() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "routeguard", "check", "--echo", "--port", str(port)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 2
    assert f"port {port} cannot be used" in result.stderr


def test_the_forged_command_is_one_that_a_shell_reads_as_it_is_meant() -> None:
    plain, forged = (shlex.split(command) for command in commands("https://shop.example"))

    assert plain == ["curl", "-s", "https://shop.example/?plain"]
    assert f"x-forwarded-for: {FORGED_ADDRESS}" in forged
    assert json.dumps(forged).count(FORGED_ADDRESS) == len(forged_headers())
