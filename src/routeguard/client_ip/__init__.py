"""Who is asking: the client address, from the one source the operator trusts."""

from routeguard.client_ip.address import Network, contains, cut, parse_address, parse_networks
from routeguard.client_ip.platforms import PLATFORMS, Platform, suggest_platform
from routeguard.client_ip.strategies import (
    Headers,
    Strategy,
    forwarding_headers,
    parse_strategy,
    peer_was_rewritten,
)

__all__ = [
    "PLATFORMS",
    "Headers",
    "Network",
    "Platform",
    "Strategy",
    "contains",
    "cut",
    "forwarding_headers",
    "parse_address",
    "parse_networks",
    "parse_strategy",
    "peer_was_rewritten",
    "suggest_platform",
]
