"""What of a usage is billed, free of contradictions.

They are never worth a discount: a part larger than its whole raises the whole.
"""

from typing import NamedTuple

from routeguard.prices import Rates
from routeguard.usage import Usage


class Counts(NamedTuple):
    """Billed counts free of contradictions. The parts add up to the whole or, where they overlap, to more.

    A named tuple because one is made for every call: a frozen dataclass takes twice as long.
    """

    input: int
    plain_input: int
    cached_input: int
    cache_write: int
    cache_write_1h: int
    input_audio: int
    text_output: int
    reasoning: int
    output_audio: int
    web_searches: int

    @classmethod
    def of(cls, usage: Usage, input_tokens_max: int, output_tokens_max: int) -> "Counts":
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
        return cls(input_tokens, plain, cached, short, long, audio, text, reasoning, spoken, searches)

    def numerator_at(self, rates: Rates) -> int:
        return (
            self.plain_input * rates.input
            + self.cached_input * rates.cached_input
            + self.cache_write * rates.cache_write
            + self.cache_write_1h * rates.cache_write_1h
            + self.input_audio * rates.input_audio
            + self.text_output * rates.output
            + self.reasoning * rates.reasoning
            + self.output_audio * rates.output_audio
            + self.web_searches * rates.web_search
            + rates.call
        )
