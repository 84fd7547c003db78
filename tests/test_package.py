"""What `import routeguard` gives, and what it does not do."""

import subprocess
import sys

import routeguard

PUBLIC = {
    "Admission",
    "BudgetExceeded",
    "ConfigError",
    "Rejected",
    "RouteGuard",
    "RouteguardError",
    "Settings",
    "Usage",
    "__version__",
    "admission",
    "metered",
}


def test_the_public_names_are_these_and_all_of_them_are_there() -> None:
    assert set(routeguard.__all__) == PUBLIC
    assert all(getattr(routeguard, name) is not None for name in PUBLIC)
    assert set(dir(routeguard)) >= PUBLIC
    assert not hasattr(routeguard, "Nothing")


def test_a_name_stays_itself_after_the_modules_below_are_imported() -> None:
    """A module called like a public function would replace it."""
    result = run(
        "import routeguard.asgi, routeguard.admitted, routeguard.meter.client, routeguard;"
        "print(callable(routeguard.admission), callable(routeguard.metered))"
    )

    assert result == "True True"


def test_importing_starts_nothing_and_loads_neither_prices_nor_settings() -> None:
    result = run(
        "import sys, threading, routeguard; from routeguard import RouteGuard, admission, metered;"
        "loaded = {'genai_prices', 'httpx', 'httpx2', 'pydantic'} & set(sys.modules);"
        "print(threading.active_count(), loaded)"
    )

    assert result == "1 set()"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
