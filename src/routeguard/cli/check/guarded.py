"""Which routes the guard looks at, and what of `PATHS` looks at none."""

import re
from typing import TYPE_CHECKING, Final

from routeguard.cli.check.shape import Route, Shape
from routeguard.paths import PathPatterns

if TYPE_CHECKING:
    from routeguard.config import Settings

#: Words in a path that make a route look as if it called a model.
CHAT_WORDS: Final = re.compile(
    r"(?:^|[^a-z])(?:chats?|chatbot|completions?|messages?|ask|generate|generation|ai|llm|assistant)(?:[^a-z]|$)"
)
#: `{item_id}`, `<int:id>`, `(?P<id>…)`: a part that stands for any segment, or with `path` for several.
PARAMETER: Final = re.compile(r"\{[^}]*\}|<[^>]*>|\(\?P<[^)]*\)")


def unguarded_chats(shape: Shape, settings: "Settings") -> list[Route]:
    """Routes that look as if they called a model, and that the guard does not look at."""
    patterns = PathPatterns(settings.paths)
    found = []
    for route in shape.routes:
        path = PARAMETER.sub("x", route.path)
        if not _writes(route) or not CHAT_WORDS.search(path.lower()) or path.startswith(settings.status_path):
            continue
        is_guarded = _matches(patterns, route, shape) and (settings.methods is None or "POST" in settings.methods)
        if not is_guarded and route not in found:
            found.append(route)
    return found


def idle_paths(shape: Shape, settings: "Settings") -> list[str]:
    """Patterns of `PATHS` that guard no route. None where the routes do not seem to be all there."""
    if not any(map(_writes, shape.routes)):
        return []
    return [
        pattern
        for pattern in settings.paths
        if not any(_may_guard(pattern, route, shape, settings.methods) for route in shape.routes)
    ]


def _writes(route: Route) -> bool:
    return not route.methods or "POST" in route.methods


def _may_guard(pattern: str, route: Route, shape: Shape, methods: frozenset[str] | None) -> bool:
    if methods and route.methods and methods.isdisjoint(route.methods):
        return False
    if _matches(PathPatterns([pattern]), route, shape):
        return True
    # The other way round, for a route that takes what it is asked: is one of the pattern's paths one of the route's?
    example = re.sub(r"\*+", "x", pattern).rstrip("/")
    fixed = PARAMETER.split(route.path)
    between = [".*" if "path" in parameter else "[^/]+" for parameter in PARAMETER.findall(route.path)]
    expression = re.escape(fixed[0]) + "".join(
        gap + re.escape(part) for gap, part in zip(between, fixed[1:], strict=True)
    )
    taken = re.compile(expression.rstrip("/") + ("(?:/.*)?" if route.is_open else "/?"), re.IGNORECASE)
    return any(taken.fullmatch(asked) for asked in (example, (route.inner_guard or "") + example))


def _matches(patterns: PathPatterns, route: Route, shape: Shape) -> bool:
    is_behind = shape.guard is not None or route.inner_guard is not None
    return is_behind and patterns.match(PARAMETER.sub("x", route.path), route.inner_guard or "") is not None
