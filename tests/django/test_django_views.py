"""Django behind the guard: every kind of view finds its admission, and streams are charged like any other."""

from typing import Any

import anyio
import pytest
from django.core.asgi import get_asgi_application
from django.test import override_settings

from routeguard import RouteGuard
from tests.django import project
from tests.driver import Client
from tests.guarding import TEN_CENTS
from tests.sockets.server import Ledger, Serve, Signal, Site
from tests.sockets.wire import request

ONE_CENT_SETTLED = Ledger(settled="0.01")
CEILING_KEPT = Ledger(kept="0.1")


def django_site(serve: Serve, **settings: Any) -> Site:
    return serve(get_asgi_application(), paths=["/chat/*"], **settings)


def ask(site: Site, path: str) -> bytes:
    with site.connect() as wire:
        wire.send(request(path))
        answer = wire.answer()
    assert (answer.status, answer.complete) == (200, True)
    return answer.body


@pytest.mark.parametrize(
    "middleware", [[], ["tests.django.project.sync_middleware"]], ids=["alone", "below a sync one"]
)
@pytest.mark.parametrize("path", ["/chat/async", "/chat/async-words", "/chat/sync", "/chat/plain"])
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning")
def test_every_kind_of_view_reports_into_its_admission(serve: Serve, path: str, middleware: list[str]) -> None:
    with override_settings(MIDDLEWARE=middleware):
        site = django_site(serve)

    ask(site, path)

    assert site.ledger() == ONE_CENT_SETTLED


@pytest.mark.parametrize("path", ["/chat/named", "/chat/named-in-a-thread"])
@pytest.mark.parametrize("others", [[], ["tests.django.project.sync_middleware"]], ids=["alone", "below a sync one"])
def test_the_middleware_names_the_admission_of_a_guarded_request(serve: Serve, path: str, others: list[str]) -> None:
    with override_settings(MIDDLEWARE=[*others, "routeguard.django.AdmissionMiddleware"]):
        site = django_site(serve)

    body = ask(site, path)

    assert body == b"an admission"
    assert site.ledger() == ONE_CENT_SETTLED


def test_the_middleware_says_none_where_nothing_is_guarded(serve: Serve) -> None:
    with override_settings(MIDDLEWARE=["routeguard.django.AdmissionMiddleware"]):
        site = django_site(serve)

    body = ask(site, "/free")

    assert body == b"None"


def test_a_route_that_django_does_not_know_costs_nothing(serve: Serve) -> None:
    site = django_site(serve)

    with site.connect() as wire:
        wire.send(request("/chat/no-such-route"))
        answer = wire.answer()

    assert answer.status == 404
    assert site.ledger() == Ledger()


def test_an_async_generator_is_stopped_and_kept_when_its_client_leaves(serve: Serve) -> None:
    project.seen[:] = [Signal()]
    site = django_site(serve)

    with site.connect() as wire:
        wire.send(request("/chat/hangs"))
        wire.head()
        wire.chunk()
        wire.reset()
        site.wait_done()

    assert site.ledger() == CEILING_KEPT


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning")
def test_a_plain_generator_is_read_to_its_end_before_its_client_sees_a_word(serve: Serve) -> None:
    """The reason for the advice in `docs/frameworks.md`; if Django changes this, the advice is out of date."""
    project.seen[:] = [Signal()]
    site = django_site(serve)

    with site.connect() as wire:
        wire.send(request("/chat/all-at-once"))
        wire.head()
        nothing_yet = not wire.is_readable_within(0.3)
        project.seen[0].give()
        first = wire.chunk()
        site.wait_done()

    assert nothing_yet
    assert first
    assert site.ledger() == ONE_CENT_SETTLED


async def test_the_guard_reads_the_settings_of_the_project() -> None:
    settings = {"PATHS": ["/chat/*"], "Budget": "3/day", **TEN_CENTS}
    with override_settings(ROUTEGUARD=settings):
        guard = RouteGuard(get_asgi_application(), environ={"ROUTEGUARD_NAMESPACE": "of-the-environment"})

    assert [budget.limit_nanousd for budget in guard.settings.budgets] == [3_000_000_000]
    assert guard.settings.namespace == "of-the-environment"
    assert guard.settings.sources["BUDGET"] == "django"


@pytest.mark.parametrize("path", ["/chat/async", "/api/chat/async"])
def test_a_forced_script_name_is_no_way_around_the_guard(path: str) -> None:
    """Django cuts it off the path by itself, whatever the server says of a `root_path`."""
    with override_settings(FORCE_SCRIPT_NAME="/api"):
        guard = RouteGuard(
            get_asgi_application(), paths=["/chat/*"], namespace="forced", paused=True, environ={}, **TEN_CENTS
        )

        client = anyio.run(Client(path=path).call, guard)

    assert client.reason == "service_paused"
