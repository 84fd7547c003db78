"""What the other process of the proof is told, and what its calls cost."""

import dataclasses
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from routeguard.money import NANOUSD_PER_USD
from routeguard.policy import Budget, Window

#: $0 for input and $100 for a million output tokens, 1,000 at most: ten cents a ceiling, whatever is asked.
CEILING_NANOUSD: Final = NANOUSD_PER_USD // 10
WORDS: Final = 5
NANOUSD_PER_WORD: Final = CEILING_NANOUSD // 1000


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker is told."""

    ledger: str
    namespace: str
    #: Ceilings that fit into the budget, over all processes.
    fitting: int
    #: Requests of this process.
    asks: int

    @property
    def budget(self) -> Budget:
        """What all of them share."""
        return Budget("total", Window("total", ZoneInfo("UTC")), self.fitting * CEILING_NANOUSD)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return dataclasses.asdict(self)


def amounts() -> tuple[int, int]:
    """Ceiling and bill of one of its calls, in nano-USD."""
    return CEILING_NANOUSD, WORDS * NANOUSD_PER_WORD
