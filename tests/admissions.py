"""An admission of a thousand nano-USD, its price, who hears of it, and what no report can be read from."""

from collections.abc import Mapping
from decimal import Decimal

from routeguard.admitted import Admission
from routeguard.ending import Charge, EndingRules, decide
from routeguard.policy import Reservation
from routeguard.usage import Usage

CEILING = 1_000
NANO = Decimal("1e-9")


class Ear:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.late: list[int] = []
        self.problems: list[str] = []

    def charge_late(self, admission: Admission, *, extra_nanousd: int) -> None:
        self.late.append(extra_nanousd)

    def unusable_report(self, admission: Admission, problem: str) -> None:
        self.problems.append(problem)


def price(usage: Usage, admission: Admission, *, model: str | None) -> int | None:
    """One nano-USD a token, for one model and for none."""
    if model not in {None, "m"}:
        return None
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def admitted(ear: Ear | None = None, *, calls: int = 2, ceiling: int = CEILING) -> Admission:
    return Admission(
        Reservation("id-1", ceiling),
        client="hash",
        path="/api/chat",
        request_id="request-1",
        namespace="default",
        calls_per_request=calls,
        price=price,
        watcher=ear or Ear(),
        input_bytes=10,
        wall_ns=0,
    )


def tokens(count: int) -> dict[str, int]:
    """An OpenAI usage of so many tokens, and so many nano-USD."""
    return {"prompt_tokens": count, "completion_tokens": 0, "total_tokens": count}


def ended(at: Admission) -> Charge:
    """End it as the guard does, by what is known now."""
    charge = decide(at.bill(), ceiling_nanousd=CEILING, failure=None, status=200, rules=EndingRules())
    assert at.end(charge)
    return charge


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text either")


class Endless:
    """Has every attribute, and each has every attribute."""

    def __getattr__(self, name: str) -> "Endless":
        return Endless()


class HostileMapping(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise OSError(key)

    def __iter__(self) -> None:  # type: ignore[override]
        raise OSError

    def __len__(self) -> int:
        raise OSError


def _cyclic() -> dict[str, object]:
    loop: dict[str, object] = {}
    loop["usage"] = loop
    return loop


GARBAGE = {
    "none": None,
    "empty": {},
    "no count": {"model": "m", "id": "x"},
    "negative": tokens(-1),
    "not a number": {"prompt_tokens": float("nan"), "completion_tokens": 1},
    "infinite": {"prompt_tokens": float("inf"), "completion_tokens": 1},
    "text": {"prompt_tokens": "many"},
    "absurdly large": tokens(10**15),
    "no counts in a Usage": Usage(),
    "negative in a Usage": Usage(input_tokens=-5, output_tokens=1),
    "a string": "prompt_tokens: 5",
    "a number": 5,
    "a list": [1, 2],
    "a class": Usage,
    "hostile": Hostile(),
    "endless": Endless(),
    "hostile mapping": HostileMapping(),
    "cyclic": _cyclic(),
}
