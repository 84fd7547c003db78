"""Prices and tariffs as a test writes them down, and the models of public reports."""

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from routeguard.prices import NS_PER_SECOND, Era, ModelPrice, Price, Rates, Schedule
from routeguard.pricing import Tariff
from routeguard.usage import Usage

NOW = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * NS_PER_SECOND
MIDNIGHT = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * NS_PER_SECOND


def rates(**usd: str) -> Rates:
    """USD per million tokens, fees in USD each, as texts."""
    return Rates.of(**{name: Fraction(price) for name, price in usd.items()})


def flat(**usd: str) -> Schedule:
    return Schedule.always(Price.flat(rates(**usd)))


def stepped(*steps: tuple[int, Rates]) -> Schedule:
    return Schedule.always(Price(steps))


def model(name: str = "m", *, standard: Schedule | None = None, overhead_tokens: int = 0, **usd: str) -> ModelPrice:
    return ModelPrice(name=name, standard=standard or flat(**usd), overhead_tokens=overhead_tokens)


def tariff(*models: ModelPrice, **settings: Any) -> Tariff:
    """A tariff of a guard whose other settings are the defaults of the package."""
    defaults = {"max_output_tokens": 1_000, "body_bytes_max": 64_000, "stream_seconds_max": 300}
    return Tariff(models, **(defaults | settings))


def cost(one: ModelPrice, usage: Usage, *, input_bytes: int = 0, wall_ns: int = NOW) -> int:
    nanousd = tariff(one).cost(usage, wall_ns=wall_ns, input_bytes=input_bytes)
    assert nanousd is not None
    return nanousd


def usd(rate: int, per: int) -> Fraction:
    """USD per million tokens of a rate."""
    return Fraction(rate, per * 1_000)


def rates_of(model: ModelPrice, *, wall_ns: int = NOW, input_tokens: int = 0, tier: str | None = None) -> Rates:
    schedule = model.standard if tier is None else model.service_tiers[tier]
    price, _ = schedule.at(wall_ns)
    return price.at(input_tokens)


SONNET = model("claude-3-7-sonnet", input="3", output="15", cached_input="0.3", cache_write="3.75", cache_write_1h="6")
GPT_4O = replace(
    model("gpt-4o", input="2.5", output="10", cached_input="1.25", web_search="0.01"),
    service_tiers={
        "priority": flat(input="4.25", output="17", cached_input="2.125"),
        "flex": flat(input="1.25", output="5"),
    },
)
GPT_4O_MINI = model("gpt-4o-mini", input="0.15", output="0.6", overhead_tokens=256)
GPT_5_MINI = model("gpt-5-mini", input="0.25", output="2", cached_input="0.025", overhead_tokens=256)
GPT_5_6_SOL = replace(
    model(
        "gpt-5.6-sol",
        standard=stepped(
            (-1, rates(input="4", output="20", cached_input="0.4", cache_write="5")),
            (272_000, rates(input="8", output="30", cached_input="0.8", cache_write="10")),
        ),
        overhead_tokens=256,
    ),
    service_tiers={
        "priority": stepped(
            (-1, rates(input="8", output="40", cached_input="0.8", cache_write="10")),
            (272_000, rates(input="16", output="60", cached_input="1.6", cache_write="20")),
        )
    },
)
HAIKU_5_5 = model(
    "claude-haiku-5-5",
    standard=stepped(
        (-1, rates(input="0.1", output="0.5", cached_input="0.01", cache_write="0.125", cache_write_1h="0.2")),
        (100_000, rates(input="0.5", output="2.5", cached_input="0.05", cache_write="0.625", cache_write_1h="1")),
    ),
)
ARGON = model(
    "gemini-4-argon",
    standard=Schedule(
        (
            Era(0, ((0, Price.flat(rates(input="2", output="10", cached_input="0.1"))),)),
            Era(MIDNIGHT, ((0, Price.flat(rates(input="4", output="20", cached_input="0.2"))),)),
        )
    ),
)
