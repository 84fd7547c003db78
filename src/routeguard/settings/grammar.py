"""The grammar of the settings: text, or the same thing as a Python value, becomes one typed value.

Rules that live here:

- A parser raises ValueError with the second half of a sentence; the first half, added by the caller, is the
  setting as the user wrote it: `ROUTEGUARD_MAX_BODY='64K'` + `is not a size; write '64kB' (…)`.
- What could be meant in two ways is refused: a text duration without a unit, an amount without a window.
- Parsers are pure, except the two that read the file behind an `@`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Final, TypeVar

from routeguard.policy import NANOSECONDS

T = TypeVar("T")
#: Text or a Python value in, a typed value out; ValueError says what would be right.
Parser = Callable[[object], T]

#: Below every price on sale: what is smaller was meant for one token. The price file has the same bound.
USD_PER_MTOK_MIN: Final = Decimal("0.0001")

#: What `.env` files put around a value, and not every reader of them takes away.
QUOTES: Final = ("'", '"')

_SIZE = re.compile(r"([0-9]{1,15})\s*(B|kB|MB|GB|KiB|MiB|GiB)?", re.IGNORECASE | re.ASCII)
_SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d)")
_DURATION_UNITS = {
    "ms": NANOSECONDS // 1000,
    "s": NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
    "d": 86400 * NANOSECONDS,
}
_PRICE = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,30})?")
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]{1,512}")


def flag(value: object) -> bool:
    """`true` or `false`, and the usual other spellings of the environment."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in {"true", "1", "yes", "on"}:
        return True
    if word in {"false", "0", "no", "off"}:
        return False
    raise ValueError("is neither yes nor no; write 'true' or 'false'")


def one_of(*choices: T) -> Parser[T]:
    """One of these words (or numbers), in any case."""
    by_word = {str(choice).lower(): choice for choice in choices}

    def parse(value: object) -> T:
        word = str(value).strip().lower()
        if isinstance(value, bool) or word not in by_word:
            raise ValueError(f"is not known{nearest(word, by_word)} Known: {comma(by_word)}")
        return by_word[word]

    return parse


def words(*choices: str) -> Parser[frozenset[str]]:
    """Some of these words."""

    def parse(value: object) -> frozenset[str]:
        found = [entry.lower() for entry in entries(value, example=either(choices))]
        for word in found:
            if word not in choices:
                raise ValueError(f"holds '{word}', which is not known{nearest(word, choices)} Known: {comma(choices)}")
        return frozenset(found)

    return parse


def count(*, least: int, most: int) -> Parser[int]:
    """A whole number within these bounds."""

    def parse(value: object) -> int:
        number = whole(value)
        if number is None:
            raise ValueError(f"is not a whole number; write one from {least} to {most}")
        if not least <= number <= most:
            raise ValueError(f"is out of range; write a whole number from {least} to {most}")
        return number

    return parse


def size(*, most: int) -> Parser[int]:
    """Bytes: `64kB` (1000), `64KiB` (1024), `512`."""

    def parse(value: object) -> int:
        match = _SIZE.fullmatch(plain(value))
        if match is None:
            raise ValueError("is not a size; write '64kB' (64,000 bytes), '64KiB' (65,536) or a number of bytes")
        size_bytes = int(match[1]) * _SIZE_UNITS[(match[2] or "B").lower()]
        if not 1 <= size_bytes <= most:
            raise ValueError(f"is out of range; write a size from 1 to {most} bytes, for example '64kB'")
        return size_bytes

    return parse


def duration_ns(*, least: str, most: str) -> Parser[int]:
    """Nanoseconds: `500ms`, `10s`, `5m`, `1h`; a Python number is seconds, as everywhere in Python."""
    least_ns, most_ns = duration_text_ns(least), duration_text_ns(most)

    def parse(value: object) -> int:
        ns = _duration_value_ns(value)
        if ns is None:
            raise ValueError("is not a duration; write a number and its unit: '500ms', '10s', '5m' or '1h'")
        if not (least_ns or 0) <= ns <= (most_ns or 0):
            raise ValueError(f"is out of range; write a duration from '{least}' to '{most}'")
        return ns

    return parse


def usd_per_mtok(value: object) -> Decimal:
    """A price in USD per million tokens, exact; 0 is a price."""
    match = _PRICE.fullmatch(plain(value))
    price = Decimal(match[0]) if match else None
    if price is None or price > 1_000_000:
        raise ValueError("is not a price; write USD per million tokens, for example '0.25'")
    if 0 < price < USD_PER_MTOK_MIN:
        raise ValueError(
            f"is below {USD_PER_MTOK_MIN} and looks like the price of one token; write USD per million tokens, "
            "for example '0.25'"
        )
    return price


def text(*, most: int, example: str) -> Parser[str]:
    """One line of text for people."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > most or not value.strip().isprintable():
            raise ValueError(f"is not one line of 1 to {most} printable characters; write for example '{example}'")
        return value.strip()

    return parse


def matching(pattern: str, *, what: str) -> Parser[str]:
    """Text of one shape; `what` says which, with an example."""
    compiled = re.compile(pattern)

    def parse(value: object) -> str:
        if not isinstance(value, str) or compiled.fullmatch(value.strip()) is None:
            raise ValueError(f"is not {what}")
        return value.strip()

    return parse


def secret(value: object) -> str:
    """Visible ASCII without blanks: what an Authorization header can carry unchanged."""
    if not isinstance(value, str) or _VISIBLE_ASCII.fullmatch(value.strip()) is None:
        raise ValueError(
            "is not 1 to 512 visible ASCII characters without blanks; make one with: "
            'python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return value.strip()


def header_and_secret(value: object) -> tuple[bytes, bytes]:
    """`Header-Name:value` as the lower-cased name and the value. The message never holds the value."""
    name, colon, content = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not colon or _FIELD_NAME.fullmatch(name.strip()) is None or _VISIBLE_ASCII.fullmatch(content.strip()) is None:
        raise ValueError("is not a header name, a colon and a secret without blanks; write 'X-Edge-Secret:<secret>'")
    return name.strip().lower().encode("ascii"), content.strip().encode("ascii")


def file_text(value: object) -> str:
    """The UTF-8 text of `@file`."""
    path = value.strip() if isinstance(value, str) else ""
    if len(path) < 2 or not path.startswith("@"):
        raise ValueError("is not a file; write an @ and the path, for example '@prices.toml'")
    return _read(path[1:])


def text_or_file_bytes(value: object) -> int:
    """How many UTF-8 bytes this text, or the text of `@file`, has."""
    if not isinstance(value, str):
        raise ValueError("is not text; write the system prompt itself or '@prompt.txt'")
    bare = value.strip()
    if bare[:1] in QUOTES and bare[1:].lstrip().startswith("@"):
        # docker --env-file and systemd's cousins keep the quotes of a line: a name would be counted for its file.
        raise ValueError("names a file in quotes, which are part of it; write '@prompt.txt' without them")
    try:
        return len((_read(bare[1:]) if bare.startswith("@") else value).encode())
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8 text; write the system prompt itself or '@prompt.txt'") from None


def entries(value: object, *, example: str) -> tuple[str, ...]:
    """The non-empty entries of a comma-separated text, a list, a tuple or a set."""
    parts: Iterable[object]
    if isinstance(value, str):
        parts = value.split(",")
    elif isinstance(value, set | frozenset):
        parts = sorted(value, key=str)  # a set has no order, and a start line should have one
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        parts = value
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        parts = [value]
    else:
        raise ValueError(f"is neither text nor a list; write {example}")
    found = []
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | int | float | Decimal):
            raise ValueError(f"holds an entry that is not text; write {example}")
        if text := plain(part):
            found.append(text)
    if not found:
        raise ValueError(f"is empty; write {example}")
    return tuple(found)


def nearest(word: str, known: Iterable[str]) -> str:
    """How a sentence about an unknown word ends: `; did you mean 'vercel'?`, or a full stop when nothing is near."""
    from difflib import get_close_matches  # only when something is wrong

    close = get_close_matches(word[:100], list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else "."


def comma(known: Iterable[str]) -> str:
    """Words as people list them: `a, b, c`."""
    return ", ".join(known)


def either(known: Iterable[str]) -> str:
    """Words as people choose between them: `'a', 'b' or 'c'`."""
    *head, last = (f"'{word}'" for word in known)
    return f"{comma(head)} or {last}" if head else last


def duration_text_ns(duration: str) -> int | None:
    """Nanoseconds of `500ms`, `10s`, `5m`, `1h`, `1d`; None when it is something else."""
    match = _DURATION.fullmatch(duration)
    return int(Decimal(match[1]) * _DURATION_UNITS[match[2]]) if match else None


def whole(value: object) -> int | None:
    """A whole number written in plain digits; None when it is something else."""
    digits = plain(value)
    return int(digits) if re.fullmatch(r"[0-9]{1,18}", digits) else None


def plain(value: object) -> str:
    """The text of a scalar, numbers without exponent (`1e-05` is `0.00001`); "" when it is anything else."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return ""
    number = _exact(value)
    return "" if number is None else format(number, "f")


def _duration_value_ns(value: object) -> int | None:
    if isinstance(value, timedelta):
        return ((value.days * 86400 + value.seconds) * 10**6 + value.microseconds) * 1000
    if isinstance(value, str):
        return duration_text_ns(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    seconds = _exact(value)
    return None if seconds is None else int(seconds * NANOSECONDS)


def _exact(value: int | float | Decimal) -> Decimal | None:
    """A number by its shortest form; None when it is no number, or too large to be worth writing out."""
    if isinstance(value, int):
        return Decimal(value) if abs(value) < 10**30 else None
    number = Decimal(str(value))
    return number if number.is_finite() and abs(number.adjusted()) < 30 else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise ValueError(f"names the file '{path}', which is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # ValueError: a path with NUL
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ValueError(f"names the file '{path}', which cannot be read ({reason}); give the path of a file") from None
