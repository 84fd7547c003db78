"""Visitors as the trusted edge presents them: the request of one address, by whatever strategy is configured."""

from collections.abc import Sequence
from random import Random
from typing import Final

from routeguard.cli.prove.findings import NotRun
from routeguard.client_ip import Network, Strategy, contains, parse_address
from routeguard.client_ip.strategies import (
    FORWARDED,
    FORWARDING_HEADERS,
    X_FORWARDED_FOR,
    TrustedRanges,
    XForwardedForHops,
)

Header = tuple[bytes, bytes]

#: Nobody's addresses (RFC 5737): the proxies between a visitor and us, and what is forged.
PROXY: Final = "198.51.100.1"
FORGED_NETWORK: Final = "192.0.2."
#: Spellings that some software takes for the real names; a client can send them.
LOOKALIKES: Final = (b"x_forwarded_for", b"x_real_ip", b"x-forwarded-for-original", b"x-originating-ip")


class Visitors:
    """Makes what the server hands over for a visitor: headers and peer."""

    def __init__(self, strategy: Strategy, exempt: Sequence[Network] = ()) -> None:
        """
        Args:
            strategy: How they are found.
            exempt: Who passes without limits, and is no visitor to prove anything with.
        """
        self._strategy = strategy
        self._exempt = exempt

    def arrive(self, address: str, *, forged: Random | None = None) -> tuple[list[Header], tuple[str, int]]:
        """Headers and peer of a request from `address`.

        Args:
            address: Who is really asking.
            forged: Adds what the visitor wrote besides: another address in every place that is theirs to write.

        Raises:
            NotRun: The strategy does not find this visitor, or lets it pass without limits.
        """
        headers, peer = self._told(address)
        packed = parse_address(address)
        if packed is None or self._strategy.find(headers, peer[0]) != packed:
            raise NotRun(f"no request can be made up that {self._strategy.name} takes for {address}")
        if contains(self._exempt, packed):
            raise NotRun("EXEMPT_CLIENTS holds the addresses of documentation, from which these requests come")
        if forged is not None:
            headers = self._with_forged(headers, forged)
        return headers, peer

    def _told(self, address: str) -> tuple[list[Header], tuple[str, int]]:
        kind, _, number = self._strategy.name.partition(":")
        proxies = [PROXY] * (int(number) - 1) if kind in {"xff", "forwarded"} else []
        if kind == "xff":
            return [(X_FORWARDED_FOR, ", ".join([address, *proxies]).encode())], (PROXY, 443)
        if kind == "forwarded":
            return [(FORWARDED, ", ".join(map(_node, [address, *proxies])).encode())], (PROXY, 443)
        if isinstance(self._strategy, TrustedRanges):
            trusted = str(self._strategy.networks[0].cidr).partition("/")[0]
            return [(X_FORWARDED_FOR, address.encode())], (trusted, 443)
        if not self._strategy.headers:
            return [], (address, 50_000)
        (name,) = self._strategy.headers
        return [(name, f"{address}:443".encode() if name.startswith(b"cloudfront-") else address.encode())], (
            PROXY,
            443,
        )

    def _with_forged(self, headers: list[Header], rng: Random) -> list[Header]:
        """Everything a visitor can write: other headers, and the left of a list to which proxies append."""
        trusted = self._strategy.headers
        made = [(name, _forged(rng)) for name in (*FORWARDING_HEADERS, *LOOKALIKES) if name not in trusted]
        if trusted in {(X_FORWARDED_FOR,), (FORWARDED,)}:
            is_list = trusted == (X_FORWARDED_FOR,)
            forged = _forged(rng) if is_list else b"for=" + _forged(rng)
            headers = [(name, b"%s, %s" % (forged, value)) for name, value in headers]
            if not (isinstance(self._strategy, XForwardedForHops) and self._strategy.one_line):
                # Proxies append to the last line and leave those before it.
                headers = [(trusted[0], forged), *headers]
        return made + headers


def _node(address: str) -> str:
    return f'for="[{address}]"' if ":" in address else f"for={address}"


def _forged(rng: Random) -> bytes:
    return f"{FORGED_NETWORK}{rng.randrange(1, 255)}".encode()
