"""Who a request is counted for: the hook, the address, or nobody."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.driver import Client
from tests.guarding import Counting, guarded


async def test_the_client_hook_names_who_is_asking_and_else_the_address_decides() -> None:
    def client(scope: Any) -> str | None:
        name = dict(scope["headers"]).get(b"x-user")
        if name == b"broken":
            raise RuntimeError
        return None if name is None else name.decode()

    guard = guarded(Counting(), budget="100/day", client=client, rate="1/minute")

    async def ask(user: bytes | None) -> int | None:
        headers = [] if user is None else [(b"x-user", user)]
        return (await Client(headers=headers).call(guard)).status

    assert [await ask(b"ann"), await ask(b"bob"), await ask(b"ann")] == [200, 200, 429]
    assert [await ask(None), await ask(b"broken")] == [200, 429]


@pytest.mark.parametrize(
    "name",
    [object, lambda: "", lambda: False, lambda: b"ann", lambda: nobody()],
    ids=["object", "empty", "bool", "bytes", "coroutine"],
)
async def test_what_names_nobody_leaves_the_address_to_decide(name: Callable[[], Any]) -> None:
    guard = guarded(Counting(), client=lambda scope: name(), rate="1/minute")

    same = [(await Client().call(guard)).status for _ in range(2)]
    other = await Client(peer=("198.51.100.1", 1)).call(guard)

    assert (same, other.status) == ([200, 429], 200)


@pytest.mark.parametrize("name", [7, UUID(int=7), "ann"])
async def test_a_user_is_named_by_text_or_by_an_id(name: Any) -> None:
    guard = guarded(Counting(), client=lambda scope: name, rate="1/minute")

    statuses = [(await Client(peer=(f"198.51.100.{number}", 1)).call(guard)).status for number in range(2)]

    assert statuses == [200, 429]


async def test_a_hook_that_names_nobody_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    guard = guarded(Counting(), client=lambda scope: nobody())

    for _ in range(3):
        await Client().call(guard)

    assert sum("of type coroutine, which names nobody" in record.message for record in caplog.records) == 1


async def nobody() -> str:
    raise AssertionError("a hook is not awaited")


async def test_requests_without_an_address_share_one_client_or_are_refused() -> None:
    shared = guarded(Counting(), platform="vercel", rate="1/minute")
    strict = guarded(Counting(), platform="vercel", unknown_client="reject")

    statuses = [(await Client(peer=(f"198.51.100.{number}", 1)).call(shared)).status for number in range(2)]
    refused = await Client().call(strict)

    assert statuses == [200, 429]
    assert (refused.status, refused.reason) == (400, "no_client_address")


async def test_exempt_clients_keep_the_site_limits_only() -> None:
    guard = guarded(
        Counting(), budget="0.35/day", client_budget="0.1/day", rate="1/minute", exempt_clients="203.0.113.0/24"
    )

    statuses = [(await Client().call(guard)).status for _ in range(4)]
    other = [(await Client(peer=("198.51.100.1", 1)).call(guard)).reason for _ in range(1)]

    assert statuses == [200, 200, 200, 503]
    assert other == ["budget_exhausted"]


async def test_forged_addresses_do_not_make_a_new_client() -> None:
    guard = guarded(Counting(), budget="100/day", client_ip="xff:1", rate="2/minute")

    statuses = [
        (await Client(headers=[(b"x-forwarded-for", b"6.6.6.%d, 203.0.113.9" % number)]).call(guard)).status
        for number in range(50)
    ]

    assert statuses == [200, 200] + [429] * 48


async def test_forwarding_headers_that_nobody_configured_are_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = guarded(Counting(), budget="100/day", rate="unlimited")

    for _ in range(3):
        await Client(headers=[(b"x-forwarded-for", b"6.6.6.6")]).call(guard)

    assert sum("CLIENT_IP" in record.message for record in caplog.records) == 1
