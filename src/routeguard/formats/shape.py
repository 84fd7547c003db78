"""Recognising an event without parsing it, and provably so.

The events of a stream that carry text differ from each other in that text and little else. Once one of them has been
parsed and told nothing that is kept, its shape is remembered: its bytes, with holes where the values of a few members
stood that no dialect ever looks at. An event with the same bytes around the holes, and in each hole another value of
the same JSON type, parses to the same object apart from those values, hence tells nothing either.

A model cannot write its way out of a hole: no quote, no line end and no backslash that escapes nothing fits into one.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

#: Larger events are parsed every time.
SHAPED_BYTES_MAX = 1024
#: A longer end is no part of a pattern.
MATCHED_END_MAX = 32
#: Members at whose values no dialect looks, beyond their type. Adding one here means no `Dialect` and no `Tally` may
#: ever read it.
_TEXTS = rb"content|text|refusal|reasoning|reasoning_content|thinking|signature|partial_json|arguments|delta|response"
_PADDINGS = rb"obfuscation|p|created_at"
_NUMBERS = rb"sequence_number|ts_us"
#: The same in all events of one text: a hole only where the bytes before the first hole cannot hold it.
_NAMES = rb"item_id"

_PLAIN = rb'[^"\\\x00-\x1f]*+'
_TEXT = _PLAIN + rb'(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})' + _PLAIN + rb")*+"
_NUMBER = rb"(?:0|[1-9][0-9]{0,17}+)"  # thousands of digits would be no JSON for us
_BLANKS = rb"[ ]*+"  # Anthropic pads its events with blanks
_FILLINGS = {"text": _TEXT, "padding": _PLAIN, "number": _NUMBER, "name": _PLAIN, "blanks": _BLANKS}
#: One quote in front of all alternatives: only where one stands is anything compared.
_HOLE = re.compile(
    rb'"(?:(?:' + _TEXTS + rb')":[ ]?"(?P<text>' + _TEXT + rb')"'
    rb"|(?:" + _PADDINGS + rb')":[ ]?"(?P<padding>' + _PLAIN + rb')"'
    rb"|(?:" + _NUMBERS + rb')":[ ]?(?P<number>' + _NUMBER + rb")"
    rb"|(?:" + _NAMES + rb')":[ ]?"(?P<name>' + _PLAIN + rb')")'
)

Matcher = Callable[[bytes, int], object]
#: Stands between two events that are matched together. No event that has a shape holds one.
_BETWEEN = b"\0"


@dataclass(frozen=True, slots=True)
class Shape:
    """An event is of this shape if it starts with `before`, and `rest` matches all that follows."""

    before: bytes
    #: `rest(event, len(before))` is true for the bytes from the first hole on.
    rest: Matcher
    #: True for those bytes of several events with `_BETWEEN` between them; None where the end is not in the pattern.
    rests: Callable[[bytes], object] | None = None

    def is_of_all(self, events: Collection[bytes]) -> bool:
        """Whether all of them are surely of this shape; False says nothing. Takes half as long as one by one."""
        before = self.before
        # All that lies between two texts, by their order, begins with what both of them begin with.
        if self.rests is None or not (min(events).startswith(before) and max(events).startswith(before)):
            return False
        joined = _BETWEEN.join(map(itemgetter(slice(len(before), None)), events))
        # One more stands in an event, which could end there as if another began, and hide what follows.
        return joined.count(_BETWEEN) < len(events) and bool(self.rests(joined))


#: The shape of no event: text in UTF-8 has no such byte.
NO_SHAPE = Shape(before=b"\xff", rest=lambda event, start: None)


def shape_of(event: bytes) -> Shape | None:
    """The shape of an event that was parsed, was of its dialect, and told nothing. None for one without holes."""
    if len(event) > SHAPED_BYTES_MAX or _BETWEEN in event:
        return None
    holes = [(hole.span(kind), kind) for hole in _HOLE.finditer(event) if (kind := hole.lastgroup)]
    inside, _, rest = event.rpartition(b"}")
    if inside.endswith(b" ") and not rest.strip(b"\r\n"):
        holes.append(((len(inside.rstrip(b" ")), len(inside)), "blanks"))
    while holes and holes[0][1] == "name":
        del holes[0]
    if not holes:
        return None
    (start, end), kind = holes[0]
    before, pattern = event[:start], _FILLINGS[kind]
    for (next_start, next_end), next_kind in holes[1:]:
        pattern += re.escape(event[end:next_start]) + _FILLINGS[next_kind]
        end = next_end
    return _shape(before, pattern, event[end:])


def _shape(before: bytes, pattern: bytes, after: bytes) -> Shape:
    """The shape with these holes, and with `after` behind them.

    A long end is compared as memory: that is faster, and it may hold the name of the stream, which would make each
    stream compile a pattern of its own.
    """
    if len(after) <= MATCHED_END_MAX:
        one = pattern + re.escape(after)
        several = one + b"(?:" + re.escape(_BETWEEN) + one + b")*"
        return Shape(before, _matcher_of(one), _matcher_of(several))
    middle, after_bytes = _matcher_of(pattern), len(after)

    def rest(event: bytes, start: int) -> object:
        return event.endswith(after) and middle(event, start, len(event) - after_bytes)

    return Shape(before, rest)


@lru_cache(maxsize=128)  # a provider has a handful; compiling one takes about 0.3 ms
def _matcher_of(pattern: bytes) -> Callable[..., object]:
    return re.compile(pattern).fullmatch
