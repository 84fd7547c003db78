"""Text or Python values become typed values, and what could mean two things is refused with what would be right."""

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.settings import grammar
from routeguard.settings.table import TABLE
from tests.configured import SECOND, table


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


@table(
    "written",
    [
        *("a, b", ["a", "b"], ("a", "b"), "a,,b,", [" a ", "b"]),
        # Named, because a set writes itself in another order each time.
        pytest.param({"b", "a"}, id="a set"),
        pytest.param(frozenset({"a", "b"}), id="a frozen set"),
    ],
)
def test_lists_are_text_or_any_collection_of_texts(written: object) -> None:
    assert grammar.entries(written, example="'a'") == ("a", "b")


@table("written", ["", " , ", [], b"ab", {"a": 1}, None, [["a"]], [None], [True], True])
def test_what_is_no_list_of_texts_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="write 'a'"):
        grammar.entries(written, example="'a'")


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
