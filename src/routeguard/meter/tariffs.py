"""Prices of models that no guard was configured with, found when a call names one.

Bounded: names come from requests, and whoever may choose them must not be able to fill the memory.
"""

import threading
from importlib import import_module

from cachetools import LRUCache

from routeguard.clock import SystemClock
from routeguard.prices import ModelPrice, PriceError
from routeguard.pricing import MODEL_NAME_LENGTH_MAX, Tariff
from routeguard.telemetry import logger

#: Names remembered, known and unknown alike. Looking one up again takes some milliseconds.
NAMES_MAX = 128
#: How long a call may take until it is billed; a price that changes within it counts already.
CALL_SECONDS_MAX = 3_600
#: What `Tariff` wants to know of requests, and a call does not have.
_ANY = 1


class Tariffs:
    """One tariff a model. Safe to share between threads."""

    def __init__(self, *, stated: ModelPrice | None = None) -> None:
        """
        Args:
            stated: The operator's own price, of every model.
        """
        self._stated = stated
        self._known: LRUCache[tuple[str, bool], Tariff | None] = LRUCache(maxsize=NAMES_MAX)
        self._lock = threading.Lock()

    def of(self, model: str, *, dearer_tiers: bool) -> Tariff | None:
        """The tariff of a model, or None when nobody knows its price.

        Args:
            model: As the request names it.
            dearer_tiers: The call asks for a service tier, so that the dearest is reachable.
        """
        key = ("" if self._stated is not None else model, dearer_tiers)
        with self._lock:
            if key in self._known:
                return self._known[key]
        price = self._stated or _find(model)
        is_known = price is not None and (price.service_tiers or price.source is None or not dearer_tiers)
        tariff = _tariff(price, dearer_tiers=dearer_tiers) if price is not None and is_known else None
        with self._lock:
            self._known[key] = tariff
        return tariff

    def remembers(self, model: str, *, dearer_tiers: bool) -> bool:
        """Whether `of` answers at once. Else it looks the name up, and imports the table if nobody has: 0.25 s."""
        if self._stated is not None:
            return True
        with self._lock:
            return (model, dearer_tiers) in self._known

    def __len__(self) -> int:
        return len(self._known)


def load_prices() -> None:
    """Import the table behind `find_model`, which takes a quarter of a second, before the first call needs it."""
    import_module("genai_prices.data")


def _find(model: str) -> ModelPrice | None:
    from routeguard.price_doubts import doubts_about
    from routeguard.price_sources import find_model

    if not 0 < len(model) <= MODEL_NAME_LENGTH_MAX:
        return None
    try:
        price = find_model(model)
    except PriceError:
        return None
    for doubt in doubts_about(price, wall_ns=SystemClock().wall_ns()):
        logger.warning("a metered client: %s", doubt)
    return price


def _tariff(price: ModelPrice, *, dearer_tiers: bool) -> Tariff:
    return Tariff(
        [price],
        max_output_tokens=_ANY,
        body_bytes_max=_ANY,
        stream_seconds_max=CALL_SECONDS_MAX,
        tiers_allowed=dearer_tiers,
    )
