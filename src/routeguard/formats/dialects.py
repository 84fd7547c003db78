"""The dialects of model providers: how to tell that something was said in one, and where its answer stands.

A dialect decides by the names and types of members alone, never by what the model wrote. Strictness costs nothing: what
is not recognised is charged at its ceiling.
"""

from collections.abc import Callable
from dataclasses import dataclass

from routeguard.formats.strict_json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. Every function takes the JSON object of one event, or of a whole body."""

    name: str
    #: An event that a stream of this dialect can begin with, and nothing else does.
    opens: Callable[[Json], bool]
    #: An event of this dialect.
    continues: Callable[[Json], bool]
    #: The response-shaped part of an event, which `Tally.read_answer` understands.
    answer_in: Callable[[Json], Json | None]
    #: Whether usage in this event may be taken for the bill: Anthropic opens a stream with a first guess.
    bills: Callable[[Json], bool]
    #: The event that ends a stream.
    ends: Callable[[Json], bool]
    #: Whether `data: [DONE]` ends a stream. Elsewhere gateways add it, and it says nothing.
    ends_with_done: bool
    #: A whole answer in one JSON body.
    is_body: Callable[[Json], bool]
    #: Whether a body may be an array of events: a Gemini stream without `alt=sse`.
    is_array: bool = False


def opened_by(event: Json) -> Dialect | None:
    """The dialect of a stream that begins with this event."""
    return next((dialect for dialect in DIALECTS if dialect.opens(event)), None)


def dialect_of_body(body: Json) -> Dialect | None:
    """The dialect of a whole answer. One with an error in it is none: what it used is not to be trusted."""
    if body.get("error") is not None and body.get("object") != "response":
        return None
    return next((dialect for dialect in DIALECTS if dialect.is_body(body)), None)


def is_error(name: str, event: Json) -> bool:
    """An error in the middle of a stream, in any dialect. OpenRouter sends one inside an ordinary chunk."""
    return name == "error" or event.get("type") == "error" or event.get("error") is not None


# OpenAI chat, legacy completions, and all who copy them. Azure opens with an empty `object`, Moonshot leaves it out,
# Perplexity ends with `chat.completion.done`.
_CHUNKS = ("chat.completion.chunk", "chat.completion", "chat.completion.done", "text_completion", "", None)


def _is_chunk(event: Json) -> bool:
    return isinstance(event.get("choices"), list) and event.get("object") in _CHUNKS and "model" in event


def _is_completion(body: Json) -> bool:
    return _is_chunk(body) and body.get("object") in ("chat.completion", "text_completion")


# OpenAI Responses. Its events are many and grow in number; all are `response.<something>`.
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


def _is_response_event(event: Json) -> bool:
    kind = event.get("type")
    if not isinstance(kind, str) or not kind.startswith("response."):
        return False
    return kind not in _LAST_EVENTS or isinstance(event.get("response"), dict)


def _is_last_response_event(event: Json) -> bool:
    return event.get("type") in _LAST_EVENTS


def _response_in(event: Json) -> Json | None:
    return _object_in(event, "response")


def _is_response(body: Json) -> bool:
    return body.get("object") == "response"


# Anthropic Messages.
_MESSAGE_EVENTS = frozenset(
    {
        "content_block_delta",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_start",
        "message_stop",
        "ping",
    }
)


def _is_message_start(event: Json) -> bool:
    return event.get("type") == "message_start" and isinstance(event.get("message"), dict)


def _is_message_event(event: Json) -> bool:
    kind = event.get("type")
    return isinstance(kind, str) and kind in _MESSAGE_EVENTS


def _message_in(event: Json) -> Json | None:
    if event.get("type") == "message_delta":
        return {**(_object_in(event, "delta") or {}), "usage": event.get("usage")}
    return _object_in(event, "message")


def _is_message_delta(event: Json) -> bool:
    return event.get("type") == "message_delta"


def _is_message_stop(event: Json) -> bool:
    return event.get("type") == "message_stop"


def _is_message(body: Json) -> bool:
    return body.get("type") == "message" and body.get("role") == "assistant" and isinstance(body.get("content"), list)


# Gemini generateContent. A blocked prompt has no candidates.
def _is_content(event: Json) -> bool:
    answered = isinstance(event.get("candidates"), list) or isinstance(event.get("promptFeedback"), dict)
    return answered or isinstance(event.get("usageMetadata"), dict)


def _is_content_body(body: Json) -> bool:
    return _is_content(body) and ("usageMetadata" in body or "modelVersion" in body)


def _has_finished(event: Json) -> bool:
    candidates = event.get("candidates")
    return isinstance(candidates, list) and any(
        isinstance(candidate, dict) and candidate.get("finishReason") is not None for candidate in candidates
    )


def _object_in(event: Json, name: str) -> Json | None:
    value = event.get(name)
    return value if isinstance(value, dict) else None


def _itself(event: Json) -> Json:
    return event


def _always(_: Json) -> bool:
    return True


def _never(_: Json) -> bool:
    return False


DIALECTS = (
    Dialect(
        name="chat",
        opens=_is_chunk,
        continues=_is_chunk,
        answer_in=_itself,
        bills=_always,
        ends=_never,
        ends_with_done=True,
        is_body=_is_completion,
    ),
    Dialect(
        name="responses",
        opens=_is_response_event,
        continues=_is_response_event,
        answer_in=_response_in,
        bills=_is_last_response_event,
        ends=_is_last_response_event,
        ends_with_done=False,
        is_body=_is_response,
    ),
    Dialect(
        name="messages",
        opens=_is_message_start,
        continues=_is_message_event,
        answer_in=_message_in,
        bills=_is_message_delta,
        ends=_is_message_stop,
        ends_with_done=False,
        is_body=_is_message,
    ),
    Dialect(
        name="generate_content",
        opens=_is_content,
        continues=_is_content,
        answer_in=_itself,
        bills=_always,
        ends=_has_finished,
        ends_with_done=False,
        is_body=_is_content_body,
        is_array=True,
    ),
)
