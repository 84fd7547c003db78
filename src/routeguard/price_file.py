"""The operator's price file: TOML, one table a model, prices in USD.

    ["gpt-5-mini"]              # quoted, because names contain dots
    input = 0.25                # USD per million tokens
    output = 2
    cached_input = 0.025        # also cache_write, cache_write_1h, input_audio, output_audio, reasoning
    web_search = 0.01           # USD each; also call, the fee of one call
    max_output_tokens = 128000  # also context_window, overhead_tokens

    [["gpt-5-mini".tiers]]      # holds for the whole call when its input is larger than `above` tokens
    above = 272000
    input = 0.5
    output = 3
    cached_input = 0.05

    ["gpt-5-mini".service_tiers.priority]
    input = 0.45
    output = 3.6
    cached_input = 0.045

Numbers stay exact: TOML's decimals never become binary floats. A tier names every rate that its model names, since a
rate left out would silently be a cheaper one. A price of 0 is a price.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction

from routeguard.prices import OVERHEAD_TOKENS, ModelPrice, Price, PriceError, Rates, Schedule

TOKEN_RATES = (
    "input",
    "output",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "input_audio",
    "reasoning",
    "output_audio",
)
FEES = ("web_search", "call")
RATES = (*TOKEN_RATES, *FEES)
LIMITS = ("max_output_tokens", "context_window", "overhead_tokens")

#: Bounds of the numbers, so that a slip is not a price. The cheapest token on sale costs 0.0011 USD a million, the
#: dearest 600; what lies far below was probably meant for one token, as other price lists have it.
USD_MAX = 1_000_000
USD_PER_MTOK_MIN = Decimal("0.0001")
USD_DECIMALS_MAX = 30
TOKENS_MAX = 1_000_000_000


class PriceFileError(PriceError):
    """The operator's price file cannot be used. The message lists every problem at once."""

    #: One sentence a problem.
    problems: tuple[str, ...]

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def read_price_file(text: str) -> Mapping[str, ModelPrice]:
    """The models of a price file by name.

    Raises:
        PriceFileError: Not TOML, an unknown key, or a number that cannot be a price.
    """
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise PriceFileError([f"the price file is not TOML: {error}"]) from None
    problems: list[str] = []
    models = {name: _model(name, _Table(f'"{name}"', entry, problems)) for name, entry in document.items()}
    if problems:
        raise PriceFileError(dict.fromkeys(problems))
    return models


def _model(name: str, table: "_Table") -> ModelPrice:
    table.refuse_unknown((*RATES, *LIMITS, "tiers", "service_tiers"))
    overhead_tokens = table.tokens("overhead_tokens", least=0)
    return ModelPrice(
        name=name,
        standard=_schedule(table, table, required=("input", "output")),
        service_tiers={tier: _service_tier(entry, table) for tier, entry in table.named_tables("service_tiers")},
        overhead_tokens=OVERHEAD_TOKENS if overhead_tokens is None else overhead_tokens,
        context_window=table.tokens("context_window"),
        max_output_tokens=table.tokens("max_output_tokens"),
    )


def _service_tier(table: "_Table", model: "_Table") -> Schedule:
    table.refuse_unknown((*RATES, "tiers"))
    return _schedule(table, model, required=("input", "output", *model.named((*TOKEN_RATES, "tiers"))))


def _schedule(table: "_Table", model: "_Table", *, required: Collection[str]) -> Schedule:
    """The price of a model, or of one of its service tiers: the fees are the model's where it names none."""
    table.require(required)
    steps = {-1: _rates(table, model)}
    for tier in table.tables("tiers"):
        tier.refuse_unknown(("above", *RATES))
        tier.require(("above", "input", "output", *table.named(TOKEN_RATES)))
        above = tier.tokens("above")
        if above in steps:
            tier.refuse("above", f"is {above} in two tiers")
        if above is not None:
            steps[above] = _rates(tier, model)
    return Schedule.always(Price(tuple(sorted(steps.items(), key=lambda step: step[0]))))


def _rates(table: "_Table", model: "_Table") -> Rates:
    prices = {"input": Fraction(0), "output": Fraction(0)}
    prices |= {fee: model.usd(fee) for fee in model.named(FEES)}
    prices |= {rate: table.usd(rate) for rate in table.named(RATES)}
    return Rates.of(**prices)


class _Table:
    """One table of the file. Problems are collected; what has one reads as zero or None, and the file is refused."""

    def __init__(self, where: str, entry: object, problems: list[str]) -> None:
        self._where = where
        self._problems = problems
        self._is_table = isinstance(entry, dict)
        self._entry: Mapping[str, object] = entry if isinstance(entry, dict) else {}
        if not self._is_table:
            problems.append(f"{where} is {_shown(entry)}, not a table of prices")

    def refuse(self, key: str, why: str) -> None:
        self._problems.append(f"{self._where}: {key} {why}")

    def refuse_unknown(self, known: Collection[str]) -> None:
        for key, value in self._entry.items():
            if key in known:
                continue
            nearest = get_close_matches(key, known, n=1)
            if nearest:
                self.refuse(key, f"is not known; did you mean {nearest[0]}?")
            elif isinstance(value, dict):
                self.refuse(key, "is not known; a model name with a dot in it needs quotes")
            else:
                self.refuse(key, f"is not known; known: {', '.join(known)}")

    def require(self, keys: Collection[str]) -> None:
        for key in keys:
            if self._is_table and key not in self._entry:
                self.refuse(key, "is missing")

    def named(self, keys: Collection[str]) -> list[str]:
        """Those of the keys that the table has."""
        return [key for key in keys if key in self._entry]

    def usd(self, key: str) -> Fraction:
        value = self._entry[key]
        price = Decimal(value) if type(value) is int else value
        if not isinstance(price, Decimal) or not price.is_finite() or not 0 <= price <= USD_MAX or _is_too_fine(price):
            self.refuse(key, f"is {_shown(value)}; write a number of USD from 0 to {USD_MAX}, such as 0.25")
            return Fraction(0)
        if key in TOKEN_RATES and 0 < price < USD_PER_MTOK_MIN:
            self.refuse(key, f"is {_shown(value)}; prices are in USD per million tokens, such as 0.25")
        return Fraction(price)

    def tokens(self, key: str, *, least: int = 1) -> int | None:
        """The count, or None where the table has none."""
        value = self._entry.get(key)
        if value is None:
            return None
        if type(value) is int and least <= value <= TOKENS_MAX:
            return value
        self.refuse(key, f"is {_shown(value)}; write a whole number from {least} to {TOKENS_MAX}")
        return None

    def tables(self, key: str) -> "list[_Table]":
        """The tables of an array of tables."""
        entries = self._entry.get(key, [])
        if not isinstance(entries, list):
            self.refuse(key, f"is not an array of tables; write [[{self._where}.{key}]]")
            return []
        return [
            _Table(f"{self._where}.{key}[{position}]", entry, self._problems) for position, entry in enumerate(entries)
        ]

    def named_tables(self, key: str) -> "list[tuple[str, _Table]]":
        """The tables in a table, by name."""
        entries = self._entry.get(key, {})
        if not isinstance(entries, dict):
            self.refuse(key, f"is not a table of tables; write [{self._where}.{key}.priority]")
            return []
        return [(name, _Table(f"{self._where}.{key}.{name}", entry, self._problems)) for name, entry in entries.items()]


def _is_too_fine(price: Decimal) -> bool:
    exponent = price.as_tuple().exponent
    return isinstance(exponent, int) and exponent < -USD_DECIMALS_MAX


def _shown(value: object) -> str:
    """The value as TOML writes it, short."""
    return str(value).lower()[:40] if isinstance(value, bool | Decimal) else repr(value)[:40]
