"""Reading what a whole JSON answer used."""

from dataclasses import replace
from decimal import Decimal

from routeguard.formats.dialects import dialect_of_body
from routeguard.formats.reader import UsageReader
from routeguard.formats.strict_json import parse_json
from routeguard.usage import Tally, Usage


def body_reader(max_bytes: int, *, cost_usd: Decimal | None = None) -> UsageReader:
    """A reader of one JSON body; one of more than `max_bytes` is not read.

    `cost_usd` is what the headers say it costs. It adds to a body that says what it used, and never replaces one.
    """
    return BodyReader(max_bytes, cost_usd)


class BodyReader:
    """Holds the body until its end, and looks then: `seen`, `terminal` and `finish` say nothing before `result`."""

    __slots__ = ("_body", "_bytes_left", "_cost_usd", "_tally", "seen", "terminal")

    def __init__(self, max_bytes: int, cost_usd: Decimal | None) -> None:
        self.seen = False
        self.terminal = False
        self._tally = Tally()
        self._body = bytearray()
        self._bytes_left = max_bytes
        self._cost_usd = cost_usd

    @property
    def finish(self) -> str | None:
        return self._tally.finish

    def feed(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            self._body.clear()
        else:
            self._body += chunk

    def result(self, *, failed: bool) -> Usage | None:
        # A body that parses is whole: it has reached its own end, whatever failed after it.
        if self._bytes_left < 0:
            return None
        try:
            self._read(parse_json(self._body.decode("utf-8-sig")))
        except ValueError:
            return None
        used = self._tally.usage()
        if used is None or self._cost_usd is None:
            return used
        return replace(used, cost_usd=max(self._cost_usd, used.cost_usd or self._cost_usd))

    def _read(self, body: object) -> None:
        parts = body if isinstance(body, list) else [body]
        for part in parts:
            if not isinstance(part, dict) or (dialect := dialect_of_body(part)) is None:
                raise ValueError("not a provider's answer")
            if parts is body and not dialect.is_array:
                raise ValueError("not a list of answers")
            self.seen = True
            self._tally.read_answer(dialect.answer_of(part))
        self.terminal = self.seen
