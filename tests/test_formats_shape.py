"""Recognising events by their shape changes nothing but the time it takes."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routeguard.formats.shape import NO_SHAPE, Shape, shape_of
from routeguard.formats.stream import StreamReader
from routeguard.usage import Usage
from tests.answers import (
    CHAT_USAGE,
    DONE,
    FINAL_USAGE,
    RESPONSES_USAGE,
    chat_chunk,
    chat_events,
    cohere_events,
    content_events,
    converse_parts,
    message_delta,
    message_event,
    message_start,
    messages_events,
    ollama_parts,
    reader_of,
    response,
    response_event,
    responses_events,
    sse,
    text_delta,
)

Outcome = tuple[Usage | None, Usage | None, bool, bool, str | None]


def _outcome(*chunks: bytes) -> Outcome:
    return _outcome_of(reader_of(*chunks))


def _outcome_of(reader: StreamReader) -> Outcome:
    return (reader.result(failed=False), reader.result(failed=True), reader.seen, reader.terminal, reader.finish)


def _outcome_without_shapes(*chunks: bytes) -> Outcome:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("routeguard.formats.stream.shape_of", lambda event: None)
        return _outcome(*chunks)


def _matches(shape: Shape | None, event: bytes) -> bool:
    assert shape is not None
    return shape.is_of(event)


#: What may stand in the place of a text, raw: pieces of JSON that try to get out of the string, or break it.
RAW_TEXT = st.lists(
    st.sampled_from(
        [
            *("a", "wörld", " ", '\\"', "\\\\", "\\n", "\\u00e9", "\\ud800", "\\/", "日"),
            *(
                '"',
                "\\",
                "\\x",
                "\\u12",
                "\x00",
                "\x1f",
                "\t",
                "\r",
                "\n",
                "\n\n",
                "\r\n\r\n",
                "\u2028",
                "}",
                "]",
                ":",
                ",",
            ),
            *('","finish_reason":"length', '"},"finish_reason":"stop","x":{"y":"', '"}}]}', '","error":{"code":"1'),
            *('","usage":{"prompt_tokens":5},"x":"', '","text":"', '","obfuscation":"', "data: [DONE]"),
        ]
    ),
    max_size=4,
).map("".join)
#: Texts as they are, and whole events of every dialect, right and wrong.
TEXT = st.text(max_size=12) | st.sampled_from(["", " ", '"', "\\", "\n", "\x7f", "\u2028", "😀", "[DONE]"])
COUNT = st.integers(0, 30)

WELL_MADE = {
    "chat": st.builds(lambda text, pad: sse(chat_chunk(text, obfuscation="x" * pad)), TEXT, st.integers(0, 9)),
    "spaced": st.builds(lambda text: sse(chat_chunk(text), compact=False, end="\r\n"), TEXT),
    "responses": st.builds(
        lambda text, number: response_event("output_text.delta", number, item_id="msg_1", delta=text), TEXT, COUNT
    ),
    "messages": st.builds(text_delta, TEXT, st.integers(0, 5)),
    "converse": st.builds(lambda text: sse(dict([converse_parts(text)[1]])), TEXT),
    "ollama chat": st.builds(lambda text: sse(ollama_parts(text)[0]), TEXT),
    "ollama generate": st.builds(lambda text: sse(ollama_parts(text, endpoint="generate")[0]), TEXT),
    "cohere": st.builds(lambda text: cohere_events(text)[2], TEXT),
}
RAW = {
    "chat": st.builds(lambda raw: sse(chat_chunk("@@")).replace(b"@@", raw.encode("utf-8", "replace")), RAW_TEXT),
    "responses": st.builds(
        lambda raw, number: response_event("output_text.delta", number, delta="@@").replace(b"@@", raw.encode()),
        RAW_TEXT,
        COUNT,
    ),
    "messages": st.builds(lambda raw: text_delta("@@", 2).replace(b"@@", raw.encode()), RAW_TEXT),
    "ollama generate": st.builds(
        lambda raw: sse(ollama_parts("@@", endpoint="generate")[0]).replace(b"@@", raw.encode()), RAW_TEXT
    ),
    "cohere": st.builds(lambda raw: cohere_events("@@")[2].replace(b"@@", raw.encode()), RAW_TEXT),
}
SPECIAL = st.sampled_from(
    [
        *chat_events("a"),
        *responses_events("a"),
        *messages_events("a"),
        *content_events("a"),
        sse(chat_chunk("a", model="gpt-6")),
        sse(chat_chunk("a", usage={"prompt_tokens": 1, "completion_tokens": 1})),
        sse(chat_chunk("a", error={"code": 1})),
        sse({"error": {"message": "m"}}, name="error"),
        sse(chat_chunk("a", id="chatcmpl-2")),
        message_delta({"output_tokens": 3}),
        response_event("incomplete", 7, response=response("incomplete", RESPONSES_USAGE)),
        b": keep\n\n",
        b"data: Hello\n\n",
        b'data: {"token":"x"}\n\n',
    ]
)
OPENINGS = {
    "chat": sse(chat_chunk("")),
    "spaced": sse(chat_chunk(""), compact=False, end="\r\n"),
    "responses": response_event("created", 0, response=response("in_progress")),
    "messages": message_start(),
    "converse": sse(dict([converse_parts()[0]])),
    "ollama chat": sse(ollama_parts("")[0]),
    "ollama generate": sse(ollama_parts("", endpoint="generate")[0]),
    "cohere": cohere_events()[0],
}
ENDINGS = {
    "chat": sse(chat_chunk(choices=[], usage=CHAT_USAGE)) + DONE,
    "spaced": sse(chat_chunk(choices=[], usage=CHAT_USAGE)) + DONE,
    "responses": response_event("completed", 31, response=response("completed", RESPONSES_USAGE)),
    "messages": message_delta(FINAL_USAGE) + message_event("message_stop"),
    "converse": b"".join(sse({name: said}) for name, said in converse_parts()[-2:]),
    "ollama chat": sse(ollama_parts()[-1]),
    "ollama generate": sse(ollama_parts(endpoint="generate")[-1]),
    "cohere": cohere_events()[-1],
}


@st.composite
def _streams(draw: st.DrawFn) -> list[bytes]:
    """Mostly well-made texts of one dialect, so that shapes are learnt, and a few events that are not."""
    dialect = draw(st.sampled_from(sorted(WELL_MADE)))
    texts = draw(st.lists(WELL_MADE[dialect], min_size=2, max_size=8))
    odd = draw(st.lists(SPECIAL | RAW.get(dialect, RAW["chat"]), max_size=3))
    events = [*texts]
    for event in odd:
        events.insert(draw(st.integers(2, len(events))), event)
    return [OPENINGS[dialect], *events, *([ENDINGS[dialect]] if draw(st.booleans()) else [])]


@settings(max_examples=400)
@given(_streams())
def test_a_stream_is_read_alike_with_shapes_and_without(events: list[bytes]) -> None:
    assert _outcome(*events) == _outcome_without_shapes(b"".join(events))


@settings(max_examples=300)
@given(_streams(), st.randoms(use_true_random=False))
def test_a_stream_is_read_alike_in_any_chunks(events: list[bytes], chance: random.Random) -> None:
    whole = b"".join(events)
    cuts = sorted(chance.sample(range(len(whole)), min(len(whole), chance.randint(0, 12))))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    assert _outcome(*chunks) == _outcome(*events) == _outcome_without_shapes(whole)


@settings(max_examples=400)
@given(_streams(), st.randoms(use_true_random=False))
def test_a_stream_is_read_alike_in_any_groups(events: list[bytes], chance: random.Random) -> None:
    reader = reader_of()
    if chance.random() < 0.3:
        place = chance.randrange(len(events))
        events[place] = events[place][: chance.randrange(len(events[place]))]
    left = [*events]
    while left:
        size = chance.randint(1, len(left))
        reader.feed_all(tuple(left[:size]))
        del left[:size]

    assert _outcome_of(reader) == _outcome(*events)


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@given(data=st.data())
def test_events_of_one_shape_are_recognised_together_only_if_each_of_them_is(dialect: str, data: st.DataObject) -> None:
    learnt = data.draw(WELL_MADE[dialect])
    events = data.draw(st.lists(WELL_MADE[dialect] | RAW[dialect] | SPECIAL, min_size=1, max_size=4))
    whole = b"".join(events)
    cut = data.draw(st.integers(0, len(whole)))
    shape = shape_of(learnt)
    assert shape is not None

    place = data.draw(st.integers(0, len(learnt) - 1))
    nearly = [learnt[:place] + bytes([learnt[place] + step]) + learnt[place + 1 :] for step in (-1, 1)]

    for several in (events, [whole[:cut], whole[cut:]], [learnt, *events], *([learnt, one] for one in nearly)):
        together = shape.is_of_all(several)

        assert together in {False, all(_matches(shape, event) for event in several)}
    assert shape.is_of_all([learnt, learnt])


def _json_of(event: bytes) -> dict[str, object]:
    value: dict[str, object] = json.loads(event.partition(b"data: ")[2].decode("utf-8", "replace"))
    return value


@settings(max_examples=300)
@given(st.sampled_from(sorted(RAW)), st.data())
def test_an_event_of_a_known_shape_is_json_with_the_same_members(dialect: str, data: st.DataObject) -> None:
    learnt = data.draw(WELL_MADE[dialect])
    event = data.draw(RAW[dialect] | WELL_MADE[dialect])
    shape = shape_of(learnt)

    if _matches(shape, event):
        assert _emptied(_json_of(learnt)) == _emptied(_json_of(event))


_VOLATILE = {"content", "text", "delta", "response", "obfuscation", "p", "created_at", "sequence_number", "item_id"}


def _emptied(value: object) -> object:
    """The same without the values of the volatile members."""
    if isinstance(value, list):
        return [_emptied(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: None if name in _VOLATILE and isinstance(member, str | int) else _emptied(member)
        for name, member in value.items()
    }


@pytest.mark.parametrize(
    ("learnt", "same"),
    [
        (sse(chat_chunk("Hello")), sse(chat_chunk(' "there"\n'))),
        (sse(chat_chunk("Hello", obfuscation="abc")), sse(chat_chunk("", obfuscation="x"))),
        (text_delta("Hello", 3), text_delta("there", 8)),
        (
            response_event("output_text.delta", 9, item_id="msg_1", delta="a"),
            response_event("output_text.delta", 10, item_id="msg_1", delta="bc"),
        ),
    ],
    ids=["chat", "chat with padding", "messages", "responses"],
)
def test_the_next_event_of_a_text_has_the_same_shape(learnt: bytes, same: bytes) -> None:
    assert _matches(shape_of(learnt), same)


def test_the_name_of_a_text_is_no_hole_where_it_stands_before_the_text() -> None:
    learnt, same, other = (
        sse({"type": "response.output_text.delta", "item_id": item, "delta": text, "sequence_number": number})
        for item, text, number in [("msg_1", "a", 4), ("msg_1", "bc", 5), ("msg_2", "a", 4)]
    )

    assert _matches(shape_of(learnt), same)
    assert not _matches(shape_of(learnt), other)


LEARNT = sse(chat_chunk("Hello"))


@pytest.mark.parametrize(
    "other",
    [
        sse(chat_chunk("there", finish_reason="stop")),
        sse(chat_chunk("there", model="gpt-6")),
        sse(chat_chunk("there", id="chatcmpl-2")),
        sse(chat_chunk("there", service_tier="priority")),
        sse(chat_chunk("there", usage=CHAT_USAGE)),
        sse(chat_chunk("there", error={"code": 1})),
        sse(chat_chunk("there")) + sse(chat_chunk("there")),
        sse(chat_chunk("there"))[:-1],
        LEARNT.replace(b"Hello", b'a","finish_reason":"x'),
        LEARNT.replace(b"Hello", b"a\\"),
        LEARNT.replace(b"Hello", b"a\\x"),
        LEARNT.replace(b"Hello", b"a\nb"),
        LEARNT.replace(b"Hello", b"a\x00b"),
        LEARNT.replace(b'"Hello"', b'"'),
        LEARNT[: LEARNT.index(b"Hello")],
        LEARNT[LEARNT.index(b"Hello") :],
        b"",
    ],
)
def test_an_event_that_says_anything_else_has_another_shape(other: bytes) -> None:
    assert not _matches(shape_of(LEARNT), other)
    assert not _matches(NO_SHAPE, other)


def test_a_number_of_more_digits_than_any_counter_has_another_shape() -> None:
    learnt, longest, longer = (response_event("output_text.delta", 10**digits, delta="a") for digits in (2, 17, 18))

    assert _matches(shape_of(learnt), longest)
    assert not _matches(shape_of(learnt), longer)


@pytest.mark.parametrize("number", [b"x", b"07", b"-7", b"7.5", b'"7"', b"7,8", b""])
def test_what_stands_in_the_place_of_a_number_is_one(number: bytes) -> None:
    learnt = response_event("output_item.done", 7)
    shape = shape_of(learnt)
    assert shape is not None

    assert _matches(shape, learnt.replace(b"7", b"1234"))
    assert not _matches(shape, learnt.replace(b"7", number))
    assert not shape.is_of_all([learnt, learnt.replace(b"7", number)])


def test_an_event_without_a_text_or_too_large_to_be_usual_has_no_shape() -> None:
    assert shape_of(message_event("ping")) is None
    assert shape_of(sse(chat_chunk("x" * 2_000))) is None


def test_an_error_is_never_recognised_by_its_shape() -> None:
    usage = sse(chat_chunk(choices=[], usage=CHAT_USAGE))
    errors = [sse(chat_chunk(text, error={"code": 1})) for text in ("a", "b")]
    # The repeated usage tells nothing new and has no shape of its own, so a shape of the first error would last.
    stream = [OPENINGS["chat"], usage, errors[0], usage, errors[1], DONE]

    assert _outcome(*stream) == _outcome_without_shapes(*stream)
    assert _outcome(*stream)[0] is None


@pytest.mark.parametrize(
    "texts",
    [
        [sse(chat_chunk(str(n), obfuscation="x" * (n % 9))) for n in range(200)],
        [response_event("output_text.delta", n, item_id="msg_1", delta=str(n), logprobs=[]) for n in range(200)],
        [text_delta(str(n), n % 9) for n in range(200)],
        [sse(part) for part in ollama_parts(*map(str, range(200)))[:-1]],
        [sse(part) for part in ollama_parts(*map(str, range(200)), endpoint="generate")[:-1]],
        [sse({name: said}) for name, said in converse_parts(*map(str, range(200)))[:-3]],
        cohere_events(*map(str, range(200)))[:-2],
    ],
    ids=["chat", "responses", "messages", "ollama chat", "ollama generate", "converse", "cohere"],
)
def test_a_long_text_is_parsed_for_a_few_events_only(texts: list[bytes]) -> None:
    opening = [message_start()] if b"content_block_delta" in texts[0] else []
    reader = reader_of(*opening, *texts)

    assert reader._events <= 8


def test_learning_stops_where_every_event_has_another_shape() -> None:
    texts = [sse(chat_chunk(str(n), **{f"member_{n}": n})) for n in range(100)]

    reader = reader_of(*texts, *chat_events("a")[-2:])

    assert reader._shapes == 32
    assert reader.result(failed=True) is not None


def test_events_that_only_together_have_the_right_length_are_not_of_one_shape() -> None:
    shape = shape_of(LEARNT)
    assert shape is not None
    start, _, end = LEARNT.partition(b"Hello")

    assert shape.is_of_all([LEARNT, start + end])
    assert not shape.is_of_all([start + end[1:], start + b'"' + end])
    assert not shape.is_of_all([start, end])
    assert not shape.is_of_all([start + end[1:]])


@pytest.mark.parametrize("padding", [b"", b'"obfuscation":"xyz'])
@pytest.mark.parametrize("between", [b"", b"\0", b" ", b'","usage":null}\n\n\0'])
def test_what_stands_between_two_events_makes_no_two_of_one(padding: bytes, between: bytes) -> None:
    """Behind the end of an event it would hide what no provider sent."""
    start = b'data: {"id":"1","model":"m","object":"chat.completion.chunk","choices":[{"delta":{"content":"'
    inside, end = b'b"}}],' + (padding or b'"x":"'), b'","usage":null}\n\n'
    events = [start + inside.replace(b"b", text, 1) + end for text in (b"a", b"b", b"c")]
    forged = start + inside + between + inside + end
    usage = sse(chat_chunk(id="1", usage={"prompt_tokens": 10, "completion_tokens": 5}))
    reader = reader_of(*events)

    reader.feed_all([events[0], forged])
    reader.feed(usage)

    assert reader_of(*events, usage).result(failed=False) is not None
    assert reader.result(failed=False) is reader_of(*events, forged, usage).result(failed=False) is None
