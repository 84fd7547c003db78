"""What two requests say about an edge: one as a visitor sends it, one in which every address header is forged.

Rules that live here:

- A source can be trusted when the forged request still shows the same real address there. Anything else is the
  visitor's to write.
- Which address is the visitor's own, only the visitor knows. Where stable sources disagree, all are shown.
- The forged addresses are those of documentation (RFC 5737, RFC 3849), so they are never somebody's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, Literal

from routeguard.client_ip import PLATFORMS, Strategy, parse_strategy, suggest_platform
from routeguard.client_ip.strategies import FORWARDED, FORWARDING_HEADERS, HOPS_MAX, X_FORWARDED_FOR

Header = tuple[bytes, bytes]

FORGED_ADDRESS: Final = "192.0.2.66"
DOCUMENTATION: Final = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
#: Headers whose only writer is one of the edges, so that they are worth more than a general one.
OTHERS: Final = ("direct", "forwarded:1", "forwarded:2")
#: So many entries of a list are looked at; no chain of proxies is as long.
HOPS_TRIED: Final = 5


@dataclass(frozen=True, slots=True)
class Arrived:
    """One request, as it came in: its address headers, and who held the connection."""

    headers: tuple[Header, ...]
    peer: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One source, and what became of the forgery there."""

    #: As one writes it in `CLIENT_IP`.
    source: str
    #: The address it showed without forgery; None where it showed none.
    address: str | None
    result: Literal["holds", "forged", "absent", "changes"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to set, or why nothing can be trusted."""

    candidates: tuple[Candidate, ...]
    #: `ROUTEGUARD_PLATFORM=fly` or `ROUTEGUARD_CLIENT_IP=xff:2`; None where no single source stands out.
    recommended: str | None
    says: str


def forged_headers() -> dict[str, str]:
    """What a visitor can write into a request, one value each."""
    values = {name.decode(): FORGED_ADDRESS for name in FORWARDING_HEADERS}
    values["forwarded"] = f"for={FORGED_ADDRESS}"
    values["cloudfront-viewer-address"] = f"{FORGED_ADDRESS}:443"
    return values


def judge(plain: Arrived, forged: Arrived, environ: Mapping[str, str]) -> Verdict:
    """Compare a request as it is with one full of forgeries."""
    candidates = tuple(_candidate(source, plain, forged) for source in _sources(plain))
    holding = [candidate for candidate in candidates if candidate.result == "holds"]
    if _is_inner(plain.peer) or any(candidate.source != "direct" for candidate in holding):
        # Behind a proxy the peer is the proxy.
        holding = [candidate for candidate in holding if candidate.source != "direct"]
    outermost = _outermost(holding, plain)
    addresses = {candidate.address for candidate in outermost}
    if not outermost:
        says = (
            "no address can be trusted here: what arrives is what the visitor wrote, or nobody. Put an edge in front "
            "that overwrites a header, and make sure that nobody gets around it"
        )
        return Verdict(candidates, None, says)
    if len(addresses) > 1:
        shown = "; ".join(f"{candidate.address} by {candidate.source}" for candidate in outermost)
        says = f"several sources hold and disagree. Choose the one that shows your own public address: {shown}"
        return Verdict(candidates, None, says)
    (address,) = addresses
    best = outermost[0]
    platform = _platform(outermost, environ)
    setting = f"ROUTEGUARD_PLATFORM={platform}" if platform else f"ROUTEGUARD_CLIENT_IP={best.source}"
    says = f"{setting} finds {address}, also under forgery; it must be your own public address"
    if address is not None and _is_inner(address):
        says += f". It is not a public one: unless you asked from inside, {best.source} names a proxy and no visitor"
    return Verdict(candidates, setting, says)


def judge_alone(forged: Arrived, environ: Mapping[str, str]) -> Verdict:
    """The same from the forged request alone, where nobody remembers the plain one: what is not forged was added."""
    kept = []
    for name, value in forged.headers:
        entries = [entry for entry in value.split(b",") if FORGED_ADDRESS.encode() not in entry]
        if entries:
            kept.append((name, b",".join(entries)))
    return judge(Arrived(tuple(kept), forged.peer), forged, environ)


def _sources(plain: Arrived) -> list[str]:
    """Everything that could be configured: single headers first, then lists, then the peer."""
    lists = {X_FORWARDED_FOR, FORWARDED}
    singles = [f"header:{name.decode()}" for name in FORWARDING_HEADERS if name not in lists]
    present = [source for source in singles if any(name.decode() == source[7:] for name, _ in plain.headers)]
    hops = min(HOPS_TRIED, HOPS_MAX, max(1, _entries(plain, X_FORWARDED_FOR)))
    lists_of_hops = [f"xff:{number}" for number in range(1, hops + 1)]
    elements = min(HOPS_TRIED, _entries(plain, FORWARDED))
    return [*present, *lists_of_hops, *(f"forwarded:{number}" for number in range(1, elements + 1)), "direct"]


def _entries(arrived: Arrived, wanted: bytes) -> int:
    return sum(value.count(b",") + 1 for name, value in arrived.headers if name == wanted)


def _candidate(source: str, plain: Arrived, forged: Arrived) -> Candidate:
    strategy = parse_strategy(source)
    before, after = _found(strategy, plain), _found(strategy, forged)
    if any(_is_documentation(address) for address in _on_the_right(source, forged)):
        return Candidate(source, before, "forged")
    if before is None:
        return Candidate(source, None, "absent")
    if before != after:
        return Candidate(source, before, "changes")
    return Candidate(source, before, "holds")


def _on_the_right(source: str, arrived: Arrived) -> list[str]:
    """The address of a source, and of a list what stands right of it too: proxies append, so nothing forged may."""
    kind, _, number = source.partition(":")
    sources = [f"{kind}:{one}" for one in range(1, int(number) + 1)] if kind in {"xff", "forwarded"} else [source]
    found = [_found(parse_strategy(one), arrived) for one in sources]
    return [address for address in found if address is not None]


def _found(strategy: Strategy, arrived: Arrived) -> str | None:
    packed = strategy.find(arrived.headers, arrived.peer)
    return None if packed is None else str(ip_address(packed))


def _outermost(holding: Sequence[Candidate], plain: Arrived) -> list[Candidate]:
    """Of a list only what the outermost proxy wrote: entries further right are proxies, the same for everybody."""
    farthest = {
        f"xff:{_entries(plain, X_FORWARDED_FOR)}",
        f"forwarded:{_entries(plain, FORWARDED)}",
    }
    return [one for one in holding if not one.source.startswith(("xff:", "forwarded:")) or one.source in farthest]


def _platform(outermost: Sequence[Candidate], environ: Mapping[str, str]) -> str | None:
    """The preset that says the same, where only one does or the environment names it."""
    sources = [candidate.source for candidate in outermost]
    suggested = suggest_platform(environ)
    if suggested is not None and _source_of(suggested) in sources:
        return suggested
    same = [name for name in PLATFORMS if _source_of(name) == sources[0]]
    return same[0] if len(same) == 1 else None


def _source_of(platform: str) -> str:
    strategy = PLATFORMS[platform].strategy
    name = strategy.name
    return f"header:{name}" if strategy.headers and ":" not in name else name


def _is_documentation(address: str) -> bool:
    found = ip_address(address)
    return any(found in network for network in map(ip_network, DOCUMENTATION) if network.version == found.version)


def _is_inner(address: str) -> bool:
    """An address that only proxies have: private, shared, loopback."""
    try:
        return not ip_address(address.partition("%")[0]).is_global and not _is_documentation(address)
    except ValueError:
        return True
