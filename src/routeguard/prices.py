"""What a model costs: exact rates, in steps by input size, changing by date and by hour.

- A rate is an exact rational: an integer over `per`, in nano-USD. Tables carry 18-digit float noise; nothing here
  rounds it.
- A rate nobody named is never guessed downwards: a missing discount costs the full rate, a missing surcharge the
  dearest one that is known.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from math import lcm
from types import MappingProxyType
from typing import TypeVar

from routeguard.errors import RouteguardError

RatesT = TypeVar("RatesT")

#: Overhead of a model about which only a price is known, in input tokens. The bytes of a request plus this bounded all
#: 2,009 recorded text requests without tools, whoever served them.
OVERHEAD_TOKENS = 1_536

#: End of a price nobody has announced the end of.
FOREVER_NS = 1 << 63

NANOUSD_PER_TOKEN = 1_000  # of a rate of 1 USD per million tokens: 10^9 / 10^6
NANOUSD_PER_EVENT = 1_000_000_000  # of a fee of 1 USD
NS_PER_SECOND = 1_000_000_000
NS_PER_DAY = 86_400 * NS_PER_SECOND


class PriceError(RouteguardError):
    """Prices that cannot be used. Raised when a guard is built; the message says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What each kind of token and event costs: `count * rate / per` nano-USD, exactly."""

    #: The common denominator of all rates.
    per: int
    #: A plain input token.
    input: int
    #: An input token read from a cache.
    cached_input: int
    #: An input token written to a cache for 5 minutes.
    cache_write: int
    #: An input token written to a cache for an hour.
    cache_write_1h: int
    #: An input token of sound.
    input_audio: int
    #: An output token of text.
    output: int
    #: An output token of reasoning.
    reasoning: int
    #: An output token of sound.
    output_audio: int
    #: One web search.
    web_search: int
    #: The fee of one call, beside its tokens.
    call: int

    @classmethod
    def of(
        cls,
        *,
        input: Fraction,
        output: Fraction,
        cached_input: Fraction | None = None,
        cache_write: Fraction | None = None,
        cache_write_1h: Fraction | None = None,
        input_audio: Fraction | None = None,
        reasoning: Fraction | None = None,
        output_audio: Fraction | None = None,
        web_search: Fraction = Fraction(0),
        call: Fraction = Fraction(0),
    ) -> "Rates":
        """Rates from prices as they are published: USD per million tokens; `web_search` and `call` in USD each."""
        cached_input = input if cached_input is None else cached_input
        cache_write = input if cache_write is None else cache_write
        cache_write_1h = cache_write if cache_write_1h is None else cache_write_1h
        reasoning = output if reasoning is None else reasoning
        nanousd = {
            "input": input * NANOUSD_PER_TOKEN,
            "cached_input": cached_input * NANOUSD_PER_TOKEN,
            "cache_write": cache_write * NANOUSD_PER_TOKEN,
            "cache_write_1h": cache_write_1h * NANOUSD_PER_TOKEN,
            "input_audio": _known_or_dearest(input_audio, input, cached_input, cache_write, cache_write_1h),
            "output": output * NANOUSD_PER_TOKEN,
            "reasoning": reasoning * NANOUSD_PER_TOKEN,
            "output_audio": _known_or_dearest(output_audio, output, reasoning),
            "web_search": web_search * NANOUSD_PER_EVENT,
            "call": call * NANOUSD_PER_EVENT,
        }
        per = lcm(*(rate.denominator for rate in nanousd.values()))
        return cls(per=per, **{name: int(rate * per) for name, rate in nanousd.items()})

    @property
    def dearest_input(self) -> int:
        """The most an input token of text can cost: providers also write caches unasked (OpenAI since gpt-5.6)."""
        return max(self.input, self.cached_input, self.cache_write, self.cache_write_1h)

    @property
    def dearest_output(self) -> int:
        """The most an output token can cost. Sound counts: the application may ask for it where no guard can see."""
        return max(self.output, self.reasoning, self.output_audio)

    def scaled(self, per: int) -> "Rates":
        """The same rates over a larger denominator, which `self.per` must divide."""
        factor, rest = divmod(per, self.per)
        assert not rest, "rates can only be scaled to a multiple of their denominator"
        return Rates(**{rate.name: getattr(self, rate.name) * factor for rate in fields(self)})


def step_at(steps: Sequence[tuple[int, RatesT]], input_tokens: int) -> RatesT:
    """Of steps (threshold in input tokens, rates), ascending, the one that holds for a call with that much input."""
    rates = steps[0][1]
    for threshold, dearer in steps[1:]:
        if input_tokens <= threshold:
            break
        rates = dearer
    return rates


@dataclass(frozen=True, slots=True)
class Price:
    """Rates in steps: the last step whose threshold the input lies strictly above holds for the whole call.

    Exactly 272,000 input tokens is still the base step of a price that changes at 272,000 (OpenAI, Google and Anthropic
    say it alike).
    """

    #: (threshold in input tokens, rates), ascending; the first threshold is -1.
    steps: tuple[tuple[int, Rates], ...]

    @classmethod
    def flat(cls, rates: Rates) -> "Price":
        """One rate for every size of input."""
        return cls(((-1, rates),))

    def at(self, input_tokens: int) -> Rates:
        """The rates of a call with that many input tokens, cached ones included."""
        return step_at(self.steps, input_tokens)

    def scaled(self, per: int) -> "Price":
        """The same price over a larger denominator."""
        return Price(tuple((threshold, rates.scaled(per)) for threshold, rates in self.steps))


@dataclass(frozen=True, slots=True)
class Era:
    """From `start_ns` on, every UTC day costs the same: a plan of (second of the day, price), the first at 0."""

    start_ns: int
    day: tuple[tuple[int, Price], ...]

    def scaled(self, per: int) -> "Era":
        """The same era over a larger denominator."""
        return Era(self.start_ns, tuple((second, price.scaled(per)) for second, price in self.day))


@dataclass(frozen=True, slots=True)
class Schedule:
    """A price over time: dated changes (eras), and within them changes by the hour."""

    #: Ascending by start; the first one also covers everything before it.
    eras: tuple[Era, ...]

    @classmethod
    def always(cls, price: Price) -> "Schedule":
        """A price that never changes."""
        return cls((Era(0, ((0, price),)),))

    def at(self, wall_ns: int) -> tuple[Price, int]:
        """The price at a time (nanoseconds since the Unix epoch), and when it ends."""
        position = max(bisect_right(self.eras, wall_ns, key=lambda era: era.start_ns) - 1, 0)
        era = self.eras[position]
        era_end_ns = self.eras[position + 1].start_ns if position + 1 < len(self.eras) else FOREVER_NS
        if len(era.day) == 1:
            return era.day[0][1], era_end_ns
        midnight_ns = wall_ns // NS_PER_DAY * NS_PER_DAY
        second = (wall_ns - midnight_ns) // NS_PER_SECOND
        hour = bisect_right(era.day, second, key=lambda entry: entry[0]) - 1
        if hour + 1 < len(era.day):
            hour_end_ns = midnight_ns + era.day[hour + 1][0] * NS_PER_SECOND
        else:
            hour_end_ns = midnight_ns + NS_PER_DAY
        return era.day[hour][1], min(hour_end_ns, era_end_ns)

    def scaled(self, per: int) -> "Schedule":
        """The same schedule over a larger denominator."""
        return Schedule(tuple(era.scaled(per) for era in self.eras))

    def rates(self) -> Iterator[Rates]:
        """Every rate it ever has."""
        return (rates for era in self.eras for _, price in era.day for _, rates in price.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """One configured model: its prices, and what bounds a call to it."""

    #: The configured name, as written.
    name: str
    #: The price of a call that asked for no service tier.
    standard: Schedule
    #: Prices of the named service tiers (`priority`, `flex`, `fast`).
    service_tiers: Mapping[str, Schedule] = field(default_factory=lambda: MappingProxyType({}))
    #: Who serves it and whose it is, which decides the overhead; None: not known.
    family: str | None = None
    #: Input tokens a provider adds unseen to a call: chat template, tool prompt, hidden system prompt.
    overhead_tokens: int = OVERHEAD_TOKENS
    #: Most input tokens of one call, or None. Only what the operator states: the table says 200,000 for
    #: claude-sonnet-4-5, which takes a million with a beta header.
    context_window: int | None = None
    #: Most output tokens of one call, or None.
    max_output_tokens: int | None = None
    #: The entry of the table whose price it has, as `provider/model`; None where the operator gave the price.
    source: str | None = None
    #: Other names by which an answer may call it.
    aliases: frozenset[str] = frozenset()
    #: Names that look like dated snapshots of it but cost something else (`gpt-4o-2024-05-13` for `gpt-4o`).
    strangers: frozenset[str] = frozenset()


def _known_or_dearest(known: Fraction | None, *others: Fraction) -> Fraction:
    return (max(others) if known is None else known) * NANOUSD_PER_TOKEN
