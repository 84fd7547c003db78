"""Where prices come from: the operator's numbers, the operator's file, the genai-prices table.

Rules that live here:

- Unknown is refused. A name must be one that the table knows letter for letter, or a dated snapshot of one. A model
  that is priced by anything but tokens and calls, or not priced at all, is refused with what to write instead.
- The table is read from the installed package, never from the process-wide snapshot that `UpdatePrices` replaces, and
  only with names from the configuration. It is imported when a model is looked up, since that takes 160 ms and more.
- Where a usage does not tell two kinds of tokens apart, the dearer price holds for both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING

from routeguard.price_file import PriceFileError, read_price_file
from routeguard.prices import NANOUSD_PER_EVENT, NS_PER_SECOND, Era, ModelPrice, Price, PriceError, Rates, Schedule
from routeguard.pricing import SNAPSHOT

if TYPE_CHECKING:
    from genai_prices import types as table

__all__ = [
    "PriceError",
    "PriceFileError",
    "UnknownModel",
    "UnpricedModel",
    "find_model",
    "priced",
    "read_price_file",
    "served_as",
]

#: Input tokens a provider may add unseen to a call with tools: the most seen above the bytes of 2,886 recorded calls,
#: and room. OpenAI and Google never added any; Claude added 304, Llama 4 360, Nova 570, Cohere 1,117, and Grok through
#: OpenRouter 494.
OVERHEAD_TOKENS = {
    "anthropic": 768,
    "aws": 1_024,
    "cerebras": 256,
    "cohere": 1_536,
    "deepseek": 256,
    "google": 256,
    "groq": 768,
    "huggingface": 768,
    "mistral": 256,
    "openai": 256,
    "openrouter": 1_536,
    "together": 768,
    "zai": 256,
    "zhipuai": 256,
}
#: Where nobody measured. No recorded call with tools was further above its bytes.
OVERHEAD_TOKENS_UNKNOWN = 2_048

#: Our rates, and the prices in the table that each must cover: a usage does not say which of its tokens were images.
TABLE_PRICES = {
    "input": ("input_mtok", "input_image_mtok", "input_video_mtok"),
    "cached_input": ("cache_read_mtok", "cache_image_read_mtok"),
    "cache_write": ("cache_write_mtok", "cache_write_5m_mtok"),
    "cache_write_1h": ("cache_write_1h_mtok",),
    "input_audio": ("input_audio_mtok",),
    "output": ("output_mtok", "output_image_mtok", "output_video_mtok", "output_citation_mtok"),
    "reasoning": ("output_reasoning_mtok",),
    "output_audio": ("output_audio_mtok",),
    "web_search": ("web_searches_kcount",),
    "call": ("requests_kcount",),
}
#: Prices that need no rate: file search is a tool that no client can ask for; cached sound is charged as fresh sound.
TABLE_PRICES_IGNORED = frozenset({"storage_searches_kcount", "cache_audio_read_mtok"})

#: What may follow where the table knows only the beginning of a name: dates, versions, `latest`.
SUFFIX = re.compile(r"(?:[-@._]?\d{2,}|[-@]v\d+|:\d+|[-@.](?:latest|preview|exp))*", re.ASCII)

SUGGESTIONS_MAX = 3


class UnknownModel(PriceError):
    """Nobody in the table serves a model of this name, or several do and none of them is its vendor."""

    #: Names that would be accepted, the nearest first.
    suggestions: tuple[str, ...]

    def __init__(self, message: str, *, suggestions: Iterable[str]) -> None:
        super().__init__(message)
        self.suggestions = tuple(suggestions)


class UnpricedModel(PriceError):
    """The table knows the model, but no price per token that would bound a call."""


def priced(
    name: str = "custom",
    *,
    input: Decimal,
    output: Decimal,
    cached_input: Decimal | None = None,
    cache_write: Decimal | None = None,
    known: ModelPrice | None = None,
) -> ModelPrice:
    """A model at the operator's own prices, in USD per million tokens; 0 is a price.

    The two cache prices default to `input`. `known` is the same model from the table: all but its token prices stays.
    """
    fees = [] if known is None else list(known.standard.rates())
    rates = Rates.of(
        input=Fraction(input),
        output=Fraction(output),
        cached_input=None if cached_input is None else Fraction(cached_input),
        cache_write=None if cache_write is None else Fraction(cache_write),
        web_search=max((Fraction(fee.web_search, fee.per * NANOUSD_PER_EVENT) for fee in fees), default=Fraction(0)),
        call=max((Fraction(fee.call, fee.per * NANOUSD_PER_EVENT) for fee in fees), default=Fraction(0)),
    )
    always = Schedule.always(Price.flat(rates))
    if known is None:
        return ModelPrice(name=name, standard=always)
    return replace(known, standard=always, service_tiers={}, source=None)


def find_model(name: str) -> ModelPrice:
    """The model of this name as genai-prices has it.

    `provider/model` names who serves it. A bare name means the model's own vendor, else its only provider.

    Raises:
        UnknownModel: Not in the table, or served by others than its vendor, who must then be named.
        UnpricedModel: In the table without a price per token.
    """
    from genai_prices.data import providers

    name = name.strip()
    found = _find(name.lower(), providers)
    if found is None:
        raise _unknown(name, providers)
    provider, model, served_name = found
    family = _family(provider.id, model.id)
    names = {served_name, model.id.lower()}
    return ModelPrice(
        name=name,
        family=family,
        standard=_schedule(model, {}, name),
        service_tiers={tier: _schedule(model, {key: tier}, name) for key, tier in _service_tiers(model)},
        overhead_tokens=OVERHEAD_TOKENS.get(family, OVERHEAD_TOKENS_UNKNOWN),
        source=f"{provider.id}/{model.id}",
        aliases=frozenset(names | {f"{provider.id}/{served}" for served in names}),
        strangers=frozenset(_strangers(names, model, _models_of(provider, providers))),
    )


def served_as(name: str) -> list[str]:
    """Every `provider/name` of those who serve a model by this very name."""
    from genai_prices.data import providers

    wanted = name.strip().lower()
    _, _, rest = wanted.partition("/")
    return [
        f"{provider.id}/{name}"
        for provider, model in _serving(wanted, providers)
        # One that knows it without the prefix knows it in spite of the prefix, which names nobody.
        if not rest or _match(provider.models, rest) is not model
    ]


def _find(wanted: str, providers: "list[table.Provider]") -> "tuple[table.Provider, table.ModelInfo, str] | None":
    """The provider, the model, and the name by which that provider knows it, if a lower-case name is clear."""
    prefix, _, rest = wanted.partition("/")
    for provider in providers:
        if provider.id == prefix and (model := _match(_models_of(provider, providers), rest)):
            return provider, model, rest
    serving = _serving(wanted, providers)
    vendors = [provider.id for provider in providers if provider.model_match and provider.model_match.is_match(wanted)]
    if not vendors and len(serving) > 1:
        # Azure passes OpenAI's prices on: of these two OpenAI is the vendor.
        vendors = [vendor for provider, _ in serving for vendor in provider.fallback_model_providers or ()]
    for provider, model in serving:
        if provider.id in vendors or len(serving) == 1 > len(vendors):
            return provider, model, wanted
    # Other spellings of a provider, such as `bedrock/` and `xai/`.
    for provider in providers:
        if rest and provider.provider_match and provider.provider_match.is_match(prefix):
            model = _match(_models_of(provider, providers), rest)
            if model is not None:
                return provider, model, rest
    return None


def _serving(wanted: str, providers: "list[table.Provider]") -> "list[tuple[table.Provider, table.ModelInfo]]":
    return [(provider, model) for provider in providers if (model := _match(provider.models, wanted))]


def _unknown(name: str, providers: "list[table.Provider]") -> UnknownModel:
    if spellings := served_as(name):
        return UnknownModel(f"{name!r} does not say who serves it; write {_either(spellings)}", suggestions=spellings)
    nearest = _nearest(name.lower(), providers)
    question = f"did you mean {_either(nearest)}? Else give" if nearest else "give"
    return UnknownModel(
        f"{name!r} has no known price; {question} its price with PRICE_IN and PRICE_OUT or in a PRICES file",
        suggestions=nearest,
    )


def _models_of(provider: "table.Provider", providers: "list[table.Provider]") -> "list[table.ModelInfo]":
    """What a provider serves: its own list, then those of the vendors whose prices it passes on (Azure: OpenAI's)."""
    passed_on = provider.fallback_model_providers or []
    return [*provider.models, *(model for p in providers if p.id in passed_on for model in p.models)]


def _match(models: "list[table.ModelInfo]", name: str) -> "table.ModelInfo | None":
    """The first model that matches, if it matches for certain: many entries match whatever begins like them."""
    for model in models:
        if model.is_match(name):
            return model if model.id.lower() == name or _says(model.match, name) else None
    return next((model for model in models if model.id.lower() == name), None)


def _says(clause: "table.MatchLogic", name: str) -> bool:
    """Whether the clause names this very model: nothing but a date or a version may follow, nothing unclear precede."""
    from genai_prices import types as table

    match clause:
        case table.ClauseOr(or_=clauses):
            return any(_says(part, name) for part in clauses)
        case table.ClauseAnd(and_=clauses):
            return all(_says(part, name) for part in clauses)
        case table.ClauseStartsWith(starts_with=literal):
            # A fine-tuned model is called `ft:model:organisation:name:id`.
            return clause.is_match(name) and (literal.startswith("ft:") or _is_suffix(name[len(literal) :]))
        case table.ClauseContains(contains=literal):
            before, _, after = name.partition(literal.lower())
            return clause.is_match(name) and not before[-1:].isalnum() and _is_suffix(after)
        case _:
            return clause.is_match(name)


def _is_suffix(text: str) -> bool:
    return SUFFIX.fullmatch(text) is not None


def _family(provider_id: str, model_id: str) -> str:
    """Whose template wraps a call. Azure serves OpenAI's and others; Vertex and Azure pass Claude on."""
    if provider_id in {"azure", "google"} and "claude" in model_id:
        return "anthropic"
    if provider_id == "azure" and re.match(r"gpt-|o\d", model_id):
        return "openai"
    return "huggingface" if provider_id.startswith("huggingface_") else provider_id


def _service_tiers(model: "table.ModelInfo") -> list[tuple[str, str]]:
    """The (context key, tier) of each tier that has a price of its own. Batches are no answer to a waiting client."""
    whens = [when for variant in model.price_variants or () for when in variant.when.items()]
    return sorted({(key, tier) for key, tier in whens if key in {"service_tier", "speed"} and tier != "default"})


def _schedule(model: "table.ModelInfo", context: Mapping[str, str], name: str) -> Schedule:
    """The table's dated and hourly conditions, resolved by asking it for the price at each moment one of them turns."""
    starts: set[date] = {date(1970, 1, 1)}
    seconds = {0}
    for constraint in _constraints(model):
        if (start := getattr(constraint, "start_date", None)) is not None:
            starts.add(start)
        for turn in (getattr(constraint, "start_time", None), getattr(constraint, "end_time", None)):
            if turn is not None:
                seconds.add(_second_of_utc_day(turn))
    eras: list[Era] = []
    for start in sorted(starts):
        midnight = datetime.combine(start, time(), UTC)
        day: list[tuple[int, Price]] = []
        for second in sorted(seconds):
            price = _price(model.get_prices(midnight + timedelta(seconds=second), context), model.id, name)
            if not day or day[-1][1] != price:
                day.append((second, price))
        if not eras or eras[-1].day != tuple(day):
            eras.append(Era(int(midnight.timestamp()) * NS_PER_SECOND, tuple(day)))
    return Schedule(tuple(eras))


def _constraints(model: "table.ModelInfo") -> "Iterator[table.StartDateConstraint | table.TimeOfDateConstraint | None]":
    if isinstance(model.prices, list):
        yield from (conditional.constraint for conditional in model.prices)
    yield from (variant.constraint for variant in model.price_variants or ())


def _second_of_utc_day(turn: time) -> int:
    moment = datetime.combine(date(1970, 1, 2), turn, turn.tzinfo or UTC).astimezone(UTC)
    return (moment.hour * 60 + moment.minute) * 60 + moment.second


def _price(listed: "table.ModelPrice", model_id: str, name: str) -> Price:
    """One entry of the table as steps of rates."""
    prices = {key: value for key, value in vars(listed).items() if value is not None}
    _refuse_unbounded(prices, model_id, name)
    thresholds = {tier.start for value in prices.values() for tier in getattr(value, "tiers", ())}
    return Price(tuple((threshold, _rates(prices, threshold, model_id)) for threshold in (-1, *sorted(thresholds))))


def _refuse_unbounded(prices: "Mapping[str, Decimal | table.TieredPrices]", model_id: str, name: str) -> None:
    """Whatever the bytes and the output cap of a request do not bound cannot be admitted at the table's price."""
    remedy = "give its price with PRICE_IN and PRICE_OUT or in a PRICES file"
    known = {key for keys in TABLE_PRICES.values() for key in keys} | TABLE_PRICES_IGNORED
    if unknown := sorted(prices.keys() - known):
        raise UnpricedModel(f"{name!r} is priced per {', '.join(unknown)}, which tokens do not bound; {remedy}")
    if not _number(prices.get("input_mtok", Decimal(0)), -1):
        raise UnpricedModel(f"{name!r} is listed without a price; {remedy} (PRICE_IN=0 and PRICE_OUT=0 say it is free)")
    for kind in ("audio", "image"):
        # gpt-4o-audio-preview is listed at its text price, a seventh of what its sound costs.
        if kind in model_id and not any(kind in key for key in prices):
            raise UnpricedModel(f"{name!r} is listed without its price for {kind} tokens; {remedy}")


def _rates(prices: "Mapping[str, Decimal | table.TieredPrices]", threshold: int, model_id: str) -> Rates:
    """The rates of the step above `threshold`."""
    listed: dict[str, Fraction] = {}
    for rate, keys in TABLE_PRICES.items():
        numbers = [_number(prices[key], threshold) for key in keys if key in prices]
        if numbers:
            listed[rate] = max(numbers) / (1_000 if keys[0].endswith("_kcount") else 1)
    listed.setdefault("output", listed.get("output_audio", Fraction(0)))
    if "claude" in model_id and "cache_write" in listed:
        # Anthropic writes for an hour at twice the input price; resellers' lists leave that line out.
        # Source: "Prompt caching", platform.claude.com/docs, 2026-10.
        listed.setdefault("cache_write_1h", 2 * listed["input"])
    return Rates.of(**listed)


def _number(price: "Decimal | table.TieredPrices", threshold: int) -> Fraction:
    """The price that holds above a threshold, in USD."""
    if isinstance(price, Decimal):
        return Fraction(price)
    number = price.base
    for tier in price.tiers:
        if tier.start <= threshold:
            number = tier.price
    return Fraction(number)


def _strangers(names: set[str], model: "table.ModelInfo", models: "list[table.ModelInfo]") -> Iterator[str]:
    """Names of other models that look like snapshots of this one."""
    for other in models:
        if other is model:
            continue
        for literal in (other.id, *_literals(other.match)):
            alias = literal.lower()
            if any(alias.startswith(name) and SNAPSHOT.match(alias, len(name)) for name in names):
                yield alias


def _literals(clause: "table.MatchLogic") -> Iterator[str]:
    for value in vars(clause).values():
        if isinstance(value, str):
            yield value
        else:
            for part in value:
                yield from _literals(part)


def _nearest(wanted: str, providers: "list[table.Provider]") -> list[str]:
    """Names like the wanted one that would be accepted."""
    names = {model.id.lower(): model.id for provider in providers for model in provider.models}
    if "/" in wanted:
        names |= {
            f"{provider.id}/{m.id}".lower(): f"{provider.id}/{m.id}" for provider in providers for m in provider.models
        }
    nearest: dict[int, str] = {}  # by the model it means: the spellings of one model are one suggestion
    for close in get_close_matches(wanted, names, n=4 * SUGGESTIONS_MAX):
        found = _find(close, providers)
        if found is not None:
            nearest.setdefault(id(found[1]), names[close])
    return list(nearest.values())[:SUGGESTIONS_MAX]


def _either(names: list[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
