"""What an answer says beside its counts, and the objects of the SDKs."""

from decimal import Decimal
from enum import StrEnum
from types import SimpleNamespace

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.completion_usage import CompletionUsage
from openai.types.responses import Response

from routeguard.usage import Usage, usage_from
from routeguard.usage.normal_form import UnusableUsage
from routeguard.usage.tally import Tally


@pytest.mark.parametrize(
    ("report", "cost_usd"),
    [
        ({"cost": 0.0004970133333333333}, "0.0004970133333333333"),
        ({"cost": 0}, None),
        ({"cost": 0, "is_byok": False}, "0"),
        ({"cost": {"total_cost": 0.0}}, None),
        ({"cost": 0.01, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.01}}, "0.01"),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}}, "0.21"),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
        ({"cost": {"input_tokens_cost": 0.001, "total_cost": 0.006}}, "0.006"),
        ({"cost_in_usd_ticks": 1176500}, "0.00011765"),
        ({"cost_in_usd_ticks": 0}, "0"),
        ({"cost": Decimal("0.1")}, "0.1"),
        ({}, None),
    ],
)
def test_a_cost_that_the_provider_reports_is_read_exactly(report: dict[str, object], cost_usd: str | None) -> None:
    used = usage_from({"prompt_tokens": 1, "completion_tokens": 1, **report})

    assert used is not None
    assert used.cost_usd == (None if cost_usd is None else Decimal(cost_usd))


@pytest.mark.parametrize(
    ("answer", "tier"),
    [
        ({"service_tier": "priority", "usage": {"prompt_tokens": 1}}, "priority"),
        ({"usage": {"input_tokens": 1, "service_tier": "standard"}}, "standard"),
        ({"usage": {"input_tokens": 1, "service_tier": "standard", "speed": "fast"}}, "fast"),
        ({"usageMetadata": {"promptTokenCount": 1, "trafficType": "ON_DEMAND_FLEX"}}, "ON_DEMAND_FLEX"),
        ({"usageMetadata": {"promptTokenCount": 1, "trafficType": 1}}, None),
    ],
)
def test_the_service_tier_is_the_one_the_answer_names(answer: dict[str, object], tier: str | None) -> None:
    used = usage_from(answer)

    assert used is not None
    assert used.service_tier == tier


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        ({"choices": [{"finish_reason": "length"}]}, "length"),
        ({"choices": [{"finish_reason": "stop"}, {"finish_reason": None}]}, "stop"),
        ({"stop_reason": "max_tokens"}, "max_tokens"),
        ({"candidates": [{"finishReason": "MAX_TOKENS"}]}, "MAX_TOKENS"),
        ({"candidates": [{"finishReason": 2}]}, "MAX_TOKENS"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({"status": "completed"}, "completed"),
        ({"status": "in_progress"}, None),
    ],
)
def test_the_finish_reason_is_in_the_providers_own_word(answer: dict[str, object], finish: str | None) -> None:
    used = usage_from({**answer, "usage": {"prompt_tokens": 1}})

    assert used is not None
    assert used.finish == finish


def test_objects_of_the_openai_sdk_are_read() -> None:
    completion = ChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5-mini-2025-08-07",
            "service_tier": "default",
            "choices": [
                {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "hi"}},
            ],
            "usage": {
                "prompt_tokens": 8,
                "completion_tokens": 11,
                "total_tokens": 19,
                "completion_tokens_details": {"reasoning_tokens": 4},
                "cost": 0.5,
            },
        }
    )
    expected = Usage(
        input_tokens=8,
        output_tokens=11,
        reasoning_tokens=4,
        model="gpt-5-mini-2025-08-07",
        service_tier="default",
        cost_usd=Decimal("0.5"),
        finish="length",
    )

    assert usage_from(completion) == expected
    assert isinstance(completion.usage, CompletionUsage)
    assert usage_from(completion.usage) == Usage(
        input_tokens=8, output_tokens=11, reasoning_tokens=4, cost_usd=Decimal("0.5")
    )


def test_objects_of_the_other_sdks_are_read() -> None:
    message = Message.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5",
            "content": [],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 2, "cache_read_input_tokens": 1590, "output_tokens": 4},
        }
    )
    response = Response.model_construct(
        id="r",
        model="gpt-5-mini",
        status="incomplete",
        usage=SimpleNamespace(input_tokens=5, output_tokens=6, total_tokens=11),
        incomplete_details=SimpleNamespace(reason="max_output_tokens"),
    )

    assert usage_from(message) == Usage(
        input_tokens=1592, cached_input_tokens=1590, output_tokens=4, model="claude-sonnet-5", finish="max_tokens"
    )
    assert usage_from(response) == Usage(
        input_tokens=5, output_tokens=6, model="gpt-5-mini", finish="max_output_tokens"
    )


class _Modality(StrEnum):
    AUDIO = "AUDIO"


class _Count(int):
    """As a library may wrap it."""


class _Finish(StrEnum):
    MAX_TOKENS = "MAX_TOKENS"


def test_an_object_in_the_spelling_of_the_gemini_sdk_is_read() -> None:
    answer = SimpleNamespace(
        response_id="g",
        model_version="gemini-2.5-flash",
        candidates=[SimpleNamespace(finish_reason=_Finish.MAX_TOKENS)],
        usage_metadata=SimpleNamespace(
            prompt_token_count=17,
            tool_use_prompt_token_count=3,
            cached_content_token_count=10,
            candidates_token_count=5,
            thoughts_token_count=2,
            total_token_count=27,
            prompt_tokens_details=[SimpleNamespace(modality=_Modality.AUDIO, token_count=7)],
            candidates_tokens_details=None,
        ),
    )

    used = usage_from(answer)

    assert used == Usage(
        input_tokens=20,
        cached_input_tokens=10,
        input_audio_tokens=7,
        output_tokens=7,
        reasoning_tokens=2,
        model="gemini-2.5-flash",
        finish="MAX_TOKENS",
    )
    assert used is not None
    assert type(used.finish) is str


WHOLE = {
    "id": "one",
    "model": "m",
    "service_tier": "flex",
    "choices": [{"finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25},
}


def test_what_an_event_leaves_out_stays_as_the_events_before_said_it() -> None:
    tally = Tally()
    tally.read_answer(WHOLE)
    before = tally.usage()

    tally.read_answer({"usage": {"prompt_tokens": 10}})
    tally.read_answer({})

    assert (
        before
        == tally.usage()
        == Usage(
            input_tokens=10, output_tokens=5, model="m", service_tier="flex", cost_usd=Decimal("0.25"), finish="stop"
        )
    )


@pytest.mark.parametrize(
    "event",
    [WHOLE, {"usage": {"output_tokens": 1, "speed": "fast"}}, {"model": _Finish.MAX_TOKENS}],
    ids=["whole", "fast", "enumeration"],
)
def test_an_event_that_says_the_same_again_changes_nothing(event: object) -> None:
    tally = Tally()
    tally.read_answer(event)
    changes = tally.changes

    tally.read_answer(event)

    assert tally.changes == changes > 0


@pytest.mark.parametrize("said", ["", "\x1b[2J", 7], ids=["empty", "an escape sequence", "a number"])
def test_what_cannot_be_a_name_leaves_the_one_that_is_known(said: object) -> None:
    tally = Tally()
    tally.read_answer({"model": "m", "usage": {"output_tokens": 1}})

    tally.read_answer({"model": said})

    used = tally.usage()
    assert used is not None
    assert used.model == "m"


def test_a_count_of_another_kind_of_integer_is_read_as_a_plain_one() -> None:
    used = usage_from({"input_tokens": _Count(5), "output_tokens": 1})

    assert used == Usage(input_tokens=5, output_tokens=1)
    assert used is not None
    assert type(used.input_tokens) is int


@pytest.mark.parametrize(
    "event",
    [
        {"model": "other"},
        {"service_tier": "priority"},
        {"choices": [{"finish_reason": "length"}]},
        {"usage": {"prompt_tokens": 11}},
        {"usage": {"prompt_tokens": 10, "cost": 0.5}},
        {"usage": {"prompt_tokens": 10, "service_tier": "priority"}},
    ],
    ids=repr,
)
def test_an_event_that_says_something_new_is_counted_as_a_change(event: dict[str, object]) -> None:
    tally = Tally()
    tally.read_answer(WHOLE)
    changes = tally.changes

    tally.read_answer(event)

    assert tally.changes == changes + 1


def test_an_answer_says_whether_it_counted_tokens() -> None:
    said = [
        Tally().read_usage({"prompt_tokens": 1}),
        Tally().read_usage({"cost": 0.5}),
        Tally().read_answer({"usage": {"output_tokens": 1}}),
        Tally().read_answer({"usage": {"cost": 0.5}}),
        Tally().read_answer({"model": "m"}),
    ]

    assert said == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("usage", "is_believed"),
    [
        ({"input_tokens": 1}, True),
        ({"output_tokens": 1}, True),
        ({"input_tokens": 0, "output_tokens": 0, "cost_in_usd_ticks": 1}, True),
        ({"input_tokens": 0, "output_tokens": 0, "cost_in_usd_ticks": 0}, False),
        ({"input_tokens": 0, "output_tokens": 0}, False),
        ({"cost_in_usd_ticks": 1}, False),
    ],
    ids=repr,
)
def test_an_answer_that_used_nothing_has_said_nothing(usage: dict[str, object], *, is_believed: bool) -> None:
    tally = Tally()
    tally.read_usage(usage)

    found = tally.usage_of_answer()

    assert found == (tally.usage() if is_believed else None)
    assert (found is not None) is is_believed


@pytest.mark.parametrize("name", ["id", "responseId", "response_id"])
def test_an_answer_goes_by_its_name_in_any_spelling(name: str) -> None:
    tally = Tally()
    tally.read_answer({"model": "m"})
    tally.read_answer({name: "one"})
    tally.read_answer({name: "one", "model": "m"})

    assert not tally.is_nameless
    with pytest.raises(UnusableUsage):
        tally.read_answer({name: "two"})


def test_usage_inside_of_the_first_choice_is_read() -> None:
    tally = Tally()

    assert tally.read_answer({"choices": [{"index": 0, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}]})
    assert tally.usage() == Usage(input_tokens=3, output_tokens=2)


@pytest.mark.parametrize("between", [[], [{"id": "one"}], [{"model": "m"}]], ids=repr)
def test_a_second_answer_in_one_stream_is_unusable(between: list[object]) -> None:
    tally = Tally()
    for event in [{"model": "m"}, WHOLE, *between]:
        tally.read_answer(event)

    with pytest.raises(UnusableUsage):
        tally.read_answer({"id": "two"})


def test_passes_that_were_counted_before_change_nothing() -> None:
    usage = {"input_tokens": 1, "iterations": [{"type": "message", "input_tokens": 1}]}
    tally = Tally()
    at_first = tally.changes
    tally.read_usage(usage)
    changes = tally.changes

    tally.read_usage(usage)

    assert (at_first, changes, tally.changes) == (0, 2, 2)


@pytest.mark.parametrize(
    "smaller",
    [
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cost": 0},
        {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19, "cost": 0.001},
    ],
)
def test_a_count_that_shrinks_again_stands_at_its_largest(smaller: dict[str, object]) -> None:
    tally = Tally()
    tally.read_usage({"prompt_tokens": 1000, "completion_tokens": 900, "total_tokens": 1900, "cost": 0.5})
    changes = tally.changes

    counted = tally.read_usage(smaller)

    assert counted
    assert tally.usage() == Usage(input_tokens=1000, output_tokens=900, cost_usd=Decimal("0.5"))
    assert tally.changes == changes


def test_what_makes_an_answer_cheaper_stands_as_it_was_said_last() -> None:
    tally = Tally()
    tally.read_usage({"prompt_tokens": 1000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1000}})

    tally.read_usage({"prompt_tokens": 1000, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}})

    assert tally.usage() == Usage(input_tokens=1000, output_tokens=9)


@pytest.mark.parametrize(
    ("first", "last", "used"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            Usage(input_tokens=10, output_tokens=5),
        ),
        (
            {"input_tokens": 10, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1},
            {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5},
            Usage(input_tokens=20, cached_input_tokens=3, cache_write_tokens=7, output_tokens=5),
        ),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 9}, "completion_tokens": 5},
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens": 5},
            Usage(input_tokens=10, output_tokens=5),
        ),
    ],
    ids=["chat", "anthropic", "what a cache gave"],
)
def test_a_zero_takes_nothing_back_but_a_discount(
    first: dict[str, object], last: dict[str, object], used: Usage
) -> None:
    tally = Tally()

    tally.read_usage(first)
    tally.read_usage(last)

    assert tally.usage() == used


def test_searches_that_an_answer_counts_beside_its_usage_are_billed() -> None:
    used = usage_from(
        {
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "tool_usage": {"web_search": {"num_requests": 2}},
        }
    )

    assert used == Usage(input_tokens=10, output_tokens=5, web_searches=2)
