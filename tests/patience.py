"""How long a test waits for a file: as long as it takes, or as long as users do."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from routeguard.journal import journal
from routeguard.ledgers.sqlite import ledger
from routeguard.sqlite_file import writer

#: What is promised to whoever waits for a file.
PROMISES = {
    ledger: ("REFRESH_SECONDS", "RESERVE_SECONDS", "ANSWER_SECONDS", "SETTLE_SECONDS", "CLOSE_SECONDS"),
    journal: ("CHECK_SECONDS", "CLOSE_SECONDS"),
    writer: ("EXIT_SECONDS",),
}
PROMISED = {(module, name): getattr(module, name) for module, names in PROMISES.items() for name in names}
#: As long as a busy machine needs.
PATIENT_SECONDS = 120.0


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """Let files take their time: what happens is asked, and not how fast."""
    for module, name in PROMISED:
        patch.setattr(module, name, PATIENT_SECONDS)


@contextmanager
def as_promised() -> Iterator[None]:
    """In here nobody waits longer than users do."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), seconds in PROMISED.items():
            patch.setattr(module, name, seconds)
        yield
