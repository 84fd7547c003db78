"""Addresses in one form: 4 packed bytes for IPv4, 16 for IPv6.

Rules that live here:

- One client has one form. IPv4 inside IPv6 (mapped, NAT64) is IPv4: cut to a /64 as IPv6, all IPv4 clients of
  such a socket would be one client.
- `0.0.0.0` and `::` are nobody's address.
- `socket.inet_pton` says what an address is. It refuses `1.2.3`, `0x7f.1` and `010.1.1.1`, which older parsers
  read as something else, and is about 20 times faster than `ipaddress`.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_interface

#: Longest text read as an address: bracketed IPv6 (47), a zone, a port and blanks come to less.
ADDRESS_CHARS_MAX = 100
PORT_MAX = 65_535
#: `::ffff:0:0/96` (RFC 4291 §2.5.5.2) and `64:ff9b::/96` (RFC 6052 §2.1): the last 4 bytes are an IPv4 address.
IPV4_IN_IPV6 = (bytes(10) + b"\xff\xff", b"\x00\x64\xff\x9b" + bytes(8))
UNSPECIFIED = (bytes(4), bytes(16))


def parse_address(text: str | bytes) -> bytes | None:
    """The packed address in `text`, or None if it holds none.

    Blanks around it, a port (`192.0.2.1:80`, `[2001:db8::1]:80`), brackets and a zone (`fe80::1%eth0`) are
    dropped; IPv4-mapped and NAT64 addresses come back as IPv4. A list is not an address.
    """
    if len(text) > ADDRESS_CHARS_MAX:
        return None
    host = (text.decode("latin-1") if isinstance(text, bytes) else text).strip(" \t")
    colons = host.count(":")
    if colons == 0:
        return _pack(socket.AF_INET, host)
    if colons == 1:
        host, _, port = host.partition(":")
        return _pack(socket.AF_INET, host) if _is_port(port) else None
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not (rest.startswith(":") and _is_port(rest[1:]))):
            return None
    return _pack_ipv6(host)


def parse_viewer_address(value: bytes) -> bytes | None:
    """The packed address in a `CloudFront-Viewer-Address`, which carries a port.

    CloudFront writes IPv6 without brackets, so the port is what follows the last colon: read as a plain address,
    `2001:db8::1:443` would be another client for each new connection. Where no IPv6 is left there was no
    such port, and it is an address like any other: what stands in for CloudFront in a test seldom writes one.
    """
    if len(value) > ADDRESS_CHARS_MAX:
        return None
    host, _, port = value.decode("latin-1").strip(" \t").rpartition(":")
    return _pack_ipv6(host) if _is_port(port) and _is_ipv6(host) else parse_address(value)


def cut(address: bytes, ipv6_prefix: int) -> bytes:
    """The part of an address that names one client: IPv4 whole, IPv6 with all bits after `ipv6_prefix` zero.

    A home owns at least a /64 (RFC 6177): counted by whole addresses, one IPv6 client would be 2^64 clients.
    """
    if len(address) == 4:
        return address
    host_bits = 128 - ipv6_prefix
    return (int.from_bytes(address) >> host_bits << host_bits).to_bytes(16)


@dataclass(frozen=True, slots=True)
class Network:
    """A CIDR block as its first and last packed address."""

    #: As it is written: `10.0.0.0/8`.
    cidr: str
    first: bytes
    last: bytes


def contains(networks: Sequence[Network], address: bytes) -> bool:
    """Whether one of `networks` holds `address`, in the form `parse_address` gives."""
    size = len(address)
    # Packed bytes of one length sort as the numbers they are.
    return any(network.first <= address <= network.last and len(network.first) == size for network in networks)


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks in a comma-separated list of CIDR blocks and single addresses.

    Raises:
        ValueError: An entry is no network, has bits set beyond its prefix, or lies where no client address can
            be, because `parse_address` turns those into IPv4.
    """
    return tuple(_parse_network(entry.strip()) for entry in text.split(","))


def _parse_network(entry: str) -> Network:
    address, slash, prefix = entry.partition("/")
    # ipaddress alone would also take zones, netmasks and host masks.
    if "%" in entry or (slash and not (prefix.isascii() and prefix.isdecimal())):
        raise ValueError(f"{entry!r} is not a network; write for example 10.0.0.0/8 or 2001:db8::/32")
    try:
        interface = ip_interface(entry)
    except ValueError:
        raise ValueError(f"{entry!r} is not a network; write for example 10.0.0.0/8 or 2001:db8::/32") from None
    network = interface.network
    if interface.ip != network.network_address:
        raise ValueError(f"{entry!r} has bits set beyond its prefix; write {network} or the single address {address}")
    first = network.network_address.packed
    if first.startswith(IPV4_IN_IPV6) and network.prefixlen >= 96:
        ipv4 = IPv4Network((first[12:], network.prefixlen - 96))
        raise ValueError(f"{entry!r} is IPv4 written as IPv6; clients from there count as IPv4, so write {ipv4}")
    return Network(cidr=str(network), first=first, last=network.broadcast_address.packed)


def _pack_ipv6(host: str) -> bytes | None:
    host, percent, zone = host.partition("%")
    if percent and not zone:
        return None
    packed = _pack(socket.AF_INET6, host)
    if packed is not None and packed.startswith(IPV4_IN_IPV6):
        packed = packed[12:]
    return None if packed in UNSPECIFIED else packed


def _is_ipv6(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, host)
    except (OSError, ValueError):  # as in `_pack`
        return False
    return True


def _pack(family: socket.AddressFamily, host: str) -> bytes | None:
    try:
        packed = socket.inet_pton(family, host)
    except (OSError, ValueError):  # ValueError: NUL and lone surrogates
        return None
    return None if packed in UNSPECIFIED else packed


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= PORT_MAX
