"""`manage.py check` says what would stop the server, and what is probably not meant."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import registry
from django.test import override_settings

from routeguard.django.checks import check_guard
from tests.django import applications

ROOT = Path(__file__).resolve().parent.parent.parent
APPLICATIONS = applications.__name__
SHOP = "https://shop.example"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("ROUTEGUARD_"):
            monkeypatch.delenv(name)


def found(application: str | None = "guarded", **settings: Any) -> list[tuple[str, str]]:
    """Id and text of each message, in a project whose `ASGI_APPLICATION` is this one."""
    if application is not None:
        settings["ASGI_APPLICATION"] = f"{APPLICATIONS}.{application}"
    with override_settings(**settings):
        return [(message.id, message.msg) for message in check_guard()]


@pytest.mark.parametrize("application", ["guarded", "wrapped", "routed"])
def test_a_guard_is_found_where_it_stands_and_nothing_is_said_of_a_good_one(application: str) -> None:
    assert found(application) == []


def test_every_problem_of_a_guard_that_cannot_be_built_is_an_error() -> None:
    messages = found("broken")

    assert [identifier for identifier, _ in messages] == ["routeguard.E001"] * 2
    assert "much" in messages[0][1]
    assert "eon" in messages[1][1]


def test_a_model_without_a_price_is_an_error_that_names_the_nearest() -> None:
    ((identifier, text),) = found("unpriced")

    assert identifier == "routeguard.E001"
    assert "gpt-5-mini" in text


def test_an_application_that_is_not_guarded_is_a_warning() -> None:
    ((identifier, text),) = found("bare")

    assert identifier == "routeguard.W002"
    assert "bare" in text


def test_an_application_that_cannot_be_imported_is_an_error() -> None:
    ((identifier, _),) = found("no_such_application")

    assert identifier == "routeguard.E002"


def test_a_guard_that_is_switched_off_is_a_warning() -> None:
    ((identifier, _),) = found("switched_off")

    assert identifier == "routeguard.W003"


def test_a_guard_without_a_cap_is_a_warning() -> None:
    messages = dict(found("without_a_cap"))

    assert "unlimited" in messages["routeguard.W004"]


def test_what_the_server_would_warn_of_at_start_is_a_warning() -> None:
    ((identifier, text),) = found("without_a_prompt")

    assert identifier == "routeguard.W010"
    assert "system prompt" in text


@pytest.mark.parametrize(
    ("application", "cors", "warned"),
    [
        ("guarded", {"CORS_ALLOWED_ORIGINS": [SHOP]}, True),
        ("guarded", {"CORS_ALLOW_ALL_ORIGINS": True}, True),
        ("guarded", {"CORS_ALLOWED_ORIGIN_REGEXES": [r"^https://\w+\.example$"]}, True),
        ("for_shop", {"CORS_ALLOWED_ORIGINS": [SHOP]}, False),
        ("for_shop", {"CORS_ALLOWED_ORIGINS": [SHOP, "https://blog.example"]}, True),
        ("for_shop", {"CORS_ALLOW_ALL_ORIGINS": True}, True),
        ("for_shop", {"CORS_ALLOWED_ORIGIN_REGEXES": [r"^https://\w+\.example$"]}, False),
        ("for_everybody", {"CORS_ALLOW_ALL_ORIGINS": True}, False),
    ],
)
def test_origins_that_only_corsheaders_lets_in_are_a_warning(
    application: str, cors: dict[str, Any], warned: bool
) -> None:
    with override_settings(
        ASGI_APPLICATION=f"{APPLICATIONS}.{application}", INSTALLED_APPS=["routeguard.django", "corsheaders"], **cors
    ):
        messages = check_guard()

    assert [message.id for message in messages] == (["routeguard.W005"] if warned else [])
    assert all("CORS_ORIGINS" in message.hint for message in messages)


def test_without_the_application_the_settings_of_the_project_are_judged() -> None:
    messages = found(None, ROUTEGUARD={"PATHS": ["/chat"], "MODEL": "gpt-5-minny"})

    assert [identifier for identifier, _ in messages] == ["routeguard.E001"]
    assert "settings.ROUTEGUARD['MODEL']" in messages[0][1]


def test_without_the_application_and_settings_nothing_is_judged() -> None:
    ((identifier, text),) = found(None)

    assert identifier == "routeguard.W001"
    assert "ASGI_APPLICATION" in text


def test_the_installed_application_registers_the_check() -> None:
    assert check_guard in registry.registry.get_checks()


@pytest.mark.parametrize(
    ("variables", "status", "said"),
    [
        ({}, 0, "no issues"),
        ({"ROUTEGUARD_BUDGET": "much"}, 1, "ROUTEGUARD_BUDGET='much'"),
        ({"ROUTEGUARD_BUDGET": "unlimited", "ROUTEGUARD_CLIENT_BUDGET": "1/day"}, 0, "routeguard.W004"),
    ],
)
def test_manage_py_check_of_the_example_says_it(variables: dict[str, str], status: int, said: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROUTEGUARD_", "DJANGO_"))}
    environment = {**kept, **variables, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "examples.django_app.manage", "check"]

    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)

    assert run.returncode == status, run.stderr
    assert said in run.stdout + run.stderr
