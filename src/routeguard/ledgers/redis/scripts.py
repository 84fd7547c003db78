"""The scripts of this folder, as a server gets them."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

_FOLDER = files("routeguard.ledgers.redis")
#: Lets a script write to a server that is out of memory. Redis 7 and Valkey read it; older ones fail on the line.
ALLOW_OOM = "#!lua flags=allow-oom\n"


@dataclass(frozen=True, slots=True)
class Source:
    """One text, and the name a server knows it by."""

    text: str
    sha: str


@dataclass(frozen=True, slots=True)
class Script:
    """A script, with and without the line that lets it run when memory is full."""

    name: str
    plain: Source
    out_of_memory: Source | None

    def source(self, *, allow_oom: bool) -> Source:
        """What to send to a server that does, or does not, understand `allow-oom`."""
        return self.out_of_memory if allow_oom and self.out_of_memory is not None else self.plain


def _source(text: str) -> Source:
    # Redis itself names scripts by SHA-1; nothing is protected by it.
    return Source(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _load(name: str, *parts: str, allow_oom: bool = False) -> Script:
    text = "\n".join([_FOLDER.joinpath(f"{part}.lua").read_text("utf-8") for part in ("common", *parts, name)])
    return Script(name, _source(text), _source(ALLOW_OOM + text) if allow_oom else None)


OPEN = _load("open", "accounts", "records")
RESERVE = _load("reserve", "accounts", "records", "due")
LOOK = _load("look", "accounts", "records", "due")
# A full store must refuse new reservations and still take down what the old ones cost.
SETTLE = _load("settle", "accounts", "clients", "records", "places", allow_oom=True)
LATE = _load("late", "accounts", "clients", "records", allow_oom=True)
PAUSE = _load("pause", allow_oom=True)
FIRST = _load("first", allow_oom=True)
RESTORE = _load("restore", "accounts", "clients", allow_oom=True)
DROP = _load("drop", allow_oom=True)
ADJUST = _load("adjust", "accounts", "clients", "records", allow_oom=True)
STATEMENT = _load("statement", "accounts", "records")
#: Stands alone: it needs no ledger.
CHECK = _FOLDER.joinpath("check.lua").read_text("utf-8")
