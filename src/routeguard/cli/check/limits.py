"""What the server and the framework at hand cannot give, whatever guards them."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from routeguard.caveats import CAVEATS, Caveat
from routeguard.wrappers import inwards


def limits_of(app: object, server: Sequence[str] | None) -> tuple[Caveat, ...]:
    """The rows of `routeguard.caveats` about this application and the command that serves it.

    Args:
        app: As it was imported, or None.
        server: The command that starts the server, where it is known.
    """
    modules = {*_frameworks(inwards(app)), *(PurePath(word).name for word in server or () if not word.startswith("-"))}
    return tuple(caveat for caveat in CAVEATS if caveat.module in modules)


def _frameworks(layers: Iterable[object]) -> set[str]:
    """The packages that an application and what it wraps are made of: FastAPI's is Starlette's as well."""
    return {kind.__module__.partition(".")[0] for layer in layers for kind in type(layer).__mro__}
