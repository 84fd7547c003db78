"""What of a usage is billed, free of contradictions.

They are never worth a discount: a part larger than its whole raises the whole.
"""

from collections.abc import Iterable

from routeguard.prices import Price
from routeguard.usage import Usage


def dearest_numerator(usage: Usage, prices: Iterable[Price], *, input_tokens_max: int, output_tokens_max: int) -> int:
    """What a usage costs at the dearest of these prices, times the denominator that their rates share.

    In one function, because it is called for every answer: an object of the counts takes as long to make as the sum.

    Args:
        usage: Its counts may contradict one another; its model, tier and other models are not looked at.
        prices: At least one.
        input_tokens_max: Stands in for an input that was not reported.
        output_tokens_max: Likewise for an output.
    """
    parts: tuple[int, ...] = (
        usage.cached_input_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.input_audio_tokens,
        usage.reasoning_tokens,
        usage.output_audio_tokens,
        usage.web_searches,
    )
    if min(parts) < 0:
        parts = tuple([max(part, 0) for part in parts])
    cached, short, long, audio, reasoning, spoken, searches = parts
    written = short + long
    input_tokens = usage.input_tokens
    if input_tokens is None or input_tokens < 0:
        input_tokens = input_tokens_max
    input_tokens = max(input_tokens, cached, written, audio)
    output_tokens = usage.output_tokens
    if output_tokens is None or output_tokens < 0:
        output_tokens = output_tokens_max
    plain = input_tokens - cached - written
    if plain < 0:
        # OpenRouter reports tokens both read from and written to a cache. This is the formula of its own bill:
        # (prompt - max(cached, written)) x input + cached x read + written x write.
        plain = input_tokens - max(cached, written)
    if audio > plain:
        # Cached sound is charged as fresh sound: no dialect says which of the cached tokens were sound.
        cached = max(cached - (audio - plain), 0)
    plain, text = max(plain - audio, 0), max(output_tokens - reasoning - spoken, 0)
    numerator = 0
    for price in prices:
        rates = price.at(input_tokens)
        at_this_price = (
            plain * rates.input
            + cached * rates.cached_input
            + short * rates.cache_write
            + long * rates.cache_write_1h
            + audio * rates.input_audio
            + text * rates.output
            + reasoning * rates.reasoning
            + spoken * rates.output_audio
            + searches * rates.web_search
            + rates.call
        )
        numerator = max(numerator, at_this_price)
    return numerator
