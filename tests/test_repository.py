"""The checkout keeps its own promises: the lock, the wheel, and the trap for blocking calls."""

import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest
from blockbuster import BlockingError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import routeguard

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ["dev", "demo", "model"]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_direct_requirement_is_pinned_within_its_bounds(lock: str) -> None:
    pins = _pins(lock)

    unmet = [
        str(wanted)
        for wanted in _direct_requirements(lock)
        if not pins.get(canonicalize_name(wanted.name))
        or not all(wanted.specifier.contains(version) for version in pins[canonicalize_name(wanted.name)])
    ]

    assert unmet == [], "run `make lock`"


@pytest.mark.parametrize("lock", ["demo", "model"])
def test_all_locks_agree_on_a_version(lock: str) -> None:
    dev = _pins("dev")

    differing = {name: pins for name, pins in _pins(lock).items() if name in dev and not pins <= dev[name]}

    assert differing == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_index(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()

    assert "://" not in text


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    package = ROOT / "src"
    sources = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(package).parts)
    }

    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)

    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "routeguard/py.typed" in sources


async def test_a_blocking_call_of_the_package_is_caught_on_asyncio(anyio_backend_name: str) -> None:
    # Code counts as the package's by the file it claims to come from.
    source = compile("def nap(sleep): sleep(0)", f"{routeguard.__path__[0]}/nap.py", "exec")
    nap = FunctionType(source.co_consts[0], {})

    if anyio_backend_name == "asyncio":
        with pytest.raises(BlockingError, match="sleep"):
            nap(time.sleep)
    else:
        nap(time.sleep)


def _direct_requirements(lock: str) -> Iterator[Requirement]:
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    lines = {
        "dev": [*project["dependencies"], *_flattened("dev")],
        "demo": [*project["dependencies"], *project["optional-dependencies"]["demo"], *groups["build"]],
        "model": groups["model"],
    }
    yield from map(Requirement, lines[lock])


def _flattened(group: str) -> Iterator[str]:
    for entry in PROJECT["dependency-groups"][group]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _flattened(entry["include-group"])


def _pins(lock: str) -> dict[str, set[str]]:
    """Pinned versions by name; several where the Python version decides."""
    pins: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            (pin,) = requirement.specifier
            pins.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return pins
