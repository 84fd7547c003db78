"""What Prometheus reads, parsed by its own library."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from routeguard import RouteGuard
from routeguard.metrics import Tallies
from routeguard.policy import LedgerUnavailable
from routeguard.status import routes
from routeguard.testing import FakeClock
from tests.driver import Client
from tests.guarding import Counting, reporting
from tests.status.asking import BEARER, ask, watched
from tests.test_guard_ledger_trouble import sick_guard

ROOT = Path(__file__).resolve().parents[2]
#: The contract: every name, and its labels without those of a histogram.
NAMES = {
    "routeguard_requests_total": {"path", "outcome"},
    "routeguard_rejected_total": {"path", "reason"},
    "routeguard_spend_usd_total": {"path", "model"},
    "routeguard_kept_usd_total": {"path", "why"},
    "routeguard_overrun_usd_total": set(),
    "routeguard_truncated_total": {"path"},
    "routeguard_open_usd": set(),
    "routeguard_in_flight": set(),
    "routeguard_budget_limit_usd": {"budget"},
    "routeguard_budget_remaining_usd": {"budget"},
    "routeguard_settle_ratio": set(),
    "routeguard_ledger_seconds": set(),
    "routeguard_ledger_errors_total": {"kind"},
}


def parsed(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def scraped(guard: RouteGuard, *headers: tuple[bytes, bytes]) -> list[Sample]:
    client = await ask(guard, "/metrics", BEARER, *headers)
    assert client.status == 200, client.chunks
    return parsed(b"".join(client.chunks).decode())


def values(samples: Iterable[Sample], name: str) -> dict[tuple[str, ...], float]:
    """Label values in the order of the label names, to numbers."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in samples
        if sample.name == name
    }


def usage(finish: str = "stop", output_tokens: int = 500, **more: Any) -> Any:
    counts = {"prompt_tokens": 10, "completion_tokens": output_tokens, "total_tokens": 10 + output_tokens}
    return {"choices": [{"finish_reason": finish}], "usage": counts, **more}


async def test_every_name_and_label_is_that_of_the_contract() -> None:
    guard, ledger = sick_guard(Counting(reporting(usage=usage("length"))), rate="2/minute")
    await Client().call(guard)
    guard._guard.ledger.fails = {"reserve"}
    await Client().call(guard)
    ledger.fails = set()
    await Client(body=[b"{"]).call(guard)
    kept, _ = sick_guard(Counting())
    await Client().call(kept)
    headers = ((b"authorization", b"Bearer token-for-tests-only"),)

    bodies = [b"".join((await ask(one, "/metrics", *headers)).chunks).decode() for one in (guard, kept)]

    found: dict[str, set[str]] = {}
    for sample in (sample for body in bodies for sample in parsed(body)):
        name = sample.name
        for ending in ("_bucket", "_sum", "_count"):
            name = name.removesuffix(ending)
        found.setdefault(name, set()).update(set(sample.labels) - {"le"})
    assert found == NAMES


async def test_the_counters_add_up_to_the_status() -> None:
    guard = watched(Counting(reporting(cost_usd="0.03")), budget="1/day", rate="5/minute")
    for _ in range(7):
        await Client().call(guard)

    samples = await scraped(guard)

    assert values(samples, "routeguard_requests_total") == {("rejected", "/chat"): 2, ("settled", "/chat"): 5}
    assert values(samples, "routeguard_rejected_total") == {("/chat", "rate_limited"): 2}
    assert values(samples, "routeguard_spend_usd_total") == {("other", "/chat"): 0.15}
    assert values(samples, "routeguard_budget_limit_usd") == {("day",): 1}
    assert values(samples, "routeguard_budget_remaining_usd") == {("day",): 0.85}
    assert values(samples, "routeguard_in_flight") == values(samples, "routeguard_open_usd") == {(): 0}


async def test_money_nobody_knows_better_is_kept_by_why() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    unreported, crashed = watched(), watched(failing)
    await Client().call(unreported)
    await Client().call(crashed)

    assert values(await scraped(unreported), "routeguard_kept_usd_total") == {("/chat", "no_usage"): 0.1}
    assert values(await scraped(crashed), "routeguard_kept_usd_total") == {("/chat", "exception"): 0.1}
    assert values(await scraped(crashed), "routeguard_spend_usd_total") == {}


async def test_an_overrun_and_a_late_bill_are_counted_once_each() -> None:
    admissions: list[Any] = []
    guard = watched(Counting(reporting(before=admissions.append, cost_usd="0.15")))
    await Client().call(guard)

    admissions[0].report(cost_usd="0.25")

    samples = await scraped(guard)
    assert values(samples, "routeguard_overrun_usd_total") == {(): 0.3}
    assert values(samples, "routeguard_spend_usd_total") == {("other", "/chat"): 0.4}


async def test_the_ratio_is_of_settled_requests_alone() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        report: Any = {"cost_usd": "0.05"} if scope["query_string"] else {}
        await reporting(**report)(scope, receive, send)

    guard = watched(app)
    await Client(query=b"reports").call(guard)
    await Client().call(guard)

    samples = await scraped(guard)

    buckets = {le: value for (le,), value in values(samples, "routeguard_settle_ratio_bucket").items()}
    assert (buckets["0.3"], buckets["0.5"], buckets["+Inf"]) == (0, 1, 1)
    assert values(samples, "routeguard_settle_ratio_sum") == {(): 0.5}


@pytest.fixture
def priced_by_model() -> tuple[RouteGuard, RouteGuard]:
    """Built outside of the event loop, because the price table is read from files."""
    settings: Any = {"price_in": None, "price_out": None, "model": "gpt-5-mini, gpt-5-nano", "max_output_tokens": 2000}
    known = watched(Counting(reporting(usage=usage(model="gpt-5-nano-2025-08-07"))), **settings)
    return known, watched(Counting(reporting(usage=usage(model="<script>"))), **settings)


async def test_a_model_is_named_only_as_it_is_configured(priced_by_model: tuple[RouteGuard, RouteGuard]) -> None:
    known, strange = priced_by_model
    await Client().call(known)
    await Client().call(strange)

    names = [
        {model for model, _ in values(await scraped(one), "routeguard_spend_usd_total")} for one in (known, strange)
    ]

    assert names == [{"gpt-5-nano"}, {"other"}]


async def test_questions_to_the_ledger_are_timed_and_its_errors_counted_by_what_was_asked() -> None:
    guard, ledger = sick_guard(Counting(reporting(cost_usd="0.01")))
    await Client().call(guard)
    ledger.fails = {"settle"}
    await Client().call(guard)
    ledger.fails = {"reserve"}
    await Client().call(guard)
    ledger.fails = {"refresh"}
    await Client().call(guard)
    ledger.fails = set()

    client = await ask(guard, "/metrics", (b"authorization", b"Bearer token-for-tests-only"))
    samples = parsed(b"".join(client.chunks).decode())

    errors = {("reserve",): 1.0, ("settle",): 1.0, ("refresh",): 1.0}
    assert values(samples, "routeguard_ledger_errors_total") == errors
    assert values(samples, "routeguard_ledger_seconds_count") == {(): 5.0}


async def test_gauges_are_left_out_while_the_ledger_does_not_answer() -> None:
    guard, ledger = sick_guard(Counting())
    ledger.fails = {"balances", "refresh"}

    client = await ask(guard, "/metrics", (b"authorization", b"Bearer token-for-tests-only"))

    samples = parsed(b"".join(client.chunks).decode())
    assert client.status == 200
    assert {sample.name for sample in samples} & {"routeguard_open_usd", "routeguard_in_flight"} == set()
    assert values(samples, "routeguard_budget_remaining_usd") == {}


async def test_open_money_and_streams_are_seen_while_they_run() -> None:
    seen: list[Sample] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(await scraped(guard))
        await reporting(cost_usd="0.01")(scope, receive, send)

    guard = watched(app)

    await Client().call(guard)

    assert (values(seen, "routeguard_open_usd"), values(seen, "routeguard_in_flight")) == ({(): 0.1}, {(): 1})


async def test_openmetrics_is_answered_to_whom_asks_for_it() -> None:
    guard = watched()

    plain = await ask(guard, "/metrics", BEARER)
    modern = await ask(guard, "/metrics", BEARER, (b"accept", b"application/openmetrics-text;version=1.0.0"))

    assert plain.response_headers["content-type"].startswith("text/plain; version=0.0.4")
    assert modern.response_headers["content-type"].startswith("application/openmetrics-text")
    assert b"".join(modern.chunks).endswith(b"# EOF\n")


async def test_two_guards_of_one_process_count_apart() -> None:
    one, two = watched(), watched()
    await Client().call(one)

    assert values(await scraped(two), "routeguard_requests_total") == {}


async def test_without_the_extra_the_route_names_it_and_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "is_installed", lambda: False)
    guard = watched()
    await Client().call(guard)

    client = await ask(guard, "/metrics", BEARER)

    assert (client.status, client.json["error"]["code"]) == (501, "not_installed")
    assert "routeguard[prometheus]" in client.json["error"]["message"]
    assert guard._guard is not None
    assert not any(isinstance(one, Tallies) for one in guard._guard.telemetry.listeners)


def run_worker(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    worker = [sys.executable, "-m", "tests.status.worker", *arguments]
    done = subprocess.run(worker, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_scrape_of_one_process_shows_the_requests_of_all(tmp_path: Path) -> None:
    run_worker(tmp_path, "shutdown", "3")
    run_worker(tmp_path, "timer", "2")

    samples = parsed(run_worker(tmp_path, "scrape", "1"))

    assert values(samples, "routeguard_requests_total") == {("settled", "/a"): 9, ("settled", "/b"): 9}
    assert values(samples, "routeguard_spend_usd_total") == pytest.approx(
        {("other", "/a"): 0.09, ("other", "/b"): 0.09}
    )
    assert values(samples, "routeguard_settle_ratio_count") == {(): 18}
    buckets = values(samples, "routeguard_settle_ratio_bucket")
    assert (buckets["0.05",], buckets["0.1",], buckets["+Inf",]) == (0, 18, 18)
    # The gauges are the ledger's, and the memory ledger is the answering process's.
    assert values(samples, "routeguard_budget_remaining_usd") == {("total",): 0.98}
    assert not any("pid" in sample.labels or not sample.name.startswith("routeguard_") for sample in samples)


def test_a_folder_that_is_not_there_is_named_and_breaks_no_request(tmp_path: Path) -> None:
    said = run_worker(tmp_path / "missing", "scrape", "1")

    assert "PROMETHEUS_MULTIPROC_DIR" in said


def test_tallies_of_many_threads_lose_nothing() -> None:
    import threading

    tallies = Tallies()

    def refuse() -> None:
        for _ in range(3000):
            tallies.refused("rejected", "busy", path="/chat", client=None)
            tallies.took(1000)

    threads = [threading.Thread(target=refuse) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(tallies.ledger_seconds.counts) == 18_000
    assert set(tallies.counts.values()) == {18_000}


async def test_what_is_only_observed_is_not_counted_as_refused() -> None:
    guard = watched(mode="observe", budget="0.1/day", clock=FakeClock())
    for _ in range(3):
        await Client().call(guard)

    assert values(await scraped(guard), "routeguard_rejected_total") == {}


async def test_a_ledger_error_in_mid_scrape_does_not_break_it() -> None:
    guard, ledger = sick_guard(Counting())

    async def in_flight() -> int:
        raise LedgerUnavailable("no answer")

    ledger.in_flight = in_flight  # type: ignore[method-assign]  # fails between two questions

    client = await ask(guard, "/metrics", (b"authorization", b"Bearer token-for-tests-only"))

    assert client.status == 200
