"""Which paths are guarded: everything a framework may route to the same place, and nothing ordinary besides."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.paths import PATH_CHARS_MAX, PathPatterns

CHAT = PathPatterns(["/api/chat"])


@pytest.mark.parametrize(
    "path",
    [
        "/api/chat",
        "/api/chat/",
        "/api/chat//",
        "//api/chat",
        "///api//chat",
        "/API/Chat",
        "/api/chat\n",  # %0A: Starlette's `$` lets it through to the route
        "/api/chat\r\n",
        "/api/chat\x00",
        "/api/chat ",
        "/api/chat\u2028",
        "/api/\u0085chat",
        "\n/api/chat",
        " /api/chat",
        "api/chat",
        "api/chat/",
        "http://evil.example/api/chat",
        "HTTPS://evil.example:8443/api/chat/",
        " http://evil.example/api/chat",
        "http://user:secret@evil.example/api/chat",
        "http:///api/chat",
        "http:/api/chat",
        "x:api/chat",  # hypercorn lets it through, and Quart cuts off the scheme
        "X:\tapi/chat",
        "http://[::1]:80/api/chat",
        "/api/chat#fragment",
        "/api/chat?x=1",
        "/api/chat;v=1",
        "/api/chat/#",
        "/api/%63hat",  # decoded twice
        "/api/chat%0A",
        "/api%2Fchat",
        "/api/chat%2F",
        "/api/\x1fchat",
    ],
    ids=repr,
)
def test_every_way_to_write_a_guarded_path_is_guarded(path: str) -> None:
    assert CHAT.match(path) == "/api/chat"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../api/chat",
        "/..",
        "/x/..;/api/chat",
        "/x/..\n/api/chat",
        "/x/%2e%2e/api/chat",
        "/x/..%2fapi/chat",
        "/api/./chat",
        "\\api\\chat",
        "/x\\y",
        "/x%5Cy",
        "/" + "x" * PATH_CHARS_MAX,
    ],
    ids=lambda path: repr(path[:40]),
)
def test_an_odd_path_is_guarded_by_the_first_pattern(path: str) -> None:
    assert PathPatterns(["/first", "/second"]).match(path) == "/first"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "*",
        "/api",
        "/api/",
        "/api/chats",
        "/api/cha",
        "/api/chat/history",
        "/api/chat.json",
        "/apichat",
        "/v2/api/chat",
        "/xapi/chat",
        "/favicon.ico",
        "/.well-known/security.txt",
        "/static/app..min.js",
        "/static/..hidden",
        "/static/a...b",
        "/docs#api/chat",
        "/search?next=/api/chat",
        "/100%",
        "/caf\u00e9",
        "http://api/chat",  # `api` is the host
        "/files/http://x/api",
        "/" + "x" * (PATH_CHARS_MAX - 1),
    ],
    ids=lambda path: repr(path[:40]),
)
def test_an_ordinary_other_path_is_not_guarded(path: str) -> None:
    assert CHAT.match(path) is None


@pytest.mark.parametrize(
    ("path", "root_path", "guarded"),
    [
        ("/api/plain", "/api", True),  # uvicorn puts the prefix into the path
        ("/plain", "/api", True),  # the others leave it alone
        ("/plain", "/api/", True),
        ("/api//plain/", "/api", True),
        ("/API/plain", "/api", True),
        ("/api/plain\n", "/api", True),
        ("http://evil/api/plain", "/api", True),
        ("/a/b/plain", "/a/b", True),
        ("/plain", "", True),
        ("/plain", "/", True),
        ("/apiplain", "/api", True),  # Quart
        ("/other/api/plain", "/api", True),  # Litestar
        ("/other/api/plain", "api", True),
        ("/apix/plain", "/api", False),
        ("/other/plain/api", "/api", False),
        ("/api/plain", "", False),
        ("/api/plain", "/ap", False),
        ("/api/api/plain", "/api", False),
        ("/api", "/api", False),
        ("/other", "/api", False),
    ],
)
def test_a_pattern_means_the_path_with_and_without_the_root_path(path: str, root_path: str, guarded: bool) -> None:
    assert (PathPatterns(["/plain"]).match(path, root_path) is not None) is guarded


@pytest.mark.parametrize("path", ["/api/plain", "/plain", "/plain/", "//api/plain"])
def test_a_pattern_with_the_root_path_written_out_is_met_either_way(path: str) -> None:
    """uvicorn puts the prefix into the path, other servers reach the same route without it."""
    assert PathPatterns(["/api/plain"]).match(path, "/api") == "/api/plain"


@pytest.mark.parametrize("pattern", ["/chat", "/sub/chat", "/v2/sub/chat", "/pre/v2/sub/chat", "/sub/*", "/v2/**"])
@pytest.mark.parametrize("path", ["/pre/v2/sub/chat", "/Pre//v2/sub/chat/"])
def test_a_prefix_of_the_server_uncovers_nothing_in_a_mounted_application(pattern: str, path: str) -> None:
    """Its `root_path` is the server's prefix and the place of the mount in one."""
    assert PathPatterns([pattern]).match(path, "/pre/v2/sub") == pattern


@pytest.mark.parametrize("pattern", ["/pre/chat", "/v2/chat", "/ub/chat", "/sub", "/sub/chat/more"])
def test_in_a_mounted_application_only_the_beginning_of_the_root_may_be_left_out(pattern: str) -> None:
    assert PathPatterns([pattern]).match("/pre/v2/sub/chat", "/pre/v2/sub") is None


def test_the_root_of_a_mounted_application_can_be_guarded() -> None:
    assert PathPatterns(["/"]).match("/api", "/api") == "/"
    assert PathPatterns(["/"]).match("/api/other", "/api") is None


def test_a_backslash_in_the_root_path_is_odd() -> None:
    assert CHAT.match("/other", "/a\\b") == "/api/chat"


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("/api/*", ["/api/chat", "/api/chat/", "/api/", "/api", "/API/x"], ["/api/chat/x", "/apix", "/"]),
        ("/api/**", ["/api/chat", "/api/a/b/c", "/api", "/api/"], ["/apix", "/ap", "/x/api/chat"]),
        ("/**", ["/", "", "/a", "/a/b", "*"], []),
        ("**", ["/", "/a/b"], []),
        ("/*", ["/", "/a", "/a/"], ["/a/b"]),
        ("/*/chat", ["/v1/chat", "/v2/chat/"], ["/chat", "/a/b/chat", "/v1/chats"]),
        ("/**/chat", ["/chat", "/v1/chat", "/a/b/chat"], ["/v1/chats", "/xchat", "/chat/x"]),
        ("/api/**/chat", ["/api/chat", "/api/v1/chat", "/api/a/b/chat"], ["/apichat", "/api/v1/chatx", "/chat"]),
        ("/v*/chat", ["/v1/chat", "/v/chat", "/V22/chat"], ["/v1/x/chat", "/w1/chat"]),
        ("/chat-**", ["/chat-1", "/chat-1/2"], ["/chat"]),
        ("/a.b/*", ["/a.b/c"], ["/axb/c"]),
        ("/a+(b)/*", ["/a+(b)/c"], ["/aab/c"]),
        ("/models/*:generate", ["/models/gemini:generate", "models/gemini:generate"], ["/models/a/b:generate"]),
    ],
)
def test_one_star_stays_within_a_segment_and_two_go_across(pattern: str, inside: list[str], outside: list[str]) -> None:
    patterns = PathPatterns([pattern])

    assert [path for path in inside if patterns.match(path) != pattern] == []
    assert [path for path in outside if patterns.match(path) is not None] == []


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("api/chat", "/api/chat"),
        ("/Api/Chat/", "/api/chat"),
        ("//api/chat", "/api/chat"),
        ("/caf%C3%A9", "/caf\u00e9"),
        ("/my chat", "/my chat"),
        ("/my%20chat", "/my chat"),
        ("/gemini:generate", "/gemini:generate"),
        ("/gemini:generate", "gemini:generate"),
        ("/stra\u00dfe", "/STRASSE"),
        ("/100%", "/100%"),
    ],
)
def test_a_pattern_may_be_written_in_any_of_these_ways_too(pattern: str, path: str) -> None:
    """What is returned is the pattern as it was written: it is what logs and metrics say."""
    assert PathPatterns([pattern]).match(path) == pattern


def test_the_pattern_that_guards_is_named() -> None:
    patterns = PathPatterns(["/api/chat", "/api/speech", "/v1/**"])

    assert [patterns.match(path) for path in ("/api/speech", "/v1/x", "/api/chat/", "/x")] == [
        "/api/speech",
        "/v1/**",
        "/api/chat",
        None,
    ]


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(["/a", "/b", "/*", "/**", "*", "**", "a", "b"]), min_size=1, max_size=7).map("".join),
    st.lists(st.sampled_from(["/a", "/b", "/ab", "a", "b"]), min_size=1, max_size=7).map("".join),
)
def test_stars_mean_what_a_plain_search_says(pattern: str, path: str) -> None:
    """The pattern is compiled so that it never tries twice; it must not overlook anything for that."""
    pattern, path = "/" + pattern.lstrip("/"), "/" + path.lstrip("/")

    assert (PathPatterns([pattern]).match(path) is not None) is _reaches(pattern, path)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["/", "//", "\n", " ", "\t", "\x00", "\x85"]), min_size=9, max_size=9),
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.sampled_from(["", "http://h", "HTTP://h:1"]),
    st.sampled_from(["", "?x", "#x", ";x"]),
)
def test_any_mixture_of_disguises_is_seen_through(noise: list[str], upper: list[bool], origin: str, rest: str) -> None:
    letters = [letter.upper() if big else letter for letter, big in zip("apichat", upper, strict=True)]
    blank = [one if "/" not in one else "" for one in noise]
    path = "".join([*letters[:3], blank[0], "/", noise[1], *letters[3:5], blank[2], *letters[5:], noise[3]])

    assert CHAT.match(f"{origin}/{noise[4]}{path}{rest}", noise[5] + noise[6]) == "/api/chat"


@settings(max_examples=300)
@given(st.text(alphabet=string.ascii_letters + string.digits + "/-_.~!$&'()*+,=@", max_size=30))
def test_paths_of_ordinary_characters_match_only_what_they_spell(text: str) -> None:
    path = "/" + text
    segments = [segment for segment in path.split("/") if segment]

    expected = [segment.lower() for segment in segments] == ["api", "chat"] or bool({".", ".."} & set(segments))

    assert (CHAT.match(path) is not None) is expected


@settings(max_examples=300)
@given(st.text(max_size=40), st.text(max_size=10))
def test_no_path_raises(path: str, root_path: str) -> None:
    for patterns in (CHAT, PathPatterns(["/api/**", "/v*/x"])):
        assert patterns.match(path, root_path) in {None, *patterns.patterns}


def test_many_stars_in_one_segment_are_decided_at_once() -> None:
    """Trying each place for each star would outlive whoever waits for this test."""
    patterns = PathPatterns(["/a/*b*c*b*c*b*c*d"])

    assert patterns.match("/a/" + "bc" * 1000) is None
    assert patterns.match("/a/" + "bc" * 1000 + "d") == "/a/*b*c*b*c*b*c*d"


def test_undecodable_bytes_in_a_path_are_no_way_around() -> None:
    assert CHAT.match("/api/chat\udcff") is None
    assert CHAT.match("/api/chat/\udcff/../") == "/api/chat"
    assert PathPatterns(["/api/**"]).match("/api/\udcff") == "/api/**"


def _reaches(pattern: str, path: str) -> bool:
    """Whether a pattern matches, by trying everything."""
    if not pattern:
        return not path
    if pattern == "/*":
        return not path or (path[0] == "/" and "/" not in path[1:])
    rest = pattern[3:]
    if pattern[:3] == "/**" and rest[:1] in {"", "/"}:
        return _reaches(rest, path) or (
            path[:1] == "/" and any(_reaches(rest, path[cut:]) for cut in range(len(path) + 1))
        )
    if pattern[:2] == "**":
        return any(_reaches(pattern[2:], path[cut:]) for cut in range(len(path) + 1))
    if pattern[0] == "*":
        return any(_reaches(pattern[1:], path[cut:]) for cut in range(len(path) + 1) if "/" not in path[:cut])
    return path[:1] == pattern[0] and _reaches(pattern[1:], path[1:])
