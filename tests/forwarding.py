"""Forwarding headers and packed addresses as tests of the client address write them down."""

import ipaddress

from routeguard.client_ip import Headers


def pack(text: str) -> bytes:
    """The packed form of an address, by a second implementation."""
    return ipaddress.ip_address(text).packed


def xff(*lines: str | bytes) -> Headers:
    return [(b"x-forwarded-for", line.encode() if isinstance(line, str) else line) for line in lines]


def forwarded(*lines: str | bytes) -> Headers:
    return [(b"forwarded", line.encode() if isinstance(line, str) else line) for line in lines]
