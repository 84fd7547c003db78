"""Text or Python values become typed values, and what could mean two things is refused with what would be right."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard import price_file
from routeguard.money import NANOUSD_MAX, NANOUSD_PER_USD, format_usd
from routeguard.policy import NANOSECONDS, Rate
from routeguard.settings import grammar, limits, names
from routeguard.settings.limits import Cap, Share
from routeguard.settings.table import TABLE

SECOND = NANOSECONDS
USD = NANOUSD_PER_USD

#: `"1"` and `1` are different rows.
table = partial(pytest.mark.parametrize, ids=repr)


@table(
    ("written", "size_bytes"),
    [
        ("512", 512),
        (512, 512),
        ("64kB", 64_000),
        ("64 kB", 64_000),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("1MB", 1_000_000),
        ("1MiB", 1_048_576),
        ("1b", 1),
        (Decimal(512), 512),
    ],
)
def test_sizes_are_bytes_with_decimal_and_binary_units(written: object, size_bytes: int) -> None:
    assert grammar.size(most=1 << 30)(written) == size_bytes


@table(
    "written",
    [
        "",
        "64K",
        "64k",
        "kB",
        "-1",
        "1.5MB",
        "0",
        "2GiB",
        "1TB",
        "٦٤",
        "6_4",
        "1 2",
        "0x10",
        True,
        None,
        1.5,
        [64],
        math.nan,
        10**40,
    ],
)
def test_sizes_that_could_mean_anything_else_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="64kB"):
        grammar.size(most=1 << 30)(written)


@table(
    ("written", "ns"),
    [
        ("500ms", SECOND // 2),
        ("10s", 10 * SECOND),
        ("5m", 300 * SECOND),
        ("1h", 3_600 * SECOND),
        ("1 h", 3_600 * SECOND),
        ("1d", 86_400 * SECOND),
        ("0.5s", SECOND // 2),
        ("0.000000001s", 1),
        (10, 10 * SECOND),
        (0.1, SECOND // 10),
        (Decimal("2.5"), 5 * SECOND // 2),
        (timedelta(minutes=5), 300 * SECOND),
        (timedelta(microseconds=1), 1_000),
    ],
)
def test_durations_have_a_unit_and_python_numbers_are_seconds(written: object, ns: int) -> None:
    assert grammar.duration_ns(least="0ms", most="1d")(written) == ns


@table(
    "written",
    [
        "10",
        "",
        "10 seconds",
        "-1s",
        "1e3s",
        "ten",
        "5M",
        True,
        None,
        math.nan,
        math.inf,
        -1,
        Decimal("1e99"),
        Decimal("sNaN"),
        "٣s",
    ],
)
def test_durations_without_a_unit_or_a_meaning_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"write a (number and its unit|duration from)"):
        grammar.duration_ns(least="1ms", most="1d")(written)


@table("written", ["1ms", "1h", timedelta(hours=1)])
def test_a_duration_may_equal_its_bounds(written: object) -> None:
    assert grammar.duration_ns(least="1ms", most="1h")(written) > 0


@table("written", ["0ms", "61m", timedelta(hours=1, microseconds=1), timedelta(-1)])
def test_a_duration_outside_its_bounds_is_refused_with_the_bounds(written: object) -> None:
    with pytest.raises(ValueError, match="from '1ms' to '1h'"):
        grammar.duration_ns(least="1ms", most="1h")(written)


@table("written", [True, "true", "TRUE", "1", "yes", "on", 1])
def test_flags_that_are_on(written: object) -> None:
    assert grammar.flag(written) is True


@table("written", [False, "false", "0", "no", "Off", 0])
def test_flags_that_are_off(written: object) -> None:
    assert grammar.flag(written) is False


@table("written", ["", "maybe", 2, None, [], "truee"])
def test_a_flag_that_is_neither_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="'true' or 'false'"):
        grammar.flag(written)


@table(("written", "number"), [(1, 1), ("1", 1), (" 7 ", 7), (10, 10), ("10", 10), ("010", 10), (Decimal(7), 7)])
def test_counts_within_their_bounds_are_taken(written: object, number: int) -> None:
    assert grammar.count(least=1, most=10)(written) == number


@table("written", [0, "11", "-1", "1.0", "ten", "", True, None, "1e1", 10**50, 2.5, 10.0, "٣"])
def test_counts_outside_their_bounds_or_not_whole_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="from 1 to 10"):
        grammar.count(least=1, most=10)(written)


def test_a_choice_ignores_case_and_a_misspelt_one_names_the_nearest() -> None:
    parse = grammar.one_of("enforce", "observe", "off")

    assert parse("Observe") == "observe"
    with pytest.raises(ValueError, match=r"did you mean 'enforce'\? Known: enforce, observe, off"):
        parse("enforced")


@table("written", [503, "503", " 503 "])
def test_a_choice_of_numbers_takes_text_too(written: object) -> None:
    assert grammar.one_of(503, 429, 402)(written) == 503


@table("written", [True, "500", None, "", ["503"]])
def test_a_choice_takes_nothing_else(written: object) -> None:
    with pytest.raises(ValueError, match="is not known"):
        grammar.one_of(503, 429, 402)(written)


@table("written", ["a, b", ["a", "b"], ("a", "b"), {"b", "a"}, frozenset({"a", "b"}), "a,,b,", [" a ", "b"]])
def test_lists_are_text_or_any_collection_of_texts(written: object) -> None:
    assert grammar.entries(written, example="'a'") == ("a", "b")


@table("written", ["", " , ", [], b"ab", {"a": 1}, None, [["a"]], [None], [True], True])
def test_what_is_no_list_of_texts_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="write 'a'"):
        grammar.entries(written, example="'a'")


@table(
    ("written", "caps"),
    [
        ("5/day", (Cap(5 * USD, "day"),)),
        ("$5/day", (Cap(5 * USD, "day"),)),
        ("5 / Day", (Cap(5 * USD, "day"),)),
        ("5/day, 50/month", (Cap(5 * USD, "day"), Cap(50 * USD, "month"))),
        (["5/day", "50/month"], (Cap(5 * USD, "day"), Cap(50 * USD, "month"))),
        ("0.000000001/hour,2/week,100/total", (Cap(1, "hour"), Cap(2 * USD, "week"), Cap(100 * USD, "total"))),
        ("9000000/total", (Cap(NANOUSD_MAX, "total"),)),
        ("unlimited", ()),
        ("Unlimited", ()),
        ("0/day", (Cap(0, "day"),)),
        ("0", (Cap(0, "day"),)),
        ("$0.00", (Cap(0, "day"),)),
        (0, (Cap(0, "day"),)),
    ],
)
def test_budgets_are_money_per_window(written: object, caps: tuple[Cap, ...]) -> None:
    assert limits.caps(written) == caps


@table(
    ("written", "remedy"),
    [
        ("5", "'5/day' or '5/month'"),
        (5, "'5/day' or '5/month'"),
        (2.5, "'2.5/day'"),
        ("5/dya", "did you mean 'day'"),
        ("5/days", "did you mean 'day'"),
        ("5/minute", "Known: hour, day, week, month, total"),
        ("five/day", "is not an amount in USD"),
        ("-5/day", "is not an amount in USD"),
        ("1e3/day", "is not an amount in USD"),
        ("NaN/day", "is not an amount in USD"),
        ("5_0/day", "is not an amount in USD"),
        ("\N{ARABIC-INDIC DIGIT FIVE}/day", "is not an amount in USD"),
        ("$$5/day", "is not an amount in USD"),
        ("0.0000000001/day", "nine decimals"),
        ("9000000.000000001/day", "above 9,000,000 USD"),
        ("999999999999999/day", "above 9,000,000 USD"),
        ("5/day, 6/day", "twice"),
        ("1,000/day", "does not say per which window '1'"),
        ("5/day, unlimited", "'unlimited' alone"),
        ("Unlimited, 5/day", "'unlimited' alone"),
        ("much", "'5/day'"),
        ("/day", "is not an amount in USD"),
        ("5/day/month", "Known: hour"),
        ("", "write '5/day'"),
        (True, "write '5/day'"),
        (None, "write '5/day'"),
        ({"day": 5}, "write '5/day'"),
        (math.nan, "write '5/day'"),
    ],
)
def test_a_budget_that_cannot_be_read_says_what_would_be_right(written: object, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        limits.caps(written)


@given(st.integers(0, NANOUSD_MAX), st.sampled_from(limits.WINDOW_UNITS))
@settings(max_examples=200)
def test_every_amount_down_to_a_nano_usd_is_read_exactly(nanousd: int, unit: str) -> None:
    assert [cap.limit_nanousd for cap in limits.caps(f"{format_usd(nanousd)}/{unit}")] == [nanousd]


@table(
    ("written", "part"),
    [("25%", Fraction(1, 4)), ("100%", Fraction(1)), (" 2.5 % ", Fraction(1, 40)), ("33.3%", Fraction(333, 1000))],
)
def test_a_client_budget_may_be_an_exact_share(written: str, part: Fraction) -> None:
    assert limits.caps_or_share(written) == Share(part)


@table("written", ["0%", "101%", "-5%", "%", "25%, 1/day", "25%,50%", "1e2%", ["25%", "1/day"], 0.25])
def test_a_share_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"25%|per which window|is not an amount"):
        limits.caps_or_share(written)


def test_a_client_budget_takes_the_grammar_of_budgets_too() -> None:
    assert limits.caps_or_share("1/day,5/month") == limits.caps("1/day,5/month")
    assert limits.caps_or_share("unlimited") == ()


@table(
    ("written", "pairs"),
    [
        ("10/minute, 200/day", [("client-1", 10, 60), ("client-2", 200, 86_400)]),
        (["20/30s"], [("client-1", 20, 30)]),
        ("1/second", [("client-1", 1, 1)]),
        ("1/hour", [("client-1", 1, 3_600)]),
        ("7/2h", [("client-1", 7, 7_200)]),
        ("7/31d", [("client-1", 7, 31 * 86_400)]),
        ("7/1000ms", [("client-1", 7, 1)]),
        (" 10 / Minute ", [("client-1", 10, 60)]),
        ("unlimited", []),
    ],
)
def test_rates_are_requests_per_window(written: object, pairs: list[tuple[str, int, int]]) -> None:
    expected = tuple(Rate(name, quota, window * SECOND) for name, quota, window in pairs)

    assert limits.rates("client")(written) == expected


@table(
    ("written", "remedy"),
    [
        ("10", "'10/minute'"),
        (10, "'10/minute'"),
        ("10/minuet", "did you mean 'minute'"),
        ("10/m", "Known: second, minute, hour, day"),
        ("10/month", "Known: second"),
        ("0/minute", "at least 1"),
        ("-1/minute", "'10/minute'"),
        ("1.5/minute", "'10/minute'"),
        ("1000000001/minute", "at most 1000000000, or 'unlimited'"),
        ("10/500ms", "whole seconds"),
        ("10/1500ms", "whole seconds"),
        ("10/32d", "whole seconds from '1s' to '31d'"),
        ("10/0s", "whole seconds"),
        ("10/minute, 20/60s", "twice"),
        ("10/minute, unlimited", "'10/minute'"),
        ("", "'10/minute'"),
        (None, "'10/minute'"),
    ],
)
def test_a_rate_that_cannot_be_read_says_what_would_be_right(written: object, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        limits.rates("client")(written)


@table(("written", "quota"), [("unlimited", None), ("32", 32), (1, 1)])
def test_parallel_limits_are_a_count_or_unlimited(written: object, quota: int | None) -> None:
    assert limits.count_or_unlimited(most=100)(written) == quota


@table("written", ["0", 0, "-1", "none", "", True, None, 101])
def test_a_parallel_limit_of_nothing_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="or 'unlimited'"):
        limits.count_or_unlimited(most=100)(written)


@table(
    ("written", "nanousd"),
    [("0.002", 2_000_000), ("$1", USD), (0.1, USD // 10), (Decimal("0.5"), USD // 2), (0, 0), (1e-9, 1)],
)
def test_amounts_are_exact_nano_usd(written: object, nanousd: int) -> None:
    assert limits.usd(written) == nanousd


@table("written", ["", "-1", "1e-3", 1e-10, math.inf, True, None, "1 USD", "9000001"])
def test_what_is_no_amount_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match=r"0\.002"):
        limits.usd(written)


@table(
    ("written", "price"),
    [
        ("0.25", Decimal("0.25")),
        (0, Decimal(0)),
        (0.1, Decimal("0.1")),
        ("0.0001", Decimal("0.0001")),
        (Decimal("1E+1"), 10),
    ],
)
def test_prices_are_exact_and_0_is_a_price(written: object, price: Decimal) -> None:
    assert grammar.usd_per_mtok(written) == price


@table("written", ["", "-1", "free", "1e3", math.nan, True, "1000001", "0.00000025", 2.5e-7])
def test_what_is_no_price_per_million_tokens_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="USD per million tokens"):
        grammar.usd_per_mtok(written)


def test_the_smallest_price_is_that_of_the_price_file() -> None:
    assert grammar.USD_PER_MTOK_MIN == price_file.USD_PER_MTOK_MIN


@table("written", ["/api/chat", "/api/*", "/api/**", "**", "/**", "/", "/a-b_c.d~e/%20/ü", "/Chat"])
def test_paths_begin_at_the_root(written: str) -> None:
    assert names.paths(written) == (written,)


def test_a_path_written_twice_counts_once() -> None:
    assert names.paths("/b, /a, /b") == ("/b", "/a")


@table(
    ("written", "remedy"),
    [
        ("api/chat", "'/api/chat'"),
        ("*", "'/*'"),
        ("https://shop.example/api", "'/api/chat'"),
        ("/api?x=1", "'/api/chat'"),
        ("/a b", "'/api/chat'"),
        ("/a\\b", "'/api/chat'"),
        ("/a\x00", "'/api/chat'"),
        ("/a/../b", "'/api/chat'"),
        ("", "'/api/chat'"),
    ],
)
def test_what_is_no_path_is_refused_with_one_that_is(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        names.paths(written)


@table(
    ("written", "methods"),
    [
        ("all", None),
        ("POST", {"POST"}),
        ("post, put", {"POST", "PUT"}),
        ("GET", {"GET", "HEAD"}),
        (["GET", "POST"], {"GET", "HEAD", "POST"}),
        ("HEAD", {"HEAD"}),
    ],
)
def test_guarded_methods_hold_head_beside_get(written: object, methods: set[str] | None) -> None:
    assert names.methods(written) == methods


@table("written", ["PSOT", "all, GET", "", "GET POST"])
def test_an_unknown_method_would_leave_a_route_unguarded_and_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="POST"):
        names.methods(written)


@table(
    ("written", "origin"),
    [
        ("https://shop.example", "https://shop.example"),
        ("HTTPS://Shop.Example", "https://shop.example"),
        ("https://shop.example:443", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("*", "*"),
    ],
)
def test_origins_are_what_a_browser_sends(written: str, origin: str) -> None:
    assert names.origins(written) == (origin,)


@table(
    "written",
    [
        "https://shop.example/",
        "https://shop.example/x",
        "shop.example",
        "https://*.shop.example",
        "https://",
        "null",
        "https://u@h",
        "",
    ],
)
def test_what_is_no_exact_origin_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"https://shop\.example"):
        names.origins(written)


@table(("written", "path"), [("/_routeguard", "/_routeguard"), ("/a/b/", "/a/b"), ("/A.b~c-1", "/A.b~c-1")])
def test_the_status_path_has_no_trailing_slash(written: str, path: str) -> None:
    assert names.status_path(written) == path


@table("written", ["", "/", "status", "/a//b", "/a/../b", "/.", "/a?b", "/a*", "/a b", None, 5])
def test_a_status_path_that_is_no_path_of_its_own_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="/_routeguard"):
        names.status_path(written)


@table(
    ("written", "fields", "complete"),
    [
        ("model, tools", {"model", "tools"}, False),
        ("=messages, stream", {"messages", "stream"}, True),
        (["=messages", "stream"], {"messages", "stream"}, True),
        (["=", "messages"], {"messages"}, True),
        ("reasoning.mode", {"reasoning.mode"}, False),
    ],
)
def test_a_leading_equals_sign_makes_the_fields_a_complete_list(
    written: object, fields: set[str], complete: bool
) -> None:
    assert names.fields(written) == (frozenset(fields), complete)


@table("written", ["=", "", "a b", "messages, =stream", "1x", "a\nb"])
def test_what_is_no_field_name_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="write"):
        names.fields(written)


@table(
    ("written", "statuses"),
    [("404, 405", {404, 405}), ([404], {404}), ({599}, {599}), ("none", set()), ([], set()), (400, {400})],
)
def test_released_statuses_are_those_of_failed_answers(written: object, statuses: set[int]) -> None:
    assert names.statuses(written) == statuses


@table("written", ["200", "399", "600", "40x", "none, 404", "", None, True, [True]])
def test_a_status_that_is_no_failure_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="'404, 405' or 'none'"):
        names.statuses(written)


def test_an_origin_with_a_path_is_refused_with_its_origin() -> None:
    with pytest.raises(ValueError, match=r"write for example 'https://a\.example:8443'"):
        names.origins("https://A.example:8443/chat")


@table("written", ["Europe/Berlin", ZoneInfo("Europe/Berlin"), " Europe/Berlin "])
def test_zones_are_those_of_the_time_zone_database(written: object) -> None:
    assert names.zone(written).key == "Europe/Berlin"


def test_utc_is_one_and_the_same_zone_however_it_is_written() -> None:
    assert names.zone("UTC") is names.zone("utc") is names.zone(ZoneInfo("UTC"))


def test_utc_needs_no_time_zone_database() -> None:
    zone = names.utc_without_database()

    assert zone.key == "UTC"
    assert datetime(2026, 7, 1, tzinfo=zone) == datetime(2026, 7, 1, tzinfo=UTC)


@table("written", ["Europe/Berln", "", "../etc/passwd", "Europe", "/etc/localtime", "a\x00b", None, "\udc80"])
def test_what_is_no_zone_is_refused_with_one_that_is(written: object) -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        names.zone(written)


@table("written", ["gpt 5", "x" * 201, "a\x00b", "", None])
def test_what_no_model_is_called_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="'gpt-5-mini'"):
        names.models(written)


def test_an_edge_secret_is_a_header_name_in_lower_case_and_a_value() -> None:
    assert grammar.header_and_secret("X-Edge-Secret: a:b=c ") == (b"x-edge-secret", b"a:b=c")


@table(
    "written",
    [
        "hunter2",
        "X-Edge:",
        ":hunter2",
        "X Edge:hunter2",
        "X-Edge:hunter 2",
        "X-Edge:hünter2",
        None,
        5,
        "X-Edge:hun\nter2",
    ],
)
def test_a_message_about_an_edge_secret_never_holds_it(written: object) -> None:
    with pytest.raises(ValueError, match="X-Edge-Secret:<secret>") as caught:
        grammar.header_and_secret(written)

    assert "nter2" not in str(caught.value)


@table("written", ["", "two words", "ü", "x" * 513, None, 5, "a\x00b"])
def test_a_secret_is_what_a_header_can_carry(written: object) -> None:
    with pytest.raises(ValueError, match=r"secrets\.token_urlsafe"):
        grammar.secret(written)


@table("written", ["memory://", " memory:// "])
def test_the_memory_ledger_is_available(written: str) -> None:
    assert names.ledger(written) == "memory://"


@table("written", ["sqlite:///x.db", "sqlite:////var/lib/x.db", "sqlite:///a/b.db?synchronous=full", "sqlite:///x?"])
def test_a_ledger_in_a_file_is_available(written: str) -> None:
    assert names.ledger(written) == written


@table(
    ("written", "remedy"),
    [
        ("sqlite://", "after four slashes"),
        ("sqlite:///", "after four slashes"),
        ("sqlite://x.db", "after four slashes"),
        ("sqlite:///folder/", "could share"),
        ("sqlite:///:memory:", "could share"),
        ("sqlite:///x.db#y", "could share"),
        ("sqlite:///x.db?mode=ro", "write '?synchronous=full'"),
        ("sqlite:///x.db?synchronous=off", "write '?synchronous=full'"),
        ("sqlite:///x.db?synchronous=full&cache=shared", "write '?synchronous=full'"),
    ],
)
def test_the_url_of_a_file_says_which_file_and_nothing_else(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        names.ledger(written)


@table(
    ("written", "remedy"),
    [
        ("redis://u:hunter2@h:99999", "cannot be read as the address of a Redis server"),
        ("redis://u:hunter2@h/first", "write for example 'redis://localhost:6379/0'"),
        ("redis://h?hunter2=1", "has something after the question mark that no connection takes"),
        ("unix://hunter2", "names no socket; write for example 'unix:///run/redis.sock?db=0'"),
        ("unix:///", "names no socket"),
    ],
)
def test_the_address_of_a_redis_server_is_read_before_anything_starts(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)) as caught:
        names.ledger(written)

    assert "hunter2" not in str(caught.value)


@table(
    ("written", "remedy"),
    [
        ("postgresql://u:hunter2@h/0", "('postgresql') that is not available"),
        ("redis+cluster://hunter2@h", "('redis+cluster') that is not available"),
        ("memroy://", "did you mean 'memory'?"),
        ("memory://hunter2", "takes nothing"),
        ("memory", "is not the URL of a ledger"),
        ("hunter2@host", "is not the URL of a ledger"),
        ("hunter2:x@://", "is not the URL of a ledger"),
        (None, "is not the URL of a ledger"),
    ],
)
def test_a_ledger_that_is_not_there_is_refused_without_its_password(written: object, remedy: str) -> None:
    with pytest.raises(ValueError, match="'memory://'") as caught:
        names.ledger(written)

    assert remedy in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_system_prompt_is_counted_in_utf_8_bytes() -> None:
    assert grammar.text_or_file_bytes("Grüße 👋") == len("Grüße 👋".encode())
    assert grammar.text_or_file_bytes("") == 0


def test_a_system_prompt_file_is_counted_as_it_lies_on_disk(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("Grüße\r\n".encode())

    assert grammar.text_or_file_bytes(f"@{tmp_path}/prompt.txt") == 9


@table("name", ["missing.txt", "", ".", "a\x00b"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        grammar.text_or_file_bytes(f"@{tmp_path}/{name}")


def test_a_prompt_file_in_another_encoding_would_be_counted_too_small(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("Grüße".encode("latin-1"))

    with pytest.raises(ValueError, match="is not UTF-8 text"):
        grammar.text_or_file_bytes(f"@{tmp_path}/prompt.txt")


@table("written", [None, 5, b"text", "\udc80"])
def test_a_system_prompt_that_is_no_text_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"'@prompt\.txt'"):
        grammar.text_or_file_bytes(written)


@table("written", ["prices.toml", "@", "", None, 5, "[model]"])
def test_a_price_file_is_written_with_an_at_sign(written: object) -> None:
    with pytest.raises(ValueError, match=r"'@prices\.toml'"):
        grammar.file_text(written)


@table("written", ["", " ", "a\nb", "a\x1b[0m", "x" * 11, None, 5])
def test_a_message_is_one_printable_line(written: object) -> None:
    with pytest.raises(ValueError, match=r"'Back tomorrow\.'"):
        grammar.text(most=10, example="Back tomorrow.")(written)


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(max_size=40),
    st.binary(max_size=8),
    st.timedeltas(),
    st.lists(st.one_of(st.text(max_size=10), st.none(), st.integers()), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["unlimited", "@", "/", "%", "5/", "/day", "1e9999999", "=,", "::/0", "xff:", "header:"]),
)


@pytest.mark.parametrize("parse", [pytest.param(row.parse, id=name) for name, row in TABLE.items()])
@given(value=ODD_VALUES)
@settings(max_examples=40)
def test_whatever_is_written_is_read_or_refused_with_a_sentence(
    parse: Callable[[object], object], value: object
) -> None:
    said = "nothing"
    try:
        parse(value)
    except ValueError as error:
        said = str(error)

    assert said
