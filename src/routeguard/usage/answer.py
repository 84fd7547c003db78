"""Where an answer says what it used: one table for OpenAI chat (and all who copy it), Responses, Anthropic and Gemini.

Their names do not collide, so that one reading serves every dialect, a JSON body, a chunk of a stream, and the objects
of every SDK. An answer is a mapping or an object with attributes; nothing in it is trusted.
"""

import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal

from routeguard.usage.normal_form import UnusableUsage, count_of, items_of, usd_of, word_of

Path = tuple[str, ...]

#: What is counted → where it may stand. The largest is taken where several are given.
COUNTS: Mapping[str, tuple[Path, ...]] = {
    "prompt": (("prompt_tokens",),),
    "input": (("input_tokens",), ("promptTokenCount",), ("prompt_token_count",)),
    "output": (("completion_tokens",), ("output_tokens",), ("candidatesTokenCount",), ("candidates_token_count",)),
    "total": (("total_tokens",), ("totalTokenCount",), ("total_token_count",)),
    # Inside the input.
    "cached": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),  # DeepSeek
        ("cachedContentTokenCount",),
        ("cached_content_token_count",),
    ),
    "written": (("prompt_tokens_details", "cache_write_tokens"), ("input_tokens_details", "cache_write_tokens")),
    "audio_in": (("prompt_tokens_details", "audio_tokens"), ("input_tokens_details", "audio_tokens")),
    # Beside Anthropic's `input_tokens`, but inside `prompt_tokens` where a gateway translates them.
    "cache_read": (("cache_read_input_tokens",),),
    "cache_creation": (("cache_creation_input_tokens",),),
    "cache_creation_5m": (("cache_creation", "ephemeral_5m_input_tokens"),),
    "cache_creation_1h": (("cache_creation", "ephemeral_1h_input_tokens"),),
    # Beside Gemini's prompt and candidates.
    "tool_prompt": (("toolUsePromptTokenCount",), ("tool_use_prompt_token_count",)),
    "thoughts": (("thoughtsTokenCount",), ("thoughts_token_count",)),
    # Inside the output, unless the total says otherwise.
    "reasoning": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "thinking_tokens"),
    ),
    "audio_out": (("completion_tokens_details", "audio_tokens"), ("output_tokens_details", "audio_tokens")),
    "web_searches": (("server_tool_use", "web_search_requests"),),
}
#: Any of these makes a usage object one.
TOKEN_COUNTS = frozenset({"prompt", "input", "output", "thoughts", "total"})

#: Gemini's lists of counts by modality. Its Python SDK spells the first like OpenAI's object.
MODALITIES: Mapping[str, tuple[str, ...]] = {
    "audio_in": ("promptTokensDetails", "prompt_tokens_details"),
    "audio_out": ("candidatesTokensDetails", "candidates_tokens_details"),
}
#: Gemini's stream as a JSON array may send numbers for names.
AUDIO = ("AUDIO", 4)
FINISH_REASONS = {1: "STOP", 2: "MAX_TOKENS"}


_HEADS = {name: frozenset(path[0] for path in paths) for name, paths in COUNTS.items()}


def answer_id_in(answer: object) -> str | None:
    return word_of(_first(answer, ("id", "responseId", "response_id")))


def model_in(answer: object) -> str | None:
    return word_of(_first(answer, ("model", "modelVersion", "model_version")))


def tier_in(answer_or_usage: object) -> str | None:
    """The service tier. Anthropic's fast mode is a dearer one with a field of its own."""
    if _get(answer_or_usage, "speed") == "fast":
        return "fast"
    return word_of(_first(answer_or_usage, ("service_tier", "serviceTier", "trafficType", "traffic_type")))


def finish_in(answer: object) -> str | None:
    finish = word_of(_get(answer, "stop_reason"))  # Anthropic
    for name in ("choices", "candidates"):
        for choice in items_of(_get(answer, name)):
            reason = _first(choice, ("finish_reason", "finishReason"))
            if isinstance(reason, int):
                reason = FINISH_REASONS.get(reason, str(reason))
            finish = word_of(reason) or finish
    status = _get(answer, "status")  # OpenAI Responses
    if status == "incomplete":
        return word_of(_at(answer, ("incomplete_details", "reason"))) or "incomplete"
    return status if status in ("completed", "failed", "cancelled") and isinstance(status, str) else finish


def usage_in(answer: object) -> object:
    """The usage object of an answer, or None."""
    usage = _first(answer, ("usage", "usageMetadata", "usage_metadata"))
    if usage is None:
        usage = _at(answer, ("x_groq", "usage"))  # Groq says it twice in one chunk; one of them is read
    if usage is None and (choices := items_of(_get(answer, "choices"))):
        usage = _get(choices[0], "usage")  # Moonshot
    return usage


def counts_in(usage: object) -> dict[str, int]:
    """What a usage object counts, by the names of `COUNTS`.

    Raises:
        UnusableUsage: Something that stands in a count's place is not one.
    """
    counts = {}
    # A provider sends a handful of the names below: the sets say at once which.
    names: Mapping[object, object] | None = usage if type(usage) is dict else None
    for name, paths in COUNTS.items():
        if names is not None and _HEADS[name].isdisjoint(names):
            continue
        readings = [count_of(reading) for path in paths if (reading := _at(usage, path)) is not None]
        if readings:
            counts[name] = max(readings)
    for name, lists in MODALITIES.items():
        if spoken := [item for item in items_of(_first(usage, lists)) if _get(item, "modality") in AUDIO]:
            counts[name] = sum(count_of(_first(item, ("tokenCount", "token_count")) or 0) for item in spoken)
    return counts


def tool_counts_in(answer: object) -> dict[str, int]:
    """What OpenAI Responses counts beside the usage object."""
    searches = _at(answer, ("tool_usage", "web_search", "num_requests"))
    return {} if searches is None else {"web_searches": count_of(searches)}


def iterations_in(usage: object) -> Sequence[object]:
    return items_of(_get(usage, "iterations"))


def kind_in(iteration: object) -> str | None:
    return word_of(_get(iteration, "type"))


def cost_in(usage: object) -> Decimal | None:
    """What the provider itself says it charges: OpenRouter, Perplexity, xAI."""
    cost = _get(usage, "cost")
    if cost is None:
        ticks = _get(usage, "cost_in_usd_ticks")
        return None if ticks is None else usd_of(_usd_of_ticks(ticks))
    if not isinstance(cost, numbers.Number):
        cost = _get(cost, "total_cost")  # Perplexity itemises it
        return None if cost is None else usd_of(cost)
    if _get(usage, "is_byok"):
        # With the customer's own key, OpenRouter's cost is its fee alone. An unknown rest is not zero.
        upstream = _at(usage, ("cost_details", "upstream_inference_cost"))
        return None if upstream is None else usd_of(cost) + usd_of(upstream)
    return usd_of(cost)


def _usd_of_ticks(ticks: object) -> Decimal:
    """xAI's unit of money: 1 tick is 1e-10 USD."""
    if isinstance(ticks, bool) or not isinstance(ticks, numbers.Integral):
        raise UnusableUsage("not ticks")
    return Decimal(int(ticks)).scaleb(-10)


def _at(holder: object, path: Path) -> object:
    for name in path:
        if holder is None or isinstance(holder, list):
            return None  # a list here is Gemini's spelling of another name
        holder = _get(holder, name)
    return holder


def _first(holder: object, names: Sequence[str]) -> object:
    if type(holder) is dict:
        for name in names:
            if (value := holder.get(name)) is not None:
                return value
        return None
    for name in names:
        if (value := _get(holder, name)) is not None:
            return value
    return None


def _get(holder: object, name: str) -> object:
    if type(holder) is dict or isinstance(holder, Mapping):  # the first is what a stream gives, and ten times faster
        return holder.get(name)
    if isinstance(holder, str | bytes | int | float | list | tuple):
        raise UnusableUsage("not an object")
    return getattr(holder, name, None)
