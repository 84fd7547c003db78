"""Who may see and steer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard import RouteGuard
from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, guarded
from tests.status.asking import BEARER, HOST, SAME_ORIGIN, TOKEN, ask, cookie_of, log_in, watched

ROUTES = ["", "/", "/status", "/live", "/metrics", "/open", "/pause", "/login", "/page.css"]
BEHIND_A_TOKEN = ["/status", "/live", "/metrics", "/pause", "/resume", "/nothing"]
ELSEWHERE = ("198.51.100.7", 1)


@pytest.mark.parametrize("route", ROUTES)
async def test_without_an_admin_token_every_route_is_the_applications_own(route: str) -> None:
    app = Counting()

    await ask(guarded(app), route, BEARER)

    assert app.calls == 1


@pytest.mark.parametrize("route", BEHIND_A_TOKEN)
@pytest.mark.parametrize("bearer", [None, b"Bearer wrong", b"Bearer", b"Basic " + TOKEN.encode(), b"\xff \xff"])
async def test_a_wrong_or_missing_token_is_401(route: str, bearer: bytes | None) -> None:
    guard = watched()
    headers = [] if bearer is None else [(b"authorization", bearer)]

    client = await ask(guard, route, *headers, method="POST" if route in {"/pause", "/resume"} else "GET")

    assert client.status == 401
    assert client.json["error"]["code"] == "unauthorized"


async def test_the_page_without_a_login_is_401_with_the_form() -> None:
    client = await ask(watched(), "/")

    page = b"".join(client.chunks).decode()
    assert client.status == 401
    assert client.response_headers["content-type"] == "text/html; charset=utf-8"
    assert '<form method="post" action="login">' in page
    assert 'name="token" type="password"' in page


async def test_the_form_gives_a_cookie_that_opens_the_page_and_the_numbers() -> None:
    guard = watched()

    login = await log_in(guard)
    cookie = (b"cookie", b"other=1; " + login.response_headers["set-cookie"].partition(";")[0].encode())

    assert (login.status, login.response_headers["location"]) == (303, "./")
    assert [(await ask(guard, route, cookie)).status for route in ("/", "/status", "/live")] == [200] * 3


async def test_a_wrong_token_in_the_form_is_401_and_says_so_without_a_cookie() -> None:
    client = await log_in(watched(), token="wrong")

    assert client.status == 401
    assert "set-cookie" not in client.response_headers
    assert b"That is not the token" in b"".join(client.chunks)


@pytest.mark.parametrize(
    ("host", "is_secure"),
    [
        (b"shop.example", True),
        (b"shop.example:8443", True),
        (b"203.0.113.9", True),
        (b"localhost.shop.example", True),
        (b"127.0.0.1.shop.example", True),
        (b"", True),
        (b"[", True),
        (b"localhost", False),
        (b"LOCALHOST:8000", False),
        (b"app.localhost:8000", False),
        (b"127.0.0.1:8000", False),
        (b"127.9.9.9", False),
        (b"[::1]:8000", False),
    ],
)
async def test_the_cookie_is_for_this_site_alone_and_secure_unless_on_loopback(host: bytes, is_secure: bool) -> None:
    client = await log_in(watched(), (b"host", host))

    attributes = client.response_headers["set-cookie"].split("; ")[1:]
    assert attributes == ["Max-Age=43200", "HttpOnly", "SameSite=Strict", *(["Secure"] if is_secure else [])]


async def test_the_cookie_does_not_hold_the_token() -> None:
    client = await log_in(watched())

    assert TOKEN not in client.response_headers["set-cookie"]


async def test_a_cookie_counts_as_it_was_set_and_is_never_unquoted() -> None:
    guard = watched()
    name, _, value = (await cookie_of(guard))[1].partition(b"=")

    statuses = [
        (await ask(guard, "/status", (b"cookie", cookie))).status
        for cookie in (
            b"other=1; " + name + b"=" + value + b"; more=2",
            name + b'="' + value + b'"',
            b"x" + name + b"=" + value,
            name + b"=" + value + b"0",
            name + b"=" + value.upper(),
        )
    ]

    assert statuses == [200, 401, 401, 401, 401]


async def test_a_cookie_ends_after_half_a_day() -> None:
    clock = FakeClock()
    guard = watched(clock=clock)
    cookie = await cookie_of(guard)

    clock.advance(12 * 3600 - 1)
    before = await ask(guard, "/status", cookie)
    clock.advance(1)

    assert (before.status, (await ask(guard, "/status", cookie)).status) == (200, 401)


async def test_a_cookie_with_a_later_end_or_of_another_token_is_worth_nothing() -> None:
    guard, other = watched(), guarded(Counting(), admin_token="another-token-for-tests")
    name, cookie = await cookie_of(guard)
    ends = cookie.partition(b"=")[2].partition(b".")[0]

    later = cookie.replace(ends, str(int(ends) + 1).encode())

    assert (await ask(guard, "/status", (name, later))).status == 401
    assert (await ask(other, "/status", (name, cookie))).status == 401


async def test_a_cookie_is_good_in_another_process_of_the_same_token() -> None:
    cookie = await cookie_of(watched())

    assert (await ask(watched(), "/status", cookie)).status == 200


async def test_logging_out_takes_the_cookie_away() -> None:
    client = await ask(watched(), "/logout", method="POST")

    assert client.status == 303
    assert client.response_headers["set-cookie"].startswith("routeguard_admin=; Max-Age=0; HttpOnly")


async def statuses(guard: RouteGuard, number: int, token: bytes, peer: tuple[str, int]) -> list[int | None]:
    bearer = (b"authorization", b"Bearer " + token)
    return [(await ask(guard, "/status", bearer, peer=peer)).status for _ in range(number)]


async def test_after_sixty_wrong_tokens_a_client_is_not_heard_for_a_minute() -> None:
    clock = FakeClock()
    guard = watched(clock=clock)
    mine = ("203.0.113.9", 1)
    await statuses(guard, 60, b"wrong", mine)

    while_limited = await statuses(guard, 1, TOKEN.encode(), mine)
    form = await log_in(guard, peer=mine)
    of_another = await statuses(guard, 1, TOKEN.encode(), ELSEWHERE)
    clock.advance(60)

    assert (while_limited, form.status, of_another) == ([401], 401, [200])
    assert await statuses(guard, 1, TOKEN.encode(), mine) == [200]


async def test_a_guesser_does_not_choose_whom_the_wrong_tokens_count_for() -> None:
    guard = watched(client=lambda scope: dict(scope["headers"]).get(b"x-user", b"").decode())

    for number in range(60):
        await log_in(guard, (b"x-user", str(number).encode()), token="wrong")

    assert (await log_in(guard, (b"x-user", b"60"))).status == 401


async def test_a_status_without_a_client_address_does_not_use_up_the_warning_about_the_site(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = watched(platform="nginx")
    await ask(guard, "/status", BEARER)
    said_before = caplog.text

    await Client().call(guard)

    assert "no trustworthy client address" not in said_before
    assert "no trustworthy client address" in caplog.text


async def test_wrong_tokens_from_many_addresses_are_limited_together() -> None:
    guard = watched()
    for number in range(300):
        await statuses(guard, 1, b"wrong", (f"198.51.{number // 250}.{number % 250}", 1))

    assert await statuses(guard, 1, TOKEN.encode(), ("192.0.2.1", 1)) == [401]


async def test_who_is_logged_in_stays_in_while_others_guess() -> None:
    guard = watched()
    cookie = await cookie_of(guard)
    await statuses(guard, 61, b"wrong", ("203.0.113.9", 50000))

    assert (await ask(guard, "/status", cookie)).status == 200


async def test_right_tokens_are_not_counted() -> None:
    assert await statuses(watched(), 100, TOKEN.encode(), ("203.0.113.9", 1)) == [200] * 100


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([SAME_ORIGIN], 200),
        ([(b"sec-fetch-site", b"same-site")], 403),
        ([(b"sec-fetch-site", b"cross-site")], 403),
        ([(b"sec-fetch-site", b"none")], 403),
        ([(b"origin", b"https://shop.example")], 200),
        ([(b"origin", b"https://evil.example")], 403),
        ([(b"origin", b"null")], 403),
        ([(b"origin", b"https://shop.example"), (b"sec-fetch-site", b"cross-site")], 403),
        ([], 200),
    ],
)
@pytest.mark.parametrize("route", ["/pause", "/resume"])
async def test_a_cookie_steers_unless_a_browser_says_that_another_site_asks(
    headers: list[tuple[bytes, bytes]], status: int, route: str
) -> None:
    guard = watched()
    cookie = await cookie_of(guard, HOST)

    client = await ask(guard, route, HOST, cookie, *headers, method="POST")

    assert client.status == status
    assert guard._guard is not None
    assert guard._guard.ledger.paused is (status == 200 and route == "/pause")


async def test_a_bearer_steers_from_anywhere() -> None:
    client = await ask(watched(), "/pause", BEARER, (b"sec-fetch-site", b"cross-site"), method="POST")

    assert client.json == {"paused": True, "scope": "process"}


@pytest.mark.parametrize("body", [b"", b"token", b"token=" + b"x" * 5000, b"\xff\x00" * 50, b"&" * 500, b"a=b"])
async def test_an_odd_login_form_is_a_wrong_token(body: bytes) -> None:
    client = Client(path="/_routeguard/login", body=[body])

    await client.call(watched())

    assert (client.error, client.status) == (None, 401)


async def test_a_client_that_leaves_in_the_login_form_breaks_nothing() -> None:
    client = Client(path="/_routeguard/login", body=[b"token=", b"x"], leaves_in_body=True)

    await client.call(watched())

    assert (client.error, client.status) == (None, 401)


@given(
    cookie=st.one_of(st.binary(max_size=80), st.integers().map(lambda end: f"routeguard_admin={end}.00".encode())),
    bearer=st.binary(max_size=80),
)
def test_nothing_made_up_lets_anybody_in(cookie: bytes, bearer: bytes) -> None:
    guard = watched()
    assert guard._status is not None

    scope = Client(path="/_routeguard/status", headers=[(b"cookie", cookie), (b"authorization", bearer)]).scope()

    assert guard._status._login.proof(scope) is None
