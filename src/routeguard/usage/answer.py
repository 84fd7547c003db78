"""Where an answer says what it used: one table for every provider.

Their names do not collide, so that one reading serves every dialect, a JSON body, a chunk of a stream, and the objects
of every SDK. An answer is a mapping or an object with attributes; nothing in it is trusted.
"""

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from routeguard.usage.normal_form import UnusableUsage, count_of, items_of, usd_of, word_of

Path = tuple[str, ...]
#: How one object is asked for a member by its name: None where it has none.
Getter = Callable[[str], object]

#: What is counted → where it may stand. The largest is taken where several are given.
COUNTS: Mapping[str, tuple[Path, ...]] = {
    "prompt": (("prompt_tokens",),),
    "input": (
        ("input_tokens",),
        ("promptTokenCount",),
        ("prompt_token_count",),
        ("inputTokens",),  # Bedrock Converse
        ("prompt_eval_count",),  # Ollama, which leaves it out where it had the prompt in its cache
        # Cohere: what the model read, and what of it is billed; the preamble it adds is in the first alone.
        ("tokens", "input_tokens"),
        ("billed_units", "input_tokens"),
    ),
    "output": (
        ("completion_tokens",),
        ("output_tokens",),
        ("candidatesTokenCount",),
        ("candidates_token_count",),
        ("outputTokens",),
        ("eval_count",),
        ("tokens", "output_tokens"),
        ("billed_units", "output_tokens"),
    ),
    "total": (("total_tokens",), ("totalTokenCount",), ("total_token_count",), ("totalTokens",)),
    # Inside the input.
    "cached": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),  # DeepSeek
        ("cachedContentTokenCount",),
        ("cached_content_token_count",),
        ("cached_tokens",),  # Cohere, Moonshot
    ),
    "written": (("prompt_tokens_details", "cache_write_tokens"), ("input_tokens_details", "cache_write_tokens")),
    "audio_in": (("prompt_tokens_details", "audio_tokens"), ("input_tokens_details", "audio_tokens")),
    # Beside Anthropic's `input_tokens` and Bedrock's `inputTokens`, but inside `prompt_tokens` where a gateway
    # translates them. Bedrock says each of its own twice.
    "cache_read": (("cache_read_input_tokens",), ("cacheReadInputTokens",), ("cacheReadInputTokenCount",)),
    "cache_creation": (("cache_creation_input_tokens",), ("cacheWriteInputTokens",), ("cacheWriteInputTokenCount",)),
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
MODALITIES: Mapping[str, tuple[str, str]] = {
    "audio_in": ("promptTokensDetails", "prompt_tokens_details"),
    "audio_out": ("candidatesTokensDetails", "candidates_tokens_details"),
}
#: Bedrock's list of what it wrote to a cache, by lifetime.
LIFETIMES = {"5m": "cache_creation_5m", "1h": "cache_creation_1h"}
#: Gemini's stream as a JSON array may send numbers for names.
AUDIO = ("AUDIO", 4)
FINISH_REASONS = {1: "STOP", 2: "MAX_TOKENS"}

#: Where an answer says who it is, and what made it.
ANSWER_IDS = ("id", "responseId", "response_id")
MODELS = ("model", "modelVersion", "model_version")
TIERS = ("service_tier", "serviceTier", "trafficType", "traffic_type")

#: `COUNTS` by the member of the usage object that holds them: a provider sends a handful of these.
_COUNTED_IN: dict[str, list[tuple[str, Path]]] = {}
for _name, _paths in COUNTS.items():
    for _head, *_rest in _paths:
        _COUNTED_IN.setdefault(_head, []).append((_name, tuple(_rest)))


def getter(holder: object) -> Getter:
    """What looks up the members of an object: a dictionary's own `get` where it is one.

    Raises:
        UnusableUsage: Text, a number or a list stands where an object should.
    """
    if type(holder) is dict or isinstance(holder, Mapping):
        return holder.get
    if isinstance(holder, str | bytes | int | float | list | tuple):
        raise UnusableUsage("not an object")
    return lambda name: getattr(holder, name, None)


def finish_in(get: Getter, choices: Sequence[object]) -> str | None:
    """Why an answer ended: what the last of its choices says, or it itself where it has none."""
    finish: object = None
    for choice in choices or items_of(get("candidates")):
        of = getter(choice)
        finish = of("finish_reason") or of("finishReason") or finish
    if isinstance(finish, int):
        finish = FINISH_REASONS.get(finish, str(finish))
    if finish is not None or choices:
        return word_of(finish)
    status = get("status")  # OpenAI Responses
    if status == "incomplete":
        return word_of(_at(get("incomplete_details"), ("reason",))) or "incomplete"
    if isinstance(status, str) and status in ("completed", "failed", "cancelled"):
        return status
    # Anthropic, Bedrock, Ollama, Cohere.
    return word_of(get("stop_reason") or get("stopReason") or get("done_reason") or get("finish_reason"))


def usage_in(get: Getter, choices: Sequence[object]) -> object:
    """The usage object of an answer, or None."""
    usage = get("usage")
    if usage is None:
        usage = get("usageMetadata") or get("usage_metadata")
    if usage is None and (groq := get("x_groq")) is not None:
        usage = _at(groq, ("usage",))  # Groq says it twice in one chunk; one of them is read
    if usage is None and choices:
        usage = getter(choices[0])("usage")  # Moonshot
    return usage


def counts_in(usage: object, get: Getter) -> dict[str, int]:
    """What a usage object counts, by the names of `COUNTS`.

    Raises:
        UnusableUsage: Something that stands in a count's place is not one.
    """
    counts: dict[str, int] = {}
    members: Iterable[tuple[str, object]]
    if type(usage) is dict and len(usage) < len(_COUNTED_IN):
        members = usage.items()
    else:
        members = ((name, get(name)) for name in _COUNTED_IN)
    for member, value in members:
        for name, path in _COUNTED_IN.get(member, ()):
            if (reading := _at(value, path)) is not None:
                counts[name] = max(count_of(reading), counts.get(name, 0))
    for name, (spelled, or_spelled) in MODALITIES.items():
        if not (listed := get(spelled) or get(or_spelled)):
            continue
        if spoken := [of for item in items_of(listed) if (of := getter(item))("modality") in AUDIO]:
            counts[name] = sum(count_of(_first(of, ("tokenCount", "token_count")) or 0) for of in spoken)
    if (written := get("cacheDetails")) is not None:
        counts |= _lifetimes_in(written)
    return counts


def tool_counts_in(tool_usage: object) -> dict[str, int]:
    """What OpenAI Responses counts beside the usage object."""
    searches = _at(tool_usage, ("web_search", "num_requests"))
    return {} if searches is None else {"web_searches": count_of(searches)}


def iterations_in(get: Getter) -> Sequence[object]:
    return items_of(get("iterations"))


def kind_in(get: Getter) -> str | None:
    return word_of(get("type"))


def model_in(get: Getter) -> str | None:
    return word_of(_first(get, MODELS))


def cost_in(get: Getter) -> Decimal | None:
    """What the provider itself says it charges: OpenRouter, Perplexity, xAI."""
    cost = get("cost")
    if cost is None:
        ticks = get("cost_in_usd_ticks")
        return None if ticks is None else usd_of(_usd_of_ticks(ticks))
    if not isinstance(cost, numbers.Number):
        cost = getter(cost)("total_cost")  # Perplexity itemises it
        return None if cost is None else usd_of(cost) or None
    if get("is_byok") is None:
        # Nothing is also what a gateway says that has no price for the model. OpenRouter, whose mark this is, means it.
        return usd_of(cost) or None
    if get("is_byok"):
        # With the customer's own key, OpenRouter's cost is its fee alone. An unknown rest is not zero.
        upstream = _at(get("cost_details"), ("upstream_inference_cost",))
        return None if upstream is None else usd_of(cost) + usd_of(upstream)
    return usd_of(cost)


def _lifetimes_in(written: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    for of in map(getter, items_of(written)):
        # A lifetime that nobody knows is charged as the longest.
        lifetime = LIFETIMES.get(word_of(of("ttl")) or "", "cache_creation_1h")
        counts[lifetime] = counts.get(lifetime, 0) + count_of(of("inputTokens") or 0)
    return counts


def _usd_of_ticks(ticks: object) -> Decimal:
    """xAI's unit of money: 1 tick is 1e-10 USD."""
    if isinstance(ticks, bool) or not isinstance(ticks, numbers.Integral):
        raise UnusableUsage("not ticks")
    return Decimal(int(ticks)).scaleb(-10)


def _at(value: object, path: Path) -> object:
    for name in path:
        if value is None or isinstance(value, list):
            return None  # a list here is Gemini's spelling of another name
        value = getter(value)(name)
    return value


def _first(get: Getter, names: Sequence[str]) -> object:
    for name in names:
        if (value := get(name)) is not None:
            return value
    return None
