"""`metered()`: a client whose provider calls are capped before they are sent, and charged when they are answered."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from routeguard.clock import SystemClock
from routeguard.errors import ConfigError
from routeguard.meter.allowance import Money, read_allowance
from routeguard.meter.payer import Allowance
from routeguard.meter.transports import AsyncMeteredTransport, MeteredTransport

if TYPE_CHECKING:
    import httpx2

ClientT = TypeVar("ClientT")

#: The SDKs of OpenAI and Anthropic open their own clients with these; httpx2's defaults suit a browser.
CONNECTIONS_MAX = 1_000
CONNECTIONS_KEPT_MAX = 100


@overload
def metered(
    client: ClientT,
    *,
    budget: str | None = None,
    ledger: str | None = None,
    namespace: str | None = None,
    max_output_tokens: int | None = None,
    price_in: Money | None = None,
    price_out: Money | None = None,
    media_usd: Money | None = None,
) -> ClientT: ...
@overload
def metered(
    client: None = None,
    *,
    sync: Literal[True],
    budget: str | None = None,
    ledger: str | None = None,
    namespace: str | None = None,
    max_output_tokens: int | None = None,
    price_in: Money | None = None,
    price_out: Money | None = None,
    media_usd: Money | None = None,
    **client_options: object,
) -> "httpx2.Client": ...
@overload
def metered(
    client: None = None,
    *,
    sync: Literal[False] = False,
    budget: str | None = None,
    ledger: str | None = None,
    namespace: str | None = None,
    max_output_tokens: int | None = None,
    price_in: Money | None = None,
    price_out: Money | None = None,
    media_usd: Money | None = None,
    **client_options: object,
) -> "httpx2.AsyncClient": ...
def metered(
    client: object = None,
    *,
    sync: bool = False,
    budget: str | None = None,
    ledger: str | None = None,
    namespace: str | None = None,
    max_output_tokens: int | None = None,
    price_in: Money | None = None,
    price_out: Money | None = None,
    media_usd: Money | None = None,
    **client_options: object,
) -> object:
    """A client whose provider calls are paid from the request's reservation, or from a budget of its own.

    Hand it to an SDK: `AsyncOpenAI(http_client=metered())`. See `docs/metered.md` for what is metered.

    Args:
        client: An `AsyncClient` or `Client` of httpx2 or httpx, which is metered and returned.
            By default a new one of httpx2.
        sync: Make a `Client` instead of an `AsyncClient`.
        budget: USD per window (`"2/day"`), for calls outside of a guarded request. Without one those pass unmetered.
        ledger: Where that budget is counted: `memory://` (this client alone, forgotten with it), `sqlite:///x.db`, …
        namespace: Clients and guards with the same `ledger` and `namespace` share their counters.
        max_output_tokens: Largest output cap of a call outside of a guarded request. Without one every cap is sent as
            it is, and 1,000 where a call has none.
        price_in: USD per million input tokens, for models whose price is not known; goes with `price_out`.
        price_out: USD per million output tokens.
        media_usd: Flat price of an image, a sound or a file; without it calls that hold one are refused.
        client_options: For the new client.

    Raises:
        ConfigError: The options cannot be used; every problem is listed.
    """
    allowance = read_allowance(
        budget=budget,
        ledger=ledger,
        namespace=namespace,
        max_output_tokens=max_output_tokens,
        price_in=price_in,
        price_out=price_out,
        media_usd=media_usd,
        clock=SystemClock(),
    )
    if client is None:
        client = _new_client(sync=sync, options=client_options)
    elif client_options or sync:
        raise ConfigError(["metered(client, …) takes no options of a client, which has its own"])
    _meter(client, allowance)
    return client


def _new_client(*, sync: bool, options: dict[str, Any]) -> object:
    import httpx2

    limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_KEPT_MAX)
    kind = httpx2.Client if sync else httpx2.AsyncClient
    return kind(**{"limits": limits, "follow_redirects": True, **options})


def _meter(client: Any, allowance: Allowance | None) -> None:
    """Put a shell around each transport of a client; its proxies have transports of their own."""
    library, is_async = _library_of(client)
    shell = AsyncMeteredTransport if is_async else MeteredTransport
    if isinstance(client._transport, shell):  # noqa: SLF001 - a client has no public way to its transports
        raise ConfigError(["this client is metered already"])
    client._transport = shell(client._transport, library, allowance)  # noqa: SLF001 - as above
    for pattern, transport in client._mounts.items():  # noqa: SLF001 - as above
        if transport is not None:
            client._mounts[pattern] = shell(transport, library, allowance)  # noqa: SLF001 - as above


def _library_of(client: object) -> tuple[ModuleType, bool]:
    """httpx or httpx2, whichever made this client, and whether it is async."""
    for kind in type(client).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in {"httpx", "httpx2"} and kind.__name__ in {"Client", "AsyncClient"}:
            return sys.modules[name], kind.__name__ == "AsyncClient"
    raise ConfigError([f"{type(client).__name__} cannot be metered; pass a Client or AsyncClient of httpx2 or httpx"])
