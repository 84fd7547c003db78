"""Settings as tests build them, complete without the table of models, and the words that tests about them share."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from routeguard.config import Settings
from routeguard.errors import ConfigError
from routeguard.money import NANOUSD_PER_USD
from routeguard.policy import NANOSECONDS

SECOND = NANOSECONDS
USD = NANOUSD_PER_USD

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


def run_python(script: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ROUTEGUARD_")}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()
