"""What an application is made of: its middleware, outermost first, and its routes. Nothing of it is called.

Frameworks keep these in different places and under names that are not ours, so everything is looked up by name and
may be missing; what cannot be seen is said, not guessed.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from routeguard.wrappers import DEPTH_MAX, GUARD, inwards, is_guard

if TYPE_CHECKING:
    from routeguard.config import Settings

ROUTES_MAX: Final = 10_000
COMPRESSES: Final = re.compile("gzip|compress|brotli|zstd")


@dataclass(frozen=True, slots=True)
class Layer:
    """One middleware, or the guard."""

    #: The class: `CORSMiddleware`.
    name: str
    module: str
    #: Of a guard: its `NAMESPACE`.
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One route that the application serves."""

    path: str
    #: In upper case; empty: any.
    methods: frozenset[str]
    #: Where a guard inside the application begins that this route is behind; None: behind no such guard.
    inner_guard: str | None = None
    #: What lies below it is not listed.
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What can be seen of an application."""

    #: Outermost first.
    layers: tuple[Layer, ...]
    routes: tuple[Route, ...]

    @property
    def guard(self) -> int | None:
        """Where the outermost guard stands."""
        return next((number for number, layer in enumerate(self.layers) if layer.name == GUARD), None)


def shape_of(app: object) -> Shape:
    """Look into an application of Starlette, FastAPI, Litestar, Quart or Django, and what stands around it."""
    routes = [route for inner in inwards(app) for route in _routes_of(inner, "", None, DEPTH_MAX)]
    return Shape((*_layers_of(app), *_django_layers(app)), tuple(routes[:ROUTES_MAX]))


def order_warnings(shape: Shape, settings: "Settings") -> Iterator[str]:
    """Middleware that stands on the wrong side of the guard."""
    guard = shape.guard
    if guard is None:
        return
    inside = shape.layers[guard + 1 :]
    cors = next((layer for layer in inside if "cors" in layer.name.lower()), None)
    if cors is not None and not settings.cors_origins:
        yield (
            f"{cors.name} is inside RouteGuard, so browsers of other sites cannot read a refusal and see a network "
            "error: add RouteGuard before it (the middleware that is added last is outermost), or set CORS_ORIGINS"
        )
    for layer in inside:
        # Starlette's own leaves event streams as they are.
        is_harmless = settings.read_response != "all" and layer.module.startswith("starlette.")
        if COMPRESSES.search(layer.name.lower()) and not is_harmless:
            yield (
                f"{layer.name} is inside RouteGuard: a compressed answer is not read for usage, and its whole "
                "ceiling stays charged. Add RouteGuard before it, or report the usage"
            )
        if layer.name == "SlowAPIASGIMiddleware":
            yield f"{layer.name} sends the start of a response again with each chunk, which breaks streams"
    for layer in shape.layers[:guard]:
        if layer.name == "ProxyHeadersMiddleware" and (
            not settings.strategy.headers or settings.strategy.name.startswith("ranges")
        ):
            yield f"{layer.name} stands outside RouteGuard and replaces the peer that {settings.strategy.name} trusts"
    guards = [layer.namespace for layer in shape.layers if layer.name == GUARD]
    if len(guards) > len(set(guards)):
        yield "RouteGuard is installed twice with the same NAMESPACE; the second one is skipped. Install it once"


def _layers_of(app: object) -> Iterator[Layer]:
    for inner in inwards(app):
        if is_guard(inner):
            yield _layer(type(inner), getattr(getattr(inner, "settings", None), "namespace", None))
        elif hasattr(inner, "app") and not hasattr(inner, "user_middleware"):
            yield _layer(type(inner))
        for middleware in _listed(inner, "user_middleware"):
            kind = getattr(middleware, "cls", None)
            if isinstance(kind, type):
                keywords = getattr(middleware, "kwargs", {})
                yield _layer(kind, keywords.get("namespace", "default") if kind.__name__ == GUARD else None)


def _layer(kind: type, namespace: str | None = None) -> Layer:
    return Layer(kind.__name__, kind.__module__, namespace)


def _listed(app: object, name: str) -> list[object]:
    value = getattr(app, name, None)
    return list(value) if isinstance(value, list | tuple) else []


def _routes_of(app: object, prefix: str, guard: str | None, depth: int) -> list[Route]:
    found: list[Route] = []
    for route in _listed(app, "routes") if depth else []:
        path = getattr(route, "path", None)
        if not isinstance(path, str):
            # FastAPI keeps an included router whole, beside the prefix it was included under.
            included = getattr(getattr(route, "include_context", None), "prefix", None)
            if isinstance(included, str):
                found += _routes_of(getattr(route, "original_router", None), prefix + included, guard, depth - 1)
            continue
        mounted = getattr(route, "app", None)
        is_guarded = any(layer.name == GUARD for layer in _layers_of(mounted))
        below = prefix + path, prefix + path if is_guarded else guard, depth - 1
        inner = _routes_of(route, *below) if _listed(route, "routes") else []
        if not inner:
            inner = [found for layer in inwards(mounted) for found in _routes_of(layer, *below)]
        methods = frozenset(map(str, getattr(route, "methods", None) or ()))
        found += inner or [Route(below[0], methods, below[1], is_open=not hasattr(route, "methods"))]
    rules = getattr(getattr(app, "url_map", None), "iter_rules", None)
    listed = rules() if callable(rules) else ()
    for rule in listed if isinstance(listed, Iterable) else ():
        found.append(Route(str(rule.rule), frozenset(rule.methods or ())))
    if type(app).__module__.startswith("django."):
        found += _django_routes()
    return found


def _django_routes() -> list[Route]:
    # Only where the application is Django's own is Django set up.
    from importlib import import_module

    resolver = import_module("django.urls").get_resolver()
    found: list[Route] = []

    def walk(patterns: object, prefix: str, depth: int) -> None:
        for pattern in patterns if isinstance(patterns, list | tuple) else ():
            path = prefix + str(pattern.pattern).removeprefix("^").removesuffix("$").removesuffix(r"\Z")
            inner = getattr(pattern, "url_patterns", None)
            if inner is None:
                found.append(Route(path, frozenset()))
            elif depth:
                walk(inner, path, depth - 1)

    walk(resolver.url_patterns, "/", DEPTH_MAX)
    return found


def _django_layers(app: object) -> list[Layer]:
    """Django's own middleware: whatever is around it, it is inside."""
    if not any(type(inner).__module__.startswith("django.") for inner in inwards(app)):
        return []
    names = getattr(getattr(sys.modules.get("django.conf"), "settings", None), "MIDDLEWARE", ())
    dotted = [str(name).rpartition(".") for name in names]
    return [Layer(name, module) for module, _, name in dotted]
