"""Several usages become one: added up, or the larger of each count."""

import pytest

from routeguard.usage import Usage
from routeguard.usage.normal_form import larger, total

ONE = Usage(
    input_tokens=1000,
    output_tokens=500,
    cached_input_tokens=1,
    cache_write_tokens=20,
    cache_write_1h_tokens=3,
    reasoning_tokens=40,
    input_audio_tokens=5,
    output_audio_tokens=60,
    web_searches=7,
)
OTHER = Usage(
    input_tokens=2000,
    output_tokens=400,
    cached_input_tokens=10,
    cache_write_tokens=2,
    cache_write_1h_tokens=30,
    reasoning_tokens=4,
    input_audio_tokens=50,
    output_audio_tokens=6,
    web_searches=70,
)


def test_a_total_adds_each_count_up() -> None:
    assert total([ONE, OTHER]) == Usage(
        input_tokens=3000,
        output_tokens=900,
        cached_input_tokens=11,
        cache_write_tokens=22,
        cache_write_1h_tokens=33,
        reasoning_tokens=44,
        input_audio_tokens=55,
        output_audio_tokens=66,
        web_searches=77,
    )


def test_the_larger_of_two_is_the_larger_of_each_count() -> None:
    assert larger(ONE, OTHER) == Usage(
        input_tokens=2000,
        output_tokens=500,
        cached_input_tokens=10,
        cache_write_tokens=20,
        cache_write_1h_tokens=30,
        reasoning_tokens=40,
        input_audio_tokens=50,
        output_audio_tokens=60,
        web_searches=70,
    )


def test_a_total_of_counts_that_nobody_reported_is_unknown_and_not_zero() -> None:
    only_in, only_out = Usage(input_tokens=3), Usage(output_tokens=4)

    assert total([]) == Usage()
    assert total([only_in]) == only_in
    assert total([only_out]) == only_out
    assert total([only_in, only_out]) == larger(only_in, only_out) == Usage(input_tokens=3, output_tokens=4)


@pytest.mark.parametrize(
    ("contradiction", "used"),
    [
        (Usage(input_tokens=10, cached_input_tokens=30), Usage(input_tokens=10, cached_input_tokens=10)),
        (Usage(input_tokens=10, cache_write_tokens=30), Usage(input_tokens=10, cache_write_tokens=10)),
        (Usage(input_tokens=10, cache_write_1h_tokens=30), Usage(input_tokens=10, cache_write_1h_tokens=10)),
        (
            Usage(input_tokens=10, cache_write_tokens=8, cache_write_1h_tokens=8),
            Usage(input_tokens=10, cache_write_tokens=2, cache_write_1h_tokens=8),
        ),
        (Usage(input_tokens=10, input_audio_tokens=30), Usage(input_tokens=10, input_audio_tokens=10)),
        (Usage(output_tokens=5, reasoning_tokens=9), Usage(output_tokens=5, reasoning_tokens=5)),
        (Usage(output_tokens=5, output_audio_tokens=9), Usage(output_tokens=5, output_audio_tokens=5)),
        (Usage(input_tokens=0, reasoning_tokens=9), Usage(input_tokens=0, reasoning_tokens=9)),
        (Usage(output_tokens=0, cached_input_tokens=9), Usage(output_tokens=0, cached_input_tokens=9)),
    ],
    ids=repr,
)
def test_no_part_of_what_was_read_is_larger_than_a_whole_that_is_known(contradiction: Usage, used: Usage) -> None:
    """Cohere counts more as cached than it bills; its input is right."""
    assert total([contradiction]) == larger(contradiction, Usage()) == used


def test_what_was_read_is_freed_of_all_contradictions_at_once() -> None:
    parts = Usage(
        cached_input_tokens=30,
        cache_write_tokens=8,
        cache_write_1h_tokens=8,
        input_audio_tokens=11,
        reasoning_tokens=9,
        output_audio_tokens=6,
    )

    used = total([Usage(input_tokens=10, output_tokens=5), parts])

    assert used == Usage(
        input_tokens=10,
        output_tokens=5,
        cached_input_tokens=10,
        cache_write_tokens=2,
        cache_write_1h_tokens=8,
        input_audio_tokens=10,
        reasoning_tokens=5,
        output_audio_tokens=5,
    )
