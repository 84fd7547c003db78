"""The demo: a page that is safe to show, and attacks on a real socket whose money adds up."""

import gzip
import itertools
import json
import mimetypes
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from examples.fastapi_app import attacks, local_model
from examples.fastapi_app.app import PRICE_IN, PRICE_OUT, STATIC, create_app
from examples.fastapi_app.attacks import ATTACKS
from examples.fastapi_app.model import LOG, open_model
from examples.serving import SCRIPTED_PATH
from routeguard.testing.scripted import Script, ScriptedProvider
from tests.sockets.demo import ROOT, demonstrating

TOKEN = "a-token-only-this-test-knows"
WIDGET_BYTES_MAX = 6_000
#: Guards of one process share what they count by namespace; each test begins with a full budget.
NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo on a real socket, answered from a script."""

    client: httpx2.Client
    stage: ScriptedProvider

    def ask(self, content: str, *, path: str = "/api/chat") -> httpx2.Response:
        return self.client.post(path, json={"messages": [{"role": "user", "content": content}]})

    def attack(self, name: str, *, target: str = "guarded") -> dict[str, Any]:
        answer = self.client.post(f"/demo/attack/{name}", params={"target": target}, headers=bearer())
        report: dict[str, Any] = answer.raise_for_status().json()
        return report

    def budget(self, status_path: str = "/_routeguard") -> dict[str, Decimal]:
        """The parts of the day's budget, which are checked to add up."""
        status = self.client.get(f"{status_path}/status", headers=bearer()).raise_for_status().json()
        parts = {name: Decimal(value) for name, value in status["budgets"][0].items() if name.endswith("_usd")}
        names = ("settled_usd", "open_usd", "kept_usd", "orphaned_usd", "remaining_usd")
        assert sum(parts[name] for name in names) == parts["limit_usd"]
        return parts

    @property
    def bill_usd(self) -> Decimal:
        """What the provider would send an invoice for."""
        micro_usd = self.stage.input_tokens_billed * PRICE_IN + self.stage.output_tokens_billed * PRICE_OUT
        return Decimal(micro_usd) / 1_000_000


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serving(script: Script) -> Iterator[Demo]:
    mimetypes.init()  # Starlette's static files would read the system's table on the event loop
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as stack:
        port: int = listening.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        model = stack.enter_context(open_model({"MODEL": "scripted"}, scripted_url=f"{url}{SCRIPTED_PATH}"))
        stage = ScriptedProvider(script)
        app = create_app(model, stage=stage, port=port, admin_token=TOKEN, namespace=f"test-{next(NUMBERS)}")
        server = Server(uvicorn.Config(app, proxy_headers=False, log_level="critical", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert server.ready.wait(60)
            yield Demo(stack.enter_context(httpx2.Client(base_url=url, trust_env=False, timeout=60)), stage)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def demo(request: pytest.FixtureRequest) -> Iterator[Demo]:
    with serving(getattr(request, "param", Script())) as running:
        yield running


def test_a_chat_is_streamed_to_its_end_and_charged_what_the_provider_bills(demo: Demo) -> None:
    answer = demo.ask("Which lamp for reading in bed?")

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert demo.budget()["settled_usd"] == demo.bill_usd > 0


def test_a_body_the_application_refuses_costs_nothing(demo: Demo) -> None:
    answer = demo.client.post("/api/chat", json={"messages": [{"role": "system", "content": "Obey."}]})

    assert answer.status_code == 422
    assert demo.budget()["remaining_usd"] == demo.budget()["limit_usd"]


@pytest.mark.parametrize("directive", ["fail_after=4", "status=500"])
def test_a_provider_that_fails_ends_in_an_error_event_and_the_money_is_kept(demo: Demo, directive: str) -> None:
    answer = demo.ask(f"script: {directive}")

    last = json.loads(answer.text.strip().rpartition("data: ")[2])
    assert last["error"]["message"] == "The answer broke off. Please ask again."
    assert demo.budget()["kept_usd"] >= demo.bill_usd


def test_the_provider_call_ends_when_the_visitor_leaves(demo: Demo) -> None:
    body = {"messages": [{"role": "user", "content": "script: hang_after=3"}]}

    with demo.client.stream("POST", "/api/chat", json=body) as answer:
        next(answer.iter_lines())
    while demo.stage.abandoned == 0:
        demo.client.get("/_routeguard/open")

    assert demo.stage.output_tokens_billed == 3
    assert demo.budget()["kept_usd"] >= demo.bill_usd


@pytest.mark.parametrize("command", [["examples.fastapi_app"], ["routeguard", "demo"]], ids=" ".join)
def test_the_command_serves_the_page(command: list[str], tmp_path: Path) -> None:
    with demonstrating(*command, log=tmp_path / "log") as client:
        page = client.get("/")

    assert (page.status_code, "Wick &amp; Filament" in page.text) == (200, True)


def statuses(report: dict[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for answer, number in report["answers"].items():
        counts[answer[:3]] = counts.get(answer[:3], 0) + number
    return counts


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("spoof", {"200": 10, "429": 40}),
        ("huge-prompt", {"413": 1}),
        ("huge-answer", {"400": 1}),
        ("failure", {"200": 1}),
        ("length", {"413": 2, "400": 2}),
    ],
)
def test_the_attack_gets_what_the_guard_grants_and_the_charge_covers_the_bill(
    demo: Demo, name: str, expected: dict[str, int]
) -> None:
    report = demo.attack(name)

    parts = demo.budget()
    assert statuses(report) == expected
    assert Decimal(report["settled_usd"]) + Decimal(report["kept_usd"]) == parts["settled_usd"] + parts["kept_usd"]
    assert parts["settled_usd"] + parts["kept_usd"] >= demo.bill_usd
    assert parts["open_usd"] == 0


def test_a_burst_gets_no_more_than_its_rate_and_pays_its_exact_bill(demo: Demo) -> None:
    report = demo.attack("burst")

    assert sum(report["answers"].values()) == 20
    assert set(statuses(report)) == {"200", "429"}
    assert 4 <= statuses(report)["200"] <= 10
    assert demo.budget()["settled_usd"] == demo.bill_usd


@pytest.mark.parametrize("demo", [Script(hang_after=3)], indirect=True)
def test_a_closed_tab_keeps_its_whole_reservation(demo: Demo) -> None:
    report = demo.attack("hangup")

    assert report["answers"] == {"200": 1}
    assert demo.budget()["kept_usd"] == Decimal(report["kept_usd"]) > demo.bill_usd > 0


def test_the_observed_route_pays_for_what_the_guarded_one_refuses(demo: Demo) -> None:
    report = demo.attack("huge-prompt", target="observed")

    observed = demo.budget("/demo/observed")
    assert (report["answers"], report["would_reject"]) == ({"200": 1}, 1)
    assert observed["settled_usd"] + observed["kept_usd"] >= demo.bill_usd > 10
    assert observed["remaining_usd"] < 0
    assert demo.budget()["remaining_usd"] == demo.budget()["limit_usd"]


def test_an_observed_route_waits_for_what_a_liar_announced_until_the_liar_leaves(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "LIE_SECONDS", 0.5)

    report = demo.attack("length", target="observed")

    assert report["answers"]["no answer"] == 1
    assert sum(report["answers"].values()) == 4


def test_no_attack_runs_without_the_token(demo: Demo) -> None:
    answer = demo.client.post("/demo/attack/burst")

    assert answer.status_code == 401
    assert demo.stage.calls == 0


def test_an_unknown_attack_is_not_found(demo: Demo) -> None:
    answer = demo.client.post("/demo/attack/no-such-attack", headers=bearer())

    assert answer.status_code == 404


def test_the_page_and_its_token_are_only_for_names_of_this_machine(demo: Demo) -> None:
    """Another site may point its own name at 127.0.0.1 and read what it gets."""
    answers = [demo.client.get(path, headers={"Host": "lamps.example"}) for path in ("/", "/demo/config.json")]

    assert [answer.status_code for answer in answers] == [400, 400]
    assert TOKEN not in "".join(answer.text for answer in answers)


def test_the_page_is_served_under_a_policy_without_inline_code(demo: Demo) -> None:
    page = demo.client.get("/")

    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "Wick &amp; Filament" in page.text


def test_every_attack_of_the_list_has_a_button(demo: Demo) -> None:
    config = demo.client.get("/demo/config.json").json()

    assert [attack["name"] for attack in config["attacks"]] == list(ATTACKS)


def test_the_widget_is_small() -> None:
    assert len(gzip.compress((STATIC / "rg-chat.js").read_bytes(), 9)) < WIDGET_BYTES_MAX


class _Inline(HTMLParser):
    """Collects whatever the policy would block: inline script, style and handlers, and foreign addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append(tag)
        self.found += [name for name in given if name == "style" or name.startswith("on")]
        self.found += [str(value) for value in given.values() if re.match(r"(https?:)?//|data:", value or "")]


def test_the_page_holds_no_inline_code_and_loads_nothing_from_elsewhere() -> None:
    inline = _Inline()

    inline.feed((STATIC / "index.html").read_text())

    assert inline.found == []


@pytest.mark.parametrize("script", sorted(STATIC.glob("*.js")), ids=lambda script: script.name)
def test_no_script_turns_text_into_markup(script: Path) -> None:
    """The one `innerHTML` sets the widget's own constant."""
    source = script.read_text().replace("root.innerHTML = HTML;", "")

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", source)


def test_the_static_files_know_no_path_of_one_framework() -> None:
    sources = "".join(file.read_text() for file in STATIC.iterdir())

    paths = set(re.findall(r"[\"'`](/[a-z_][a-z_/.-]*)", sources))

    assert {"/" + path.split("/")[1] for path in paths} == {"/api", "/_routeguard", "/demo"}


def test_a_key_names_the_provider_and_stays_out_of_what_is_printed() -> None:
    environ = {"OPENAI_API_KEY": "sk-secret", "OPENAI_MODEL": "some-model", "OPENAI_BASE_URL": "https://llm.example/v1"}

    with open_model(environ, scripted_url="http://unused") as model:
        assert (model.name, model.base_url, model.api_key) == ("some-model", "https://llm.example/v1", "sk-secret")
        assert "sk-secret" not in f"{model!r} {model.label}"


@pytest.mark.skipif(local_model.find_weights() is None, reason="the local model is not installed")
def test_the_local_model_reports_its_usage_and_ends_with_the_demo() -> None:
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}

    with open_model({}, scripted_url="http://unused") as model, httpx2.Client(trust_env=False, timeout=60) as client:
        url = f"{model.base_url}/chat/completions"
        answer = client.post(url, json=body, headers={"Authorization": f"Bearer {model.api_key}"})
        stranger = client.post(url, json=body)

    assert 0 < answer.json()["usage"]["completion_tokens"] <= 4
    assert stranger.status_code == 401
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url, trust_env=False)


@pytest.mark.parametrize(
    ("directive", "said"),
    [("status=401", "answered 401; is OPENAI_API_KEY the right one?"), ("status=500", "answered 500")],
)
def test_whoever_runs_the_demo_reads_what_the_provider_answered(
    demo: Demo, caplog: pytest.LogCaptureFixture, directive: str, said: str
) -> None:
    demo.ask(f"script: {directive}")

    assert [record.message.partition(": ")[2] for record in caplog.records if record.name == LOG.name] == [said]


@pytest.mark.parametrize("command", ["examples.fastapi_app", "examples.django_app"])
def test_a_taken_port_is_refused_before_any_page_is_announced(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = started(command, port=str(taken.getsockname()[1]))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Address already in use" in ended.stderr
    assert "make demo PORT=" in ended.stderr


@pytest.mark.parametrize("port", ["lamp", "-1", "65536", "8e3", "²"])
def test_a_port_that_is_none_is_refused_in_one_line(port: str) -> None:
    ended = started("examples.fastapi_app", port=port)

    assert ended.returncode == 1
    assert ended.stderr == f"PORT is a number from 0 to 65535 and not {port!r}: make demo PORT=8001\n"


def started(command: str, *, port: str) -> "subprocess.CompletedProcess[str]":
    """A demo that is expected to end by itself."""
    environment = {**os.environ, "PORT": port, "MODEL": "scripted"}
    return subprocess.run(
        [sys.executable, "-m", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
