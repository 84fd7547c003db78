"""What starts the server and is warned about."""

from typing import Any

from routeguard.client_ip import PLATFORMS
from routeguard.settings.checks import is_reasoning
from tests.configured import build, table


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


@table(
    ("name", "written"),
    [
        ("ADMIN_TOKEN", '"0123456789abcdef"'),
        ("ADMIN_TOKEN", "'0123456789abcdef'"),
        ("EDGE_SECRET", 'X-Edge:"0123456789abcdef"'),
        ("MESSAGE_RESTING", "'Back tomorrow.'"),
        ("MESSAGE_LIMITED", '"Please slow down."'),
    ],
)
def test_quotes_that_an_env_file_left_are_warned_about(name: str, written: str) -> None:
    (warning,) = build({f"ROUTEGUARD_{name}": written}).warnings

    assert warning == f"ROUTEGUARD_{name} is in quotes, and they are part of it. Write it without."
    assert build(**{name.lower(): written}).warnings == (), "in Python somebody wrote them on purpose"


def test_quotes_inside_a_text_are_not_warned_about() -> None:
    settings = build({"ROUTEGUARD_MESSAGE_RESTING": 'Say "friend" and enter', "ROUTEGUARD_ADMIN_TOKEN": '"' + "x" * 16})

    assert settings.warnings == ()
