"""The page in a real Chromium, over a real server: what a person can do, and what hostile text cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from routeguard import RouteGuard
from routeguard.ledgers.memory import MemoryLedger
from routeguard.policy import LedgerUnavailable
from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, reporting
from tests.sockets.server import STACKS, running
from tests.status.asking import TOKEN, history_of, watched
from tests.status.browser import Browser, find_browser

NO_BROWSER = "no chromium on PATH: nobody looked at the status page"
HOSTILE = "<img src=x onerror='document.title=\"owned\"'><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip(NO_BROWSER)
    with Browser(program) as browser:
        yield browser


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Any, int]]:
    with running(STACKS[0]) as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def guard(server: tuple[Any, int], clock: FakeClock) -> RouteGuard:
    guard = watched(Counting(reporting(cost_usd="0.03")), budget="1/day, 5/month", clock=clock)
    server[0].app = guard
    return guard


@contextmanager
def logged_in(browser: Browser, port: int, **view: Any) -> Iterator[str]:
    """By keyboard alone, as somebody does who uses no mouse."""
    url = f"http://localhost:{port}/_routeguard/"
    browser.command("Network.clearBrowserCookies")
    browser.open(url, **view)
    browser.wait_until("document.activeElement.id === 'token'")
    browser.type(TOKEN)
    browser.key("Enter")
    browser.wait_until("document.querySelector('#mode')?.textContent === 'enforcing'")
    browser.errors.clear()
    yield url
    assert browser.errors == []


def spend(guard: RouteGuard, number: int) -> None:
    async def requests() -> None:
        for _ in range(number):
            await Client().call(guard)

    anyio.run(requests)


def text(browser: Browser, place: str) -> str:
    found: str = browser.evaluate(f"document.querySelector({place!r}).innerText")
    return found


def test_the_numbers_are_those_of_the_ledger_and_move(
    browser: Browser, guard: RouteGuard, server: Any, clock: FakeClock
) -> None:
    spend(guard, 12)

    with logged_in(browser, server[1]):
        browser.wait_until("document.querySelector('.headline strong')?.textContent === '$0.30'")
        shown = [text(browser, f"#{place}") for place in ("admitted", "refused", "in-flight", "ratio")]
        label = browser.evaluate("document.querySelector('.bar').getAttribute('aria-label')")
        spend(guard, 1)
        clock.advance(1)
        browser.wait_until("document.querySelector('#refused').textContent === '3'")

    assert shown == ["10", "2", "0", "30 %"]
    assert label == "Of $1.00: $0.30 settled, $0.00 open, $0.00 kept, $0.70 left"


def test_pausing_and_resuming_needs_no_mouse(browser: Browser, guard: RouteGuard, server: Any) -> None:
    assert guard._guard is not None
    with logged_in(browser, server[1]):
        browser.evaluate("document.body.focus()")
        browser.key("Tab")
        focused = browser.evaluate("document.activeElement.id")
        browser.key("Enter")
        browser.wait_until("document.querySelector('#mode').textContent === 'paused'")
        paused = guard._guard.ledger.paused
        says = text(browser, "#notices")
        browser.wait_until("document.activeElement.id === 'pause' && !document.activeElement.disabled")
        browser.key(" ")
        browser.wait_until("document.querySelector('#mode').textContent === 'enforcing'")

    assert (focused, paused, guard._guard.ledger.paused) == ("pause", True, False)
    assert "new requests get 503" in says


def test_hostile_text_is_shown_as_text(browser: Browser, guard: RouteGuard, server: Any) -> None:
    assert guard._guard is not None
    history = history_of(guard)
    for event in ("rejected", "kept", "ledger_error", HOSTILE):
        history.refused(event, HOSTILE, path=HOSTILE, client=HOSTILE)
    guard._guard.telemetry.rejected(HOSTILE, request_id=HOSTILE, path=HOSTILE, client=HOSTILE)

    with logged_in(browser, server[1]):
        browser.wait_until("document.querySelectorAll('#feed li').length === 4")
        title = browser.evaluate("document.title")
        made = browser.evaluate("document.querySelectorAll('main img, main script').length")
        shown = text(browser, "#feed") + text(browser, "#reasons") + text(browser, "#clients")

    assert ("owned" in title, made) == (False, 0)
    assert shown.count("<img src=x onerror=") >= 8


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_everything_without_scrolling_sideways(
    browser: Browser, guard: RouteGuard, server: Any, dark: bool
) -> None:
    spend(guard, 12)

    with logged_in(browser, server[1], width=390, height=844, dark=dark):
        browser.wait_until("document.querySelector('.bar')")
        width = browser.evaluate("document.documentElement.scrollWidth")
        small = browser.evaluate("[...document.querySelectorAll('button')].filter(b => b.offsetHeight < 40).length")

    assert (width, small) == (390, 0)


def test_text_has_the_contrast_people_need(browser: Browser, guard: RouteGuard, server: Any) -> None:
    """WCAG 2.2 AA asks for 4.5 : 1, in both schemes."""
    low = []
    for dark in (False, True):
        with logged_in(browser, server[1], dark=dark):
            low += [(dark, *pair) for pair in browser.evaluate(CONTRASTS) if pair[2] < 4.5]

    assert low == []


def test_a_ledger_that_goes_down_is_said_with_the_age_of_the_numbers(
    browser: Browser, server: Any, clock: FakeClock
) -> None:
    class Sick(MemoryLedger):
        async def balances(self, budgets: Any) -> Any:
            if not self.healthy:
                raise LedgerUnavailable("no answer")
            return await super().balances(budgets)

    guard, ledger = watched(Counting(), clock=clock), Sick(clock=clock)
    assert guard._guard is not None
    guard._guard.ledger = ledger
    server[0].app = guard

    with logged_in(browser, server[1]):
        browser.wait_until("document.querySelector('.headline strong')?.textContent === '$0.00'")
        ledger.healthy = False
        clock.advance(42)
        browser.wait_until("document.querySelector('#mode').textContent === 'ledger down'")
        says = text(browser, "#notices")

    assert "The budgets below are 42 s old" in says


def test_a_login_that_ends_leads_back_to_the_form(browser: Browser, guard: RouteGuard, server: Any) -> None:
    with logged_in(browser, server[1]):
        browser.command("Network.clearBrowserCookies")
        browser.wait_until("document.querySelector('#token')")
        browser.errors.clear()


def test_a_page_that_nobody_looks_at_asks_for_nothing(browser: Browser, guard: RouteGuard, server: Any) -> None:
    hidden = "Object.defineProperty(document, 'hidden', {{ get: () => {}, configurable: true }})"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    with logged_in(browser, server[1]):
        browser.evaluate(WATCH_POLLS)
        browser.wait_until("polls.next")
        while_hidden = browser.evaluate(f"polls.asked = 0; {hidden.format('true')}; {tell}; polls")
        browser.evaluate(f"{hidden.format('false')}; {tell}")
        browser.wait_until("polls.next && polls.asked === 1")

    assert while_hidden == {"next": None, "asked": 0}


#: Counts the questions, and remembers the timer of the next until it is cleared.
WATCH_POLLS = """(() => {
  const [set, clear, ask] = [window.setTimeout, window.clearTimeout, window.fetch];
  window.polls = { next: null, asked: 0 };
  window.setTimeout = (...timer) => (polls.next = set(...timer));
  window.clearTimeout = (timer) => { clear(timer); polls.next = null; };
  window.fetch = (...request) => { polls.asked += 1; return ask(...request); };
})()"""
#: Element, its text, and the contrast between its colour and the first background behind it.
CONTRASTS = """(() => {
  const rgb = (css) => css.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const c = rgb(getComputedStyle(node).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')]
    .filter(n => [...n.childNodes].some(c => c.nodeType === 3 && c.textContent.trim()) && n.offsetParent)
    .map(n => {
      const [a, b] = [light(rgb(getComputedStyle(n).color)), light(behind(n))].sort((x, y) => y - x);
      return [n.tagName + '.' + n.className, n.textContent.slice(0, 30), (a + .05) / (b + .05)];
    });
})()"""
