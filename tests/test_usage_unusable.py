"""A report that cannot be right is none, whatever it is made of."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Never, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.usage import Usage, usage_from

USABLE = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "total_tokens"])
@pytest.mark.parametrize(
    "value",
    [
        -1,
        True,
        1.0,
        float("nan"),
        float("inf"),
        "10",
        b"10",
        [10],
        {"a": 1},
        10**9 + 1,
        pytest.param(10**5000, id="5001 digits"),
        Decimal(3),
    ],
    ids=repr,
)
def test_a_report_with_something_that_is_not_a_count_is_unusable(field: str, value: object) -> None:
    assert usage_from({**USABLE, field: value}) is None


@pytest.mark.parametrize(
    "value",
    [
        -0.1,
        True,
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("-1"),
        Decimal("1e-999999"),
        Decimal("1e-401"),
        Decimal("1e999999"),
        9_000_001,
        pytest.param(10**5000, id="5001 digits"),
    ],
    ids=repr,
)
def test_a_report_with_something_that_is_not_a_cost_is_unusable(value: object) -> None:
    assert usage_from({**USABLE, "cost": value}) is None
    assert usage_from(Usage(input_tokens=1, cost_usd=cast("Decimal", value))) is None


@pytest.mark.parametrize("cost", [Decimal("1e-400"), Decimal(9_000_000)], ids=repr)
def test_the_finest_and_the_largest_cost_are_usable(cost: Decimal) -> None:
    used = usage_from({**USABLE, "cost": cost})

    assert used is not None
    assert used.cost_usd == cost


def test_the_longest_list_is_usable() -> None:
    used = usage_from({"input_tokens": 256, "output_tokens": 1, "iterations": [{"input_tokens": 1}] * 256})

    assert used == Usage(input_tokens=512, output_tokens=1)


def test_the_largest_count_and_the_longest_name_are_usable() -> None:
    used = usage_from({"model": "x" * 200, "usage": {"prompt_tokens": 10**9, "completion_tokens": 10**9}})

    assert used == Usage(input_tokens=10**9, output_tokens=10**9, model="x" * 200)


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        7,
        True,
        "usage",
        b"",
        [],
        (),
        {},
        pytest.param(object(), id="an object"),
        Usage,
        {"usage": None},
        {"usage": {}},
        {"usage": 5},
        {"usage": []},
        {"prompt_tokens_details": {"cached_tokens": 5}},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": "many"},
        {"prompt_tokens": None, "completion_tokens": None},
        {"cost": 0.1},
        {"usage": {"prompt_tokens": 1}, "choices": [7]},
        {"input_tokens": 1, "output_tokens": 1, "iterations": [{"input_tokens": 1}] * 257},
        {"input_tokens": 1, "output_tokens": 1, "iterations": ["x"]},
        Usage(),
        Usage(cached_input_tokens=5),
        Usage(input_tokens=-1),
        Usage(input_tokens=True),
        Usage(output_tokens=1, reasoning_tokens=-1),
        Usage(output_tokens=1, other_models=(Usage(),)),
        Usage(output_tokens=1, other_models=(Usage(output_tokens=1, other_models=(Usage(output_tokens=1),)),)),
    ],
    ids=repr,
)
def test_a_report_without_usable_counts_is_none_and_not_zero(value: object) -> None:
    assert usage_from(value) is None


def test_zero_is_an_answer() -> None:
    assert usage_from({"prompt_tokens": 0, "completion_tokens": 0}) == Usage(input_tokens=0, output_tokens=0)


def test_a_usage_of_our_own_is_taken_as_it_is() -> None:
    usage = Usage(
        input_tokens=10,
        output_tokens=5,
        cached_input_tokens=3,
        model="gpt-5-mini",
        service_tier="flex",
        cost_usd=Decimal("0.25"),
        finish="stop",
    )

    assert usage_from(usage) == usage


@pytest.mark.parametrize("name", ["x" * 201, "gpt\n5", "\x1b[31m", ""])
def test_a_name_in_a_usage_of_our_own_that_should_not_stand_in_a_log_is_dropped(name: str) -> None:
    usage = Usage(input_tokens=10, output_tokens=5, model=name, service_tier=name, finish=name)

    assert usage_from(usage) == Usage(input_tokens=10, output_tokens=5)


def test_a_cost_in_a_usage_of_our_own_is_read_by_its_shortest_form() -> None:
    used = usage_from(Usage(input_tokens=10, cost_usd=cast("Decimal", 0.1)))

    assert used is not None
    assert used.cost_usd == Decimal("0.1")


def test_a_usage_of_our_own_keeps_the_tokens_of_other_models() -> None:
    usage = Usage(input_tokens=10, output_tokens=5, other_models=(Usage(input_tokens=3, model="gpt-5"),))

    assert usage_from(usage) == usage


@pytest.mark.parametrize(
    ("reported", "used"),
    [
        (Usage(input_tokens=10, cached_input_tokens=30), Usage(input_tokens=30, cached_input_tokens=30)),
        (Usage(input_tokens=10, cache_write_tokens=30), Usage(input_tokens=30, cache_write_tokens=30)),
        (Usage(input_tokens=10, cache_write_1h_tokens=30), Usage(input_tokens=30, cache_write_1h_tokens=30)),
        (
            Usage(input_tokens=10, cache_write_tokens=8, cache_write_1h_tokens=7),
            Usage(input_tokens=15, cache_write_tokens=8, cache_write_1h_tokens=7),
        ),
        (Usage(input_tokens=10, input_audio_tokens=30), Usage(input_tokens=30, input_audio_tokens=30)),
        (Usage(output_tokens=5, reasoning_tokens=9), Usage(output_tokens=9, reasoning_tokens=9)),
        (Usage(output_tokens=5, output_audio_tokens=9), Usage(output_tokens=9, output_audio_tokens=9)),
        (Usage(input_tokens=0, reasoning_tokens=9), Usage(input_tokens=0, reasoning_tokens=9)),
        (Usage(output_tokens=0, cached_input_tokens=9), Usage(output_tokens=0, cached_input_tokens=9)),
    ],
    ids=repr,
)
def test_a_whole_of_our_own_that_is_smaller_than_its_part_is_raised_to_it(reported: Usage, used: Usage) -> None:
    assert usage_from(reported) == used


def test_a_usage_of_our_own_is_freed_of_contradictions() -> None:
    other = Usage(input_tokens=1, output_tokens=1, reasoning_tokens=2)

    used = usage_from(
        Usage(input_tokens=10, cached_input_tokens=30, cache_write_1h_tokens=8, output_tokens=5, other_models=(other,))
    )

    dearer = Usage(input_tokens=1, output_tokens=2, reasoning_tokens=2)
    assert used == Usage(
        input_tokens=30, cached_input_tokens=30, cache_write_1h_tokens=8, output_tokens=5, other_models=(dearer,)
    )


@pytest.mark.parametrize("name", ["x" * 201, "gpt\n5", "\x1b[31m", ""])
def test_a_name_that_should_not_stand_in_a_log_is_dropped(name: str) -> None:
    used = usage_from({"model": name, "service_tier": name, "usage": USABLE})

    assert used == Usage(input_tokens=10, output_tokens=5)


class _Raises:
    def __getattr__(self, name: str) -> Never:
        raise RuntimeError(name)


class _RaisesInside:
    usage = _Raises()


class _Endless(Mapping[str, object]):
    """Every member of it is itself."""

    def __getitem__(self, key: str) -> object:
        return self

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "usage"

    def __len__(self) -> int:
        return 1 << 60


class _Mirror:
    def __getattr__(self, name: str) -> object:
        return self


class _Liar:
    @property  # type: ignore[misc]  # the read-only property is the lie
    def __class__(self) -> type:
        raise RuntimeError("no class")


class _Property:
    prompt_tokens = 5
    completion_tokens = 1

    @property
    def usage(self) -> Never:
        raise SystemError("gone")


@pytest.mark.parametrize("hostile", [_Raises, _RaisesInside, _Endless, _Mirror, _Liar, _Property])
def test_a_hostile_object_is_an_unusable_report(hostile: type) -> None:
    assert usage_from(hostile()) is None


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    [
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "cached_tokens",
        "reasoning_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "ephemeral_1h_input_tokens",
        "promptTokenCount",
        "thoughtsTokenCount",
        "candidates",
        "choices",
        "iterations",
        "cost",
        "cost_in_usd_ticks",
        "is_byok",
        "model",
        "service_tier",
        "status",
        "stop_reason",
        "promptTokensDetails",
        "usageMetadata",
        "type",
    ]
)
LIKELY = st.recursive(
    st.integers(-1, 2_000) | ANY_JSON,
    lambda inner: st.dictionaries(MEMBERS, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=300)
@given(LIKELY)
def test_whatever_is_reported_no_count_is_negative_and_no_part_exceeds_its_whole(value: object) -> None:
    used = usage_from(value)

    if used is None:
        return
    whole_in = 10**12 if used.input_tokens is None else used.input_tokens
    whole_out = 10**12 if used.output_tokens is None else used.output_tokens
    assert whole_in >= 0
    assert whole_out >= 0
    assert 0 <= used.cached_input_tokens <= whole_in
    assert 0 <= used.cache_write_tokens + used.cache_write_1h_tokens <= whole_in
    assert 0 <= used.reasoning_tokens <= whole_out
    assert used.input_tokens is not None or used.output_tokens is not None


COUNT = st.integers(0, 10**6)


@settings(max_examples=200)
@given(COUNT, COUNT, COUNT, COUNT)
def test_the_dearer_reading_is_never_below_any_single_number(
    prompt: int, completion: int, reason: int, all_: int
) -> None:
    used = usage_from(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": all_,
            "completion_tokens_details": {"reasoning_tokens": reason},
        }
    )

    assert used is not None
    assert used.input_tokens == prompt
    assert used.output_tokens == max(completion, reason, all_ - prompt)


@settings(max_examples=200)
@given(COUNT, COUNT, COUNT, COUNT, COUNT)
def test_anthropics_three_kinds_of_input_add_up(plain: int, read: int, brief: int, lasting: int, out: int) -> None:
    used = usage_from(
        {
            "input_tokens": plain,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": brief + lasting,
            "cache_creation": {"ephemeral_5m_input_tokens": brief, "ephemeral_1h_input_tokens": lasting},
            "output_tokens": out,
        }
    )

    assert used == Usage(
        input_tokens=plain + read + brief + lasting,
        cached_input_tokens=read,
        cache_write_tokens=brief,
        cache_write_1h_tokens=lasting,
        output_tokens=out,
    )
