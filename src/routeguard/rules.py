"""What one guard enforces, parsed and complete."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from routeguard.body import BodyRules
from routeguard.client_ip import Network, Strategy
from routeguard.ending import EndingRules
from routeguard.policy import Budget, Parallel, Rate
from routeguard.replay import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """What one guard enforces; `config` builds it from the settings."""

    observe: bool
    namespace: str
    edge_secret: tuple[bytes, bytes] | None
    body: BodyRules
    body_timeout_seconds: float
    stream_timeout_seconds: float
    budgets: tuple[Budget, ...]
    client_budgets: tuple[Budget, ...]
    rates: tuple[Rate, ...]
    global_rates: tuple[Rate, ...]
    parallel: Parallel
    client_parallel: Parallel
    strategy: Strategy
    #: Nobody chose the strategy: forwarding headers then deserve a warning.
    strategy_is_default: bool
    ipv6_prefix: int
    shared_unknown: bool
    exempt: Sequence[Network]
    calls_per_request: int
    ending: EndingRules
    budget_status: int
    message_resting: str
    message_limited: str
    client_hook: Callable[[Scope], str | None] | None = None
    admit_hook: Callable[[Scope], Awaitable[bool]] | None = None
