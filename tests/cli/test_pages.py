"""The deploy pages name settings that exist, and end where they should: with a look at what the edge sends."""

import re
from pathlib import Path

import pytest

from routeguard.client_ip import PLATFORMS
from routeguard.config import Settings
from routeguard.settings.table import TABLE

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "deploy").glob("*.md"))
WRITTEN = re.compile(r"ROUTEGUARD_([A-Z_]+)(?:=| = \"|, value: )([^\s\"}`]*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_ends_with_the_echo_and_the_expected_preset(page: Path) -> None:
    last = page.read_text().rpartition("\n## ")[2]

    assert last.startswith("Before you open it")
    assert "routeguard prove" in last
    assert "routeguard check --echo" in last
    assert re.search(rf"ROUTEGUARD_PLATFORM={page.stem}|PLATFORM={page.stem}|`{page.stem}`", last)


@pytest.mark.parametrize("page", [*PAGES, DOCS / "operations.md"], ids=lambda page: page.stem)
def test_every_setting_of_the_page_exists_and_can_be_read(page: Path) -> None:
    written = WRITTEN.findall(page.read_text())
    environ = {f"ROUTEGUARD_{name}": value for name, value in written if "<" not in value and "…" not in value}
    environ.setdefault("ROUTEGUARD_PATHS", "/api/chat")
    environ.setdefault("ROUTEGUARD_MODEL", "gpt-5-mini")
    # What a page shows in turn excludes what it showed before.
    environ.pop("ROUTEGUARD_CLIENT_IP", None)

    settings = Settings(environ=environ)

    assert {name for name, _ in written} <= TABLE.keys()
    assert settings.platform is None or settings.platform in PLATFORMS


def test_there_is_a_page_for_each_place_that_the_table_links_to() -> None:
    linked = re.findall(r"\(deploy/([a-z]+)\.md\)", (DOCS / "platforms.md").read_text())

    assert sorted(linked) == [page.stem for page in PAGES]
