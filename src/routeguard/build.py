"""From settings to a guard: the one place that wires the parts together."""

import threading

from routeguard.clients import Clients
from routeguard.clock import Clock, SystemClock
from routeguard.config import Settings
from routeguard.ending import EndingRules
from routeguard.guard import Guard
from routeguard.journal import open_journal
from routeguard.ledgers import open_ledger
from routeguard.limiter import RateLimiter
from routeguard.policy import NANOSECONDS, Ledger, Parallel
from routeguard.refusals import Refusals
from routeguard.rules import GuardRules
from routeguard.telemetry import Telemetry
from routeguard.webhook import Webhook

#: A parallel slot is a lease of `MAX_STREAM` and this many seconds.
LEASE_GRACE_SECONDS = 30

_limiters: dict[tuple[str, str], RateLimiter] = {}
_lock = threading.Lock()


def build_guard(
    settings: Settings, *, clock: Clock | None = None, ledger: Ledger | None = None, outward: bool = True
) -> Guard:
    """A guard that enforces these settings. Opens nothing.

    Args:
        settings: What to enforce.
        clock: Time; the machine's by default. With a clock of its own a guard shares no counters.
        ledger: Where to count; by default the ledger of the settings, shared by namespace.
        outward: False keeps no journal and sends no alerts, for requests that nobody made.
    """
    is_private = clock is not None
    clock = clock or SystemClock()
    if ledger is None:
        ledger = open_ledger(
            settings.ledger,
            namespace=settings.namespace,
            clock=clock,
            clients_max=settings.max_clients,
            shared=not is_private,
        )
    journal = None
    if settings.journal is not None and outward:
        journal = ledger.journal = open_journal(settings.journal, namespace=settings.namespace)
    if is_private:
        limiter = RateLimiter(clock=clock, clients_max=settings.max_clients)
    else:
        limiter = _shared_limiter(settings, clock)
    if settings.paused:
        ledger.paused = True
    rules = _rules(settings)
    telemetry = Telemetry(clock=clock, clients_max=settings.max_clients)
    webhook = None
    if settings.webhook_url is not None and outward:
        webhook = Webhook(
            settings.webhook_url, namespace=settings.namespace, budgets=settings.budgets, ledger=ledger, clock=clock
        )
        telemetry.listen(webhook)
    return Guard(
        rules=rules,
        clients=Clients(rules, ledger, telemetry),
        refusals=Refusals(rules, clock),
        ledger=ledger,
        limiter=limiter,
        tariff=settings.tariff,
        other_tariffs=settings.other_tariffs,
        clock=clock,
        telemetry=telemetry,
        journal=journal,
        closing=() if webhook is None else (webhook.aclose,),
    )


def _shared_limiter(settings: Settings, clock: Clock) -> RateLimiter:
    """Guards with the same ledger and namespace share their rates, as they share their money."""
    key = (settings.ledger, settings.namespace)
    with _lock:
        limiter = _limiters.get(key)
        if limiter is None:
            limiter = _limiters[key] = RateLimiter(clock=clock, clients_max=settings.max_clients)
        return limiter


def _rules(settings: Settings) -> GuardRules:
    lease_ns = int((settings.max_stream + LEASE_GRACE_SECONDS) * NANOSECONDS)
    return GuardRules(
        observe=settings.mode == "observe",
        namespace=settings.namespace,
        edge_secret=settings.edge_secret,
        body=settings.body_rules,
        body_timeout_seconds=settings.body_timeout,
        stream_timeout_seconds=settings.max_stream,
        budgets=settings.budgets,
        client_budgets=settings.client_budgets,
        rates=settings.rates,
        global_rates=settings.global_rates,
        parallel=Parallel(settings.max_parallel, lease_ns),
        client_parallel=Parallel(settings.max_parallel_per_client, lease_ns, per_client=True),
        strategy=settings.strategy,
        strategy_is_default={settings.sources["CLIENT_IP"], settings.sources["PLATFORM"]} == {"default"},
        ipv6_prefix=settings.ipv6_prefix,
        shared_unknown=settings.unknown_client == "shared",
        exempt=settings.exempt_clients,
        calls_per_request=settings.calls_per_request,
        ending=EndingRules(settings.on_failure, settings.no_call, settings.release_statuses),
        budget_status=settings.budget_status,
        message_resting=settings.message_resting,
        message_limited=settings.message_limited,
        client_hook=settings.client,
        admit_hook=settings.admit,
    )
