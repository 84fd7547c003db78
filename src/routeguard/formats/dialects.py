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
    #: The response-shaped part of an event, which `Tally.read_answer` understands; None: the event is one itself.
    answer_in: Callable[[Json], Json | None] | None = None
    #: Whether usage in this event may be taken for the bill: Anthropic opens a stream with a first guess. None: in any.
    bills: Callable[[Json], bool] | None = None
    #: The event that ends a stream; None: there is none.
    ends: Callable[[Json], bool] | None = None
    #: Whether `data: [DONE]` ends a stream. Elsewhere gateways add it, and it says nothing.
    ends_with_done: bool
    #: A whole answer in one JSON body.
    is_body: Callable[[Json], bool]
    #: The part of such a body that `Tally.read_answer` understands.
    answer_of: Callable[[Json], Json]
    #: Whether another event after the end makes the stream unreadable. Where answers have no name of their own, a
    #: second one in the same stream would replace the first, and both are billed.
    ends_once: bool = False
    #: Whether what says the end may be said in every event, as older Gemini models do.
    repeats_its_end: bool = False
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
# Perplexity ends with `chat.completion.done`; a relay that writes chunks of its own leaves out what its page does not
# read, which is all but the choices.
_CHUNKS = ("chat.completion.chunk", "chat.completion", "chat.completion.done", "text_completion", "", None)


def _is_chunk(event: Json) -> bool:
    choices = event.get("choices")
    if not isinstance(choices, list) or event.get("object") not in _CHUNKS:
        return False
    if event.get("object") or "model" in event:
        return True
    return _each_has(choices, "delta") if choices else isinstance(event.get("usage"), dict)


def _is_completion(body: Json) -> bool:
    choices = body.get("choices")
    if not isinstance(choices, list):
        return False
    if "object" in body:
        return body["object"] in ("chat.completion", "text_completion")
    return bool(choices) and _each_has(choices, "message")


def _each_has(choices: list[object], name: str) -> bool:
    return all(isinstance(choice, dict) and isinstance(choice.get(name), dict) for choice in choices)


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


# Ollama, of both its endpoints. https://docs.ollama.com/api/chat
def _is_ollama(event: Json) -> bool:
    texts = isinstance(event.get("message"), dict) or isinstance(event.get("response"), str)
    return texts and isinstance(event.get("done"), bool) and "model" in event and "created_at" in event


def _is_done(event: Json) -> bool:
    return event.get("done") is True


def _is_ollama_body(body: Json) -> bool:
    return _is_ollama(body) and _is_done(body)


def _ollama_answer_in(event: Json) -> Json | None:
    return _with_counts(event) if _is_done(event) else event


def _with_counts(body: Json) -> Json:
    return {**body, "usage": body}  # its counts stand beside the answer


# Bedrock Converse. An event is an object with one member, named after it.
_CONVERSE_EVENTS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)


def _is_converse_start(event: Json) -> bool:
    return "messageStart" in event


def _is_converse_event(event: Json) -> bool:
    return len(event) == 1 and all(name in _CONVERSE_EVENTS and isinstance(event[name], dict) for name in event)


def _converse_answer_in(event: Json) -> Json | None:
    return _object_in(event, "messageStop") or _object_in(event, "metadata")


def _is_converse_metadata(event: Json) -> bool:
    return "metadata" in event


def _is_converse(body: Json) -> bool:
    output = _object_in(body, "output")
    return output is not None and "message" in output and isinstance(body.get("stopReason"), str)


# Cohere v2.
_COHERE_EVENTS = frozenset(
    {
        "citation-end",
        "citation-start",
        "content-delta",
        "content-end",
        "content-start",
        "message-end",
        "message-start",
        "tool-call-delta",
        "tool-call-end",
        "tool-call-start",
        "tool-plan-delta",
    }
)


def _is_cohere_start(event: Json) -> bool:
    return event.get("type") == "message-start" and isinstance(event.get("id"), str)


def _is_cohere_event(event: Json) -> bool:
    kind = event.get("type")
    return isinstance(kind, str) and kind in _COHERE_EVENTS


def _is_cohere_end(event: Json) -> bool:
    return event.get("type") == "message-end"


def _cohere_answer_in(event: Json) -> Json | None:
    return _object_in(event, "delta") if _is_cohere_end(event) else None


def _is_cohere(body: Json) -> bool:
    message = _object_in(body, "message")
    return message is not None and message.get("role") == "assistant" and isinstance(body.get("finish_reason"), str)


# Embeddings of OpenAI and all who copy it, Gemini, Cohere and Ollama. They have no output, and not all say so.
def _is_embeddings(body: Json) -> bool:
    data = body.get("data")
    if body.get("object") == "list" and isinstance(data, list):
        return any(isinstance(item, dict) and item.get("object") == "embedding" for item in data[:1])
    return ("embedding" in body or "embeddings" in body) and _embeddings_usage_in(body) is not None


def _embeddings_usage_in(body: Json) -> Json | None:
    for name in ("usage", "usageMetadata", "meta"):
        if (usage := _object_in(body, name)) is not None:
            return usage
    return body if "prompt_eval_count" in body else None


def _embeddings_answer_of(body: Json) -> Json:
    usage = _embeddings_usage_in(body)
    return body if usage is None else {**body, "usage": {"output_tokens": 0, **usage}}


def _object_in(event: Json, name: str) -> Json | None:
    value = event.get(name)
    return value if isinstance(value, dict) else None


def _itself(event: Json) -> Json:
    return event


def _never(_: Json) -> bool:
    return False


DIALECTS = (
    Dialect(
        name="chat",
        opens=_is_chunk,
        continues=_is_chunk,
        ends_with_done=True,
        is_body=_is_completion,
        answer_of=_itself,
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
        answer_of=_itself,
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
        answer_of=_itself,
    ),
    Dialect(
        name="converse",
        opens=_is_converse_start,
        continues=_is_converse_event,
        answer_in=_converse_answer_in,
        bills=_is_converse_metadata,
        ends=_is_converse_metadata,
        ends_with_done=False,
        is_body=_is_converse,
        answer_of=_itself,
        ends_once=True,
    ),
    Dialect(
        name="ollama",
        opens=_is_ollama,
        continues=_is_ollama,
        answer_in=_ollama_answer_in,
        bills=_is_done,
        ends=_is_done,
        ends_with_done=False,
        is_body=_is_ollama_body,
        answer_of=_with_counts,
        ends_once=True,
    ),
    Dialect(
        name="cohere",
        opens=_is_cohere_start,
        continues=_is_cohere_event,
        answer_in=_cohere_answer_in,
        bills=_is_cohere_end,
        ends=_is_cohere_end,
        ends_with_done=False,
        is_body=_is_cohere,
        answer_of=_itself,
        ends_once=True,
    ),
    Dialect(
        name="embeddings",
        opens=_never,
        continues=_never,
        bills=_never,
        ends_with_done=False,
        is_body=_is_embeddings,
        answer_of=_embeddings_answer_of,
    ),
    Dialect(
        name="generate_content",
        opens=_is_content,
        continues=_is_content,
        ends=_has_finished,
        ends_with_done=False,
        is_body=_is_content_body,
        answer_of=_itself,
        repeats_its_end=True,
        is_array=True,
    ),
)
