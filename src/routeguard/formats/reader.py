"""The one interface of everything that looks at an answer."""

from collections.abc import Sequence
from typing import Protocol

from routeguard.usage import Usage


class UsageReader(Protocol):
    """Looks at an answer that passes by. It never changes it, never raises, and holds a bounded part of it."""

    @property
    def seen(self) -> bool:
        """Whether something that only a provider sends has passed. Stays true when the rest cannot be read."""
        ...

    @property
    def terminal(self) -> bool:
        """Whether the event that ends an answer of this dialect has passed."""
        ...

    @property
    def finish(self) -> str | None:
        """Why the answer ended, in the provider's word (`stop`, `length`, `max_tokens`), once it said so."""
        ...

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes, wherever they were cut."""
        ...

    def feed_all(self, chunks: Sequence[bytes]) -> None:
        """`feed` each of them."""
        ...

    def result(self, *, failed: bool) -> Usage | None:
        """What the answer used, called at its end or between two events; None where that is not known.

        Args:
            failed: The answer ended in a failure. It then counts only if it had reached its own end before.
        """
        ...
