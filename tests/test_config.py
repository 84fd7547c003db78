"""What `Settings` makes of keywords, environment and Django, what stops the server, and what only warns."""

import os
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from routeguard.client_ip import PLATFORMS
from routeguard.config import Settings, SettingsKeywords, start_line
from routeguard.errors import ConfigError
from routeguard.money import NANOUSD_MAX, NANOUSD_PER_USD, format_usd
from routeguard.policy import NANOSECONDS, Rate
from routeguard.settings import names, reference
from routeguard.settings.checks import is_reasoning
from routeguard.settings.table import TABLE

USD = NANOUSD_PER_USD
#: At 1 USD per million tokens both ways: 1,536 tokens of overhead and 1,000 of output, then 64,000 bytes of body.
SMALLEST_USD, LARGEST_USD = "0.002536", "0.066536"

#: `"1"` and `1` are different rows.
table = partial(pytest.mark.parametrize, ids=repr)


def build(environ: Mapping[str, str] | None = None, /, **keywords: Any) -> Settings:
    """Settings that are complete without the table of models, and quiet; a keyword that is None is left out."""
    complete: dict[str, Any] = {"paths": "/api/chat", "price_in": 1, "price_out": 1, "system_prompt": ""}
    return Settings(environ=environ or {}, **(complete | keywords))


def problems(environ: Mapping[str, str] | None = None, /, **keywords: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        build(environ, **keywords)
    return caught.value.problems


def limits(settings: Settings) -> list[tuple[str, int]]:
    return [(budget.name, budget.limit_nanousd) for budget in settings.budgets]


def client_limits(settings: Settings) -> list[tuple[str, int]]:
    return [(budget.name, budget.limit_nanousd) for budget in settings.client_budgets]


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


def test_every_problem_is_reported_at_once_and_names_what_was_written() -> None:
    found = problems(
        {
            "ROUTEGUARD_PATHS": "api/chat",
            "ROUTEGUARD_RATE": "10/minuet",
            "ROUTEGUARD_TYPO": "1",
            "ROUTEGUARD_MODEL": "gpt5-mini",
        },
        paths=None,
        price_in=None,
        price_out=None,
        budget="5",
        max_stream="5",
        platform="vercell",
        tpyo=1,
    )

    beginnings = (
        "ROUTEGUARD_TYPO is not known",
        "the keyword tpyo= is not known",
        "ROUTEGUARD_PATHS='api/chat' holds 'api/chat'",
        "budget='5' (ROUTEGUARD_BUDGET) does not say per which window",
        "ROUTEGUARD_RATE='10/minuet' has the window 'minuet'",
        "max_stream='5' (ROUTEGUARD_MAX_STREAM) is not a duration",
        "platform='vercell' (ROUTEGUARD_PLATFORM) is not known; did you mean 'vercel'?",
        "ROUTEGUARD_MODEL='gpt5-mini': 'gpt5-mini' has no known price",
    )
    assert [problem[: len(beginning)] for problem, beginning in zip(found, beginnings, strict=True)] == list(beginnings)


def test_a_missing_path_and_a_missing_model_are_two_problems() -> None:
    found = problems(paths=None, price_in=None, price_out=None)

    assert [problem.partition(" is not set")[0] for problem in found] == ["ROUTEGUARD_PATHS", "ROUTEGUARD_MODEL"]
    assert all("for example ROUTEGUARD_" in problem for problem in found)


def test_an_unknown_model_is_a_problem_with_the_nearest_names() -> None:
    (problem,) = problems(model="gpt5-mini", price_in=None, price_out=None)

    assert problem.startswith("model='gpt5-mini'")
    assert "gpt-5-mini" in problem.removeprefix("model='gpt5-mini'")


@table("given", ["price_in", "price_out", "price_cached_in", "price_cache_write"])
def test_one_price_without_the_other_is_a_problem(given: str) -> None:
    (problem,) = problems(**{"price_in": None, "price_out": None, given: "0.25"})

    assert problem.startswith(f"{given}='0.25' (ROUTEGUARD_{given.upper()}) without PRICE_")


def test_prices_override_those_of_the_model() -> None:
    settings = build(model="gpt-5-mini", max_output_tokens=2_000)

    assert settings.models == ("gpt-5-mini",)
    assert settings.tariff.smallest(0) == (256 + 2_000) * 1_000


def test_a_price_of_0_claims_no_money_and_fits_a_budget_of_0() -> None:
    settings = build(price_in=0, price_out=0, budget="0/day")

    assert settings.tariff.largest(0) == 0
    assert settings.warnings == ()


def test_a_price_file_wins_over_prices_and_table(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('["gpt-5-mini"]\ninput = 3\noutput = 3\noverhead_tokens = 0\n')

    settings = build(model="gpt-5-mini", prices=f"@{tmp_path}/prices.toml", max_output_tokens=2_000)

    assert settings.tariff.smallest(0) == 2_000 * 3_000


def test_each_problem_of_a_price_file_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("[a]\ninptu = 3\noutput = 3\n[b]\ninput = -1\noutput = 3\n")

    found = problems(model="a", prices=f"@{tmp_path}/prices.toml")

    assert len(found) >= 3
    assert all(problem.startswith("prices=") for problem in found)


@table(
    "ledger",
    ["redis+cluster://u:hunter2@h/0", "postgresql://h/d", "redis+sentinel://h"],
)
def test_a_ledger_of_a_later_version_is_refused_without_its_password(ledger: str) -> None:
    (problem,) = problems({"ROUTEGUARD_LEDGER": ledger})

    assert f"('{ledger.partition(':')[0]}') that is not available in this version" in problem
    assert "hunter2" not in problem


def test_a_ledger_is_added_by_one_line_and_then_processes_divide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "LEDGERS", {**names.LEDGERS, "shared": "shared://h"})

    settings = build({"WEB_CONCURRENCY": "8"}, ledger="shared://u:hunter2@h/0?password=hunter2", processes=4)

    assert (limits(settings), settings.max_parallel, settings.warnings) == ([("day", USD)], 32, ())
    assert "ledger='shared://***@h/0?***'" in repr(settings)


@table("ledger", ["redis://u:hunter2@h/0", "rediss://u:hunter2@h", "unix:///run/redis.sock"])
def test_a_cap_in_a_store_holds_over_all_processes_and_nothing_is_divided(ledger: str) -> None:
    settings = build({"WEB_CONCURRENCY": "8"}, ledger=ledger, processes=4)

    line = start_line(settings, wall_ns=0)

    assert (limits(settings), settings.max_parallel, settings.warnings) == ([("day", USD)], 32, ())
    assert " · $1.00/day over all processes · " in line
    assert line.endswith(" · ledger redis")


def test_a_redis_ledger_without_redis_py_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "redis" or ".ledgers.redis" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)

    (problem,) = problems({"ROUTEGUARD_LEDGER": "redis://u:hunter2@h"})

    assert problem == "ROUTEGUARD_LEDGER needs redis-py: pip install 'routeguard[redis]'"


def test_platform_and_client_ip_together_are_a_problem_wherever_they_stand() -> None:
    assert problems({"ROUTEGUARD_CLIENT_IP": "xff:1"}, platform="vercel") == (
        "platform='vercel' (ROUTEGUARD_PLATFORM) and ROUTEGUARD_CLIENT_IP='xff:1' say the same thing twice; "
        "keep one of them",
    )


def test_a_system_prompt_and_its_size_together_are_a_problem_that_does_not_repeat_the_prompt() -> None:
    (problem,) = problems(system_prompt="You are a hunter2", system_prompt_bytes=17)

    assert problem == (
        "system_prompt= (ROUTEGUARD_SYSTEM_PROMPT) and system_prompt_bytes=17 (ROUTEGUARD_SYSTEM_PROMPT_BYTES) say the "
        "same thing twice; keep one of them"
    )


@table("types", ["json,multipart", "binary", ["json", "multipart", "binary"]])
def test_media_types_need_a_price_of_media(types: object) -> None:
    (problem,) = problems(body_types=types)

    assert "ROUTEGUARD_MEDIA_USD" in problem
    assert build(body_types=types, media_usd=0).body_rules.media_allowed


def test_media_are_refused_unless_they_have_a_price() -> None:
    assert not build().body_rules.media_allowed


def test_the_remedy_for_a_hidden_path_is_another_status_path() -> None:
    (problem,) = problems(paths="/_routeguard/chat", admin_token="0123456789abcdef")

    assert problem.startswith("ROUTEGUARD_STATUS_PATH ('/_routeguard' by default) would answer instead")
    assert problem.endswith("for example '/_status'")


@table(
    ("paths", "status_path", "hidden"),
    [
        ("/_routeguard", "/_routeguard", True),
        ("/_Routeguard/", "/_routeguard", True),
        ("/api/status/**", "/api/status", True),
        ("/api/status/chat", "/api/status", True),
        ("/api/chat", "/api/status", False),
        ("/api/statuses", "/api/status", False),
        ("/api/chat", "/api/chat/status", False),
        ("/api/**", "/api/status", False),
        ("**", "/_routeguard", False),
    ],
)
def test_a_guarded_path_behind_the_status_routes_is_a_problem(paths: str, status_path: str, hidden: bool) -> None:
    token = "0123456789abcdef"

    if hidden:
        (problem,) = problems(paths=paths, status_path=status_path, admin_token=token)
        assert "would answer instead of the guarded path" in problem
    else:
        assert build(paths=paths, status_path=status_path, admin_token=token).status_path == status_path


def test_without_an_admin_token_no_status_route_hides_anything() -> None:
    assert build(paths="/_routeguard").paths == ("/_routeguard",)


def test_a_budget_that_fits_exactly_the_smallest_call_starts() -> None:
    settings = build(budget=f"{SMALLEST_USD}/day", client_budget="100%")

    assert settings.tariff.smallest(0) == settings.budgets[0].limit_nanousd


def test_a_budget_below_the_smallest_call_stops_the_server() -> None:
    (problem,) = problems(budget="0.002535999/day, 5/month", client_budget="unlimited")

    assert "budget='0.002535999/day, 5/month' (ROUTEGUARD_BUDGET) comes to $0.002535999 per day" in problem
    assert f"the smallest possible call may cost ${SMALLEST_USD}" in problem


def test_a_client_budget_below_the_smallest_call_stops_the_server() -> None:
    (problem,) = problems(budget="0.01/day")

    assert "ROUTEGUARD_CLIENT_BUDGET ('25%' by default) comes to $0.0025 per day" in problem


def test_a_client_budget_below_the_smallest_call_only_warns_when_some_clients_are_exempt() -> None:
    settings = build(budget="0.01/day", exempt_clients="203.0.113.7")

    assert any("comes to $0.0025 per day" in warning for warning in settings.warnings)


def test_a_budget_below_the_largest_call_warns() -> None:
    settings = build(budget="0.066535999/day", client_budget="unlimited")

    (warning,) = settings.warnings
    assert f"the largest possible call may cost ${LARGEST_USD}" in warning
    assert build(budget=f"{LARGEST_USD}/day", client_budget="unlimited").warnings == ()


@table("budget", ["0/day", "0", 0, "0/day, 5/month"])
def test_a_budget_of_0_is_legal_and_warned_about(budget: object) -> None:
    settings = build(budget=budget, client_budget="unlimited")

    (warning,) = settings.warnings
    assert "a budget of 0 refuses every request that costs anything" in warning


def test_a_budget_that_only_division_makes_0_stops_the_server() -> None:
    found = problems(budget="0.000000003/day", client_budget="unlimited", processes=4)

    assert len(found) == 1


def test_unlimited_is_no_budget_and_its_share_is_none_either() -> None:
    settings = build(budget="unlimited", client_budget="25%")

    assert settings.budgets == settings.client_budgets == ()


def test_a_client_budget_of_its_own_stands_beside_an_unlimited_one() -> None:
    assert client_limits(build(budget="unlimited", client_budget="1/hour")) == [("hour", USD)]


@given(
    nanousd=st.integers(NANOUSD_PER_USD * 4, NANOUSD_MAX // 10_000),
    percent=st.integers(1, 100),
    processes=st.integers(1, 7),
)
@hypothesis_settings(max_examples=60)
def test_parts_of_a_budget_never_add_up_to_more_than_the_whole(nanousd: int, percent: int, processes: int) -> None:
    settings = build(
        budget=f"{format_usd(nanousd)}/day", client_budget=f"{percent}%", processes=processes, price_in=0, price_out=0
    )

    (budget,), (client_budget,) = settings.budgets, settings.client_budgets
    assert nanousd - processes < budget.limit_nanousd * processes <= nanousd
    assert client_budget.limit_nanousd * processes * 100 <= nanousd * percent
    assert client_budget.limit_nanousd <= budget.limit_nanousd


def test_processes_divide_money_down_and_requests_and_streams_up() -> None:
    settings = build(budget="1/day", processes=3, rate="10/minute, 2/day", max_parallel=32, max_parallel_per_client=2)

    assert limits(settings) == [("day", 333_333_333)]
    assert client_limits(settings) == [("day", 83_333_333)]
    assert [rate.quota for rate in settings.rates] == [4, 1]
    assert [rate.quota for rate in settings.global_rates] == [200]
    assert (settings.max_parallel, settings.max_parallel_per_client) == (11, 1)


def test_processes_leave_unlimited_unlimited() -> None:
    settings = build(
        processes=3, budget="unlimited", rate="unlimited", global_rate="unlimited", max_parallel="unlimited"
    )

    assert (settings.budgets, settings.rates, settings.global_rates, settings.max_parallel) == ((), (), (), None)


@table(("workers", "warns"), [("4", True), ("2", False), ("1", False), ("", False), ("auto", False), ("-1", False)])
def test_more_workers_than_processes_are_warned_about(workers: str, warns: bool) -> None:
    settings = build({"WEB_CONCURRENCY": workers}, processes=2)

    assert any("WEB_CONCURRENCY=4" in warning for warning in settings.warnings) is warns


@table("given", [{"system_prompt": None}, {"system_prompt": None, "allow_fields": "tools"}])
def test_an_unknown_system_prompt_is_warned_about(given: dict[str, Any]) -> None:
    (warning,) = build(**given).warnings

    assert warning.startswith("0 bytes of system prompt assumed")


@table("given", [{"system_prompt": ""}, {"system_prompt": None, "system_prompt_bytes": 0}])
def test_an_empty_system_prompt_that_somebody_wrote_is_believed(given: dict[str, Any]) -> None:
    assert build(**given).warnings == ()


def test_an_unguarded_websocket_is_warned_about() -> None:
    (warning,) = build(websocket="ignore").warnings

    assert warning == "websocket='ignore' (ROUTEGUARD_WEBSOCKET): websockets on guarded paths are not guarded."


@table(
    ("model", "thinks"),
    [
        ("gpt-5-mini", True),
        ("openai/GPT-5", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4o-mini", False),
        ("o3-mini", True),
        ("openrouter/openai/o1", True),
        ("deepseek-reasoner", True),
        ("deepseek-chat", False),
        ("grok-4-fast-reasoning", True),
        ("grok-4-fast-non-reasoning", False),
        ("gemini-2.5-flash", True),
        ("gemini-3-pro", True),
        ("gemini-2.0-flash", False),
        ("claude-haiku-4-5", False),
        ("kimi-k2-thinking", True),
    ],
)
def test_models_that_think_are_known_by_name(model: str, thinks: bool) -> None:
    assert is_reasoning(model) is thinks


@table(("tokens", "warns"), [(1_999, True), (2_000, False)])
def test_little_output_for_a_model_that_thinks_is_warned_about(tokens: int, warns: bool) -> None:
    settings = build(model="gpt-5-mini", max_output_tokens=tokens)

    assert any("thinks before it answers" in warning for warning in settings.warnings) is warns


@table("platform", list(PLATFORMS))
def test_a_platform_that_can_be_walked_around_is_warned_about(platform: str) -> None:
    needs_secret = platform in {"cloudflare", "cloudfront", "azure-front-door"}

    bare = build(platform=platform)
    locked = build(platform=platform, edge_secret="X-Edge:0123456789abcdef")

    assert any("EDGE_SECRET" in warning for warning in bare.warnings) is needs_secret
    assert locked.warnings == ()


@table(
    "cidr",
    [
        "127.0.0.1",
        "10.1.0.0/16",
        "172.16.0.0/12",
        "192.168.1.1",
        "100.64.0.0/10",
        "0.0.0.0/0",
        "::1",
        "fc00::/7",
        "::/0",
    ],
)
def test_exempting_where_a_proxy_may_be_is_warned_about(cidr: str) -> None:
    (warning,) = build(exempt_clients=cidr).warnings

    assert "where a proxy may be" in warning


@table("cidr", ["203.0.113.7", "2001:db8::/48", "8.8.8.0/24"])
def test_exempting_public_addresses_is_not(cidr: str) -> None:
    assert build(exempt_clients=cidr).warnings == ()


def test_short_secrets_are_warned_about_without_being_repeated() -> None:
    settings = build(admin_token="hunter2", edge_secret="X-Edge:hunter2")

    assert len(settings.warnings) == 2
    assert not any("hunter2" in warning for warning in settings.warnings)


def test_switched_off_needs_neither_paths_nor_model() -> None:
    settings = Settings(environ={"ROUTEGUARD_MODE": "off"})

    assert (settings.mode, settings.paths, settings.warnings) == ("off", (), ())


def test_switched_off_a_misspelt_setting_is_still_a_problem() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ROUTEGUARD_BUDGET'"):
        Settings(environ={"ROUTEGUARD_MODE": "off", "ROUTEGUARD_BUGDET": "1"})


async def _no_client(scope: object) -> None:
    return None


@table("hook", ["name", 5])
def test_a_hook_that_is_no_function_is_a_problem(hook: Any) -> None:
    (client_problem,), (admit_problem,) = problems(client=hook), problems(admit=hook)

    assert client_problem.startswith("client= is not a plain function")
    assert admit_problem.startswith("admit= is not a function")


def test_an_async_client_hook_is_a_problem_because_its_answer_is_no_name() -> None:
    (problem,) = problems(client=_no_client)

    assert problem.startswith("client= is not a plain function")


def test_settings_are_immutable() -> None:
    settings = build()

    with pytest.raises(AttributeError):
        settings.max_body = 1
    with pytest.raises(AttributeError):
        del settings.max_body
    assert settings.max_body == 64_000


def test_the_repr_shows_the_settings_and_no_secret() -> None:
    settings = build(admin_token="hunter2-hunter2-", edge_secret="X-Edge:hunter2-hunter2-", system_prompt="hunter2")

    shown = repr(settings)

    assert shown.startswith("Settings(paths=('/api/chat',), methods=None")
    assert "admin_token='***'" in shown
    assert "hunter2" not in shown


SECRETS = ("ADMIN_TOKEN", "EDGE_SECRET", "LEDGER", "SYSTEM_PROMPT", "JOURNAL", "WEBHOOK_URL")


@table("name", SECRETS)
@table("source", ["keyword", "environment"])
def test_no_problem_repeats_a_secret(name: str, source: str) -> None:
    written = "hunter2 hunter2 \udc80"

    found = (
        problems(**{name.lower(): written})
        if source == "keyword"
        else problems({f"ROUTEGUARD_{name}": written}, system_prompt=None)
    )

    assert found
    assert not any("hunter2" in problem for problem in found)


def test_a_problem_stays_short_however_long_the_value() -> None:
    (problem,) = problems({"ROUTEGUARD_BUDGET": "x" * 100_000})

    assert len(problem) <= 600


@given(
    environ=st.dictionaries(
        st.sampled_from([f"ROUTEGUARD_{name}" for name in TABLE] + ["ROUTEGUARD_X", "WEB_CONCURRENCY"]),
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(["0", "1", "unlimited", "off", "5/day", "1/total", "xff:1", "@x", "25%"]),
        ),
        max_size=4,
    )
)
@hypothesis_settings(max_examples=150)
def test_any_environment_gives_settings_or_problems_and_nothing_else(environ: dict[str, str]) -> None:
    try:
        said: tuple[str, ...] = (start_line(build(environ), wall_ns=0),)
    except ConfigError as error:
        said = error.problems

    assert said
    assert all(said)


def test_every_keyword_is_typed_and_every_typed_keyword_is_a_setting() -> None:
    keywords = [*(row.keyword for row in TABLE.values()), "client", "admit", "environ"]

    assert list(get_type_hints(SettingsKeywords)) == keywords


def test_every_attribute_that_is_promised_is_there() -> None:
    settings = build()

    assert [name for name in get_type_hints(Settings) if not hasattr(settings, name)] == []


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parent.parent / "docs" / "settings.md"

    assert page.read_text("utf-8") == reference.reference(), (
        "run: python -m routeguard.settings.reference > docs/settings.md"
    )


def test_the_start_line_says_what_is_in_force() -> None:
    settings = Settings(
        environ={"WEB_CONCURRENCY": "4"},
        paths="/api/chat",
        methods="POST",
        model="my-model",
        price_in=Decimal("0.25"),
        price_out=2,
        budget="5/day",
        platform="vercel",
    )

    assert start_line(settings, wall_ns=0) == (
        "routeguard: POST /api/chat · $5.00/day per process, forgotten at restart (4 workers: up to $20.00) · "
        "my-model, ceiling $0.0027 for a 1 kB message, at most $0.019 · at least 263 calls/day · "
        "per client 10/minute, 200/day, $1.25/day by x-real-ip (vercel) · ledger memory"
    )


@table(
    ("keywords", "piece"),
    [
        ({}, " /api/chat · "),
        ({"methods": "GET,POST"}, " GET, POST /api/chat · "),
        ({"methods": "HEAD"}, " HEAD /api/chat · "),
        ({"paths": "/a,/b/**"}, " /a, /b/** · "),
        ({"budget": "5/day,1000/month"}, " $5.00/day, $1,000.00/month per process, forgotten at restart · "),
        ({"budget": "0.0125/day", "client_budget": "unlimited"}, " $0.0125/day per process"),
        ({"budget": "100/total"}, " $100.00 in total per process"),
        ({"budget": "5/day,50/month", "ledger": "sqlite:///x.db"}, " $5.00/day, $50.00/month per host · "),
        ({"ledger": "sqlite:///x.db", "processes": 4}, " $1.00/day per host · "),
        ({"ledger": "sqlite:///x.db"}, " · ledger sqlite"),
        ({"budget": "100/total"}, " at least 1,492 calls in total · "),
        (
            {"budget": "1/day", "processes": 3},
            " $0.3333/day per process, forgotten at restart (3 workers: up to $1.00) · ",
        ),
        ({"budget": "unlimited"}, " no budget: unlimited spend · "),
        ({"price_in": 0, "price_out": 0}, " own prices, free: no money is claimed · "),
        ({"price_in": 1000, "price_out": 1000, "budget": "100/day"}, " at most $67 · at least 1 calls/day · "),
        ({"price_in": 0, "price_out": 100}, " own prices, ceiling $0.10 for a 1 kB message, at most $0.10 · "),
        ({"rate": "20/30s, 1/second"}, " per client 20/30s, 1/second, $0.25/day by the peer address · "),
        ({"rate": "unlimited", "client_budget": "unlimited"}, " per client unlimited by the peer address · "),
        ({"client_ip": "xff:2"}, " by xff:2 · "),
        ({"platform": "direct"}, " by the peer address · "),
        ({"client": str}, " by client=, else the peer address · "),
        ({"mode": "observe"}, "routeguard: observing: NOTHING IS REFUSED · /api/chat"),
        ({"paused": True}, "routeguard: PAUSED · /api/chat"),
    ],
)
def test_a_piece_of_the_start_line(keywords: dict[str, Any], piece: str) -> None:
    assert piece in start_line(build(**keywords), wall_ns=0)


def test_the_start_line_of_a_guard_that_is_off_says_so() -> None:
    assert start_line(Settings(environ={}, mode="off")) == "routeguard: off"


def test_a_note_stands_beside_the_paths() -> None:
    assert "/api/chat (mounted at /v1) · " in start_line(build(), paths_note="mounted at /v1", wall_ns=0)


def test_settings_with_prices_import_neither_the_model_table_nor_pydantic() -> None:
    script = (
        "import sys; from routeguard.config import Settings\n"
        "Settings(paths='/api/chat', price_in=1, price_out=1, environ={})\n"
        "print([name for name in ('genai_prices', 'pydantic', 'httpx2', 'django') if name in sys.modules])"
    )

    assert run_python(script) == "[]"


def test_only_other_zones_than_utc_need_a_time_zone_database() -> None:
    script = (
        "import sys, zoneinfo; sys.modules['tzdata'] = None; zoneinfo.reset_tzpath(to=[])\n"
        "from routeguard.config import Settings\n"
        "print(Settings(paths='/', price_in=1, price_out=1, environ={}).reset_tz.key)\n"
        "try: Settings(paths='/', price_in=1, price_out=1, environ={}, reset_tz='Europe/Berlin')\n"
        "except Exception as error: print(*error.problems)"
    )

    assert run_python(script).splitlines() == [
        "UTC",
        "reset_tz='Europe/Berlin' (ROUTEGUARD_RESET_TZ) needs the time zone database: pip install tzdata, "
        "or write 'UTC'",
    ]


def run_python(script: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ROUTEGUARD_")}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()
