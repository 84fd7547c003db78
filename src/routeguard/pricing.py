"""What a request may cost at most, and what a call did cost. Pure: built once at start, then only arithmetic.

Rules that live here:

- The ceiling of a request that may make N calls is

      N * (input bound + extra input) * Rin + N * (N - 1) / 2 * max output * Rin
      + N * max output * Rout + N * call fee + media + extra

  Every call may re-send what the calls before it produced, hence the middle term. UTF-8 bytes bound tokens: each token
  of a byte-level vocabulary covers at least one byte.
- With several models each of overhead, Rin and Rout is the dearest of all of them: N calls may go to N different
  models, so the dearest total of one model would not bound a mix.
- A rate is reachable if it is valid at any moment from now to the end of the longest stream, if the largest input bound
  of the request lies above its threshold, and, for service tiers, if clients may choose them. Sound that comes in is
  covered by the price of media parts.
- A cost is rounded up, once, per call. Unknown counts as the most it can be: a missing output is the maximum output, a
  missing input the input bound of the last call, a model that is not ours the dearest of ours.
- Contradictory counts are never worth a discount (see `counts.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

from routeguard.counts import dearest_numerator
from routeguard.money import ceil_div, parse_cost_usd
from routeguard.prices import FOREVER_NS, ModelPrice, Price, step_at
from routeguard.usage import Usage

#: Service tiers that never cost more than the standard price, as providers call them in answers. One of them without a
#: price of its own costs the standard price; any other unknown name costs the dearest there is.
STANDARD_TIERS = frozenset({"", "auto", "batch", "default", "flex", "on_demand", "standard", "standard_only"})

#: What a provider appends to a model's name for one snapshot of it: `-2025-08-07`, `@20250929`, `-0613`, `-002`,
#: `-latest`, and Bedrock's `-20250929-v1:0`.
SNAPSHOT = re.compile(r"[-@](?:\d{4}-\d\d-\d\d|\d{3,4}|\d{6}|\d{8}|latest)(?:-v\d+(?::\d+)?)?", re.ASCII)

#: Longest model name looked at; names come from answers and requests.
MODEL_NAME_LENGTH_MAX = 200

#: Names whose models are remembered, those asked for last: a snapshot is told by trying each of our names on it.
MODEL_NAMES_REMEMBERED = 256


class Tariff:
    """Prices every request and every call of one guard. Safe to share between threads."""

    def __init__(
        self,
        models: Sequence[ModelPrice],
        *,
        max_output_tokens: int,
        body_bytes_max: int,
        stream_seconds_max: float,
        calls_per_request: int = 1,
        system_prompt_bytes: int = 0,
        extra_input_bytes: int = 0,
        extra_nanousd: int = 0,
        media_nanousd: int = 0,
        tiers_allowed: bool = False,
    ) -> None:
        """
        Args:
            models: The configured models; at least one.
            max_output_tokens: What one call may produce. A model's own maximum lowers it.
            body_bytes_max: Largest body, path and query together, in bytes.
            stream_seconds_max: How long after its admission a request may still call a provider.
            calls_per_request: Provider calls one request may make, retries included.
            system_prompt_bytes: UTF-8 bytes the application adds to every call.
            extra_input_bytes: UTF-8 bytes it adds besides: history, documents, tool results.
            extra_nanousd: Fixed extra cost of a request.
            media_nanousd: Flat price of one media part.
            tiers_allowed: Clients may choose a service tier or speed.
        """
        if not models:
            raise ValueError("a tariff needs at least one model")
        schedules = [schedule for m in models for schedule in (m.standard, *m.service_tiers.values())]
        self._per = lcm(*(rates.per for schedule in schedules for rates in schedule.rates()))
        self._models = tuple(_ScaledModel(model, self._per) for model in models)
        self._names = {
            name: tuple(position for position, model in enumerate(self._models) if name in model.names)
            for name in frozenset().union(*(model.names for model in self._models))
        }
        self._everywhere = tuple(range(len(self._models)))
        self._remembered_positions = lru_cache(MODEL_NAMES_REMEMBERED)(self._find_positions)
        self._calls = calls_per_request
        #: What one call may produce, whichever model answers.
        self.max_output_tokens = max(min(max_output_tokens, m.max_output_tokens or max_output_tokens) for m in models)
        self._growth_tokens = (calls_per_request - 1) * self.max_output_tokens
        self._added_tokens = system_prompt_bytes + extra_input_bytes + max(m.overhead_tokens for m in models)
        #: Input tokens a provider may add to a call unseen.
        self.overhead_tokens = max(m.overhead_tokens for m in models)
        self._window_tokens = max(m.context_window or FOREVER_NS for m in models)
        self._extra_nanousd = extra_nanousd
        self._media_nanousd = media_nanousd
        self._body_bytes_max = body_bytes_max
        self._tiers_allowed = tiers_allowed
        self._stream_ns_max = int(stream_seconds_max * 1_000_000_000)
        # Both are replaced whole when the clock leaves them, so a reader in another thread sees the old or the new one.
        self._envelope = _Envelope(FOREVER_NS, 0, (), 0)
        self._quotes = _Quotes(FOREVER_NS, 0, ())

    def ceiling(self, *, input_bytes: int, media_parts: int = 0, wall_ns: int) -> int:
        """The most a request can cost, in nano-USD, rounded up once.

        Args:
            input_bytes: Bytes of the body after normalisation, plus those of path and query.
            media_parts: Media parts of the request.
            wall_ns: When it is admitted, in nanoseconds since the Unix epoch.
        """
        text_nanousd = self._text_ceiling(self._envelope_at(wall_ns).steps, input_bytes)
        return text_nanousd + media_parts * self._media_nanousd

    def call_ceiling(self, *, input_tokens: int, output_tokens: int, wall_ns: int, dearer_tiers: bool = False) -> int:
        """The most a call can cost that is bounded by what is sent to the provider, in nano-USD; media apart.

        Args:
            input_tokens: Input tokens at most.
            output_tokens: Output tokens at most.
            wall_ns: When it is made.
            dearer_tiers: It asks for a service tier, whether or not clients may.
        """
        if dearer_tiers and not self._tiers_allowed:
            envelope = self._envelope_from(wall_ns, tiers_allowed=True)  # of few calls, and the code of few routes
        else:
            envelope = self._envelope_at(wall_ns)
        input_tokens = min(input_tokens, self._window_tokens)
        input_rate, output_rate, call_rate = step_at(envelope.steps, input_tokens)
        return ceil_div(input_tokens * input_rate + output_tokens * output_rate + call_rate, self._per)

    def smallest(self, wall_ns: int) -> int:
        """The ceiling of an empty request, in nano-USD."""
        return self._envelope_at(wall_ns).smallest_nanousd

    def largest(self, wall_ns: int) -> int:
        """The ceiling of a request that fills the body limit with ASCII and has no media, in nano-USD."""
        return self.ceiling(input_bytes=self._body_bytes_max, wall_ns=wall_ns)

    def cost(
        self,
        usage: Usage,
        *,
        model: str | None = None,
        wall_ns: int,
        input_bytes: int,
        dearer_tiers: bool = False,
    ) -> int | None:
        """What a call cost, in nano-USD, rounded up once; None if `model` is given and not one of ours.

        Args:
            usage: What the provider said. A cost it reported itself is taken as it is.
            model: The model the application says it called. None: the one the answer names, and if that is none of ours
                the dearest.
            wall_ns: When the call was made: prices change at midnight and by the hour.
            input_bytes: The request's, as given to `ceiling`; stands in for an input the provider did not report.
            dearer_tiers: The call asked for a service tier, so that an answer which names none may have had any.
        """
        positions: tuple[int, ...] = ()
        if model is not None:
            positions = self._positions_of(model)
            if not positions:
                return None
        quotes = self._quotes
        if not quotes.start_ns <= wall_ns < quotes.end_ns:
            self._quotes = quotes = self._quotes_at(wall_ns)
        input_tokens_max = min(input_bytes + self._added_tokens + self._growth_tokens, self._window_tokens)
        tiers_allowed = self._tiers_allowed or dearer_tiers
        numerator = self._numerator_of(usage, positions, quotes, input_tokens_max, tiers_allowed=tiers_allowed)
        return ceil_div(numerator, self._per)

    def knows_tiers_of(self, model: str) -> bool:
        """Whether a call to `model` that asks for a service tier has a price."""
        return all(self._models[position].knows_tiers for position in self._positions_of(model))

    @property
    def media_nanousd(self) -> int:
        """Flat price of one media part."""
        return self._media_nanousd

    def configured_name(self, model: str) -> str | None:
        """The configured name of the model that `model` names, or None.

        It may name one of ours or a snapshot of it; the provider's prefix is optional.
        """
        positions = self._positions_of(model)
        return self._models[positions[0]].name if positions else None

    def _text_ceiling(self, steps: "_Steps", input_bytes: int) -> int:
        """The ceiling of a request without media parts, at these rates."""
        calls = self._calls
        first_tokens = input_bytes + self._added_tokens
        last_tokens = first_tokens + self._growth_tokens
        if last_tokens <= self._window_tokens:
            input_tokens = calls * first_tokens + calls * self._growth_tokens // 2
        else:
            input_tokens = self._windowed_input_tokens(first_tokens)
            last_tokens = self._window_tokens
        input_rate, output_rate, call_rate = step_at(steps, last_tokens)
        output_tokens = calls * self.max_output_tokens
        numerator = input_tokens * input_rate + output_tokens * output_rate + calls * call_rate
        return ceil_div(numerator, self._per) + self._extra_nanousd

    def _windowed_input_tokens(self, first_tokens: int) -> int:
        """Input of all calls, none of which can read more than the context window."""
        window_tokens, calls = self._window_tokens, self._calls
        growing = 0
        if first_tokens < window_tokens:
            growing = min(calls, ceil_div(window_tokens - first_tokens, self.max_output_tokens))
        grown_tokens = growing * first_tokens + growing * (growing - 1) // 2 * self.max_output_tokens
        return grown_tokens + (calls - growing) * window_tokens

    def _envelope_at(self, wall_ns: int) -> "_Envelope":
        """The envelope of requests admitted now."""
        envelope = self._envelope
        if not envelope.start_ns <= wall_ns < envelope.end_ns:
            self._envelope = envelope = self._envelope_from(wall_ns)
        return envelope

    def _envelope_from(self, wall_ns: int, *, tiers_allowed: bool = False) -> "_Envelope":
        """The dearest reachable rates from now to the end of the longest stream."""
        prices: list[Price] = []
        ends_ns = FOREVER_NS
        last_ns = wall_ns + self._stream_ns_max
        schedules = [model.standard for model in self._models]
        if self._tiers_allowed or tiers_allowed:
            schedules += [schedule for model in self._models for schedule in model.service_tiers.values()]
        for schedule in schedules:
            price, end_ns = schedule.at(wall_ns)
            prices.append(price)
            ends_ns = min(ends_ns, end_ns)
            while end_ns <= last_ns:
                price, end_ns = schedule.at(end_ns)
                prices.append(price)
            # The next price becomes reachable when the longest stream first touches it.
            ends_ns = min(ends_ns, end_ns - self._stream_ns_max)
        steps = _dearest_steps(prices)
        return _Envelope(wall_ns, ends_ns, steps, self._text_ceiling(steps, 0))

    def _quotes_at(self, wall_ns: int) -> "_Quotes":
        ends_ns = FOREVER_NS
        quotes: list[_Quote] = []
        for model in self._models:
            standard, end_ns = model.standard.at(wall_ns)
            ends_ns = min(ends_ns, end_ns)
            service_tiers: dict[str, Price] = {}
            for tier, schedule in model.service_tiers.items():
                service_tiers[tier], end_ns = schedule.at(wall_ns)
                ends_ns = min(ends_ns, end_ns)
            quotes.append(_Quote(standard, service_tiers))
        return _Quotes(wall_ns, ends_ns, tuple(quotes))

    def _numerator_of(
        self,
        usage: Usage,
        positions: tuple[int, ...],
        quotes: "_Quotes",
        input_tokens_max: int,
        *,
        tiers_allowed: bool,
    ) -> int:
        """The cost times `per`. `positions` are the models it may be; empty: those the usage names."""
        if usage.cost_usd is not None:
            try:
                return parse_cost_usd(usage.cost_usd) * self._per
            except ValueError:
                pass  # Not a cost: the tokens decide.
        if not positions and usage.model is not None:
            positions = self._positions_of(usage.model)
        numerator = 0
        for position in positions or self._everywhere:
            prices = quotes.models[position].prices_of(usage.service_tier, tiers_allowed=tiers_allowed)
            at_this_model = dearest_numerator(
                usage, prices, input_tokens_max=input_tokens_max, output_tokens_max=self.max_output_tokens
            )
            numerator = max(numerator, at_this_model)
        for other in usage.other_models:
            numerator += self._numerator_of(other, (), quotes, input_tokens_max, tiers_allowed=tiers_allowed)
        return numerator

    def _positions_of(self, name: str) -> tuple[int, ...]:
        """The models a name can mean; several where two providers of one model are configured."""
        # Of what is longer not even the text is remembered.
        return self._remembered_positions(name) if len(name) <= MODEL_NAME_LENGTH_MAX else ()

    def _find_positions(self, name: str) -> tuple[int, ...]:
        name = name.lower().removeprefix("models/")
        exact = self._names.get(name)
        if exact is not None:
            return exact
        return tuple(position for position, model in enumerate(self._models) if model.is_snapshot(name))


class _ScaledModel:
    """A model whose rates stand over the tariff's common denominator, and whose names are ready to be compared."""

    __slots__ = ("_bases", "_strangers", "knows_tiers", "name", "names", "service_tiers", "standard")

    def __init__(self, model: ModelPrice, per: int) -> None:
        self.name = model.name
        without_provider = model.name.partition("/")[2] or model.name
        self.names = frozenset(name.lower() for name in (model.name, without_provider, *model.aliases))
        self._bases = tuple(name.removesuffix("-latest") for name in self.names)
        self._strangers = tuple(name.lower() for name in model.strangers)
        self.standard = model.standard.scaled(per)
        self.service_tiers = {tier.lower(): schedule.scaled(per) for tier, schedule in model.service_tiers.items()}
        #: The operator's own price is that of every tier, unless it names them.
        self.knows_tiers = bool(self.service_tiers) or model.source is None

    def is_snapshot(self, name: str) -> bool:
        """Whether a lower-case name is one of this model's with a date, a number or `latest` behind it."""
        if name.startswith(self._strangers):
            return False
        return any(name.startswith(base) and SNAPSHOT.fullmatch(name, len(base)) for base in self._bases)


#: (threshold in input tokens, (input rate, output rate, call fee)), ascending and never falling.
_Steps = tuple[tuple[int, tuple[int, int, int]], ...]


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The dearest rates reachable by requests admitted from `start_ns` until before `end_ns`."""

    start_ns: int
    end_ns: int
    steps: _Steps
    #: The ceiling of an empty request, which each request is asked for before it is looked at.
    smallest_nanousd: int


@dataclass(frozen=True, slots=True)
class _Quote:
    """The prices of one model at one time."""

    standard: Price
    service_tiers: Mapping[str, Price]

    def prices_of(self, service_tier: str | None, *, tiers_allowed: bool) -> tuple[Price, ...]:
        """The prices that may apply to a call whose answer named this tier; the dearest one is charged."""
        if service_tier is None:
            return (self.standard, *self.service_tiers.values()) if tiers_allowed else (self.standard,)
        tier = service_tier.lower().removeprefix("on_demand_")  # as Vertex spells them
        price = self.service_tiers.get(tier)
        if price is not None:
            return (price,)
        return (self.standard,) if tier in STANDARD_TIERS else (self.standard, *self.service_tiers.values())


@dataclass(frozen=True, slots=True)
class _Quotes:
    """The prices of all models from `start_ns` until before `end_ns`."""

    start_ns: int
    end_ns: int
    models: tuple[_Quote, ...]


def _dearest_steps(prices: Sequence[Price]) -> _Steps:
    """The maximum of all prices by component and threshold. Lower steps stay reachable: the input may be smaller."""
    steps: list[tuple[int, tuple[int, int, int]]] = []
    for threshold in sorted({threshold for price in prices for threshold, _ in price.steps}):
        reachable = [rates for price in prices for above, rates in price.steps if above <= threshold]
        rates = (
            max(rates.dearest_input for rates in reachable),
            max(rates.dearest_output for rates in reachable),
            max(rates.call for rates in reachable),
        )
        steps.append((threshold, rates))
    return tuple(steps)
