"""Where a setting comes from: keywords, the environment, Django, and names that are none of ours."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from routeguard.config import Settings
from routeguard.policy import NANOSECONDS, Rate
from routeguard.settings.table import TABLE
from tests.configured import USD, build, client_limits, limits, problems, run_python, table


def test_the_defaults_are_those_of_the_reference() -> None:
    settings = build()

    assert settings.methods is None
    assert (settings.websocket, settings.mode, settings.paused) == ("refuse", "enforce", False)
    assert (settings.cors_origins, settings.status_path, settings.admin_token) == ((), "/_routeguard", None)
    assert (settings.max_body, settings.body_timeout, settings.max_input_chars) == (64_000, 10.0, 20_000)
    assert settings.body_types == {"json", "text", "form"}
    assert (settings.max_output_tokens, settings.calls_per_request) == (1_000, 1)
    assert (settings.extra_input_bytes, settings.extra_nanousd, settings.media_nanousd) == (0, 0, None)
    assert (settings.allowed_fields, settings.only_fields, settings.models) == (frozenset(), None, ())
    assert limits(settings) == [("day", USD)]
    assert client_limits(settings) == [("day", USD // 4)]
    assert settings.reset_tz.key == "UTC"
    assert settings.rates == (
        Rate("client-1", 10, 60 * NANOSECONDS),
        Rate("client-2", 200, 86_400 * NANOSECONDS),
    )
    assert settings.global_rates == (Rate("global-1", 600, 60 * NANOSECONDS),)
    assert (settings.max_parallel, settings.max_parallel_per_client, settings.max_stream) == (32, 4, 300.0)
    assert (settings.max_clients, settings.platform, settings.client_source) == (50_000, None, "the peer address")
    assert (settings.ipv6_prefix, settings.unknown_client, settings.edge_secret) == (64, "shared", None)
    assert (settings.exempt_clients, settings.ledger, settings.namespace) == ((), "memory://", "default")
    assert (settings.processes, settings.workers, settings.budget_status) == (1, None, 503)
    assert (settings.error_format, settings.on_failure, settings.no_call) == ("openai", "keep", "keep")
    assert settings.message_resting == "The assistant is resting. Please come back later."
    assert (settings.release_statuses, settings.read_response) == (frozenset({404, 405}), "stream")
    assert (settings.client, settings.admit, settings.warnings) == (None, None, ())


def test_every_variable_can_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('["my-model"]\ninput = 1\noutput = 2\n')

    settings = Settings(
        environ={
            "ROUTEGUARD_PATHS": "/api/chat,/api/img/**",
            "ROUTEGUARD_METHODS": "POST",
            "ROUTEGUARD_CORS_ORIGINS": "https://shop.example",
            "ROUTEGUARD_MODE": "observe",
            "ROUTEGUARD_PAUSED": "true",
            "ROUTEGUARD_MAX_BODY": "32KiB",
            "ROUTEGUARD_BODY_TYPES": "json,multipart",
            "ROUTEGUARD_MEDIA_USD": "0.01",
            "ROUTEGUARD_SYSTEM_PROMPT": "Grüße",
            "ROUTEGUARD_ALLOW_FIELDS": "=messages,model",
            "ROUTEGUARD_MODEL": "my-model",
            "ROUTEGUARD_PRICES": f"@{tmp_path}/prices.toml",
            "ROUTEGUARD_BUDGET": "5/day, 50/month",
            "ROUTEGUARD_CLIENT_BUDGET": "10%",
            "ROUTEGUARD_RESET_TZ": "Europe/Berlin",
            "ROUTEGUARD_RATE": "20/30s",
            "ROUTEGUARD_MAX_PARALLEL": "unlimited",
            "ROUTEGUARD_PLATFORM": "vercel",
            "ROUTEGUARD_EDGE_SECRET": "X-Edge: 0123456789abcdef",
            "ROUTEGUARD_EXEMPT_CLIENTS": "203.0.113.7",
            "ROUTEGUARD_BUDGET_STATUS": "429",
            "ROUTEGUARD_RELEASE_STATUSES": "none",
        }
    )

    assert (settings.paths, settings.methods) == (("/api/chat", "/api/img/**"), frozenset({"POST"}))
    assert (settings.cors_origins, settings.mode, settings.paused) == (("https://shop.example",), "observe", True)
    assert (settings.max_body, settings.media_nanousd, settings.system_prompt_bytes) == (32_768, USD // 100, 7)
    assert settings.allowed_fields == settings.only_fields == frozenset({"messages", "model"})
    assert limits(settings) == [("day", 5 * USD), ("month", 50 * USD)]
    assert client_limits(settings) == [("day", USD // 2), ("month", 5 * USD)]
    assert {budget.window.zone.key for budget in (*settings.budgets, *settings.client_budgets)} == {"Europe/Berlin"}
    assert [budget.per_client for budget in (*settings.budgets, *settings.client_budgets)] == [False, False, True, True]
    assert (settings.max_parallel, settings.client_source) == (None, "x-real-ip (vercel)")
    assert settings.edge_secret == (b"x-edge", b"0123456789abcdef")
    assert [network.cidr for network in settings.exempt_clients] == ["203.0.113.7/32"]
    assert (settings.budget_status, settings.release_statuses, settings.models) == (429, frozenset(), ("my-model",))
    assert settings.body_rules.bytes_max == 32_768
    assert settings.body_rules.models == frozenset({"my-model"})
    assert settings.body_rules.media_allowed


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTEGUARD_NAMESPACE", "from-the-process")

    settings = Settings(paths="/api/chat", price_in=1, price_out=1)

    assert settings.namespace == "from-the-process"


def test_a_keyword_wins_over_the_environment_and_that_over_django(monkeypatch: pytest.MonkeyPatch) -> None:
    django = SimpleNamespace(configured=True, ROUTEGUARD={"budget": "1/day", "Rate": "1/minute", "NAMESPACE": "django"})
    monkeypatch.setitem(sys.modules, "django.conf", SimpleNamespace(settings=django))

    settings = build({"ROUTEGUARD_BUDGET": "2/day", "ROUTEGUARD_RATE": "2/minute"}, budget="3/day")

    assert limits(settings) == [("day", 3 * USD)]
    assert settings.rates == (Rate("client-1", 2, 60 * NANOSECONDS),)
    assert settings.namespace == "django"
    assert {name: settings.sources[name] for name in ("BUDGET", "RATE", "NAMESPACE", "MODE")} == {
        "BUDGET": "keyword",
        "RATE": "environment",
        "NAMESPACE": "django",
        "MODE": "default",
    }


def test_every_variable_has_a_source() -> None:
    assert list(build().sources) == list(TABLE)


@table("written", ["", "  "])
def test_an_empty_environment_variable_counts_as_unset(written: str) -> None:
    settings = build({"ROUTEGUARD_BUDGET": written})

    assert limits(settings) == [("day", USD)]
    assert settings.sources["BUDGET"] == "default"


def test_a_keyword_that_is_none_lets_the_environment_decide() -> None:
    assert limits(build({"ROUTEGUARD_BUDGET": "2/day"}, budget=None)) == [("day", 2 * USD)]


def test_an_empty_keyword_is_a_problem() -> None:
    assert problems(budget="") == ("budget='' (ROUTEGUARD_BUDGET) is empty; write '5/day' or '5/day, 50/month'",)


def test_a_setting_that_is_none_in_django_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    django = SimpleNamespace(configured=True, ROUTEGUARD={"NAMESPACE": None})
    monkeypatch.setitem(sys.modules, "django.conf", SimpleNamespace(settings=django))

    assert build().sources["NAMESPACE"] == "default"


def test_django_is_read_only_once_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    django = SimpleNamespace(configured=False, ROUTEGUARD={"NAMESPACE": "django"})
    monkeypatch.setitem(sys.modules, "django.conf", SimpleNamespace(settings=django))

    assert build().namespace == "default"


def test_a_real_django_is_read_and_none_is_imported() -> None:
    script = (
        "import sys; from routeguard.config import Settings\n"
        "assert 'django' not in sys.modules\n"
        "from django.conf import settings\n"
        "settings.configure(ROUTEGUARD={'paths': ['/api/chat'], 'PRICE_IN': 1, 'price_out': 2})\n"
        "print(Settings().sources['PATHS'], Settings().paths)"
    )

    assert run_python(script) == "django ('/api/chat',)"


@table(
    ("written", "problem"),
    [
        ({"BUGDET": "1/day"}, "settings.ROUTEGUARD['BUGDET'] is not known; did you mean 'BUDGET'?"),
        (
            {"ROUTEGUARD_BUDGET": "1/day"},
            "settings.ROUTEGUARD['ROUTEGUARD_BUDGET'] is not known; did you mean 'BUDGET'?",
        ),
        (
            {"budget": "1/day", "BUDGET": "2/day"},
            "settings.ROUTEGUARD['BUDGET'] is there twice, in different case; keep one",
        ),
        ({"CLIENT": print}, "settings.ROUTEGUARD['CLIENT'] is a hook; pass it as a keyword: RouteGuard(app, client=…)"),
        (
            {"budget": "1/dya"},
            "settings.ROUTEGUARD['budget']='1/dya' has the window 'dya', which is not known; did you "
            "mean 'day'? Known: hour, day, week, month, total",
        ),
        ("1/day", "settings.ROUTEGUARD is not a dict; write for example ROUTEGUARD = {'PATHS': ['/api/chat']}"),
    ],
)
def test_what_django_says_wrongly_is_a_problem(monkeypatch: pytest.MonkeyPatch, written: object, problem: str) -> None:
    django = SimpleNamespace(configured=True, ROUTEGUARD=written)
    monkeypatch.setitem(sys.modules, "django.conf", SimpleNamespace(settings=django))

    assert problems() == (problem,)


def test_an_unknown_variable_is_a_problem_with_the_nearest_name() -> None:
    assert problems({"ROUTEGUARD_BUGDET": "5/day"}) == (
        "ROUTEGUARD_BUGDET is not known; did you mean 'ROUTEGUARD_BUDGET'?",
    )


def test_an_unknown_variable_without_a_near_name_is_a_problem_too() -> None:
    assert problems({"ROUTEGUARD_QQQQQQ": "5/day"}) == (
        "ROUTEGUARD_QQQQQQ is not known. The settings are listed in docs/settings.md",
    )


@table("keyword", ["bugdet", "BUDGET"])
def test_an_unknown_keyword_is_a_problem_with_the_nearest_name(keyword: str) -> None:
    assert problems(**{keyword: "5/day"}) == (f"the keyword {keyword}= is not known; did you mean 'budget'?",)


@table("name", ["routeguard_budget", "MY_ROUTEGUARD_BUDGET", "ROUTEGUARD"])
def test_variables_without_the_prefix_are_not_ours(name: str) -> None:
    assert limits(build({name: "5/day"})) == [("day", USD)]


def test_what_kubernetes_sets_for_a_service_of_our_name_is_ignored_with_one_warning() -> None:
    names = ["ROUTEGUARD_SERVICE_HOST", "ROUTEGUARD_SERVICE_PORT", "ROUTEGUARD_SERVICE_PORT_HTTP", "ROUTEGUARD_PORT"]
    names += [f"ROUTEGUARD_PORT_80_{kind}{end}" for kind in ("TCP", "UDP") for end in ("", "_ADDR", "_PORT", "_PROTO")]

    settings = build(dict.fromkeys(names, "tcp://10.0.0.1:80"))

    assert len(settings.warnings) == 1
    assert "Kubernetes" in settings.warnings[0]


def test_what_kubernetes_sets_for_a_service_beside_ours_is_ignored_too() -> None:
    settings = build({"ROUTEGUARD_REDIS_SERVICE_HOST": "10.0.0.1", "ROUTEGUARD_REDIS_PORT": "tcp://10.0.0.1:6379"})

    assert len(settings.warnings) == 1


@table("name", ["ROUTEGUARD_REDIS_PORT", "ROUTEGUARD_PORT_80_SSL", "ROUTEGUARD_SERVICE", "ROUTEGUARD_PORTS"])
def test_what_only_looks_like_kubernetes_is_a_problem(name: str) -> None:
    assert [problem.partition(" ")[0] for problem in problems({name: "x"})] == [name]
