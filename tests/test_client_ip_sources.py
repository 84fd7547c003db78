"""Which source of the client address is trusted, and what is warned about one that is not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.client_ip import PLATFORMS, Headers, forwarding_headers, parse_strategy, peer_was_rewritten
from routeguard.client_ip.strategies import HOPS_MAX
from tests.forwarding import forwarded, xff


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
