"""`Usage`, and how the counts of any dialect become one."""

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

#: A larger count is not a count: 500 times the largest context window on sale.
TOKENS_MAX = 1_000_000_000
#: A larger amount is not the cost of one call; it is also the largest amount `money` can hold.
COST_USD_MAX = 9_000_000
#: Decimals of a cost that are read. Exact arithmetic on `1e-999999` takes seconds and megabytes.
COST_DECIMALS_MAX = 400
#: Items of a list that are looked at; a longer one makes the report unusable.
ITEMS_MAX = 256
#: Longest model name, tier or finish reason that is kept.
WORD_CHARS_MAX = 200


class UnusableUsage(ValueError):
    """The report contradicts itself, or holds something that is not a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one provider call, all in tokens unless said.

    Normal form: `input_tokens` holds *every* billed input token, cached and cache-written ones included;
    `output_tokens` holds every billed output token, reasoning included. The other counts are subsets, and with
    some providers they overlap. None means "the provider did not say", which is not zero.
    """

    #: Every billed input token, cached and written ones included; None if not reported.
    input_tokens: int | None = None
    #: Every billed output token, reasoning included; None if not reported.
    output_tokens: int | None = None
    #: Part of the input read from a cache.
    cached_input_tokens: int = 0
    #: Part of the input written to a cache with the short (5 minute) lifetime.
    cache_write_tokens: int = 0
    #: Part of the input written to a cache with the long (1 hour) lifetime; not inside `cache_write_tokens`.
    cache_write_1h_tokens: int = 0
    #: Part of the output that was reasoning.
    reasoning_tokens: int = 0
    #: Part of the input that was audio.
    input_audio_tokens: int = 0
    #: Part of the output that was audio.
    output_audio_tokens: int = 0
    #: Web searches billed beside the tokens.
    web_searches: int = 0
    #: Model named by the answer, or None.
    model: str | None = None
    #: Service tier named by the answer (`default`, `priority`, `flex`, `fast`), or None.
    service_tier: str | None = None
    #: Cost reported by the provider itself in USD, or None.
    cost_usd: Decimal | None = None
    #: Why the answer ended, in the provider's word (`stop`, `length`, `max_tokens`), or None.
    finish: str | None = None
    #: Tokens that the same answer used on other models.
    other_models: tuple["Usage", ...] = ()


_PARTS = (
    "cached_input_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "web_searches",
)


def normal_form(
    counts: Mapping[str, int],
    *,
    model: str | None = None,
    service_tier: str | None = None,
    cost_usd: Decimal | None = None,
    finish: str | None = None,
) -> Usage:
    """The counts of any dialect, by the names of `answer.COUNTS`, with contradictions read the dearer way."""
    lasting = counts.get("cache_creation_1h", 0)
    brief = counts.get("cache_creation_5m", 0)
    written = max(counts.get("cache_creation", 0), brief + lasting, counts.get("written", 0))
    # What the split by lifetime does not explain belongs to the dearer lifetime, if that was used at all.
    long = written - brief if lasting else 0
    cached = counts.get("cached", counts.get("cache_read", 0))
    input_tokens = None
    if "prompt" in counts or "input" in counts:
        input_tokens = max(counts.get("prompt", 0), counts.get("input", 0)) + counts.get("tool_prompt", 0)
        if "prompt" not in counts and "cached" not in counts and "written" not in counts:
            input_tokens += cached + written  # Anthropic counts only what neither came from nor went to a cache
    output_tokens = _output_in(counts, input_tokens)
    # Output that only the total knows was reasoning: Gemini's OpenAI endpoint says 6 of 34.
    unseen = 0 if output_tokens is None or "output" not in counts else output_tokens - counts["output"]
    return _clamped(
        Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_input_tokens=cached,
            cache_write_tokens=written - long,
            cache_write_1h_tokens=long,
            reasoning_tokens=max(counts.get("thoughts", 0), counts.get("reasoning", 0), unseen),
            input_audio_tokens=counts.get("audio_in", 0),
            output_audio_tokens=counts.get("audio_out", 0),
            web_searches=counts.get("web_searches", 0),
            model=model,
            service_tier=service_tier,
            cost_usd=cost_usd,
            finish=finish,
        )
    )


def _output_in(counts: Mapping[str, int], input_tokens: int | None) -> int | None:
    """The largest of completion, reasoning, and what the total leaves beside the input.

    Only the total tells whether reasoning is inside the completion: xAI says 1 and 228 of 241 with 12 in, so 229;
    others say 500 and 200 of 1,000 with 500 in, so 500.
    """
    readings = []
    if "output" in counts or "thoughts" in counts:
        readings.append(counts.get("output", 0) + counts.get("thoughts", 0))
    if "reasoning" in counts:
        readings.append(counts["reasoning"])
    if "total" in counts and input_tokens is not None:
        readings.append(max(counts["total"] - input_tokens, 0))
    return max(readings, default=None)


def checked(usage: Usage) -> Usage | None:
    """A `Usage` that an application built, held to what holds for one that was read; None without token counts.

    Raises:
        UnusableUsage: A count that cannot be one.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    for count in (usage.input_tokens, usage.output_tokens):
        if count is not None:
            count_of(count)
    for part in _PARTS:
        count_of(getattr(usage, part))
    return replace(
        _with_whole_counts(usage),
        model=word_of(usage.model),
        service_tier=word_of(usage.service_tier),
        cost_usd=None if usage.cost_usd is None else usd_of(usage.cost_usd),
        finish=word_of(usage.finish),
        other_models=tuple(_checked_other(other) for other in items_of(usage.other_models)),
    )


def _with_whole_counts(usage: Usage) -> Usage:
    """The wholes raised to their largest part, which was used in any case.

    Whoever copies Anthropic's numbers by their names gives an input without what came from the cache. Answers that are
    read have no such mistake in them, but counts of providers that contradict themselves (see `_clamped`).
    """
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    parts_in = max(usage.cached_input_tokens, written, usage.input_audio_tokens)
    parts_out = max(usage.reasoning_tokens, usage.output_audio_tokens)
    return replace(
        usage,
        input_tokens=None if usage.input_tokens is None else max(usage.input_tokens, parts_in),
        output_tokens=None if usage.output_tokens is None else max(usage.output_tokens, parts_out),
    )


def _checked_other(other: object) -> Usage:
    usable = checked(other) if isinstance(other, Usage) and not other.other_models else None
    if usable is None:
        raise UnusableUsage("another model without counts, or with further models")
    return usable


def total(usages: Sequence[Usage]) -> Usage:
    """Each count added up; unknown where nobody reported it."""
    return _combined(usages, sum)


def larger(one: Usage, other: Usage) -> Usage:
    """The larger of each count."""
    return _combined((one, other), max)


def _combined(usages: Sequence[Usage], combine: Callable[[Iterable[int]], int]) -> Usage:
    inputs = [usage.input_tokens for usage in usages if usage.input_tokens is not None]
    outputs = [usage.output_tokens for usage in usages if usage.output_tokens is not None]
    return _clamped(
        Usage(
            input_tokens=combine(inputs) if inputs else None,
            output_tokens=combine(outputs) if outputs else None,
            cached_input_tokens=combine(usage.cached_input_tokens for usage in usages),
            cache_write_tokens=combine(usage.cache_write_tokens for usage in usages),
            cache_write_1h_tokens=combine(usage.cache_write_1h_tokens for usage in usages),
            reasoning_tokens=combine(usage.reasoning_tokens for usage in usages),
            input_audio_tokens=combine(usage.input_audio_tokens for usage in usages),
            output_audio_tokens=combine(usage.output_audio_tokens for usage in usages),
            web_searches=combine(usage.web_searches for usage in usages),
        )
    )


def _clamped(usage: Usage) -> Usage:
    """No part larger than its whole. Parts may overlap: OpenRouter counts the same tokens as read and written."""
    whole_in = TOKENS_MAX if usage.input_tokens is None else usage.input_tokens
    whole_out = TOKENS_MAX if usage.output_tokens is None else usage.output_tokens
    long = min(usage.cache_write_1h_tokens, whole_in)
    if (
        max(usage.cached_input_tokens, usage.cache_write_tokens + long, usage.input_audio_tokens) <= whole_in
        and long == usage.cache_write_1h_tokens
        and max(usage.reasoning_tokens, usage.output_audio_tokens) <= whole_out
    ):
        return usage
    return replace(
        usage,
        cached_input_tokens=min(usage.cached_input_tokens, whole_in),
        cache_write_tokens=min(usage.cache_write_tokens, whole_in - long),
        cache_write_1h_tokens=long,
        reasoning_tokens=min(usage.reasoning_tokens, whole_out),
        input_audio_tokens=min(usage.input_audio_tokens, whole_in),
        output_audio_tokens=min(usage.output_audio_tokens, whole_out),
    )


def count_of(value: object) -> int:
    """A count of tokens.

    Raises:
        UnusableUsage: Not an integer, a bool, negative, or above `TOKENS_MAX`.
    """
    if type(value) is int:
        count = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise UnusableUsage("not a count")
    else:
        count = int(value)
    if not 0 <= count <= TOKENS_MAX:
        raise UnusableUsage("not a number of tokens a call can use")
    return count


def usd_of(value: object) -> Decimal:
    """An amount in USD; a float is read by its shortest form.

    Raises:
        UnusableUsage: Not a number, not finite, negative, finer than `COST_DECIMALS_MAX`, or above `COST_USD_MAX`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UnusableUsage("not an amount")
    amount = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -COST_DECIMALS_MAX or not 0 <= amount <= COST_USD_MAX:
        raise UnusableUsage("not an amount a call can cost")
    return amount


def word_of(value: object) -> str | None:
    """A short printable string, or None: what an answer calls itself ends in logs."""
    if not isinstance(value, str) or not 0 < len(value) <= WORD_CHARS_MAX or not value.isprintable():
        return None
    return str.__str__(value)  # of an enumeration of the Gemini SDK: the string itself


def items_of(value: object) -> Sequence[object]:
    """The items of a list, or none.

    Raises:
        UnusableUsage: More than `ITEMS_MAX`.
    """
    if not isinstance(value, list | tuple):
        return ()
    if len(value) > ITEMS_MAX:
        raise UnusableUsage("a list without an end")
    return value
