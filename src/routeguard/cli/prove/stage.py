"""Where a row is played: the operator's settings, a namespace of its own, a clock that the row moves.

Rules that live here:

- Nothing of the operator's is called: hooks are left out, and the application is the scripted one.
- Amounts are made small, windows, ledger, strategy and every other setting stay.
- Time does not pass by itself, also for a store with a clock of its own, so that no row meets a real midnight.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Final

import anyio

from routeguard.asgi import RouteGuard
from routeguard.build import build_guard
from routeguard.cli.prove.application import QUESTION, Chat
from routeguard.cli.prove.findings import NotRun
from routeguard.cli.prove.visitors import Visitors
from routeguard.cli.prove.waiting import wait_until
from routeguard.clock import Clock
from routeguard.config import Settings, SettingsKeywords
from routeguard.guard import Guard
from routeguard.ledgers import open_ledger
from routeguard.money import format_usd
from routeguard.policy import Balance, Ledger
from routeguard.testing.clock import FakeClock
from routeguard.testing.driver import App, Client
from routeguard.usage import Usage

#: Where most visitors come from (RFC 5737, TEST-NET-3).
VISITOR: Final = "203.0.113.9"
#: Somebody else (TEST-NET-2).
NEIGHBOUR: Final = "198.51.100.77"
#: Input that a provider may add unseen, where only prices are known (docs/settings.md, `PRICE_IN`).
UNKNOWN_OVERHEAD_TOKENS: Final = 1_536
#: Budgets that no row comes near.
ROOMY_USD: Final = 1_000_000
#: Larger limits are made this small: a row sends more than fits.
BODY_BYTES_MAX: Final = 1_000_000
#: What a ledger may take to write what was queued; in the process itself nothing is.
QUIET_SECONDS: Final = 5.0
QUIET_SECONDS_HERE: Final = 0.1


@dataclass(slots=True)
class Bench:
    """A guard around an application, and what its ledger says."""

    settings: Settings
    guard: RouteGuard
    engine: Guard
    clock: FakeClock
    visitors: Visitors
    app: App

    @property
    def ledger(self) -> Ledger:
        return self.engine.ledger

    def client(self, address: str = VISITOR, *, body: bytes = QUESTION, forged: Random | None = None) -> Client:
        """A request that is about to be made."""
        headers, peer = self.visitors.arrive(address, forged=forged)
        return self.shaped(Client(body=[body], headers=headers, peer=peer))

    def shaped(self, client: Client) -> Client:
        """The same request, on a path and with a method that these settings guard."""
        methods = self.settings.methods
        client.method = "POST" if methods is None or "POST" in methods else sorted(methods)[0]
        client.path = self.settings.paths[0].replace("**", "x").replace("*", "x")
        if self.settings.edge_secret is not None:
            client.headers.append(self.settings.edge_secret)
        return client

    async def ask(self, address: str = VISITOR, *, body: bytes = QUESTION, forged: Random | None = None) -> Client:
        """Make a request and wait for its end."""
        return await self.client(address, body=body, forged=forged).call(self.guard)

    async def balance(self) -> Balance:
        """The first budget, as the ledger has it."""
        return (await self.balances())[0]

    async def balances(self) -> list[Balance]:
        """Every budget, as the ledger has it."""
        return await self.ledger.balances(self.engine.rules.budgets)

    async def quiet(self) -> Balance:
        """The first budget once nothing is open and no slot is held, or when that takes too long."""
        return await self.until(self._is_quiet)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> Balance:
        """The first budget once this holds, or when that takes too long: what is queued is written soon."""
        await wait_until(holds, seconds=QUIET_SECONDS_HERE if self.ledger.scope == "process" else QUIET_SECONDS)
        return await self.balance()

    def cost(self, *, input_tokens: int, output_tokens: int) -> int:
        """Nano-USD of one call at the dearest of the configured prices."""
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        cost = self.settings.tariff.cost(usage, wall_ns=self.clock.wall_ns(), input_bytes=0)
        assert cost is not None, "only a model that is not ours has no cost"
        return cost

    def bill(self, chat: Chat) -> int:
        """What the provider has put on its bill for one call, or for as many as there were, in nano-USD."""
        provider = chat.provider
        return self.cost(input_tokens=provider.input_tokens_billed, output_tokens=provider.output_tokens_billed)

    async def _is_quiet(self) -> bool:
        return (await self.balance()).open_nanousd == 0 and await self.ledger.in_flight() == 0


@dataclass(slots=True)
class Stage:
    """What every row gets."""

    #: The operator's, in the namespace of the proof, enforcing, not paused, with roomy limits.
    settings: Settings
    rng: Random
    #: The ceiling of the ordinary request, in nano-USD.
    ceiling: int = 0
    #: Ledgers that are to be forgotten, should a row not come to its end.
    _opened: list[Ledger] = field(default_factory=list)

    def chat(self) -> Chat:
        """The application, reporting everything."""
        return Chat(output_tokens_max=self.settings.tariff.max_output_tokens)

    def budget(self, nanousd: int) -> str:
        """This much in each of the operator's windows, as one writes it."""
        units = [budget.name for budget in self.settings.budgets] or ["day"]
        return ", ".join(f"{format_usd(nanousd)}/{unit}" for unit in units)

    def priced(self, **prices: object) -> Settings:
        """Settings of the proof's own on the operator's ledger, with prices that can be added up by hand."""
        keywords: SettingsKeywords = {
            "environ": {},
            "paths": ["/chat"],
            "system_prompt_bytes": 0,
            "budget": "1/total",
            "client_budget": "unlimited",
            "rate": "unlimited",
            "ledger": self.settings.ledger,
            "namespace": self.settings.namespace,
            **prices,  # type: ignore[typeddict-item]  # names and values are checked by Settings
        }
        return Settings(**keywords)

    def ceilings(self, number: int) -> str:
        """Room for so many ordinary requests in each of the operator's windows."""
        return self.budget(number * self.ceiling)

    @asynccontextmanager
    async def bench(
        self, app: App, *, start: datetime | None = None, settings: Settings | None = None, **changes: object
    ) -> AsyncIterator[Bench]:
        """A guard with empty counters, which are forgotten afterwards.

        Args:
            app: What it guards.
            start: The moment at which its clock stands; now by default.
            settings: Other settings than the operator's.
            changes: Settings written anew, as keywords.
        """
        keywords: SettingsKeywords = changes  # type: ignore[assignment]  # names and values are checked by Settings
        settings = (settings or self.settings).changed(**keywords)
        clock = FakeClock(start or datetime.now(UTC))
        async with self.ledger(clock, rules_the_store=True, clients_max=settings.max_clients) as ledger:
            engine = build_guard(settings, clock=clock, ledger=ledger, outward=False)
            guard = RouteGuard.around(app, settings, engine)
            yield Bench(settings, guard, engine, clock, Visitors(settings.strategy, settings.exempt_clients), app)

    @asynccontextmanager
    async def ledger(
        self, clock: Clock, *, rules_the_store: bool, clients_max: int | None = None
    ) -> AsyncIterator[Ledger]:
        """An empty ledger in the namespace of the proof, which is forgotten afterwards."""
        ledger = self._new_ledger(clock, rules_the_store=rules_the_store, clients_max=clients_max)
        try:
            await ledger.refresh()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await ledger.aclose()
            raise
        self._opened.append(ledger)
        try:
            yield ledger
        finally:
            await self._forget(ledger)

    async def look_around(self) -> None:
        """Play the ordinary request once, to know its ceiling.

        Raises:
            NotRun: Not even that is admitted.
            ConfigError: The ledger may not be used.
            LedgerUnavailable: The ledger does not answer, or what is written there could not be removed.
        """
        ledger = self._new_ledger(FakeClock(), rules_the_store=True)
        try:
            # Before anything is written: whoever may not remove it must not write it.
            await ledger.check()
            await ledger.forget()
        finally:
            await ledger.aclose()
        async with self.bench(self.chat()) as bench:
            chat = bench.app
            assert isinstance(chat, Chat)
            client = await bench.ask()
            if not chat.admissions:
                raise NotRun(f"an ordinary request is refused: {client.status} {client.reason or ''}".rstrip())
            self.ceiling = chat.admissions[0].ceiling_nanousd

    async def aclose(self) -> None:
        """Forget what rows have left that were cut off."""
        for ledger in list(self._opened):
            await self._forget(ledger)

    def _new_ledger(self, clock: Clock, *, rules_the_store: bool, clients_max: int | None = None) -> Ledger:
        return open_ledger(
            self.settings.ledger,
            namespace=self.settings.namespace,
            clock=clock,
            clients_max=clients_max or self.settings.max_clients,
            shared=False,
            rules_the_store=rules_the_store,
        )

    async def _forget(self, ledger: Ledger) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await ledger.forget()
            finally:
                await ledger.aclose()
        self._opened.remove(ledger)


def prepared(settings: Settings, namespace: str) -> Settings:
    """The operator's settings as every row begins with them.

    Raises:
        ConfigError: They do not fit together any more.
    """
    changes: SettingsKeywords = {
        "namespace": namespace,
        "mode": "enforce",
        "paused": False,
        "processes": 1,
        "client": None,
        "admit": None,
        "rate": "unlimited",
        "global_rate": "unlimited",
        "max_parallel": "unlimited",
        "max_parallel_per_client": "unlimited",
        "client_budget": "unlimited",
        "budget": ", ".join(f"{ROOMY_USD}/{unit}" for unit in [one.name for one in settings.budgets] or ["day"]),
        "body_types": sorted({*settings.body_types, "json"}),
        "max_body": min(settings.max_body, BODY_BYTES_MAX),
    }
    if settings.only_fields is not None:
        changes["allow_fields"] = "=" + ",".join(sorted({*settings.only_fields, "messages"}))
    return settings.changed(**changes)
