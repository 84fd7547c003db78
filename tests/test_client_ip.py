"""The client address: one trusted source, and nothing a client writes changes the answer."""

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routeguard.client_ip import parse_strategy, peer_was_rewritten
from routeguard.client_ip.strategies import FORWARDED_ELEMENT_BYTES_MAX, HOPS_MAX
from tests.forwarding import forwarded, pack, xff

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
