"""The client address: one trusted source, and nothing a client writes changes the answer."""

import ipaddress
import json
import re
import socket
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routeguard.client_ip import (
    PLATFORMS,
    Headers,
    Strategy,
    contains,
    cut,
    forwarding_headers,
    parse_address,
    parse_networks,
    parse_strategy,
    peer_was_rewritten,
    suggest_platform,
)
from routeguard.client_ip.strategies import FORWARDED_ELEMENT_BYTES_MAX, HOPS_MAX, EdgeHeader

DOCS = Path(__file__).parent.parent / "docs"


def pack(text: str) -> bytes:
    """The packed form of an address, by a second implementation."""
    return ipaddress.ip_address(text).packed


def embeds_ipv4(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(
        address.version == 6 and address in ipaddress.IPv6Network(block) for block in ("::ffff:0:0/96", "64:ff9b::/96")
    )


def xff(*lines: str | bytes) -> Headers:
    return [(b"x-forwarded-for", line.encode() if isinstance(line, str) else line) for line in lines]


def forwarded(*lines: str | bytes) -> Headers:
    return [(b"forwarded", line.encode() if isinstance(line, str) else line) for line in lines]


class Vector(NamedTuple):
    mode: str
    peer: str | None
    headers: Headers
    expect: str | None
    why: str

    @property
    def strategy(self) -> Strategy:
        return PLATFORMS[self.mode].strategy if self.mode in PLATFORMS else parse_strategy(self.mode)


def read_vectors() -> list[Vector]:
    rows = json.loads((DOCS / "client-ip-vectors.json").read_text(encoding="utf-8"))
    return [
        Vector(
            row["mode"],
            row["peer"],
            [(name.encode(), value.encode()) for name, value in row["headers"]],
            row["expect"],
            row["why"],
        )
        for row in rows
    ]


VECTORS = read_vectors()
VECTOR_IDS = [f"{number} {vector.mode}: {vector.why}" for number, vector in enumerate(VECTORS, start=1)]


class TestVectors:
    @pytest.mark.parametrize("vector", VECTORS, ids=VECTOR_IDS)
    def test_every_published_vector_resolves_as_published(self, vector: Vector) -> None:
        found = vector.strategy.find(vector.headers, vector.peer)

        assert found == (None if vector.expect is None else pack(vector.expect))

    @pytest.mark.parametrize("vector", VECTORS, ids=VECTOR_IDS)
    def test_headers_the_strategy_does_not_read_change_nothing(self, vector: Vector) -> None:
        others = (b"x-real-ip", b"x-forwarded-for", b"forwarded", b"cf-connecting-ip", b"x_real_ip", b"client-ip")
        noise = [(name, b"6.6.6.6") for name in others if name not in vector.strategy.headers]

        found = vector.strategy.find([*noise, *vector.headers, *noise], vector.peer)

        assert found == vector.strategy.find(vector.headers, vector.peer)

    def test_every_preset_has_a_vector_with_an_address_and_one_without(self) -> None:
        with_address = {vector.mode for vector in VECTORS if vector.expect is not None}
        without = {vector.mode for vector in VECTORS if vector.expect is None}

        assert set(PLATFORMS) <= with_address & without

    def test_no_vector_stands_twice(self) -> None:
        inputs = [(vector.mode, vector.peer, tuple(vector.headers)) for vector in VECTORS]

        assert len(set(inputs)) == len(inputs)


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


FORGED = st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\r", b"").replace(b"\n", b"")), max_size=4)
HOSTILE_FORWARDED = st.lists(st.text(alphabet='for=1.6;,"\\ _[:]host', max_size=60).map(str.encode), max_size=4)


class TestForgery:
    """The client writes lines of its own and the left of the line to which the first proxy appends."""

    @given(FORGED, st.binary(max_size=60), st.integers(1, 4))
    def test_no_forged_left_part_moves_xff(self, forged: list[bytes], left: bytes, hops: int) -> None:
        written = [b"203.0.113.9", b"34.1.1.1", b"10.0.0.7", b"10.0.0.8"][:hops]
        last_line = b", ".join([left, *written])

        found = parse_strategy(f"xff:{hops}").find(xff(*forged, last_line), None)

        assert found == pack("203.0.113.9")

    @given(st.one_of(FORGED, HOSTILE_FORWARDED), st.one_of(FORGED, HOSTILE_FORWARDED), st.integers(1, 3))
    @example([b'for="'], [b'for="\\'], 1)
    @example([], [b'for=6.6.6.6;x="\\'], 2)
    def test_no_forged_left_part_moves_forwarded(self, forged: list[bytes], left: list[bytes], hops: int) -> None:
        written = [b"for=203.0.113.9;proto=https", b'for="[2001:db8::1]:80";host="a,\\"b"', b"by=x;for=10.0.0.8"][:hops]
        last_line = b", ".join([b",".join(left), *written])

        found = parse_strategy(f"forwarded:{hops}").find(forwarded(*forged, last_line), None)

        assert found == pack("203.0.113.9")

    @given(st.text(alphabet='for=6.;,"\\ x[:]\t', max_size=80))
    @example('a",for=6.6.6.6;x="')
    @example("a,for=6.6.6.6")
    @example("\\")
    def test_no_host_that_the_proxy_quotes_moves_forwarded(self, host: str) -> None:
        quoted = host.replace("\\", "\\\\").replace('"', '\\"')

        found = parse_strategy("forwarded:1").find(forwarded(f'for=6.6.6.6, for=203.0.113.9;host="{quoted}"'), None)

        assert found == pack("203.0.113.9")

    @given(FORGED, st.binary(max_size=60))
    def test_no_forged_left_part_moves_ranges(self, forged: list[bytes], left: bytes) -> None:
        strategy = parse_strategy("ranges:10.0.0.0/8")

        found = strategy.find(xff(*forged, left + b", 203.0.113.9, 10.0.0.8"), "10.0.0.1")

        assert found == pack("203.0.113.9")

    @given(FORGED)
    def test_no_header_moves_an_untrusted_peer(self, forged: list[bytes]) -> None:
        assert parse_strategy("ranges:10.0.0.0/8").find(xff(*forged), "198.51.100.7") == pack("198.51.100.7")

    def test_a_hundred_rotating_left_entries_are_one_client(self) -> None:
        strategy = parse_strategy("xff:1")

        found = {strategy.find(xff(f"9.9.9.{n}, 203.0.113.9"), "10.0.0.1") for n in range(100)}

        assert found == {pack("203.0.113.9")}

    def test_a_hundred_ports_are_one_client(self) -> None:
        strategy = parse_strategy("xff:1")

        found = {strategy.find(xff(f"203.0.113.9:{50_000 + n}"), "10.0.0.1") for n in range(100)}

        assert found == {pack("203.0.113.9")}


class CountingBytes(bytes):
    """A header value that counts the bytes cut out of it."""

    copied = 0

    def __getitem__(self, key: slice) -> bytes:  # type: ignore[override]  # nobody reads single bytes
        piece = super().__getitem__(key)
        self.copied += len(piece)
        return piece


class TestBounds:
    @pytest.mark.parametrize("left", [b"1.2.3.4," * 8_000, b"," * 65_536, b"a" * 65_536 + b",", b'"' * 65_535 + b","])
    @pytest.mark.parametrize(
        ("mode", "right"),
        [("xff:2", b"203.0.113.9, 10.0.0.8"), ("ranges:10.0.0.0/8", b"203.0.113.9, 10.0.0.8")],
    )
    def test_sixty_four_kilobytes_on_the_left_change_nothing(self, mode: str, right: bytes, left: bytes) -> None:
        assert parse_strategy(mode).find(xff(left + right), "10.0.0.1") == pack("203.0.113.9")

    def test_a_long_list_is_not_split_to_its_left_end(self) -> None:
        strategy = parse_strategy("xff:1")
        headers = xff(b"," * 65_536 + b"203.0.113.9")
        tracemalloc.start()

        strategy.find(headers, None)

        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak_bytes < 2 * 65_536

    @pytest.mark.parametrize("left", [b"for=1.2.3.4," * 5_500, b"," * 65_536, b'for="' * 13_000 + b","])
    def test_sixty_four_kilobytes_of_forwarded_change_nothing(self, left: bytes) -> None:
        header = CountingBytes(left + b"for=203.0.113.9, for=10.0.0.8")

        found = parse_strategy("forwarded:2").find(forwarded(header), None)

        assert found == pack("203.0.113.9")
        assert header.copied < 3 * FORWARDED_ELEMENT_BYTES_MAX

    def test_ranges_stops_after_the_longest_chain(self) -> None:
        header = CountingBytes(b"203.0.113.9" + b",10.0.0.8" * 7_000)

        found = parse_strategy("ranges:10.0.0.0/8").find(xff(header), "10.0.0.1")

        assert found is None
        assert header.copied == HOPS_MAX * len(b"10.0.0.8")

    @pytest.mark.parametrize("length", [FORWARDED_ELEMENT_BYTES_MAX, FORWARDED_ELEMENT_BYTES_MAX + 1])
    @pytest.mark.parametrize("left", [b"", b"for=6.6.6.6,"])
    @pytest.mark.parametrize("filler", [b"x", b",", b"\t"])
    def test_an_element_of_forwarded_is_read_up_to_its_bound(self, length: int, left: bytes, filler: bytes) -> None:
        element = b'for=203.0.113.9;host="' + filler * (length - 23) + b'"'

        found = parse_strategy("forwarded:1").find(forwarded(left + element), None)

        assert found == (pack("203.0.113.9") if length == FORWARDED_ELEMENT_BYTES_MAX else None)

    def test_a_proxy_far_to_the_left_is_not_looked_for(self) -> None:
        header = CountingBytes(b"1.2.3.4," * 4_000 + b"198.51.100.7," + b"1.2.3.4," * 4_000)

        assert not peer_was_rewritten(xff(header), "198.51.100.7")
        assert header.copied <= HOPS_MAX * len(b"1.2.3.4")


class TestParseStrategy:
    @pytest.mark.parametrize(
        ("text", "name", "headers"),
        [
            ("direct", "direct", ()),
            ("header:X-Real-IP", "x-real-ip", (b"x-real-ip",)),
            ("header:cloudfront-viewer-address", "cloudfront-viewer-address", (b"cloudfront-viewer-address",)),
            ("xff:1", "xff:1", (b"x-forwarded-for",)),
            (" XFF: 32 ", "xff:32", (b"x-forwarded-for",)),
            ("forwarded:2", "forwarded:2", (b"forwarded",)),
            ("ranges:10.0.0.0/8", "ranges:10.0.0.0/8", (b"x-forwarded-for",)),
            ("ranges:10.0.0.0/8, ::1, 192.0.2.1", "ranges:10.0.0.0/8 and 2 more", (b"x-forwarded-for",)),
        ],
    )
    def test_a_strategy_says_its_name_and_what_it_reads(self, text: str, name: str, headers: tuple[bytes, ...]) -> None:
        strategy = parse_strategy(text)

        assert (strategy.name, strategy.headers) == (name, headers)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "'' is not a way to find the client address; write direct, header:<name>, xff:<n>"),
            ("vercel", "'vercel' is not a way to find the client address"),
            ("direct:1", "'direct:1' is not a way to find the client address"),
            ("direct:", "'direct:' is not a way to find the client address"),
            ("x-real-ip", "'x-real-ip' is not a way to find the client address"),
            ("header", "'' is not a header name; write for example header:x-real-ip"),
            ("header:", "'' is not a header name"),
            ("header:x real ip", "'x real ip' is not a header name"),
            ("header:x-real-ip, x-forwarded-for", "is not a header name"),
            ("header:\uff58", "is not a header name"),
            ("header:x-real-ip\n1", "is not a header name"),
            ("header:X-Forwarded-For", "'x-forwarded-for' is a list that proxies append to; write xff:1"),
            ("header:forwarded", "'forwarded' is a list that proxies append to; write forwarded:1"),
            ("xff", "'xff' needs the number of proxies that append, from 1 to 32; write xff:1"),
            ("xff:", "'xff:' needs the number of proxies"),
            ("xff:0", "'xff:0' needs the number of proxies"),
            ("xff:-1", "'xff:-1' needs the number of proxies"),
            ("xff:01", "'xff:01' needs the number of proxies"),
            ("xff:33", "'xff:33' needs the number of proxies"),
            ("xff:1.5", "'xff:1.5' needs the number of proxies"),
            ("xff:\uff11", "needs the number of proxies"),
            ("forwarded:0", "'forwarded:0' needs the number of proxies that append, from 1 to 32; write forwarded:1"),
            ("ranges:", "'' is not a network"),
            ("ranges:10.0.0.0/8,nginx", "'nginx' is not a network"),
            ("ranges:0.0.0.0/0", "'ranges:0.0.0.0/0' trusts every address as a proxy; write your proxies' own"),
            ("ranges:10.0.0.0/8,::/0", "trusts every address as a proxy"),
        ],
    )
    def test_what_is_no_strategy_is_refused_with_the_remedy(self, text: str, said: str) -> None:
        with pytest.raises(ValueError, match=re.escape(said)):
            parse_strategy(text)

    @given(st.text())
    def test_any_text_is_a_strategy_or_a_value_error(self, text: str) -> None:
        try:
            name = parse_strategy(text).name
        except ValueError as error:
            name = str(error)

        assert name


class TestRfc7239Deviations:
    """What RFC 7239 allows and we do not: each is nobody, never another element."""

    @pytest.mark.parametrize(
        ("element", "allowed_by"),
        [
            ('for="203.0.113.9:_port"', "§6.3: a port may be obfuscated"),
            ('for="203.0.113\\.9"', "RFC 9110 §5.6.4: a quoted string may escape any character"),
            ("for=203.0.113.9, ", "RFC 9110 §5.6.1: a recipient skips empty elements"),
            ("for=_gazonk", "§6.3: an obfuscated identifier names a client, but the client may pick it"),
            (f'for=203.0.113.9;host="{"a" * 1_024}"', "no length is limited"),
        ],
    )
    def test_an_element_the_rfc_allows_is_nobody(self, element: str, allowed_by: str) -> None:
        assert parse_strategy("forwarded:1").find(forwarded(element), None) is None, allowed_by

    def test_a_quoted_string_never_spans_two_lines(self) -> None:
        found = parse_strategy("forwarded:1").find(forwarded('for=6.6.6.6;x="a', 'b";for=203.0.113.9'), None)

        assert found is None

    def test_ipv4_forms_that_ipaddress_and_the_rfc_refuse_are_refused(self) -> None:
        assert parse_strategy("forwarded:1").find(forwarded('for="[1.2.3.4]"'), None) is None


class TestWarnings:
    def test_the_forwarding_headers_present_are_named_once(self) -> None:
        headers = [(b"host", b"x"), (b"cf-connecting-ip", b"1.1.1.1"), *xff("1.1.1.1", "2.2.2.2"), (b"x_real_ip", b"")]

        assert forwarding_headers(headers) == ("x-forwarded-for", "cf-connecting-ip")

    def test_every_header_a_preset_reads_is_a_forwarding_header(self) -> None:
        for platform in PLATFORMS.values():
            headers = [(name, b"") for name in platform.strategy.headers]
            assert forwarding_headers(headers) == tuple(name.decode() for name in platform.strategy.headers)

    @pytest.mark.parametrize(
        ("headers", "peer"),
        [
            (xff("203.0.113.9"), "203.0.113.9"),
            (xff("203.0.113.9:4711"), "203.0.113.9"),
            (xff("6.6.6.6, 203.0.113.9"), "203.0.113.9"),
            (xff("203.0.113.9, 10.0.0.8"), "203.0.113.9"),
            (xff("6.6.6.6", "203.0.113.9"), "203.0.113.9"),
            (xff(b"6.6.6.6" + b",10.0.0.8" * 5_000), "6.6.6.6"),
            (xff("::ffff:203.0.113.9"), "203.0.113.9"),
            (xff("2001:db8:0:0::5"), "2001:db8::5"),
            (xff("unknown"), "unknown"),
            (xff(" <script> "), "<script>"),
            (forwarded("for=203.0.113.9"), "203.0.113.9"),
            (forwarded("for=6.6.6.6", 'for=1.1.1.1, for="[2001:db8::5]:80"'), "2001:db8::5"),
        ],
    )
    def test_a_peer_taken_from_a_header_is_noticed(self, headers: Headers, peer: str) -> None:
        assert peer_was_rewritten(headers, peer)

    @pytest.mark.parametrize(
        ("headers", "peer"),
        [
            ([], "203.0.113.9"),
            (xff("203.0.113.9"), "10.0.0.1"),
            (xff("203.0.113.91, 1203.0.113.9"), "203.0.113.9"),
            (xff("203.0.113.9"), None),
            (xff(""), ""),
            (xff("6.6.6.6", "203.0.113.9" + ",10.0.0.8" * HOPS_MAX), "203.0.113.9"),
            (forwarded("for=203.0.113.9" + ",for=10.0.0.8" * HOPS_MAX), "203.0.113.9"),
            (xff("\x0bunknown"), "unknown"),
            (xff("Xunknown"), "unknown"),
            (xff("garbage"), "unknown"),
            (xff("garbage"), "testclient"),
            (forwarded("for=unknown"), "unknown"),
            (forwarded("by=203.0.113.9"), "203.0.113.9"),
            (forwarded("proto=https, for =203.0.113.9"), "203.0.113.9"),
            ([(b"x_forwarded_for", b"203.0.113.9")], "203.0.113.9"),
        ],
    )
    def test_another_peer_is_left_alone(self, headers: Headers, peer: str | None) -> None:
        assert not peer_was_rewritten(headers, peer)


class TestPlatforms:
    def test_the_presets_are_those_of_the_contract(self) -> None:
        expected = {
            "x-real-ip": "vercel railway nginx",
            "cf-connecting-ip": "cloudflare render",
            "fly-client-ip": "fly",
            "x-nf-client-connection-ip": "netlify",
            "do-connecting-ip": "digitalocean",
            "cloudfront-viewer-address": "cloudfront",
            "x-azure-socketip": "azure-front-door",
            "xff:1": "heroku aws-alb cloud-run azure-app-gateway caddy traefik haproxy ingress-nginx ngrok",
            "xff:2": "gcp-lb",
            "direct": "direct",
        }

        found = {name: platform.strategy.name for name, platform in PLATFORMS.items()}

        assert found == {name: strategy for strategy, names in expected.items() for name in names.split()}

    def test_edges_that_can_be_gone_around_need_a_secret(self) -> None:
        needing = {name for name, platform in PLATFORMS.items() if platform.needs_edge_secret}

        assert needing == {"cloudflare", "cloudfront", "azure-front-door"}

    def test_only_heroku_insists_on_one_line(self) -> None:
        two_lines = xff("6.6.6.6, 203.0.113.9", "7.7.7.7, 198.51.100.7")

        refusing = {
            name
            for name, platform in PLATFORMS.items()
            if b"x-forwarded-for" in platform.strategy.headers and platform.strategy.find(two_lines, None) is None
        }

        assert refusing == {"heroku"}

    def test_the_table_cannot_be_changed(self) -> None:
        with pytest.raises(TypeError):
            PLATFORMS["vercel"] = PLATFORMS["direct"]  # type: ignore[index]

    @pytest.mark.parametrize(
        ("variable", "platform"),
        [
            ("VERCEL", "vercel"),
            ("FLY_APP_NAME", "fly"),
            ("RENDER", "render"),
            ("RAILWAY_PROJECT_ID", "railway"),
            ("RAILWAY_SERVICE_ID", "railway"),
            ("RAILWAY_ENVIRONMENT", "railway"),
            ("RAILWAY_ENVIRONMENT_NAME", "railway"),
            ("DYNO", "heroku"),
            ("K_SERVICE", "cloud-run"),
            ("NETLIFY", "netlify"),
        ],
    )
    def test_a_platforms_own_variable_suggests_it(self, variable: str, platform: str) -> None:
        assert suggest_platform({"PATH": "/bin", variable: "1"}) == platform

    @pytest.mark.parametrize(
        "environ",
        [{}, {"PATH": "/bin"}, {"VERCEL": ""}, {"vercel": "1"}, {"VERCEL": "1", "DYNO": "web.1"}],
    )
    def test_nothing_or_a_contradiction_suggests_nothing(self, environ: dict[str, str]) -> None:
        assert suggest_platform(environ) is None

    def test_several_variables_of_one_platform_suggest_it(self) -> None:
        assert suggest_platform({"RAILWAY_PROJECT_ID": "1", "RAILWAY_SERVICE_ID": "2"}) == "railway"

    @pytest.mark.parametrize("name", PLATFORMS)
    def test_the_documentation_has_the_row_of_every_preset(self, name: str) -> None:
        platform = PLATFORMS[name]
        strategy = platform.strategy
        setting = f"header:{strategy.name}" if isinstance(strategy, EdgeHeader) else strategy.name
        setting += ", one line" if name == "heroku" else ""
        variables = ", ".join(f"`{variable}`" for variable in platform.environment) or "none"
        first, last = f"| `{name}` | `{setting}` | {platform.why} | ", f" | {variables} | {platform.source} |"

        documented = (DOCS / "platforms.md").read_text(encoding="utf-8").splitlines()

        assert sum(line.startswith(first) and line.endswith(last) for line in documented) == 1

    @pytest.mark.parametrize("name", PLATFORMS)
    def test_the_documentation_says_how_to_lock_every_preset(self, name: str) -> None:
        page = (DOCS / "platforms.md").read_text(encoding="utf-8")

        locks = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \| [^|]{20,} \| [^|]{9,} \|", page, re.MULTILINE)

        assert locks.count(name) == 1

    def test_the_documentation_has_no_row_of_an_unknown_preset(self) -> None:
        page = (DOCS / "platforms.md").read_text(encoding="utf-8")

        rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)

        assert set(rows) == set(PLATFORMS)


def test_inet_pton_is_as_strict_here_as_the_rules_assume() -> None:
    """The C library decides what an address is; a lenient one must be noticed, not trusted."""
    for lenient in ("010.1.1.1", "1.2.3", "0x7f.1", "1.2.3.4 ", "1"):
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_pton(socket.AF_INET, lenient)
