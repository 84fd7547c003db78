"""Which fields a model body may carry, and how much output it may ask for."""

from dataclasses import replace
from urllib.parse import urlencode

import pytest

from routeguard.body.strict_json import JsonObject, JsonValue
from tests.bodies import FORM, JSON, RULES, facts_of, reason_of

CHAT: JsonObject = {"messages": [{"role": "user", "content": "hi"}]}
MODEL_BODIES: list[JsonObject] = [CHAT, {"input": "hi"}, {"contents": []}, {"prompt": "hi"}, {"prompt": None}]

PRICE_FIELDS = [
    *["service_tier", "speed", "previous_response_id", "conversation", "background", "store", "context_management"],
    *[
        "cached_content",
        "cachedContent",
        "mcp_servers",
        "container",
        "web_search_options",
        "search_settings",
        "plugins",
    ],
    *["models", "route", "transforms", "provider", "prediction", "fallbacks", "inference_geo", "modalities", "audio"],
    *["additionalModelRequestFields", "performanceConfig", "serviceTier", "mcpServers", "service-tier"],
]
OUTPUT_CAPS = [
    *["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "max_new_tokens", "num_predict"],
    *["maxTokens", "max-tokens"],
]
SETTINGS = ["generationConfig", "generation_config", "inferenceConfig", "options", "parameters"]


@pytest.mark.parametrize("name", PRICE_FIELDS)
@pytest.mark.parametrize("value", [True, None, "auto", {}])
def test_a_price_changing_field_is_refused_by_being_there(name: str, value: JsonValue) -> None:
    assert reason_of({**CHAT, name: value}) == "unsupported_field"


@pytest.mark.parametrize("body", MODEL_BODIES)
def test_any_model_body_is_held_to_the_field_rules(body: JsonObject) -> None:
    assert reason_of({**body, "store": False}) == "unsupported_field"
    assert reason_of({**body, "max_tokens": 1001}) == "output_too_large"


def test_a_body_that_is_no_model_body_may_carry_any_field() -> None:
    body: JsonObject = {"message": "hi", "model": "x", "store": 7, "tools": 1, "max_tokens": 10**9, "n": 9}

    assert facts_of(body).model is None


@pytest.mark.parametrize("name", PRICE_FIELDS)
@pytest.mark.parametrize("as_only_list", [False, True])
def test_an_allowed_field_is_let_through(name: str, as_only_list: bool) -> None:
    listed = frozenset({"messages", name})
    rules = replace(RULES, only_fields=listed) if as_only_list else replace(RULES, allowed_fields=listed)

    assert facts_of({**CHAT, name: "x"}, rules=rules).chars == len("userhix")


@pytest.mark.parametrize(("listed", "sent"), [("cachedContent", "cached_content"), ("service_tier", "serviceTier")])
def test_a_field_is_allowed_in_each_of_its_spellings(listed: str, sent: str) -> None:
    rules = replace(RULES, allowed_fields=frozenset({listed}))

    assert facts_of({**CHAT, sent: "x"}, rules=rules).media_parts == 0


@pytest.mark.parametrize("name", ["temperature", "stream", "stream_options", "stop", "user", "metadata", "tool_choice"])
def test_a_field_that_does_not_change_the_price_is_fine(name: str) -> None:
    assert facts_of({**CHAT, name: {"store": 1, "n": 5}}).media_parts == 0


@pytest.mark.parametrize("place", ["extra_body", "config"])
def test_what_an_sdk_merges_into_the_call_is_held_to_the_same_rules(place: str) -> None:
    assert reason_of({**CHAT, place: {"service_tier": "priority"}}) == "unsupported_field"
    assert reason_of({**CHAT, place: {"model": "gpt-5-pro"}}) == "model_not_allowed"
    assert reason_of({**CHAT, place: {"maxOutputTokens": 1001}}) == "output_too_large"
    assert reason_of({**CHAT, place: {"options": {"num_predict": -1}}}) == "output_too_large"
    assert facts_of({**CHAT, place: {"temperature": 1}}).media_parts == 0


def test_only_listed_fields_pass_an_only_list() -> None:
    rules = replace(RULES, only_fields=frozenset({"messages", "lang"}))

    assert facts_of({**CHAT, "lang": "de"}, query="lang=de", rules=rules).media_parts == 0
    assert reason_of({**CHAT, "temperature": 1}, rules=rules) == "unsupported_field"
    assert reason_of({"topic": "no model body"}, rules=rules) == "unsupported_field"
    assert reason_of(CHAT, query="debug=1", rules=rules) == "unsupported_field"
    assert reason_of("messages=hi&debug=1", FORM, rules=rules) == "unsupported_field"
    assert reason_of("messages=hi;debug=1", FORM, rules=rules) == "unsupported_field"


def test_json_that_claims_to_be_a_form_passes_an_only_list_by_its_json_fields() -> None:
    rules = replace(RULES, only_fields=frozenset({"messages"}))

    assert facts_of(CHAT, FORM, rules=rules).chars > 0
    assert reason_of('{"messages":"a&debug=1"}', FORM, rules=rules) == "unsupported_field"


@pytest.mark.parametrize("model", ["gpt-5-pro", "GPT-5-mini", "", None, 1, ["gpt-5-mini"], {}, "gpt-5-mini:online"])
@pytest.mark.parametrize("allowed", [frozenset[str](), frozenset({"model"})])
def test_a_model_that_is_not_configured_is_refused(model: JsonValue, allowed: frozenset[str]) -> None:
    assert reason_of({**CHAT, "model": model}, rules=replace(RULES, allowed_fields=allowed)) == "model_not_allowed"


def test_a_configured_model_may_be_named() -> None:
    assert facts_of({**CHAT, "model": "gpt-5-mini"}).model == "gpt-5-mini"
    assert facts_of("prompt=hi&model=gpt-5-mini", FORM).model == "gpt-5-mini"


def test_two_names_for_the_model_name_none() -> None:
    rules = replace(RULES, models=frozenset({"small", "large"}))

    assert facts_of({**CHAT, "model": "small"}, query="model=small", rules=rules).model == "small"
    assert facts_of({**CHAT, "model": "small"}, query="model=large", rules=rules).model is None
    assert reason_of({**CHAT, "model": "small"}, query="model=other", rules=rules) == "model_not_allowed"


def test_without_configured_models_the_field_needs_to_be_allowed() -> None:
    rules = replace(RULES, models=None)

    assert reason_of({**CHAT, "model": "any"}, rules=rules) == "model_not_allowed"
    assert facts_of({**CHAT, "model": "any"}, rules=replace(rules, allowed_fields=frozenset({"model"}))).model is None


FUNCTION: JsonObject = {"name": "look_up", "description": "d", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    "tools",
    [
        [],
        [{"type": "function", "function": FUNCTION}],
        [{"type": "function", **FUNCTION, "strict": True}],
        [{"name": "look_up", "input_schema": {}}, {"type": "custom", "name": "x", "input_schema": {}}],
        [{"functionDeclarations": [FUNCTION]}, {"function_declarations": []}],
    ],
)
def test_plain_functions_are_fine(tools: JsonValue) -> None:
    assert facts_of({**CHAT, "tools": tools}).media_parts == 0


def test_legacy_functions_are_fine() -> None:
    assert facts_of({**CHAT, "functions": [FUNCTION], "function_call": "auto"}).media_parts == 0


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "mcp", "server_url": "https://x"},
        {"type": "openrouter:web_search"},
        {"type": ["function"]},
        {"type": None, "name": "x"},
        {"type": "function", "googleSearch": {}},
        {"googleSearch": {}},
        {"functionDeclarations": [], "codeExecution": {}},
        {"urlContext": {}, "name": "x"},
        {"function": FUNCTION},
        {},
        "web_search",
        None,
    ],
)
def test_any_other_tool_is_refused_unless_tools_are_allowed(tool: JsonValue) -> None:
    plain: JsonValue = {"type": "function", "function": FUNCTION}

    assert reason_of({**CHAT, "tools": [plain, tool]}) == "unsupported_field"
    assert facts_of({**CHAT, "tools": [tool]}, rules=replace(RULES, allowed_fields=frozenset({"tools"}))).model is None


@pytest.mark.parametrize("tools", [None, {}, "auto", {"type": "function"}])
def test_tools_that_are_no_list_are_refused(tools: JsonValue) -> None:
    assert reason_of({**CHAT, "tools": tools}) == "unsupported_field"


def test_a_stored_prompt_is_refused_even_where_prompts_are_listed() -> None:
    body: JsonObject = {"prompt": {"id": "pmpt_1"}}

    assert reason_of(body) == "unsupported_field"
    assert reason_of(body, rules=replace(RULES, only_fields=frozenset({"prompt"}))) == "unsupported_field"
    assert facts_of(body, rules=replace(RULES, allowed_fields=frozenset({"prompt"}))).model is None


@pytest.mark.parametrize("listed", ["reasoning", "reasoning.mode"])
def test_a_reasoning_mode_is_refused_unless_allowed_and_an_effort_is_fine(listed: str) -> None:
    body: JsonObject = {"input": "hi", "reasoning": {"mode": "pro"}}

    assert reason_of(body) == "unsupported_field"
    assert facts_of(body, rules=replace(RULES, allowed_fields=frozenset({listed}))).model is None
    assert facts_of({"input": "hi", "reasoning": {"effort": "low"}}).model is None


@pytest.mark.parametrize("name", OUTPUT_CAPS)
@pytest.mark.parametrize("value", [1001, 10**30, 0, -1, 1e3, 1.0, True, "100", None, [100], {}])
def test_an_output_cap_must_be_a_whole_number_within_the_limit(name: str, value: JsonValue) -> None:
    assert reason_of({**CHAT, name: value}) == "output_too_large"


@pytest.mark.parametrize("name", OUTPUT_CAPS)
@pytest.mark.parametrize("value", [1, 1000])
def test_an_output_cap_within_the_limit_is_fine(name: str, value: int) -> None:
    assert facts_of({**CHAT, name: value}).media_parts == 0


@pytest.mark.parametrize("place", SETTINGS)
@pytest.mark.parametrize("name", [*OUTPUT_CAPS, "n", "candidateCount"])
def test_settings_objects_are_looked_into(place: str, name: str) -> None:
    assert reason_of({**CHAT, place: {name: 1001}}) == "output_too_large"
    assert facts_of({**CHAT, place: {name: 1}}).media_parts == 0


def test_settings_that_are_no_object_are_left_alone() -> None:
    assert facts_of({**CHAT, "options": ["max_tokens"], "parameters": 5000, "generationConfig": None}).model is None


def test_two_caps_are_both_judged() -> None:
    assert reason_of({**CHAT, "max_tokens": 10, "max_completion_tokens": 5000}) == "output_too_large"


def test_allowing_a_cap_does_not_lift_it() -> None:
    rules = replace(RULES, only_fields=frozenset({"messages", "max_tokens"}), allowed_fields=frozenset({"max_tokens"}))

    assert reason_of({**CHAT, "max_tokens": 1001}, rules=rules) == "output_too_large"


@pytest.mark.parametrize("name", ["n", "best_of", "candidateCount", "candidate_count", "bestOf"])
@pytest.mark.parametrize("value", [2, 0, -1, 1.0, True, "1", None])
def test_only_one_answer_may_be_asked_for(name: str, value: JsonValue) -> None:
    assert reason_of({**CHAT, name: value}) == "output_too_large"
    assert facts_of({**CHAT, name: 1}).media_parts == 0


@pytest.mark.parametrize("prompt", [["a", "b"], [[1, 2], [3]], ["a", [1]]])
def test_a_list_of_prompts_is_a_list_of_answers(prompt: JsonValue) -> None:
    assert reason_of({"prompt": prompt}) == "output_too_large"


@pytest.mark.parametrize("prompt", ["a", ["a"], [1, 2, 3], [], [{"role": "user", "content": "a"}, {"role": "user"}]])
def test_one_prompt_in_any_shape_is_fine(prompt: JsonValue) -> None:
    assert facts_of({"prompt": prompt}).media_parts == 0


@pytest.mark.parametrize("name", OUTPUT_CAPS)
@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        *[("1", True), ("1000", True), ("0100", True)],
        *[("1001", False), ("0", False), ("-1", False), ("+5", False), (" 5", False), ("5_0", False), ("1e3", False)],
        *[("", False), ("\u0665", False), ("9" * 5000, False)],
    ],
)
@pytest.mark.parametrize("in_query", [False, True])
def test_a_cap_in_a_form_or_query_must_be_plain_digits(name: str, text: str, is_fine: bool, in_query: bool) -> None:
    fields = urlencode({"prompt": "hi", name: text})
    body, query = ("", fields) if in_query else (fields, "")

    if is_fine:
        assert facts_of(body, FORM, query=query).media_parts == 0
    else:
        assert reason_of(body, FORM, query=query) == "output_too_large"


@pytest.mark.parametrize("name", [*PRICE_FIELDS, "tools", "reasoning.mode"])
def test_a_price_changing_field_is_refused_in_a_form_and_in_a_query(name: str) -> None:
    assert reason_of(urlencode({"prompt": "hi", name: "1"}), FORM) == "unsupported_field"
    assert reason_of("", query=urlencode({"prompt": "hi", name: "1"})) == "unsupported_field"


@pytest.mark.parametrize(
    ("body", "media_type", "query"),
    [
        (CHAT, JSON, "max_tokens=5000"),
        ({"max_tokens": 5000}, JSON, "prompt=hi"),
        ("max_tokens=5000", FORM, "prompt=hi"),
        ("prompt=hi&max_tokens=5&max_tokens=5000", FORM, ""),
        ("prompt=hi;max_tokens=5000", FORM, ""),
        ("pr%6Fmpt=hi&max%5Ftokens=5000", FORM, ""),
        ('{"a":"x&prompt=hi&max_tokens=5000"}', FORM, ""),
        ('{"messages":[],"max_tokens":5000}', "text/plain", ""),
    ],
)
def test_body_form_and_query_are_one_request(body: str | JsonValue, media_type: str, query: str) -> None:
    assert reason_of(body, media_type, query=query) == "output_too_large"


def test_a_query_may_carry_anything_when_nothing_looks_like_a_model_call() -> None:
    assert facts_of({"message": "hi"}, query="store=berlin&model=x&max_tokens=10000").model is None
