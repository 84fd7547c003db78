"""How large one text can become on its way into a model, and whether it is a picture in disguise.

A tokeniser over bytes never makes more tokens than there are UTF-8 bytes. Some tokenisers normalise first, which
can lengthen a text: NFC up to three times, NFKC up to eleven (U+FDFA, 3 bytes, becomes 33).
"""

from unicodedata import combining, is_normalized, normalize

#: Normalising sorts each run of combining marks, and sorts it in quadratic time: 64 kB of misordered marks take
#: over two seconds. No language has runs near this long (UAX #15 calls 30 enough for all of them).
_MARK_RUN_MAX = 128
#: No code point grows more in any normal form, and composing never lengthens. A test goes over all of Unicode.
_GROWTH_MAX = 11
#: Code points that are no combining marks themselves, but decompose into some.
_HIDDEN_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"


def normalised_bytes(text: str) -> int:
    """The largest of the UTF-8 sizes of `text` as it is, in NFC and in NFKC. Linear in the text.

    A text with an absurd run of combining marks counts at a bound of that size instead.

    Raises:
        UnicodeEncodeError: The text holds half of a surrogate pair.
    """
    raw_bytes = len(text.encode())
    if is_normalized("NFKC", text):  # and then NFC has nothing to change either
        return raw_bytes
    if len(text) > _MARK_RUN_MAX and _has_long_mark_run(text):
        return _GROWTH_MAX * raw_bytes
    return max(raw_bytes, len(normalize("NFC", text).encode()), len(normalize("NFKC", text).encode()))


def is_data_url(text: str) -> bool:
    """Whether the text is a file written out as a `data:` URL. The letters may have any case (RFC 3986 §3.1)."""
    lower_text = text.lstrip().lower()
    return lower_text.startswith("data:") and ";base64," in lower_text


def _has_long_mark_run(text: str) -> bool:
    for mark in _HIDDEN_MARKS:
        text = text.replace(mark, "\u0301")
    runs = bytes(map(combining, text)).split(b"\0")
    return max(map(len, runs)) > _MARK_RUN_MAX
