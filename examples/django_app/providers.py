"""Which provider answers which question. `__main__` says so before the first request."""

from dataclasses import dataclass

from examples.fastapi_app.model import Model
from routeguard.testing.scripted import DIRECTIVE


@dataclass(frozen=True, slots=True)
class Cast:
    """Who plays in this process."""

    model: Model
    #: The scripted provider, for questions that begin with `script:`, so that it can fail on cue.
    rehearsal: Model
    port: int
    admin_token: str

    def answers(self, question: str) -> Model:
        """The provider of this question."""
        return self.rehearsal if question.startswith(DIRECTIVE) else self.model


_cast: list[Cast] = []


def use(cast: Cast) -> None:
    """Let this cast play from now on."""
    _cast[:] = [cast]


def cast() -> Cast:
    """Who plays now."""
    assert _cast, "start the demo with: python -m examples.django_app"
    return _cast[0]
