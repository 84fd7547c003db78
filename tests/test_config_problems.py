"""What stops the server, every problem at once, and how a problem is said."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from routeguard.config import Settings, start_line
from routeguard.errors import ConfigError
from routeguard.settings import names
from routeguard.settings.table import TABLE
from tests.configured import USD, build, limits, problems, table


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


def test_a_price_file_may_spell_a_model_in_other_letters_but_not_twice(tmp_path: Path) -> None:
    entry = '["{}"]\ninput = 3\noutput = 3\noverhead_tokens = 0\n'
    (tmp_path / "prices.toml").write_text(entry.format("GPT-5-Mini"))
    (tmp_path / "twice.toml").write_text(entry.format("GPT-5-Mini") + entry.format("gpt-5-mini"))

    settings = build(model="gpt-5-mini", prices=f"@{tmp_path}/prices.toml", max_output_tokens=2_000)
    (problem,) = problems(model="gpt-5-mini", prices=f"@{tmp_path}/twice.toml")

    assert settings.tariff.smallest(0) == 2_000 * 3_000
    assert settings.tariff.configured_name("gpt-5-mini") == "gpt-5-mini"
    assert problem.endswith("GPT-5-Mini and gpt-5-mini are one name")


@table(("model", "entry"), [("gpt-5-nano", "openai/gpt-5-nano"), ("openai/gpt-5-nano", "gpt-5-nano")])
def test_a_price_under_almost_the_name_of_a_model_is_warned_about(model: str, entry: str, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(f'["{entry}"]\ninput = 3\noutput = 3\n["other"]\ninput = 3\noutput = 3\n')

    settings = build(
        model=model, prices=f"@{tmp_path}/prices.toml", price_in=None, price_out=None, max_output_tokens=2_000
    )

    (warning,) = settings.warnings
    assert f"its {entry} is not the price of {model}" in warning
    assert set(settings.other_tariffs) == {entry, "other"}


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
