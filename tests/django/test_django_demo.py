"""The Django twin of the demo, in a process of its own: Django has one set of settings in each."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.django_app import settings as project
from examples.fastapi_app.app import STATIC, create_chat
from examples.fastapi_app.attacks import ATTACKS
from examples.fastapi_app.model import scripted
from routeguard import Settings
from tests.sockets.demo import TOKEN, demonstrating


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[httpx2.Client]:
    with demonstrating("examples.django_app", log=tmp_path / "log") as client:
        yield client


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


def budget(demo: httpx2.Client, status_path: str = "/_routeguard") -> dict[str, Decimal]:
    found: dict[str, Any] = demo.get(f"{status_path}/status", headers=bearer()).json()["budgets"][0]
    return {name: Decimal(value) for name, value in found.items() if name.endswith("_usd")}


def ask(demo: httpx2.Client, question: str, *, path: str = "/api/chat") -> httpx2.Response:
    return demo.post(path, json={"messages": [{"role": "user", "content": question}]})


def test_a_chat_is_streamed_to_its_end_and_charged_what_the_provider_bills(demo: httpx2.Client) -> None:
    answer = ask(demo, "Which lamp for reading in bed?")

    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    usage = json.loads(events[-2])["usage"]
    bill = Decimal(usage["prompt_tokens"] * 20 + usage["completion_tokens"] * 200) / 1_000_000
    assert (answer.status_code, events[-1]) == (200, "[DONE]")
    assert budget(demo)["settled_usd"] == bill > 0


def test_a_body_the_view_refuses_costs_nothing(demo: httpx2.Client) -> None:
    bodies: list[Any] = [[], {}, {"messages": []}, {"messages": ["hello"]}]
    bodies += [{"messages": [{"role": "system", "content": "Obey."}]}, {"messages": [{"role": "user", "content": []}]}]

    statuses = [demo.post("/api/chat", json=body).status_code for body in bodies]

    parts = budget(demo)
    assert statuses == [422] * len(bodies)
    assert parts["remaining_usd"] == parts["limit_usd"]


def test_a_provider_that_fails_ends_in_an_error_event_and_the_money_is_kept(demo: httpx2.Client) -> None:
    answer = ask(demo, "script: fail_after=4")

    last = json.loads(answer.text.strip().rpartition("data: ")[2])
    assert last["error"]["message"] == "The answer broke off. Please ask again."
    assert budget(demo)["kept_usd"] > 0


def test_attacks_find_the_guarded_route_and_the_observed_one(demo: httpx2.Client) -> None:
    guarded = demo.post("/demo/attack/huge-prompt", headers=bearer())
    observed = demo.post("/demo/attack/huge-prompt", headers=bearer(), params={"target": "observed"})
    stranger = demo.post("/demo/attack/huge-prompt")
    unknown = demo.post("/demo/attack/no-such-attack", headers=bearer())

    assert list(guarded.json()["answers"]) == ["413 request_too_large"]
    assert observed.json()["answers"] == {"200": 1}
    assert budget(demo)["remaining_usd"] == budget(demo)["limit_usd"]
    assert budget(demo, "/demo/observed")["remaining_usd"] < 0
    assert (stranger.status_code, unknown.status_code) == (401, 404)


def test_the_page_is_that_of_the_fastapi_demo_under_the_same_policy(demo: httpx2.Client) -> None:
    pages = {path.name: demo.get("/" if path.name == "index.html" else f"/{path.name}") for path in STATIC.iterdir()}
    config = demo.get("/demo/config.json").json()

    assert {name: page.content for name, page in pages.items()} == {p.name: p.read_bytes() for p in STATIC.iterdir()}
    assert all(page.headers["content-security-policy"].startswith("default-src 'self'") for page in pages.values())
    assert config["token"] == TOKEN
    assert [attack["name"] for attack in config["attacks"]] == list(ATTACKS)


def test_only_files_of_the_page_are_served(demo: httpx2.Client) -> None:
    names = ["..%2fapp.py", "%2e%2e%2fapp.py", "no-such-file.js", "%2fetc%2fpasswd", "%2e"]

    answers = [demo.get(f"/{name}") for name in names]

    assert [answer.status_code for answer in answers] == [404] * len(names)


def test_another_host_name_gets_neither_page_nor_token(demo: httpx2.Client) -> None:
    answers = [demo.get(path, headers={"Host": "lamps.example"}) for path in ("/", "/demo/config.json")]

    assert [answer.status_code for answer in answers] == [400, 400]
    assert TOKEN not in "".join(answer.text for answer in answers)


def test_both_demos_are_guarded_by_the_same_limits() -> None:
    """But for the status that FastAPI refuses a malformed body with; the Django view says that it asked nobody."""
    model = scripted("http://unused", why="nobody asks it")
    app = create_chat(model, rehearsal=model, admin_token=TOKEN, namespace="twin")
    guards: list[dict[str, Any]] = [middleware.kwargs for middleware in app.user_middleware]
    (limits,) = [limits for limits in guards if limits["paths"] == project.ROUTEGUARD["PATHS"]]
    own: dict[str, Any] = {name.lower(): value for name, value in project.ROUTEGUARD.items()}

    twin, ours = Settings(**limits, environ={}), Settings(**own, environ={})

    differing = {name for name in ours.written if ours.written[name] != twin.written[name]}

    assert differing == {"ADMIN_TOKEN", "NAMESPACE", "RELEASE_STATUSES"}
