"""Reading what a whole JSON answer used."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from routeguard.formats.dialects import dialect_of_body
from routeguard.formats.reader import UsageReader
from routeguard.formats.strict_json import parse_json
from routeguard.usage import Tally, Usage


def body_reader(max_bytes: int, *, cost_usd: Decimal | None = None, from_provider: bool = False) -> UsageReader:
    """A reader of one JSON body.

    Args:
        max_bytes: A larger one is not read.
        cost_usd: What the headers say it costs. It adds to a body that says what it used, and never replaces one.
        from_provider: A provider itself sent it, so that it need not show whose dialect it is in: many servers that are
            compatible leave out what tells.
    """
    return BodyReader(max_bytes, cost_usd, from_provider=from_provider)


class BodyReader:
    """Holds the body until its end, and looks then: `seen`, `terminal` and `finish` say nothing before `result`."""

    __slots__ = ("_body", "_bytes_left", "_cost_usd", "_from_provider", "_tally", "seen", "terminal")

    def __init__(self, max_bytes: int, cost_usd: Decimal | None, *, from_provider: bool) -> None:
        self.seen = False
        self.terminal = False
        self._tally = Tally()
        self._body = bytearray()
        self._bytes_left = max_bytes
        self._cost_usd = cost_usd
        self._from_provider = from_provider

    @property
    def finish(self) -> str | None:
        return self._tally.finish

    def feed(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            self._body.clear()
        else:
            self._body += chunk

    def feed_all(self, chunks: Sequence[bytes]) -> None:
        for chunk in chunks:
            self.feed(chunk)

    def result(self, *, failed: bool) -> Usage | None:
        # A body that parses is whole: it has reached its own end, whatever failed after it.
        if self._bytes_left < 0:
            return None
        try:
            self._read(parse_json(self._body.decode("utf-8-sig")))
        except ValueError:
            return None
        used = self._tally.usage_of_answer()
        if used is None or self._cost_usd is None:
            return used
        return replace(used, cost_usd=max(self._cost_usd, used.cost_usd or self._cost_usd))

    def _read(self, body: object) -> None:
        parts = body if isinstance(body, list) else [body]
        for part in parts:
            if not isinstance(part, dict):
                raise ValueError("not an object")
            dialect = dialect_of_body(part)
            if dialect is None and not (self._from_provider and part.get("error") is None):
                raise ValueError("not a provider's answer")
            if parts is body and dialect is not None and not dialect.is_array:
                raise ValueError("not a list of answers")
            self.seen = True
            self._tally.read_answer(part if dialect is None else dialect.answer_of(part))
        self.terminal = self.seen
