"""What several settings make together: budgets and their shares, the client address, the body rules, the tariff.

Money divided between processes or clients is rounded down, so that the parts never exceed the whole; requests and
streams are rounded up, so that everybody may do something.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from routeguard.body import BodyRules
from routeguard.client_ip import PLATFORMS, Strategy, parse_strategy
from routeguard.clock import SystemClock
from routeguard.money import ceil_div
from routeguard.policy import NANOSECONDS, Budget, Rate, Window
from routeguard.prices import ModelPrice, PriceError
from routeguard.pricing import Tariff
from routeguard.settings import table
from routeguard.settings.grammar import comma
from routeguard.settings.limits import Cap, Share
from routeguard.settings.sources import Unusable, Values
from routeguard.settings.table import Setting

#: Fields with which a client chooses a dearer service tier.
TIER_FIELDS = frozenset({"service_tier", "speed"})


def processes(values: Values) -> int:
    """By how many the limits are divided: only the memory ledger counts in each process for itself."""
    return values[table.PROCESSES] if values[table.LEDGER].startswith("memory:") else 1


def budgets(values: Values) -> tuple[Budget, ...]:
    """The caps of everybody together, as this process enforces them."""
    return tuple(_budget(values, cap) for cap in values[table.BUDGET])


def client_budgets(values: Values) -> tuple[Budget, ...]:
    """The caps of each client. A share of `unlimited` is unlimited."""
    written = values[table.CLIENT_BUDGET]
    if isinstance(written, Share):
        numerator, denominator = written.part.as_integer_ratio()
        shares = (Cap(cap.limit_nanousd * numerator // denominator, cap.unit) for cap in values[table.BUDGET])
        return tuple(_budget(values, cap, per_client=True) for cap in shares)
    return tuple(_budget(values, cap, per_client=True) for cap in written)


def rates(values: Values, row: Setting[tuple[Rate, ...]]) -> tuple[Rate, ...]:
    """Rates, as this process enforces them."""
    return tuple(replace(rate, quota=ceil_div(rate.quota, processes(values))) for rate in values[row])


def parallel(values: Values, row: Setting[int | None]) -> int | None:
    """Open streams, as this process enforces them; None is unlimited."""
    quota = values[row]
    return None if quota is None else ceil_div(quota, processes(values))


def seconds(values: Values, row: Setting[int]) -> float:
    """A duration as the event loop wants it."""
    return values[row] / NANOSECONDS


def client_address(values: Values) -> tuple[Strategy, str]:
    """How the client address is found, and what the start line calls it."""
    platform = values.get(table.PLATFORM)
    strategy = PLATFORMS[platform].strategy if platform else values.get(table.CLIENT_IP) or parse_strategy("direct")
    if not strategy.headers:
        return strategy, "the peer address"
    return strategy, f"{strategy.name} ({platform})" if platform else strategy.name


def system_prompt_bytes(values: Values) -> int:
    """UTF-8 bytes of the system prompt, 0 when nobody said."""
    stated = values.get(table.SYSTEM_PROMPT_BYTES)
    return (values.get(table.SYSTEM_PROMPT) or 0) if stated is None else stated


def allowed_fields(values: Values) -> tuple[frozenset[str], frozenset[str] | None]:
    """Price-changing fields let through, and the complete list of top-level fields if there is one."""
    names, is_complete = values.get(table.ALLOW_FIELDS) or (frozenset(), False)
    return names, names if is_complete else None


def body_rules(values: Values) -> BodyRules:
    """What a body may be and hold."""
    allowed, only = allowed_fields(values)
    models = values.get(table.MODEL)
    return BodyRules(
        bytes_max=values[table.MAX_BODY],
        types=values[table.BODY_TYPES],
        chars_max=values[table.MAX_INPUT_CHARS],
        output_tokens_max=values[table.MAX_OUTPUT_TOKENS],
        models=None if models is None else frozenset(models),
        allowed_fields=allowed,
        only_fields=only,
        media_allowed=values.get(table.MEDIA_USD) is not None,
    )


def tariff(values: Values) -> Tariff:
    """Everything that prices a request.

    Raises:
        ValueError: A model or a price is missing.
    """
    return _tariff_of(_model_prices(values), values)


def other_tariffs(values: Values) -> Mapping[str, Tariff]:
    """Of each model in `PRICES` that is not in `MODEL`, by its name in lower case: code may call it all the same."""
    if values.is_off():
        return {}
    names = {name.lower() for name in values.get(table.MODEL) or ()}
    others = {name: price for name, price in _own_prices(values).items() if name not in names}
    for name, price in others.items():
        for almost in sorted(names):
            if name.rpartition("/")[2] == almost.rpartition("/")[2] and ("/" in name) != ("/" in almost):
                values.warn(
                    f"{values.says(table.PRICES)}: its {price.name} is not the price of {almost}; a model has the name "
                    "that MODEL gives it"
                )
    return {name: _tariff_of([price], values) for name, price in others.items()}


def _tariff_of(models: Sequence[ModelPrice], values: Values) -> Tariff:
    allowed, _ = allowed_fields(values)
    return Tariff(
        models,
        calls_per_request=values[table.CALLS_PER_REQUEST],
        max_output_tokens=values[table.MAX_OUTPUT_TOKENS],
        system_prompt_bytes=system_prompt_bytes(values),
        extra_input_bytes=values[table.EXTRA_INPUT_BYTES],
        extra_nanousd=values[table.EXTRA_USD],
        media_nanousd=values.get(table.MEDIA_USD) or 0,
        body_bytes_max=values[table.MAX_BODY],
        tiers_allowed=not TIER_FIELDS.isdisjoint(allowed),
        stream_seconds_max=seconds(values, table.MAX_STREAM),
    )


def _budget(values: Values, cap: Cap, *, per_client: bool = False) -> Budget:
    window = Window(cap.unit, values[table.RESET_TZ])
    return Budget(cap.unit, window, cap.limit_nanousd // processes(values), per_client)


def _model_prices(values: Values) -> list[ModelPrice]:
    # Looked up here: the table behind it takes longer to import than everything else together.
    from routeguard.price_doubts import doubts_about
    from routeguard.price_sources import find_model, priced

    if values.is_off():
        return [priced(input=Decimal(0), output=Decimal(0))]  # switched off, nothing is ever priced
    stated, own, names = _stated_price(values), _own_prices(values), values.get(table.MODEL)
    if names is None and stated is None:
        raise ValueError(
            f"{values.name(table.MODEL)} is not set: which model do these routes call? Set it, for example "
            'ROUTEGUARD_MODEL=gpt-5-mini or model="gpt-5-mini", or its price with PRICE_IN and PRICE_OUT'
        )
    if names is None:
        return [] if stated is None else [stated]
    found = []
    for name in names:
        try:
            price = _named(name, own) or _at_stated_price(values, name, stated) or find_model(name)
        except PriceError as error:
            values.problem(f"{values.says(table.MODEL)}: {error}")
            continue
        found.append(price)
        for doubt in doubts_about(price, wall_ns=SystemClock().wall_ns()):
            values.warn(f"{values.says(table.MODEL)}: {doubt}")
    if not found:
        raise Unusable(table.MODEL.name)
    return found


def _named(name: str, own: Mapping[str, ModelPrice]) -> ModelPrice | None:
    price = own.get(name.lower())
    return None if price is None else replace(price, name=name)


def _at_stated_price(values: Values, name: str, stated: ModelPrice | None) -> ModelPrice | None:
    """A model at `PRICE_IN` and `PRICE_OUT`; what the table knows of it besides its token prices stays."""
    from routeguard.price_sources import find_model

    if stated is None:
        return None
    try:
        known = find_model(name)
    except PriceError:
        # A model nobody has heard of is fine when the operator says what it costs.
        return replace(stated, name=name)
    return _stated_price(values, known)


def _own_prices(values: Values) -> Mapping[str, ModelPrice]:
    """The operator's price file, by names in lower case: a name in other letters must not fall to the table."""
    file = values.get(table.PRICES)
    if file is None:
        return {}
    from routeguard.price_file import PriceFileError, read_price_file

    try:
        prices = read_price_file(file)
        own = {name.lower(): price for name, price in prices.items()}
        twice = [name for name, price in prices.items() if own[name.lower()] is not price]
        if twice:
            raise PriceFileError(f"{name} and {own[name.lower()].name} are one name" for name in twice)
    except PriceFileError as error:
        for problem in error.problems:
            values.problem(f"{values.says(table.PRICES)}: {problem}")
        raise Unusable(table.PRICES.name) from None
    return own


def _stated_price(values: Values, known: ModelPrice | None = None) -> ModelPrice | None:
    """`PRICE_IN` and `PRICE_OUT`, which go together, and the two that only mean something beside them."""
    from routeguard.price_sources import priced

    price_in, price_out = values.get(table.PRICE_IN), values.get(table.PRICE_OUT)
    cached_in, cache_write = values.get(table.PRICE_CACHED_IN), values.get(table.PRICE_CACHE_WRITE)
    if price_in is not None and price_out is not None:
        return priced(input=price_in, output=price_out, cached_input=cached_in, cache_write=cache_write, known=known)
    rows = (table.PRICE_IN, table.PRICE_OUT, table.PRICE_CACHED_IN, table.PRICE_CACHE_WRITE)
    given = [values.says(row) for row in rows if values.is_given(row)]
    if not given:
        return None
    missing = "PRICE_OUT" if price_in is not None else "PRICE_IN" if price_out is not None else "PRICE_IN and PRICE_OUT"
    raise ValueError(
        f"{comma(given)} without {missing}: input and output have a price each; "
        "write for example ROUTEGUARD_PRICE_IN=0.25 and ROUTEGUARD_PRICE_OUT=2"
    )
