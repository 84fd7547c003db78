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
}


def test_the_public_names_are_these_and_all_of_them_are_there() -> None:
    assert set(routeguard.__all__) == PUBLIC
    assert all(getattr(routeguard, name) is not None for name in PUBLIC)
    assert set(dir(routeguard)) >= PUBLIC
    assert not hasattr(routeguard, "Nothing")


def test_a_name_stays_itself_after_the_modules_below_are_imported() -> None:
    """A module called like a public function would replace it."""
    result = run("import routeguard.asgi, routeguard.admitted, routeguard; print(callable(routeguard.admission))")

    assert result == "True"


def test_importing_starts_nothing_and_loads_neither_prices_nor_settings() -> None:
    result = run(
        "import sys, threading, routeguard; from routeguard import RouteGuard, admission;"
        "print(threading.active_count(), 'genai_prices' in sys.modules, 'pydantic' in sys.modules)"
    )

    assert result == "1 False False"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
