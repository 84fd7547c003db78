"""Addresses and networks: how they are written, packed, cut and compared."""

import ipaddress
import re
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routeguard.client_ip import contains, cut, parse_address, parse_networks, parse_strategy
from tests.forwarding import pack


def embeds_ipv4(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(
        address.version == 6 and address in ipaddress.IPv6Network(block) for block in ("::ffff:0:0/96", "64:ff9b::/96")
    )


class TestParseAddress:
    @given(st.ip_addresses(v=4).filter(lambda address: not address.is_unspecified))
    def test_every_ipv4_address_is_its_four_bytes(self, address: ipaddress.IPv4Address) -> None:
        assert parse_address(str(address)) == address.packed

    @given(st.ip_addresses(v=6).filter(lambda address: any(address.packed) and not embeds_ipv4(address)))
    def test_every_spelling_of_an_ipv6_address_is_its_sixteen_bytes(self, address: ipaddress.IPv6Address) -> None:
        spellings = [address.compressed, address.exploded, address.compressed.upper(), f"[{address}]", f"{address}%e0"]

        assert {parse_address(spelling) for spelling in spellings} == {address.packed}

    @given(
        st.ip_addresses(v=4).filter(lambda address: not address.is_unspecified),
        st.sampled_from(["::ffff:", "64:ff9b::", "0:0:0:0:0:FFFF:", "0064:FF9B:0:0:0:0:"]),
    )
    def test_ipv4_inside_ipv6_is_the_ipv4_address(self, address: ipaddress.IPv4Address, prefix: str) -> None:
        in_hex = f"{address.packed[:2].hex()}:{address.packed[2:].hex()}"

        assert parse_address(f"{prefix}{address}") == parse_address(prefix + in_hex) == address.packed

    @given(st.ip_addresses(), st.integers(0, 65_535))
    def test_a_port_changes_nothing(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
        with_port = f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"

        assert parse_address(with_port) == parse_address(str(address))

    @pytest.mark.parametrize("neighbour", ["::fffe:1.2.3.4", "64:ff9b:1::1.2.3.4", "64:ff9a::1.2.3.4", "::1.2.3.4"])
    def test_the_neighbours_of_the_embedding_prefixes_stay_ipv6(self, neighbour: str) -> None:
        assert parse_address(neighbour) == pack(neighbour)

    @given(st.one_of(st.text(), st.binary(), st.text(alphabet="0123456789abcdef.:[]%/ \t\0x", max_size=48)))
    @example("\ud800")
    @example("1.2.3.4\0")
    @example(b"\xff:\xff")
    @example("٣.٣.٣.٣")
    @example(":" * 50)
    @example("[" * 50 + "::")
    def test_any_text_is_an_address_of_one_form_or_none(self, text: str | bytes) -> None:
        packed = parse_address(text)

        if packed is not None:
            assert len(packed) in (4, 16)
            assert any(packed)
            assert parse_address(str(ipaddress.ip_address(packed))) == packed

    @given(st.text(alphabet="0123456789abcdef.:", max_size=24))
    def test_a_plain_text_is_an_address_exactly_when_ipaddress_says_so(self, text: str) -> None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            # One colon after IPv4 is a port, which ipaddress does not know.
            expected = None if text.count(":") != 1 else parse_address(text)
        else:
            expected = address.packed[12:] if embeds_ipv4(address) else address.packed
            expected = expected if any(expected) else None

        assert parse_address(text) == expected

    @pytest.mark.parametrize("length", [100, 101])
    def test_text_is_read_up_to_its_bound(self, length: int) -> None:
        padded = "203.0.113.9".rjust(length)

        assert parse_address(padded) == (pack("203.0.113.9") if length == 100 else None)
        assert parse_address(padded.encode()) == parse_address(padded)

    def test_the_bound_holds_for_a_viewer_address_too(self) -> None:
        strategy = parse_strategy("header:cloudfront-viewer-address")
        value = b"198.51.100.10:443"

        assert strategy.find([(b"cloudfront-viewer-address", value.rjust(100))], None) == pack("198.51.100.10")
        assert strategy.find([(b"cloudfront-viewer-address", value.rjust(101))], None) is None

    @given(st.ip_addresses(), st.integers(0, 65_535))
    def test_a_viewer_address_is_the_same_client_on_every_port(
        self, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
    ) -> None:
        strategy = parse_strategy("header:cloudfront-viewer-address")

        found = strategy.find([(b"cloudfront-viewer-address", f"{address}:{port}".encode())], None)

        assert found == parse_address(str(address))

    @pytest.mark.parametrize("before", ["X", "\f"], ids=["a letter", "a form feed"])
    def test_a_viewer_address_has_only_blanks_before_it(self, before: str) -> None:
        strategy = parse_strategy("header:cloudfront-viewer-address")

        found = [
            strategy.find([(b"cloudfront-viewer-address", f"{first}2001:db8::1:443".encode())], None)
            for first in (before, " \t")
        ]

        assert found == [None, pack("2001:db8::1")]

    def test_no_other_header_holds_a_port_without_brackets(self) -> None:
        strategy = parse_strategy("header:x-real-ip")

        assert strategy.find([(b"x-real-ip", b"2001:db8::1:443")], None) == pack("2001:db8::1:443")

    def test_brackets_end_where_they_are_closed_first(self) -> None:
        """Read to the last one, the rest would be the zone of an address."""
        assert parse_address("[fe80::1%eth0]") == parse_address("fe80::1")
        assert parse_address("[fe80::1%eth0]x]") is None


class TestCut:
    def test_two_addresses_of_one_64_are_one_client(self) -> None:
        assert cut(pack("2001:db8:1:2::5"), 64) == cut(pack("2001:db8:1:2:ffff::1"), 64) == pack("2001:db8:1:2::")

    def test_two_64s_are_two_clients(self) -> None:
        assert cut(pack("2001:db8:1:2::5"), 64) != cut(pack("2001:db8:1:3::5"), 64)

    def test_ipv4_is_never_cut(self) -> None:
        assert cut(pack("203.0.113.9"), 48) == pack("203.0.113.9")

    @given(st.ip_addresses(v=6), st.integers(48, 128))
    def test_a_cut_address_is_the_network_it_lies_in(self, address: ipaddress.IPv6Address, prefix: int) -> None:
        network = ipaddress.IPv6Network((address, prefix), strict=False)

        assert cut(address.packed, prefix) == network.network_address.packed


class TestNetworks:
    @given(
        st.lists(
            st.tuples(st.ip_addresses().filter(lambda address: not embeds_ipv4(address)), st.integers(0, 128)),
            min_size=1,
            max_size=4,
        ),
        st.ip_addresses(),
        st.integers(0, 3),
    )
    def test_containment_agrees_with_ipaddress(
        self,
        blocks: list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]],
        address: ipaddress.IPv4Address | ipaddress.IPv6Address,
        near: int,
    ) -> None:
        reference = [
            ipaddress.ip_network((block, min(prefix, block.max_prefixlen)), strict=False) for block, prefix in blocks
        ]
        # Half the time look at an address at the edge of a block, not anywhere in the world.
        edge = reference[near % len(reference)]
        candidates = [address, edge.network_address, edge.broadcast_address]
        networks = parse_networks(",".join(map(str, reference)))

        for candidate in candidates:
            inside = any(candidate.version == block.version and candidate in block for block in reference)
            assert contains(networks, candidate.packed) == inside

    @pytest.mark.parametrize(
        ("address", "inside"),
        [("9.255.255.255", False), ("10.0.0.0", True), ("10.255.255.255", True), ("11.0.0.0", False)],
    )
    def test_a_network_ends_where_its_prefix_says(self, address: str, inside: bool) -> None:
        assert contains(parse_networks("10.0.0.0/8"), pack(address)) is inside

    def test_all_of_ipv6_holds_no_ipv4_client(self) -> None:
        assert not contains(parse_networks("::/0"), pack("203.0.113.9"))

    def test_all_of_ipv4_holds_no_ipv6_client(self) -> None:
        assert not contains(parse_networks("0.0.0.0/0"), pack("2001:db8::1"))

    def test_an_ipv6_address_that_begins_like_an_ipv4_network_is_outside_it(self) -> None:
        assert not contains(parse_networks("32.0.0.0/8"), pack("2001:db8::1"))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "'' is not a network; write for example 10.0.0.0/8"),
            ("10.0.0.0/8,", "'' is not a network"),
            ("10.0.0.0/33", "'10.0.0.0/33' is not a network"),
            ("10.0.0.0/", "'10.0.0.0/' is not a network"),
            ("10.0.0.0/-1", "'10.0.0.0/-1' is not a network"),
            ("10.0.0.0/\uff18", "is not a network"),
            ("10.0.0.0/255.0.0.0", "'10.0.0.0/255.0.0.0' is not a network"),
            ("10.0.0.0/0.255.255.255", "is not a network"),
            ("localhost", "'localhost' is not a network"),
            ("fe80::1%eth0", "'fe80::1%eth0' is not a network"),
            ("10.0.0.0/8 172.16.0.0/12", "is not a network"),
            (
                "172.16.0.0/12, 10.0.0.1/8",
                "'10.0.0.1/8' has bits set beyond its prefix; write 10.0.0.0/8 or the single address 10.0.0.1",
            ),
            ("::ffff:10.0.0.0/104", "is IPv4 written as IPv6; clients from there count as IPv4, so write 10.0.0.0/8"),
            ("64:ff9b::/96", "is IPv4 written as IPv6; clients from there count as IPv4, so write 0.0.0.0/0"),
        ],
    )
    def test_what_is_no_network_is_refused_with_the_remedy(self, text: str, said: str) -> None:
        with pytest.raises(ValueError, match=re.escape(said)):
            parse_networks(text)

    def test_networks_are_shown_as_people_write_them(self) -> None:
        networks = parse_networks(" 10.0.0.0/8 ,192.0.2.1, 2001:DB8::/32")

        assert [network.cidr for network in networks] == ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]


def test_inet_pton_is_as_strict_here_as_the_rules_assume() -> None:
    """The C library decides what an address is; a lenient one must be noticed, not trusted."""
    for lenient in ("010.1.1.1", "1.2.3", "0x7f.1", "1.2.3.4 ", "1"):
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_pton(socket.AF_INET, lenient)
