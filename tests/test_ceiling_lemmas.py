"""What a ceiling stands on: bytes bound tokens, also of texts made to cost, and overheads cover what was seen.

A tokeniser over bytes joins bytes and never makes any, whatever pairs it was taught to join. A body never shrinks when
its strings are decoded. What is left are tokenisers that normalise a text first, and prompts that a provider adds.
"""

import json
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.price_sources import OVERHEAD_TOKENS, OVERHEAD_TOKENS_UNKNOWN
from tests.bodies import facts_of

Merges = Sequence[tuple[bytes, bytes]]

#: Texts that estimates by characters, words or averages get wrong.
COSTLY: dict[str, str] = {
    "control characters": "".join(map(chr, range(1, 32))) * 20,
    "C1 controls": "".join(map(chr, range(0x80, 0xA0))) * 20,
    "Chinese": "人人生而自由在尊严和权利上一律平等" * 20,
    "rare ideographs": "𠜎𠜱𠝹𠱓𡁏𡃁𢃇" * 40,
    "Hangul in letters": "\u1112\u1161\u11ab" * 90,
    "Tamil": "மனிதப் பிறவியினர் சகலரும்" * 12,
    "emoji joined into one": "👩‍👩‍👧‍👦🏴‍☠️👍🏽" * 30,
    "flags and tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f" * 30,
    "one ligature that is eleven times longer": "\ufdfa" * 90,
    "fullwidth letters": "\uff21\uff22\uff23\uff11\uff12\uff13" * 40,
    "fractions": "½⅓¼⅔" * 60,
    "units of a square": "㌀㍿㎯" * 60,
    "letters that NFC takes apart": "\u0344\u2126\u212b\U0001d15e" * 40,
    "combining marks": "Z\u0351\u036b\u0343\u036a\u0302" * 60,
    "private use": "\ue000\U000f0000\U0010fffd" * 60,
    "noncharacters": "\ufffe\U0001ffff" * 80,
    "right to left": "\u202eabc\u202c שלום" * 40,
    "quotes and backslashes": '\\"' * 300,
    "line ends": "\r\n\u2028\u2029\x85" * 60,
    "blanks": " \u00a0\u3000\u200b" * 80,
    "digits": "1234567890" * 40,
    "base64": "iVBORw0KGgoAAAANSUhEUgAAAAE" * 20,
    "letters at random": "xq7Zk0Vw-pJ" * 40,
}
FORMS = [None, "NFC", "NFKC"]


def tokens_of(text: bytes, merges: Merges) -> list[bytes]:
    """The tokens of a byte-level vocabulary with these merges, in the order in which they were learnt."""
    tokens = [text[at : at + 1] for at in range(len(text))]
    for left, right in merges:
        joined: list[bytes] = []
        for token in tokens:
            if joined and joined[-1] == left and token == right:
                joined[-1] = left + right
            else:
                joined.append(token)
        tokens = joined
    return tokens


def _normalised(text: str, form: str | None) -> bytes:
    if form is None:
        return text.encode()
    return unicodedata.normalize("NFC" if form == "NFC" else "NFKC", text).encode()


_BYTES = st.integers(0, 255).map(lambda value: bytes([value]))
_PIECES = st.lists(_BYTES, min_size=1, max_size=3).map(b"".join)


@given(st.sampled_from(sorted(COSTLY)) | st.text(max_size=40), st.lists(st.tuples(_PIECES, _PIECES), max_size=12))
def test_no_byte_level_vocabulary_makes_more_tokens_than_bytes(text: str, merges: Merges) -> None:
    raw = COSTLY.get(text, text).encode()

    tokens = tokens_of(raw, merges)

    assert b"".join(tokens) == raw
    assert len(tokens) <= len(raw)


@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", COSTLY)
def test_a_body_is_bounded_for_a_vocabulary_that_knows_nothing_but_bytes(
    kind: str, form: str | None, ensure_ascii: bool
) -> None:
    text = COSTLY[kind]
    body = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=ensure_ascii).encode()

    facts = facts_of(body)

    assert facts.chars >= len(text)
    assert facts.input_bytes >= len(tokens_of(_normalised(text, form), merges=()))


@pytest.mark.parametrize("kind", COSTLY)
def test_text_without_json_around_it_is_bounded_alike(kind: str) -> None:
    facts = facts_of(COSTLY[kind].encode(), "text/plain")

    assert facts.input_bytes >= max(len(_normalised(COSTLY[kind], form)) for form in FORMS)


@pytest.mark.parametrize(
    ("family", "seen_tokens"),
    [("anthropic", 304), ("aws", 570), ("groq", 360), ("cohere", 1_117), ("openrouter", 494)],
)
def test_an_overhead_covers_the_most_input_that_was_ever_seen_above_the_bytes(family: str, seen_tokens: int) -> None:
    assert OVERHEAD_TOKENS[family] >= seen_tokens
    assert seen_tokens <= OVERHEAD_TOKENS_UNKNOWN


def test_no_family_has_less_overhead_than_a_template_takes() -> None:
    assert min(OVERHEAD_TOKENS.values()) >= 64
    assert max(OVERHEAD_TOKENS.values()) <= OVERHEAD_TOKENS_UNKNOWN
