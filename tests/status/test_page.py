"""The files of the page, as a browser gets them."""

import re
from pathlib import Path

import pytest

import routeguard.status
from tests.status.asking import BEARER, ask, watched

STATIC = Path(routeguard.status.__file__).with_name("static")
FILES = sorted(path.name for path in STATIC.iterdir() if path.suffix != ".html")


@pytest.mark.parametrize("name", FILES)
async def test_a_file_is_there_for_the_login_form_too(name: str) -> None:
    client = await ask(watched(), f"/{name}")

    assert client.status == 200
    assert b"".join(client.chunks) == (STATIC / name).read_bytes()


@pytest.mark.parametrize(("route", "headers"), [("/", [BEARER]), ("/", []), *((f"/{name}", []) for name in FILES)])
async def test_every_file_comes_under_a_policy_that_lets_nothing_else_in(
    route: str, headers: list[tuple[bytes, bytes]]
) -> None:
    found = (await ask(watched(), route, *headers)).response_headers

    assert found["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in found["content-security-policy"]
    assert "frame-ancestors 'none'" in found["content-security-policy"]
    assert found["x-content-type-options"] == "nosniff"


async def test_a_file_the_browser_has_is_not_sent_again() -> None:
    guard = watched()
    tag = (await ask(guard, "/page.js")).response_headers["etag"]

    again = await ask(guard, "/page.js", (b"if-none-match", tag.encode()))

    assert (again.status, b"".join(again.chunks)) == (304, b"")


async def test_the_folder_without_its_slash_leads_to_the_page_behind_any_proxy() -> None:
    client = await ask(watched(), "")

    assert (client.status, client.response_headers["location"]) == (307, "_routeguard/")


@pytest.mark.parametrize("route", ["/../__init__.py", "/page.html", "/login.html", "/static/page.js", "/page.js/"])
async def test_nothing_else_is_served(route: str) -> None:
    assert (await ask(watched(), route, BEARER)).status == 404


@pytest.mark.parametrize("name", sorted(path.name for path in STATIC.iterdir()))
def test_no_file_needs_anything_from_elsewhere_or_inline(name: str) -> None:
    text = (STATIC / name).read_text()

    addresses = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
    inline = re.findall(
        r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|innerHTML|insertAdjacentHTML|\beval\(", text
    )
    assert (addresses, inline) == (set(), [])


@pytest.mark.parametrize("name", ["page.html", "login.html", "page.js"])
def test_every_file_that_a_file_names_exists(name: str) -> None:
    named = re.findall(r"(?:href|src)=\"([^\"]+)\"|from \"\./([^\"]+)\"", (STATIC / name).read_text())

    missing = [file for pair in named for file in pair if "." in file and not (STATIC / file).exists()]

    assert missing == []


def test_the_page_has_every_place_that_its_script_fills() -> None:
    page, script = (STATIC / "page.html").read_text(), (STATIC / "page.js").read_text()

    filled = set(re.findall(r"\$\(\"([^\"]+)\"\)|update\(\"([^\"]+)\"", script))

    missing = [name for pair in filled for name in pair if name and f'id="{name}"' not in page]
    assert missing == []


@pytest.mark.parametrize(
    ("route", "method", "allowed"),
    [
        ("/status", "POST", "GET, HEAD"),
        ("/pause", "GET", "POST"),
        ("/", "DELETE", "GET, HEAD"),
        ("/login", "GET", "POST"),
    ],
)
async def test_another_method_is_405_and_names_the_right_one(route: str, method: str, allowed: str) -> None:
    client = await ask(watched(), route, BEARER, method=method)

    assert (client.status, client.response_headers["allow"]) == (405, allowed)
