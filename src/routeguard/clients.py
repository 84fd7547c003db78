"""Who is asking: the application's own word, else the address, else everybody unknown together."""

import hashlib
import os
from collections.abc import Callable, Coroutine
from uuid import UUID

from routeguard.client_ip import contains, cut, forwarding_headers, peer_was_rewritten, suggest_platform
from routeguard.errors import Rejected
from routeguard.policy import Ledger
from routeguard.replay import Scope
from routeguard.rules import GuardRules
from routeguard.telemetry import Telemetry

#: Stands for everybody without a trustworthy address.
UNKNOWN = "unknown"
#: Requests at whose headers the guard looks for forwarding headers nobody configured; a proxy sets them on all.
ADDRESS_CHECKS = 1000


class Clients:
    """Turns a request into the key of its client."""

    def __init__(self, rules: GuardRules, ledger: Ledger, telemetry: Telemetry) -> None:
        self._rules = rules
        self._ledger = ledger
        self._telemetry = telemetry
        self._address_checks_left = ADDRESS_CHECKS

    def identify(self, scope: Scope) -> tuple[str, bool]:
        """Key of the client, and whether it is exempt from the limits of one client.

        Raises:
            Rejected: 400 `no_client_address`, where unknown clients are not let in.
        """
        rules = self._rules
        if rules.client_hook is not None:
            name = self._named(rules.client_hook, scope)
            if name:
                return self._key(b"name", name.encode("utf-8", "surrogatepass")), False
        client = scope.get("client")
        peer = client[0] if client else None
        if self._address_checks_left:
            self._check_address_setup(scope, peer)
        address = rules.strategy.find(scope["headers"], peer)
        if address is None:
            if not rules.shared_unknown:
                raise Rejected("no_client_address", "The client address of this request is not known.", status=400)
            self._telemetry.once(
                "no-address",
                f"no trustworthy client address by {rules.strategy.name}: all such requests share one client, "
                "which leaves the whole site one client's rate and budget; check PLATFORM or CLIENT_IP",
            )
            return UNKNOWN, False
        is_exempt = bool(rules.exempt) and contains(rules.exempt, address)
        return self._key(b"address", cut(address, rules.ipv6_prefix)), is_exempt

    def by_address(self, scope: Scope) -> str:
        """Key of the address alone, for who asks for something else than a guarded path. Nothing is said about it."""
        client = scope.get("client")
        address = self._rules.strategy.find(scope["headers"], client[0] if client else None)
        return UNKNOWN if address is None else self._key(b"address", cut(address, self._rules.ipv6_prefix))

    def _named(self, hook: Callable[[Scope], object], scope: Scope) -> str | None:
        """What the hook says, where that names somebody.

        It may give the number or the UUID of a user. Any other object is nobody's name: as text it would be where it
        lies in memory, so that each request were a client of its own.
        """
        try:
            name = hook(scope)
        except Exception as problem:  # noqa: BLE001 - whatever it raises, the address decides
            self._telemetry.once("client-hook", f"the client= hook raised {type(problem).__name__}")
            return None
        if name is None or isinstance(name, str):
            return name
        if isinstance(name, int | UUID) and not isinstance(name, bool):
            return str(name)
        self._telemetry.once(
            "client-hook-type",
            f"the client= hook gave an object of type {type(name).__name__}, which names nobody: the address decides; "
            "give a str or None",
        )
        if isinstance(name, Coroutine):
            name.close()  # or Python would warn of each that it was never awaited
        return None

    def _key(self, kind: bytes, value: bytes) -> str:
        """Keyed hash that stands for a client everywhere; an address or a name never leaves this function."""
        return hashlib.blake2b(value, digest_size=8, key=self._ledger.client_salt, person=kind).hexdigest()

    def _check_address_setup(self, scope: Scope, peer: str | None) -> None:
        """Warn, once, about an address that means something else than the operator thinks."""
        self._address_checks_left -= 1
        headers, strategy = scope["headers"], self._rules.strategy
        if self._rules.strategy_is_default and (found := forwarding_headers(headers)):
            self._address_checks_left = 0
            platform = suggest_platform(os.environ)
            remedy = f"PLATFORM={platform}" if platform else "PLATFORM or CLIENT_IP"
            self._telemetry.once(
                "forwarding-headers",
                f"requests carry {', '.join(found)} and no CLIENT_IP is configured, so everybody behind the proxy may "
                f"be one client: set {remedy}",
            )
        if strategy.headers and not strategy.name.startswith("ranges"):
            # The strategy does not look at the peer.
            self._address_checks_left = 0
        elif peer_was_rewritten(headers, peer):
            self._address_checks_left = 0
            self._telemetry.once(
                "peer-rewritten",
                "the peer address stands in the forwarding header: the server has already rewritten it, maybe from "
                "what the client sent; run it with --no-proxy-headers, and set PLATFORM or CLIENT_IP",
            )
