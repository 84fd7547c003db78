"""What an application reports becomes one normal form, or nothing at all."""

import json
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace

import pytest

from routeguard.usage import Usage, usage_from
from routeguard.usage.normal_form import normal_form

#: Shape → (input, cached, written briefly, written for an hour, output, reasoning). The first rows are public reports
#: of bills that were computed wrongly.
REPORTS: dict[str, tuple[dict[str, object], tuple[int | None, int, int, int, int | None, int]]] = {
    "anthropic: what was written is outside the input, and counted once": (
        {"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0, "output_tokens": 550},
        (12307, 0, 12304, 0, 550, 0),
    ),
    "gemini: what was cached is inside the prompt": (
        {"promptTokenCount": 262960, "cachedContentTokenCount": 257955, "candidatesTokenCount": 1744},
        (262960, 257955, 0, 0, 1744, 0),
    ),
    "openai: what was cached is inside the prompt": (
        {"prompt_tokens": 17903, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 17817}},
        (17903, 17817, 0, 0, 5, 0),
    ),
    "anthropic: a compaction stands only in the iterations": (
        {
            "input_tokens": 23000,
            "output_tokens": 1000,
            "iterations": [{"type": "compaction", "input_tokens": 180000, "output_tokens": 3500}],
        },
        (203000, 0, 0, 0, 4500, 0),
    ),
    "anthropic: iterations that the top level holds already are not added": (
        {
            "input_tokens": 30,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 2},
            "iterations": [
                {"type": "message", "input_tokens": 10, "output_tokens": 3},
                {"type": "message", "input_tokens": 20, "output_tokens": 4},
            ],
        },
        (30, 0, 0, 0, 7, 2),
    ),
    "xai: the total says that reasoning is outside the completion": (
        {
            "prompt_tokens": 12,
            "completion_tokens": 1,
            "total_tokens": 241,
            "completion_tokens_details": {"reasoning_tokens": 228},
        },
        (12, 0, 0, 0, 229, 228),
    ),
    "openai: the total says that reasoning is inside the completion": (
        {
            "prompt_tokens": 500,
            "completion_tokens": 500,
            "total_tokens": 1000,
            "completion_tokens_details": {"reasoning_tokens": 200},
        },
        (500, 0, 0, 0, 500, 200),
    ),
    "openai: a completion of zero beside reasoning": (
        {
            "prompt_tokens": 21,
            "completion_tokens": 0,
            "total_tokens": 81,
            "completion_tokens_details": {"reasoning_tokens": 60},
        },
        (21, 0, 0, 0, 60, 60),
    ),
    "gemini over openai: only the total knows the thoughts": (
        {"prompt_tokens": 66, "completion_tokens": 6, "total_tokens": 100},
        (66, 0, 0, 0, 34, 28),
    ),
    "gemini: thoughts are outside the candidates": (
        {"promptTokenCount": 20, "candidatesTokenCount": 198, "thoughtsTokenCount": 405, "totalTokenCount": 623},
        (20, 0, 0, 0, 603, 405),
    ),
    "gemini: what a tool put into the prompt is outside it": (
        {
            "promptTokenCount": 15,
            "toolUsePromptTokenCount": 288,
            "candidatesTokenCount": 40,
            "thoughtsTokenCount": 257,
            "totalTokenCount": 600,
        },
        (303, 0, 0, 0, 297, 257),
    ),
    "gemini: a blocked prompt has no candidates": ({"promptTokenCount": 9, "totalTokenCount": 9}, (9, 0, 0, 0, 0, 0)),
    "gemini: without a prompt count the input is unknown": (
        {"candidatesTokenCount": 23, "thoughtsTokenCount": 67},
        (None, 0, 0, 0, 90, 67),
    ),
    "openai responses": (
        {
            "input_tokens": 8576,
            "input_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 4418},
            "output_tokens": 52,
            "output_tokens_details": {"reasoning_tokens": 32},
            "total_tokens": 8628,
        },
        (8576, 12, 4418, 0, 52, 32),
    ),
    "anthropic: written for an hour": (
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 40,
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
            "output_tokens": 7,
        },
        (345, 40, 100, 200, 7, 0),
    ),
    "anthropic: growth that the lifetimes do not explain lasts an hour": (
        {
            "input_tokens": 5,
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 200},
            "output_tokens": 7,
        },
        (305, 0, 0, 300, 7, 0),
    ),
    "anthropic: lifetimes without their sum": (
        {
            "input_tokens": 5,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            "output_tokens": 7,
        },
        (35, 0, 10, 20, 7, 0),
    ),
    "a gateway's translation repeats anthropic's cache inside the prompt": (
        {
            "prompt_tokens": 500,
            "completion_tokens": 10,
            "total_tokens": 510,
            "prompt_tokens_details": {"cached_tokens": 300},
            "cache_read_input_tokens": 300,
            "cache_creation_input_tokens": 100,
        },
        (500, 300, 100, 0, 10, 0),
    ),
    "deepseek": (
        {"prompt_tokens": 12, "completion_tokens": 3, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 4},
        (12, 8, 0, 0, 3, 0),
    ),
    "bedrock: what was cached is outside the input, said twice": (
        {
            "inputTokens": 13,
            "outputTokens": 5,
            "totalTokens": 1522,
            "cacheReadInputTokens": 1504,
            "cacheReadInputTokenCount": 1504,
            "cacheWriteInputTokens": 0,
        },
        (1517, 1504, 0, 0, 5, 0),
    ),
    "bedrock: the total knows of more output": (
        {"inputTokens": 10, "outputTokens": 5, "totalTokens": 30},
        (10, 0, 0, 0, 20, 15),
    ),
    "ollama: an answer counts beside its text": (
        {"done": True, "prompt_eval_count": 17, "eval_count": 66},
        (17, 0, 0, 0, 66, 0),
    ),
    "ollama: a prompt it had in its cache is not counted": ({"done": True, "eval_count": 79}, (None, 0, 0, 0, 79, 0)),
    "cohere: the preamble is read, and not billed": (
        {
            "billed_units": {"input_tokens": 11, "output_tokens": 4},
            "tokens": {"input_tokens": 506, "output_tokens": 5},
            "cached_tokens": 448,
        },
        (506, 448, 0, 0, 5, 0),
    ),
    "openrouter: the same tokens read from and written to a cache": (
        {
            "prompt_tokens": 2168,
            "completion_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161},
        },
        (2168, 2161, 2161, 0, 100, 0),
    ),
    "an embedding has no completion": ({"prompt_tokens": 4, "total_tokens": 4}, (4, 0, 0, 0, 0, 0)),
    "a total below the prompt leaves no output": ({"prompt_tokens": 10, "total_tokens": 4}, (10, 0, 0, 0, 0, 0)),
    "more cached than there was": (
        {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 99}},
        (10, 10, 0, 0, 1, 0),
    ),
    "details that are null": (
        {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": None, "total_tokens": None},
        (10, 0, 0, 0, 1, 0),
    ),
    "two names for one count: the larger": (
        {"prompt_tokens": 0, "input_tokens": 500, "completion_tokens": 0, "output_tokens": 9},
        (500, 0, 0, 0, 9, 0),
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_any_dialect_has_one_normal_form(name: str) -> None:
    report, expected = REPORTS[name]

    used = usage_from(report)

    assert used is not None
    assert expected == (
        used.input_tokens,
        used.cached_input_tokens,
        used.cache_write_tokens,
        used.cache_write_1h_tokens,
        used.output_tokens,
        used.reasoning_tokens,
    )


@pytest.mark.parametrize("name", REPORTS)
def test_an_object_is_read_like_the_mapping_it_looks_like(name: str) -> None:
    report, _ = REPORTS[name]
    as_object = json.loads(json.dumps(report), object_hook=lambda members: SimpleNamespace(**members))

    used = usage_from(as_object)

    assert used == usage_from(report)
    assert used == usage_from(MappingProxyType(report))


@pytest.mark.parametrize("name", REPORTS)
def test_a_response_is_read_like_the_usage_inside_it(name: str) -> None:
    report, _ = REPORTS[name]

    used = usage_from({"usage": report})

    assert used == usage_from(report)


def test_audio_is_a_part_of_the_input_and_of_the_output() -> None:
    openai = usage_from(
        {
            "prompt_tokens": 90,
            "completion_tokens": 40,
            "prompt_tokens_details": {"audio_tokens": 70},
            "completion_tokens_details": {"audio_tokens": 30},
        }
    )
    gemini = usage_from(
        {
            "promptTokenCount": 90,
            "candidatesTokenCount": 40,
            "promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 20},
                {"modality": "AUDIO", "tokenCount": 70},
            ],
            "candidatesTokensDetails": [{"modality": 4, "tokenCount": 30}],
        }
    )

    assert openai == gemini == Usage(input_tokens=90, output_tokens=40, input_audio_tokens=70, output_audio_tokens=30)


def test_an_advisers_tokens_are_those_of_another_model() -> None:
    used = usage_from(
        {
            "model": "claude-sonnet-5",
            "usage": {
                "input_tokens": 2390,
                "output_tokens": 121,
                "iterations": [
                    {"type": "message", "input_tokens": 1128, "output_tokens": 110},
                    {"type": "advisor_message", "model": "claude-opus-4-8", "input_tokens": 2518, "output_tokens": 22},
                    {"type": "message", "input_tokens": 1262, "output_tokens": 11},
                ],
            },
        }
    )

    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (2390, 121)
    assert used.other_models == (Usage(model="claude-opus-4-8", input_tokens=2518, output_tokens=22),)


def test_an_adviser_without_a_name_is_still_another_model() -> None:
    passes = [
        {"type": "message", "input_tokens": 10, "output_tokens": 2},
        {"type": "advisor_message", "input_tokens": 40, "output_tokens": 3},
    ]

    used = usage_from({"model": "m", "usage": {"input_tokens": 10, "output_tokens": 2, "iterations": passes}})

    assert used is not None
    assert used.input_tokens == 10
    assert used.other_models == (Usage(input_tokens=40, output_tokens=3),)


def test_a_fallbacks_tokens_are_priced_at_the_fallback() -> None:
    used = usage_from(
        {
            "model": "claude-a",
            "usage": {
                "input_tokens": 10,
                "output_tokens": 2,
                "iterations": [
                    {"type": "message", "model": "claude-a", "input_tokens": 10, "output_tokens": 2},
                    {"type": "fallback_message", "model": "claude-b", "input_tokens": 11, "output_tokens": 5},
                ],
            },
        }
    )

    assert used is not None
    assert used.input_tokens == 10
    assert [other.model for other in used.other_models] == ["claude-b"]


def test_a_pass_that_names_the_answers_own_model_is_no_other_models() -> None:
    passes = [
        {"type": "compaction", "model": "claude-a", "input_tokens": 55196, "output_tokens": 3500},
        {"type": "message", "model": "claude-a", "input_tokens": 220, "output_tokens": 11},
    ]

    used = usage_from({"model": "claude-a", "usage": {"input_tokens": 220, "output_tokens": 11, "iterations": passes}})

    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (55416, 3511)
    assert used.other_models == ()


@pytest.mark.parametrize("passes", [[], [{"type": "message", "input_tokens": 10, "output_tokens": 2}]])
def test_what_an_answer_says_of_itself_stays_whether_or_not_it_took_several_passes(passes: list[object]) -> None:
    usage = {"input_tokens": 10, "output_tokens": 2, "service_tier": "priority", "cost": 0.25, "iterations": passes}

    used = usage_from({"model": "claude-a", "stop_reason": "end_turn", "usage": usage})

    assert used == Usage(
        input_tokens=10,
        output_tokens=2,
        model="claude-a",
        service_tier="priority",
        cost_usd=Decimal("0.25"),
        finish="end_turn",
    )


@pytest.mark.parametrize(
    ("counts", "used"),
    [
        ({}, Usage()),
        ({"web_searches": 3}, Usage(web_searches=3)),
        ({"input": 100, "web_searches": 3}, Usage(input_tokens=100, web_searches=3)),
        (
            {"prompt": 100, "cache_read": 30, "cache_creation": 20},
            Usage(input_tokens=100, cached_input_tokens=30, cache_write_tokens=20),
        ),
        ({"input": 100, "cached": 30}, Usage(input_tokens=100, cached_input_tokens=30)),
        ({"input": 100, "written": 20}, Usage(input_tokens=100, cache_write_tokens=20)),
        (
            {"input": 100, "cache_read": 30, "cache_creation": 20},
            Usage(input_tokens=150, cached_input_tokens=30, cache_write_tokens=20),
        ),
        ({"prompt": 10, "thoughts": 7}, Usage(input_tokens=10, output_tokens=7, reasoning_tokens=7)),
        ({"prompt": 10, "output": 5, "thoughts": 7}, Usage(input_tokens=10, output_tokens=12, reasoning_tokens=7)),
        ({"prompt": 10, "reasoning": 7}, Usage(input_tokens=10, output_tokens=7, reasoning_tokens=7)),
        ({"prompt": 10, "total": 30}, Usage(input_tokens=10, output_tokens=20)),
        ({"prompt": 10, "output": 5, "total": 30}, Usage(input_tokens=10, output_tokens=20, reasoning_tokens=15)),
        ({"prompt": 10, "output": 5, "total": 3}, Usage(input_tokens=10, output_tokens=5)),
        ({"output": 5, "total": 30}, Usage(output_tokens=5)),
        ({"prompt": 10, "input": 12, "tool_prompt": 4}, Usage(input_tokens=16)),
        (
            {"prompt": 10, "output": 9, "audio_in": 3, "audio_out": 4},
            Usage(input_tokens=10, output_tokens=9, input_audio_tokens=3, output_audio_tokens=4),
        ),
    ],
    ids=repr,
)
def test_counts_of_any_dialect_become_one_usage(counts: dict[str, int], used: Usage) -> None:
    assert normal_form(counts) == used
