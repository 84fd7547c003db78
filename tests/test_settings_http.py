"""Paths, methods, origins, fields and statuses as they are written: the words of HTTP."""

import re

import pytest

from routeguard.settings import names
from tests.configured import table


@table("written", ["/api/chat", "/api/*", "/api/**", "**", "/**", "/", "/a-b_c.d~e/%20/ü", "/Chat"])
def test_paths_begin_at_the_root(written: str) -> None:
    assert names.paths(written) == (written,)


def test_a_path_written_twice_counts_once() -> None:
    assert names.paths("/b, /a, /b") == ("/b", "/a")


@table(
    ("written", "remedy"),
    [
        ("api/chat", "'/api/chat'"),
        ("*", "'/*'"),
        ("https://shop.example/api", "'/api/chat'"),
        ("/api?x=1", "'/api/chat'"),
        ("/a b", "'/api/chat'"),
        ("/a\\b", "'/api/chat'"),
        ("/a\x00", "'/api/chat'"),
        ("/a/../b", "'/api/chat'"),
        ("/a\u200b", "'/api/chat'"),
        ("^/api/.*$", "'/api/chat'"),
        ('"/a"', "'/api/chat'"),
        ("/a/(b|c)", "'/api/chat'"),
        ("/a/{", "'/api/chat'"),
        ("", "'/api/chat'"),
    ],
)
def test_what_is_no_path_is_refused_with_one_that_is(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        names.paths(written)


@table(
    ("written", "remedy"),
    [
        ("/chat/{session_id}", "/chat/*"),
        ("/chat/{room}/{number}.json", "/chat/*/*.json"),
        ("/files/{rest:path}", "/files/**"),
        ("/chat/<int:number>/say", "/chat/*/say"),
        ("/files/<path:rest>", "/files/**"),
        ("/chat/:id", "/chat/*"),
    ],
)
def test_a_parameter_of_a_framework_is_refused_because_no_request_would_match_it(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"write '{remedy}'")):
        names.paths(["/other", written])


def test_a_colon_and_escaped_braces_are_part_of_a_path() -> None:
    assert names.paths("/models/gemini:generate, /%7Bid%7D") == ("/models/gemini:generate", "/%7Bid%7D")


@table(
    ("written", "methods"),
    [
        ("all", None),
        ("POST", ["POST"]),
        ("post, put", ["POST", "PUT"]),
        ("GET", ["GET", "HEAD"]),
        (["GET", "POST"], ["GET", "HEAD", "POST"]),
        ("HEAD", ["HEAD"]),
    ],
)
def test_guarded_methods_hold_head_beside_get(written: object, methods: list[str] | None) -> None:
    assert names.methods(written) == (None if methods is None else set(methods))


@table("written", ["PSOT", "all, GET", "", "GET POST"])
def test_an_unknown_method_would_leave_a_route_unguarded_and_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="POST"):
        names.methods(written)


@table(
    ("written", "origin"),
    [
        ("https://shop.example", "https://shop.example"),
        ("HTTPS://Shop.Example", "https://shop.example"),
        ("https://shop.example:443", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("*", "*"),
    ],
)
def test_origins_are_what_a_browser_sends(written: str, origin: str) -> None:
    assert names.origins(written) == (origin,)


@table(
    "written",
    [
        "https://shop.example/",
        "https://shop.example/x",
        "shop.example",
        "https://*.shop.example",
        "https://",
        "null",
        "https://u@h",
        "",
    ],
)
def test_what_is_no_exact_origin_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"https://shop\.example"):
        names.origins(written)


@table(("written", "path"), [("/_routeguard", "/_routeguard"), ("/a/b/", "/a/b"), ("/A.b~c-1", "/A.b~c-1")])
def test_the_status_path_has_no_trailing_slash(written: str, path: str) -> None:
    assert names.status_path(written) == path


@table("written", ["", "/", "status", "/a//b", "/a/../b", "/.", "/a?b", "/a*", "/a b", None, 5])
def test_a_status_path_that_is_no_path_of_its_own_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="/_routeguard"):
        names.status_path(written)


@table(
    ("written", "fields", "complete"),
    [
        ("model, tools", ["model", "tools"], False),
        ("=messages, stream", ["messages", "stream"], True),
        (["=messages", "stream"], ["messages", "stream"], True),
        (["=", "messages"], ["messages"], True),
        ("reasoning.mode", ["reasoning.mode"], False),
    ],
)
def test_a_leading_equals_sign_makes_the_fields_a_complete_list(
    written: object, fields: list[str], complete: bool
) -> None:
    assert names.fields(written) == (frozenset(fields), complete)


@table("written", ["=", "", "a b", "messages, =stream", "1x", "a\nb"])
def test_what_is_no_field_name_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="write"):
        names.fields(written)


@table(
    ("written", "statuses"),
    [("404, 405", {404, 405}), ([404], {404}), ({599}, {599}), ("none", set()), ([], set()), (400, {400})],
)
def test_released_statuses_are_those_of_failed_answers(written: object, statuses: set[int]) -> None:
    assert names.statuses(written) == statuses


@table("written", ["200", "399", "600", "40x", "none, 404", "", None, True, [True]])
def test_a_status_that_is_no_failure_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="'404, 405' or 'none'"):
        names.statuses(written)


def test_an_origin_with_a_path_is_refused_with_its_origin() -> None:
    with pytest.raises(ValueError, match=r"write for example 'https://a\.example:8443'"):
        names.origins("https://A.example:8443/chat")
