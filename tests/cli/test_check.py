"""What `routeguard check` finds in an application, a server's options, and a ledger."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from channels.routing import ProtocolTypeRouter
from django.conf import settings as django_settings
from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from litestar import Litestar
from litestar import post as litestar_post
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from routeguard import RouteGuard, Settings
from routeguard.cli import main
from routeguard.cli.check import Report, check, look
from routeguard.cli.check.guarded import unguarded_chats
from routeguard.cli.check.prices import price_age
from routeguard.cli.check.server import server_options
from routeguard.cli.check.shape import shape_of
from routeguard.cli.settings_of import NoGuard, Target, target
from tests.redis.server import RedisServer, needed_server

GUARD: Any = {
    "paths": ["/api/chat"],
    "price_in": 1,
    "price_out": 1,
    "budget": "5/day",
    "system_prompt_bytes": 0,
    "environ": {},
}


def looked(app: object = None, *, server: list[str] | None = None, **changes: Any) -> Report:
    return look(Target(Settings(**{**GUARD, **changes}), app), server=server)


def chat(_: Request) -> Response:
    return PlainTextResponse("hello")


def test_a_sound_application_has_no_warning() -> None:
    app = FastAPI()
    app.add_api_route("/api/chat", chat, methods=["POST"])
    app.add_middleware(RouteGuard, **GUARD)
    app.add_middleware(CORSMiddleware, allow_origins=["https://shop.example"])

    report = looked(app, server=["uvicorn", "shop:app", "--no-proxy-headers"])

    assert report.shape is not None
    assert [layer.name for layer in report.shape.layers] == ["CORSMiddleware", "RouteGuard"]
    assert (report.problems, report.warnings, report.unknown) == ((), (), ())


@pytest.mark.parametrize(
    ("order", "changes", "says"),
    [
        ([(CORSMiddleware, {}), (RouteGuard, GUARD)], {}, "CORSMiddleware is inside RouteGuard"),
        ([(CORSMiddleware, {}), (RouteGuard, GUARD)], {"cors_origins": "*"}, None),
        ([(GZipMiddleware, {}), (RouteGuard, GUARD)], {}, None),
        ([(GZipMiddleware, {}), (RouteGuard, GUARD)], {"read_response": "all"}, "a compressed answer is not read"),
        ([(RouteGuard, GUARD), (GZipMiddleware, {})], {"read_response": "all"}, None),
        ([(RouteGuard, GUARD), (RouteGuard, GUARD)], {}, "installed twice"),
        ([(RouteGuard, GUARD), (RouteGuard, {**GUARD, "namespace": "inner"})], {}, None),
        ([(RouteGuard, GUARD), (ProxyHeadersMiddleware, {})], {}, "replaces the peer that direct trusts"),
        ([(RouteGuard, GUARD), (ProxyHeadersMiddleware, {})], {"platform": "fly"}, None),
    ],
)
def test_the_order_of_middleware_is_judged(order: list[Any], changes: dict[str, Any], says: str | None) -> None:
    """The last one added is outermost."""
    app = FastAPI()
    for kind, keywords in order:
        app.add_middleware(kind, **keywords)

    report = looked(app, **changes)

    found = [warning for warning in report.warnings if "RouteGuard" in warning]
    assert len(found) == (says is not None)
    assert says is None or says in found[0]


def routers() -> FastAPI:
    inner = APIRouter(prefix="/v2")
    inner.add_api_route("/ask/{topic}", chat, methods=["POST"])
    mounted = Starlette(routes=[Route("/completions", chat, methods=["POST"])])
    app = FastAPI()
    app.include_router(inner, prefix="/api")
    app.mount("/ai", mounted)
    app.add_api_route("/api/chat", chat, methods=["POST"])
    app.add_api_route("/mail/{id}", chat, methods=["POST"])
    app.add_api_route("/chat-rules", chat, methods=["GET"])
    return app


def with_starlette() -> Starlette:
    nested = Mount("/deep", routes=[Mount("/er", routes=[Route("/llm", chat, methods=["POST"])])])
    return Starlette(routes=[nested, Route("/api/chat", chat, methods=["POST"]), Route("/email", chat)])


def with_litestar() -> Litestar:
    @litestar_post("/generate/{number:int}")
    async def generate() -> str:
        return ""

    @litestar_post("/rail")
    async def rail() -> str:
        return ""

    return Litestar([generate, rail])


def with_quart() -> Quart:
    app = Quart("shop")

    @app.post("/assistant")
    async def assistant() -> str:
        return ""

    @app.post("/contains")
    async def contains() -> str:
        return ""

    return app


@pytest.mark.parametrize(
    ("app", "paths"),
    [
        (routers(), {"/api/v2/ask/{topic}", "/ai/completions"}),
        (with_starlette(), {"/deep/er/llm"}),
        (with_litestar(), {"/generate/{number:int}"}),
        (with_quart(), {"/assistant"}),
        (SimpleNamespace(), set()),
    ],
    ids=["fastapi", "starlette", "litestar", "quart", "nothing to see"],
)
def test_routes_that_look_like_chat_and_are_not_guarded_are_named(app: Any, paths: set[str]) -> None:
    settings = Settings(**GUARD)

    found = unguarded_chats(shape_of(RouteGuard(app, **GUARD)), settings)

    assert {route.path for route in found} == paths


def test_a_method_that_is_not_guarded_leaves_its_route_unguarded() -> None:
    app = Starlette(routes=[Route("/api/chat", chat, methods=["GET", "POST"])])

    report = looked(app, methods="GET")

    assert any("/api/chat looks as if it called a model" in warning for warning in report.warnings)


def test_a_guard_inside_a_mounted_application_guards_what_is_below_it_and_nothing_else() -> None:
    route = Route("/chat", chat, methods=["POST"])
    inner = Starlette(routes=[route], middleware=[Middleware(RouteGuard, **{**GUARD, "paths": ["/chat"]})])
    app = Starlette(routes=[Mount("/api", inner), route])

    report = looked(app, paths=["/chat"])

    assert report.shape is not None
    assert [route.path for route in unguarded_chats(report.shape, report.settings)] == ["/chat"]
    assert not [warning for warning in report.warnings if "guards nothing" in warning]


def test_a_guard_on_a_single_route_guards_it() -> None:
    everything = Middleware(RouteGuard, **{**GUARD, "paths": ["**"]})
    app = Starlette(routes=[Route("/ask", chat, methods=["POST"], middleware=[everything])])

    report = looked(app, paths=["**"])

    assert report.warnings == ()


def catching_all() -> Starlette:
    return Starlette(routes=[Route("/files/{rest:path}", chat), Route("/say/{room}/new", chat, methods=["POST"])])


def opaque() -> Starlette:
    async def anything(scope: Any, receive: Any, send: Any) -> None: ...

    return Starlette(routes=[Mount("/api", anything), Route("/say", chat, methods=["POST"])])


@pytest.mark.parametrize(
    ("app", "path", "is_idle"),
    [
        (routers(), "/api/chat", False),
        (routers(), "/ask/*", True),
        (routers(), "/api/v2/ask/*", False),
        (routers(), "/v2/**", True),
        (routers(), "/ai/completions", False),
        (routers(), "/completions", True),
        (with_starlette(), "/deep/**", False),
        (with_starlette(), "**", False),
        (with_litestar(), "/generate/*", False),
        (with_litestar(), "/generated/*", True),
        (with_quart(), "/Contains/", False),
        (with_quart(), "/contain", True),
        (catching_all(), "/files/a/b", False),
        (catching_all(), "/files/*", False),
        (catching_all(), "/say/lobby/new", False),
        (catching_all(), "/say/lobby/old", True),
        (opaque(), "/api/what/ever", False),
        (opaque(), "/apis", True),
        (FastAPI(), "/api/chat", False),
        (SimpleNamespace(), "/api/chat", False),
    ],
)
def test_a_pattern_that_matches_no_route_is_said_to_guard_nothing(app: Any, path: str, is_idle: bool) -> None:
    report = looked(RouteGuard(app, **{**GUARD, "paths": ["**", path]}), paths=["**", path])

    found = [warning for warning in report.warnings if "guards nothing" in warning]
    assert len(found) == is_idle
    assert all(f"'{path}'" in warning for warning in found)


def test_a_pattern_whose_routes_take_no_guarded_method_guards_nothing() -> None:
    app = Starlette(routes=[Route("/tutor", chat, methods=["POST"])])

    report = looked(
        RouteGuard(app, **{**GUARD, "paths": ["/tutor"], "methods": "PUT"}), paths=["/tutor"], methods="PUT"
    )

    assert any("PATHS holds '/tutor'" in warning for warning in report.warnings)


def test_django_shows_its_routes_and_its_middleware_inside_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.handlers.asgi import ASGIHandler
    from django.urls import include, path

    urls = SimpleNamespace(
        urlpatterns=[path("api/", include([path("chat", chat), path("ask/<int:number>", chat)])), path("mail", chat)]
    )
    monkeypatch.setitem(sys.modules, "urls_of_the_shop", urls)
    if not django_settings.configured:
        django_settings.configure()
    monkeypatch.setattr(django_settings, "ROOT_URLCONF", "urls_of_the_shop", raising=False)
    monkeypatch.setattr(django_settings, "MIDDLEWARE", ["corsheaders.middleware.CorsMiddleware"], raising=False)
    from django.urls import clear_url_caches

    clear_url_caches()
    report = looked(RouteGuard(ASGIHandler.__new__(ASGIHandler), **GUARD))
    clear_url_caches()

    assert any("/api/ask/<int:number> looks as if" in warning for warning in report.warnings)
    assert any(warning.startswith("CorsMiddleware is inside RouteGuard") for warning in report.warnings)
    assert len(report.warnings) == 2


@pytest.mark.parametrize(
    ("environ", "command", "changes", "says"),
    [
        ({"FORWARDED_ALLOW_IPS": "*"}, None, {}, "takes the leftmost entry"),
        ({"UVICORN_FORWARDED_ALLOW_IPS": "*"}, None, {}, "takes the leftmost entry"),
        ({"GUNICORN_CMD_ARGS": "-w 2 --forwarded-allow-ips='*'"}, None, {"processes": 2}, "takes the leftmost entry"),
        ({}, ["uvicorn", "a:b", "--forwarded-allow-ips=*"], {}, "takes the leftmost entry"),
        ({}, ["uvicorn", "a:b", "--forwarded-allow-ips", "10.0.0.1"], {}, "judges that"),
        ({"FORWARDED_ALLOW_IPS": "*"}, ["uvicorn", "--no-proxy-headers"], {}, None),
        ({"FORWARDED_ALLOW_IPS": "*", "UVICORN_PROXY_HEADERS": "false"}, None, {}, None),
        ({"FORWARDED_ALLOW_IPS": "*"}, None, {"platform": "fly"}, None),
        ({"FORWARDED_ALLOW_IPS": "*"}, None, {"client_ip": "ranges:10.0.0.0/8"}, "takes the leftmost entry"),
        ({"UVICORN_WORKERS": "4"}, None, {}, "up to 4 times"),
        ({}, ["gunicorn", "-w", "3"], {"processes": 2}, "up to 2 times"),
        ({}, ["gunicorn", "-w3"], {"ledger": "sqlite:///nowhere.db"}, None),
        ({}, ["granian", "--workers", "x"], {}, None),
        ({"FLY_APP_NAME": "shop"}, None, {}, "Set ROUTEGUARD_PLATFORM=fly"),
        ({"FLY_APP_NAME": "shop"}, None, {"client_ip": "xff:1"}, None),
        ({"GUNICORN_CMD_ARGS": "--bind 'unclosed"}, None, {}, None),
    ],
)
def test_what_the_server_was_told_is_judged(
    environ: dict[str, str],
    command: list[str] | None,
    changes: dict[str, Any],
    says: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    report = looked(server=command, **changes)

    assert len(report.warnings) == (says is not None)
    assert says is None or says in report.warnings[0]


@pytest.mark.parametrize(
    ("app", "server", "about"),
    [
        (FastAPI(), None, {"Starlette and FastAPI"}),
        (Starlette(), ["/srv/.venv/bin/uvicorn", "shop:app"], {"Starlette and FastAPI", "uvicorn"}),
        (None, ["python", "-m", "daphne", "shop.asgi:application"], {"daphne"}),
        (None, ["gunicorn", "-k", "asgi", "shop:app"], {"gunicorn"}),
        (None, ["uvicorn", "--hypercorn"], {"uvicorn"}),
        (None, None, set()),
    ],
)
def test_what_the_server_and_the_framework_cannot_give_is_said_with_its_remedy(
    app: object, server: list[str] | None, about: set[str]
) -> None:
    report = looked(app, server=server)

    assert {limit.about for limit in report.limits} == about
    assert all(limit.remedy for limit in report.limits)
    assert report.as_dict()["limits"] == [
        {"about": limit.about, "limit": limit.limit, "remedy": limit.remedy} for limit in report.limits
    ]


def test_no_command_line_is_said_to_be_unknown() -> None:
    assert not server_options({}, None).is_known
    assert any("how the server is started" in unknown for unknown in looked().unknown)
    assert not any("how the server is started" in unknown for unknown in looked(server=["uvicorn"]).unknown)


def test_a_budget_that_fewer_calls_fill_than_there_are_slots_is_a_warning() -> None:
    report = looked(budget="0.01/day", client_budget="unlimited", max_body="2kB")

    assert len(report.warnings) == 1
    assert "is full with 2 calls of 1 kB at once, and MAX_PARALLEL is 32" in report.warnings[0]


def test_a_table_of_prices_says_how_old_its_newest_price_is() -> None:
    age = price_age(Settings(**{**GUARD, "model": "gpt-5-mini", "price_in": None, "price_out": None}))

    assert age.newest_days is not None
    assert "genai-prices" in age.says
    assert price_age(Settings(**GUARD)).newest_days is None


def test_old_prices_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routeguard.cli.check.prices.OLD_DAYS", -1)

    report = looked(model="gpt-5-mini", price_in=None, price_out=None)

    assert any("update the package" in warning for warning in report.warnings)


def test_a_ledger_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    report = looked(ledger=f"sqlite:///{tmp_path / 'ledger.db'}")

    assert report.ping.answers
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_file_in_no_folder_is_an_error(tmp_path: Path) -> None:
    report = looked(ledger=f"sqlite:///{tmp_path / 'nowhere' / 'ledger.db'}")

    assert [problem.partition(" to make")[0] for problem in report.problems] == [
        f"LEDGER: there is no folder {tmp_path / 'nowhere'}"
    ]


def test_a_file_of_something_else_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"a letter to somebody" * 50)

    report = looked(ledger=f"sqlite:///{path}")

    assert len(report.problems) == 1
    assert "is not a database" in report.problems[0]


def test_a_store_that_is_away_is_an_error_without_its_password() -> None:
    report = looked(ledger="redis://shop:hunter2@127.0.0.1:1/0")

    assert not report.ping.answers
    assert "every request would get 503" in report.problems[0]
    assert "hunter2" not in json.dumps(report.as_dict())


def test_the_eviction_policy_of_a_store_is_looked_at() -> None:
    program = needed_server("its policy was not looked at")

    with RedisServer(program) as server:
        answering = looked(ledger=server.url)
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        forgetting = looked(ledger=server.url)

    assert answering.ping.says.startswith("answers in ")
    assert answering.problems == ()
    assert any("append-only" in warning for warning in answering.warnings)
    assert "maxmemory-policy is allkeys-lru" in forgetting.problems[0]


def test_the_report_is_json_with_everything_in_it() -> None:
    report = looked(RouteGuard(routers(), **GUARD), admin_token="a-token-nobody-may-see").as_dict()

    text = json.dumps(report)
    assert "nobody-may-see" not in text
    assert report["middleware"] == ["RouteGuard"]
    assert report["unguarded"] == ["/api/v2/ask/{topic}", "/ai/completions"]
    budget: Any = report["budgets"]
    assert budget[0]["calls_of_the_largest"] < budget[0]["calls_of_1kB"] < budget[0]["calls_of_the_smallest"]


def test_off_is_fine_and_asks_nobody(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTEGUARD_MODE", "off")

    code = check(None, as_json=False, server=None)

    assert code == 0
    assert "routeguard: off" in capsys.readouterr().out


def test_the_command_of_the_server_follows_two_dashes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PATHS": "/chat", "PRICE_IN": "1", "PRICE_OUT": "1", "SYSTEM_PROMPT_BYTES": "0"}.items():
        monkeypatch.setenv(f"ROUTEGUARD_{name}", value)
    monkeypatch.setenv("ROUTEGUARD_BUDGET", "5/day")

    code = main(["check", "--json", "--", "uvicorn", "shop:app", "--workers", "4"])

    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert report["server"]["workers"] == {"--workers in the server's command": "4"}


@pytest.mark.parametrize("attribute", ["app", "mounted", "routed", "wrapped", "by_protocol"])
def test_the_guard_is_found_wherever_it_is(attribute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Starlette(middleware=[Middleware(RouteGuard, **GUARD)])
    mounted = {**GUARD, "paths": "**"}
    quart: Any = Quart("shop")
    quart.asgi_app = RouteGuard(quart.asgi_app, **GUARD)
    module = SimpleNamespace(
        app=guarded,
        mounted=Starlette(routes=[Mount("/ai", app=Starlette(middleware=[Middleware(RouteGuard, **mounted)]))]),
        routed=Starlette(routes=[Route("/chat", chat, middleware=[Middleware(RouteGuard, **mounted)])]),
        wrapped=quart,
        by_protocol=ProtocolTypeRouter({"http": guarded}),
    )
    monkeypatch.setitem(sys.modules, "shop_of_the_test", module)

    found = target(f"shop_of_the_test:{attribute}")

    assert found.settings.budgets[0].limit_nanousd == 5 * 10**9


def test_a_module_that_fails_while_it_is_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_shop.py").write_text("raise RuntimeError('DATABASE_URL is not set')")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(NoGuard, match="RuntimeError: DATABASE_URL is not set"):
        target("broken_shop:app")


def test_a_journal_that_can_never_be_written_is_an_error(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    theirs.write_text("notes\n" * 1000)

    report = looked(journal=f"sqlite:///{theirs}")

    (problem,) = report.problems
    assert problem.startswith("ROUTEGUARD_JOURNAL: ")
    assert "is not a database" in problem
    assert report.as_dict()["ok"] is False
    assert theirs.read_text() == "notes\n" * 1000


def test_a_journal_without_a_folder_is_a_warning_as_at_the_start(tmp_path: Path) -> None:
    report = looked(journal=f"sqlite:///{tmp_path / 'nowhere' / 'journal.db'}")

    (warning,) = report.warnings
    assert f"there is no folder {tmp_path / 'nowhere'}" in warning
    assert report.problems == ()


def test_a_journal_is_not_made_by_looking_at_it(tmp_path: Path) -> None:
    report = looked(journal=f"sqlite:///{tmp_path / 'journal.db'}")

    assert (report.problems, report.warnings) == ((), ())
    assert list(tmp_path.iterdir()) == []


def test_a_journal_in_the_file_of_the_ledger_is_sound(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    looked(ledger=url)
    (tmp_path / "books.db").touch()

    report = looked(ledger=url, journal=url)

    assert (report.problems, report.warnings) == ((), ())
