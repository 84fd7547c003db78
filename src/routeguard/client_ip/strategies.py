"""How a client address is found.

Rules that live here:

- A strategy trusts one source. What it does not find there it does not look for elsewhere: a second source is one
  that the client may write.
- Every line of a header is read. A proxy may add its own line below the client's (HAProxy does).
- Lists are walked from the right, where the trusted proxies write, and only as far as needed: whatever a client put
  on the left changes neither the answer nor the work.
- A bad entry at the chosen place is no address. It is never skipped for its neighbour, which the client may have
  written.
- Names are compared byte for byte: `x_real_ip` is another header than `x-real-ip`, and a client can send it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from routeguard.client_ip.address import Network, contains, parse_address, parse_networks, parse_viewer_address

#: Raw headers of an ASGI scope; servers give the names in lower case.
Headers = Sequence[tuple[bytes, bytes]]

#: Most proxies between a client and the application; no real chain comes near it.
HOPS_MAX = 32
#: Longest element of `Forwarded`. Its `host` is whatever the client sent, so its length is the client's choice.
FORWARDED_ELEMENT_BYTES_MAX = 1_024

X_FORWARDED_FOR = b"x-forwarded-for"
FORWARDED = b"forwarded"
#: Headers in which some proxy, platform or client states a client address.
FORWARDING_HEADERS = (
    X_FORWARDED_FOR,
    FORWARDED,
    b"x-real-ip",
    b"cf-connecting-ip",
    b"true-client-ip",
    b"fly-client-ip",
    b"fastly-client-ip",
    b"do-connecting-ip",
    b"x-nf-client-connection-ip",
    b"x-vercel-forwarded-for",
    b"cloudfront-viewer-address",
    b"x-azure-socketip",
    b"x-azure-clientip",
    b"x-envoy-external-address",
    b"x-client-ip",
    b"x-cluster-client-ip",
)

_HOW_TO_WRITE = "write direct, header:<name>, xff:<n>, forwarded:<n> or ranges:<cidr,...>"


class Strategy(Protocol):
    """One way to find the client address."""

    @property
    def name(self) -> str:
        """What people are shown: `x-real-ip`, `xff:1`, `direct`."""
        ...

    @property
    def headers(self) -> tuple[bytes, ...]:
        """The header it reads; empty if none."""
        ...

    def find(self, headers: Headers, peer: str | None) -> bytes | None:
        """The packed address, 4 bytes or 16 and uncut, or None if there is none to trust."""
        ...


def parse_strategy(text: str) -> Strategy:
    """The strategy written as `direct`, `header:<name>`, `xff:<n>`, `forwarded:<n>` or `ranges:<cidr,...>`.

    Raises:
        ValueError: One sentence with what was found and what would be right.
    """
    kind, colon, argument = text.strip().partition(":")
    argument = argument.strip()
    match kind.lower():
        case "direct" if not colon:
            return DirectPeer()
        case "header":
            header = _parse_header_name(argument)
            parse = parse_viewer_address if header == b"cloudfront-viewer-address" else parse_address
            return EdgeHeader(header, parse)
        case "xff":
            return XForwardedForHops(_parse_hops(text, argument))
        case "forwarded":
            return ForwardedHops(_parse_hops(text, argument))
        case "ranges":
            return TrustedRanges(_parse_ranges(text, argument))
    raise ValueError(f"{text!r} is not a way to find the client address; {_HOW_TO_WRITE}")


def forwarding_headers(headers: Headers) -> tuple[str, ...]:
    """Names of the headers present in which a client address is usually forwarded."""
    present = {name for name, _ in headers}
    return tuple(name.decode() for name in FORWARDING_HEADERS if name in present)


def peer_was_rewritten(headers: Headers, peer: str | None) -> bool:
    """Whether the peer stands in a forwarding header itself.

    A proxy writes its client there, never itself. So the server has put a forwarded address in the peer's place
    (uvicorn does, unless `--no-proxy-headers`), and which entry it chose is beyond our control.
    """
    if not peer:
        return False
    address = parse_address(peer)
    lines = _lines(headers, X_FORWARDED_FOR)
    entries = list(islice(_entries_from_right(lines), HOPS_MAX))
    # The leftmost entry too: uvicorn takes it when told to trust everyone.
    entries += [line.partition(b",")[0] for line in lines[:1]]
    for entry in entries:
        # As text too: uvicorn copies `unknown` and the like.
        if entry.strip(b" \t").decode("latin-1") == peer or (address is not None and parse_address(entry) == address):
            return True
    elements = islice(_elements_from_right(_lines(headers, FORWARDED)), HOPS_MAX)
    return address is not None and any(_for_address(_parameters(element)) == address for element in elements)


@dataclass(frozen=True, slots=True)
class DirectPeer:
    """Trusts the connection. Right without a proxy in front; behind one, everybody is that proxy."""

    name = "direct"
    headers = ()

    def find(self, headers: Headers, peer: str | None) -> bytes | None:
        return None if peer is None else parse_address(peer)


@dataclass(frozen=True, slots=True)
class EdgeHeader:
    """Trusts a header with one value, which the edge overwrites. Forged by whoever can reach the origin directly."""

    header: bytes
    parse: Callable[[bytes], bytes | None] = parse_address

    @property
    def name(self) -> str:
        return self.header.decode()

    @property
    def headers(self) -> tuple[bytes, ...]:
        return (self.header,)

    def find(self, headers: Headers, peer: str | None) -> bytes | None:
        lines = _lines(headers, self.header)
        return self.parse(lines[0]) if len(lines) == 1 else None


@dataclass(frozen=True, slots=True)
class XForwardedForHops:
    """Trusts that exactly `hops` proxies append to `X-Forwarded-For`: the client is what the outermost one wrote."""

    hops: int
    #: No address if there are several lines, for proxies that append to the first instead of the last.
    one_line: bool = False

    @property
    def name(self) -> str:
        return f"xff:{self.hops}"

    @property
    def headers(self) -> tuple[bytes, ...]:
        return (X_FORWARDED_FOR,)

    def find(self, headers: Headers, peer: str | None) -> bytes | None:
        lines = _lines(headers, X_FORWARDED_FOR)
        if self.one_line and len(lines) > 1:
            return None
        hops = self.hops
        for line in reversed(lines):
            entries = line.rsplit(b",", hops)
            if len(entries) >= hops:
                return parse_address(entries[-hops])
            hops -= len(entries)
        return None


@dataclass(frozen=True, slots=True)
class ForwardedHops:
    """Trusts that exactly `hops` proxies append to `Forwarded` (RFC 7239).

    Stricter than the RFC, so that what is misread is nobody: see `_parameters` and `_for_address`.
    """

    hops: int

    @property
    def name(self) -> str:
        return f"forwarded:{self.hops}"

    @property
    def headers(self) -> tuple[bytes, ...]:
        return (FORWARDED,)

    def find(self, headers: Headers, peer: str | None) -> bytes | None:
        for hop, element in enumerate(_elements_from_right(_lines(headers, FORWARDED)), start=1):
            parameters = _parameters(element)
            # A malformed element on the way may have swallowed its neighbour: the count is off.
            if parameters is None or hop == self.hops:
                return _for_address(parameters)
        return None


@dataclass(frozen=True, slots=True)
class TrustedRanges:
    """Trusts proxies by address: the client is the rightmost of `X-Forwarded-For` that is none of them.

    A peer that is no such proxy is the client itself, whatever its headers say.
    """

    networks: tuple[Network, ...]

    @property
    def name(self) -> str:
        first, *others = (network.cidr for network in self.networks)
        return f"ranges:{first}" + (f" and {len(others)} more" if others else "")

    @property
    def headers(self) -> tuple[bytes, ...]:
        return (X_FORWARDED_FOR,)

    def find(self, headers: Headers, peer: str | None) -> bytes | None:
        address = None if peer is None else parse_address(peer)
        if address is None or not contains(self.networks, address):
            return address
        for entry in islice(_entries_from_right(_lines(headers, X_FORWARDED_FOR)), HOPS_MAX):
            address = parse_address(entry)
            if address is None or not contains(self.networks, address):
                return address
        return None


def _parse_header_name(text: str) -> bytes:
    name = text.lower()
    if not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9a-z]+", name):
        raise ValueError(f"{text!r} is not a header name; write for example header:x-real-ip")
    if name in ("x-forwarded-for", "forwarded"):
        list_form = "xff:1" if name == "x-forwarded-for" else "forwarded:1"
        raise ValueError(f"{name!r} is a list that proxies append to; write {list_form}, or how many proxies append")
    return name.encode()


def _parse_hops(strategy: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]?", text) or int(text) > HOPS_MAX:
        right = f"{strategy.partition(':')[0].strip().lower()}:1"
        raise ValueError(f"{strategy!r} needs the number of proxies that append, from 1 to {HOPS_MAX}; write {right}")
    return int(text)


def _parse_ranges(strategy: str, text: str) -> tuple[Network, ...]:
    networks = parse_networks(text)
    for network in networks:
        if network.cidr.endswith("/0"):
            raise ValueError(f"{strategy!r} trusts every address as a proxy; write your proxies' own networks")
    return networks


def _lines(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def _entries_from_right(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Entries of a comma-separated list, last first. Bytes left of the last entry asked for are never split."""
    for line in reversed(lines):
        end = len(line)
        while end >= 0:
            comma = line.rfind(b",", 0, end)
            yield line[comma + 1 : end]
            end = comma


_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"[\t !#-\[\]-~\x80-\xff]*(?:\\[\t -~\x80-\xff][\t !#-\[\]-~\x80-\xff]*)*"'
_PAIR = re.compile(rb"(%s)=(%s|%s)" % (_TOKEN, _TOKEN, _QUOTED))
_ELEMENT = re.compile(rb"(?:%s)?(?:;(?:%s)?)*" % (_PAIR.pattern, _PAIR.pattern))
#: What follows, back to front, a quote that is text of a quoted string: its backslash, then others in pairs.
_ESCAPE_REVERSED = rb"\\(?:\\\\)*(?!\\)"
_QUOTED_REVERSED = rb'"[^"]*(?:"(?=%s)[^"]*)*"(?!%s)' % (_ESCAPE_REVERSED, _ESCAPE_REVERSED)
#: Everything up to a comma outside quotes, back to front.
_ELEMENT_REVERSED = re.compile(rb'[^",]*(?:%s[^",]*)*' % _QUOTED_REVERSED)
#: The two `node` forms with an address (RFC 7239 §6). `unknown` and `_obfuscated` ones name nobody.
_NODE = re.compile(rb"(?:[0-9.]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def _elements_from_right(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Elements of `Forwarded`, last first; ends early at one that is too long or has an unclosed quote.

    Quoted strings are told apart from the right as well. Read from the left, a client's unclosed quote would swallow
    what the proxies append.
    """
    for line in reversed(lines):
        end = len(line)
        while end >= 0:
            tail = line[max(0, end - FORWARDED_ELEMENT_BYTES_MAX) : end]
            element = _ELEMENT_REVERSED.match(tail[::-1])
            assert element is not None  # it matches at least nothing
            comma = end - element.end() - 1
            if comma >= 0 and line[comma : comma + 1] != b",":
                return
            yield line[comma + 1 : end]
            end = comma


def _parameters(element: bytes) -> dict[bytes, bytes] | None:
    """Parameters of one element by lower-case name, quotes taken off; None if malformed or one is given twice."""
    element = element.strip(b" \t")
    if not _ELEMENT.fullmatch(element):
        return None
    pairs = _PAIR.findall(element)
    parameters = {name.lower(): value.removeprefix(b'"').removesuffix(b'"') for name, value in pairs}
    return parameters if len(parameters) == len(pairs) else None


def _for_address(parameters: dict[bytes, bytes] | None) -> bytes | None:
    node = parameters.get(b"for", b"") if parameters else b""
    return parse_address(node) if _NODE.fullmatch(node) else None
