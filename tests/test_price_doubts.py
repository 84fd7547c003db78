"""What is said at start of a price that may not be the one that is billed."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from routeguard import Settings
from routeguard.meter.tariffs import Tariffs
from routeguard.price_doubts import doubts_about
from routeguard.price_sources import find_model, priced
from routeguard.prices import NS_PER_SECOND

NOON = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) * NS_PER_SECOND


def doubts(name: str) -> list[str]:
    return list(doubts_about(find_model(name), wall_ns=NOON))


@pytest.mark.parametrize(
    ("name", "priced_as"),
    [
        ("mistral-large-latest", "mistral/mistral-large, $2 and $6"),
        ("claude-3-5-sonnet-latest", "anthropic/claude-3-5-sonnet, $3 and $15"),
        ("gemini-flash-latest", "google/gemini-3.8-flash, $0.75 and $3.75"),
        ("openai/chatgpt-4o-latest", "openai/chatgpt-4o-latest, $5 and $15"),
        ("gpt-5-chat-latest", "openai/gpt-5, $1.25 and $10"),
    ],
)
def test_a_name_that_moves_says_what_it_is_priced_as(name: str, priced_as: str) -> None:
    (doubt,) = doubts(name)

    assert f"{name} moves from model to model" in doubt
    assert f"priced as {priced_as} per million tokens" in doubt


@pytest.mark.parametrize(
    ("name", "priced_as", "times", "dearest"),
    [
        ("glm-4.7", "zhipuai/GLM-4.7", "2.2", "zai/glm-4.7"),
        ("gpt-oss-120b", "openai/gpt-oss-120b", "9.0", "cerebras/gpt-oss-120b"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b", "3.6", "huggingface_groq/openai/gpt-oss-20b"),
        ("deepseek-r1-0528", "deepseek/deepseek-reasoner", "5.5", "fireworks/deepseek-r1-0528"),
    ],
)
def test_a_name_that_others_serve_for_more_says_whose_price_it_has(
    name: str, priced_as: str, times: str, dearest: str
) -> None:
    (doubt,) = doubts(name)

    assert f"priced as {priced_as}, and others of that name cost up to {times} times as much" in doubt
    assert f"for example {dearest}," in doubt
    assert doubts(dearest) == []


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5-mini",
        "gpt-5-mini-2025-08-07",
        "azure/gpt-5-mini",
        "claude-opus-5",  # a tenth dearer in some regions of a cloud
        "gemini-2.5-flash",
        "deepseek-chat",
        "mistral-large-2512",
        "grok-4.5",
        "gpt-3.5-turbo",  # listed without a price by one of those who serve it
    ],
)
def test_of_a_clear_name_nothing_is_said(name: str) -> None:
    assert doubts(name) == []


def test_of_the_operators_own_price_nothing_is_said() -> None:
    known = find_model("mistral-large-latest")

    own = priced("mistral-large-latest", input=Decimal(3), output=Decimal(9), known=known)

    assert list(doubts_about(own, wall_ns=NOON)) == []


def test_the_start_says_it_and_a_stated_price_silences_it() -> None:
    given = {"ROUTEGUARD_PATHS": "/chat", "ROUTEGUARD_SYSTEM_PROMPT_BYTES": "0", "ROUTEGUARD_MODEL": "glm-4.7"}
    stated = {"ROUTEGUARD_PRICE_IN": "0.6", "ROUTEGUARD_PRICE_OUT": "2.2"}

    (warning,) = Settings(environ=given).warnings

    assert warning.startswith("ROUTEGUARD_MODEL='glm-4.7': glm-4.7 is priced as zhipuai/GLM-4.7,")
    assert Settings(environ={**given, **stated}).warnings == ()


def test_a_metered_client_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    tariffs = Tariffs()

    for _ in range(2):
        tariffs.of("glm-4.7", dearer_tiers=False)

    (said,) = caplog.messages
    assert said.startswith("a metered client: glm-4.7 is priced as zhipuai/GLM-4.7,")
