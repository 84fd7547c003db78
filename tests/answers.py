"""Hand-written answers of every dialect, as their providers frame them."""

import json
from base64 import b64encode
from zlib import crc32

from routeguard.formats import UsageReader, answer_reader, stream_reader
from routeguard.formats.stream import StreamReader
from routeguard.usage import Usage

Json = dict[str, object]

DONE = b"data: [DONE]\n\n"


def sse(event: object, *, name: str = "", compact: bool = True, end: str = "\n") -> bytes:
    """One event of a stream."""
    data = json.dumps(event, separators=(",", ":") if compact else None)
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {data}{end}{end}".encode()


def chat_chunk(text: str | None = None, **members: object) -> Json:
    """A chunk of OpenAI chat; `finish_reason` goes into its choice, everything else to the top."""
    finish = members.pop("finish_reason", None)
    delta = {} if text is None else {"content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1731368639,
        "model": "gpt-5-mini-2025-08-07",
        "service_tier": "default",
        "system_fingerprint": None,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
        **members,
    }


CHAT_USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def chat_events(*texts: str, usage: object = CHAT_USAGE, finish: str = "stop") -> list[bytes]:
    """A whole OpenAI chat stream that was asked for its usage."""
    return [
        sse(chat_chunk("", obfuscation="ab")),
        *(sse(chat_chunk(text, obfuscation="x" * (len(text) % 7))) for text in texts),
        sse(chat_chunk(finish_reason=finish, obfuscation="abc")),
        sse(chat_chunk(choices=[], usage=usage, obfuscation="")),
        DONE,
    ]


CHAT_READ = Usage(
    input_tokens=20,
    output_tokens=9,
    cached_input_tokens=4,
    reasoning_tokens=5,
    model="gpt-5-mini-2025-08-07",
    service_tier="default",
    finish="stop",
)

RESPONSES_USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 29,
}


def response_event(kind: str, number: int, **members: object) -> bytes:
    return sse({"type": f"response.{kind}", "sequence_number": number, **members}, name=f"response.{kind}")


def response(status: str, usage: object = None, **members: object) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini-2025-08-07",
        "output": [],
        "service_tier": "default",
        "usage": usage,
        **members,
    }


def responses_events(*texts: str, last: str = "completed", usage: object = RESPONSES_USAGE) -> list[bytes]:
    """A whole OpenAI Responses stream."""
    details = {"reason": "max_output_tokens"} if last == "incomplete" else None
    return [
        response_event("created", 0, response=response("in_progress", service_tier="auto")),
        response_event("in_progress", 1, response=response("in_progress", service_tier="auto")),
        *(
            response_event(
                "output_text.delta",
                number,
                item_id="msg_1",
                output_index=0,
                content_index=0,
                delta=text,
                logprobs=[],
                obfuscation="x" * (number % 5),
            )
            for number, text in enumerate(texts, start=2)
        ),
        response_event(last, len(texts) + 2, response=response(last, usage, incomplete_details=details)),
    ]


RESPONSES_READ = Usage(
    input_tokens=20,
    output_tokens=9,
    cached_input_tokens=4,
    cache_write_tokens=3,
    reasoning_tokens=5,
    model="gpt-5-mini-2025-08-07",
    service_tier="default",
    finish="completed",
)

FIRST_GUESS = {"input_tokens": 12, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0, "output_tokens": 1}
FINAL_USAGE = {"input_tokens": 20, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}}


def message_event(kind: str, **members: object) -> bytes:
    return sse({"type": kind, **members}, name=kind)


def message_start(usage: object = FIRST_GUESS, **members: object) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    return message_event("message_start", message={**message, "stop_reason": None, "usage": usage, **members})


def message_delta(usage: object = FINAL_USAGE, stop_reason: str | None = "end_turn") -> bytes:
    return message_event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage=usage)


def text_delta(text: str, blanks: int = 0) -> bytes:
    delta = json.dumps({"type": "text_delta", "text": text}, separators=(",", ":"))
    data = f'{{"type":"content_block_delta","index":0,"delta":{delta}{" " * blanks}}}'
    return f"event: content_block_delta\ndata: {data}\n\n".encode()


def messages_events(*texts: str) -> list[bytes]:
    """A whole Anthropic Messages stream, padded with blanks as the provider does."""
    return [
        message_start(),
        message_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        message_event("ping"),
        *(text_delta(text, blanks=len(text) % 9) for text in texts),
        message_event("content_block_stop", index=0),
        message_delta(),
        message_event("message_stop"),
    ]


MESSAGES_READ = Usage(
    input_tokens=25,
    output_tokens=9,
    cached_input_tokens=5,
    reasoning_tokens=5,
    model="claude-sonnet-5",
    finish="end_turn",
)


def content_chunk(text: str, count: int, finish: object = None) -> Json:
    """A chunk of Gemini's generateContent; its counts grow from chunk to chunk."""
    candidate: Json = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    return {
        "candidates": [candidate if finish is None else {**candidate, "finishReason": finish}],
        "usageMetadata": {
            "promptTokenCount": 20,
            "candidatesTokenCount": count,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 25 + count,
        },
        "modelVersion": "gemini-2.5-flash",
        "responseId": "g-1",
    }


def content_events(*texts: str) -> list[bytes]:
    """A whole Gemini stream."""
    chunks = [content_chunk(text, count) for count, text in enumerate(texts)]
    return [sse(chunk, compact=False, end="\r\n") for chunk in [*chunks, content_chunk("!", 4, finish="STOP")]]


CONTENT_READ = Usage(input_tokens=20, output_tokens=9, reasoning_tokens=5, model="gemini-2.5-flash", finish="STOP")

CONVERSE_USAGE = {
    "inputTokens": 11,
    "outputTokens": 9,
    "totalTokens": 29,
    "cacheReadInputTokens": 5,
    "cacheWriteInputTokens": 4,
    "cacheDetails": [{"ttl": "1h", "inputTokens": 3}, {"ttl": "5m", "inputTokens": 1}],
}


def converse_parts(*texts: str, usage: object = CONVERSE_USAGE) -> list[tuple[str, Json]]:
    """A whole Bedrock Converse stream: the name of each event, and what it says."""
    return [
        ("messageStart", {"role": "assistant", "p": "abcd"}),
        *(
            ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}, "p": "x" * (len(text) % 9)})
            for text in texts
        ),
        ("contentBlockStop", {"contentBlockIndex": 0, "p": "abc"}),
        ("messageStop", {"stopReason": "end_turn", "p": "ab"}),
        ("metadata", {"usage": usage, "metrics": {"latencyMs": 7}, "p": "a"}),
    ]


CONVERSE_READ = Usage(
    input_tokens=20,
    output_tokens=9,
    cached_input_tokens=5,
    cache_write_tokens=1,
    cache_write_1h_tokens=3,
    finish="end_turn",
)


def ollama_parts(*texts: str, endpoint: str = "chat") -> list[Json]:
    """A whole Ollama stream of `/api/chat` or `/api/generate`."""

    def part(text: str, number: int, **members: object) -> Json:
        words = {"message": {"role": "assistant", "content": text}} if endpoint == "chat" else {"response": text}
        return {"model": "llama3", "created_at": f"2026-11-30T20:01:3{number}.01Z", **words, "done": False, **members}

    last = {"done": True, "done_reason": "stop", "total_duration": 7, "prompt_eval_count": 20, "eval_count": 9}
    return [*(part(text, number) for number, text in enumerate(texts)), part("", 9, **last)]


OLLAMA_READ = Usage(input_tokens=20, output_tokens=9, model="llama3", finish="stop")

COHERE_USAGE = {
    "billed_units": {"input_tokens": 3, "output_tokens": 8},
    "tokens": {"input_tokens": 20, "output_tokens": 9},
    "cached_tokens": 4,
}


def cohere_events(*texts: str) -> list[bytes]:
    """A whole Cohere v2 stream."""
    start: Json = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    return [
        message_event("message-start", id="c-1", delta={"message": start}),
        message_event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}}),
        *(
            message_event("content-delta", index=0, delta={"message": {"content": {"text": text}}, "logprobs": None})
            for text in texts
        ),
        message_event("content-end", index=0),
        message_event("message-end", delta={"finish_reason": "COMPLETE", "usage": COHERE_USAGE}),
    ]


COHERE_READ = Usage(input_tokens=20, output_tokens=9, cached_input_tokens=4, finish="COMPLETE")

#: Dialect → (a whole stream, what it used).
STREAMS: dict[str, tuple[list[bytes], Usage]] = {
    "chat": (chat_events("Hel", "lo", ' "quoted"\n', "wörld"), CHAT_READ),
    "responses": (responses_events("Hel", "lo", ' "quoted"\n', "wörld"), RESPONSES_READ),
    "messages": (messages_events("Hel", "lo", ' "quoted"\n', "wörld"), MESSAGES_READ),
    "generate_content": (content_events("Hel", "lo", ' "quoted"\n', "wörld"), CONTENT_READ),
    "converse": (
        [sse({name: said}) for name, said in converse_parts("Hel", "lo", ' "quoted"\n', "wörld")],
        CONVERSE_READ,
    ),
    "ollama chat": ([sse(part) for part in ollama_parts("Hel", "lo", ' "quoted"\n', "wörld")], OLLAMA_READ),
    "ollama generate": (
        [sse(part) for part in ollama_parts("Hel", "lo", ' "quoted"\n', "wörld", endpoint="generate")],
        OLLAMA_READ,
    ),
    "cohere": (cohere_events("Hel", "lo", ' "quoted"\n', "wörld"), COHERE_READ),
}


def line(part: object) -> bytes:
    """One event of a stream of JSON lines."""
    return json.dumps(part, ensure_ascii=False).encode() + b"\n"


def frame(kind: str, payload: bytes, *, message_type: str = "event") -> bytes:
    """One event of a binary event stream, checksums and all."""
    names = {":exception-type" if message_type == "exception" else ":event-type": kind}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\7" + len(value).to_bytes(2) + value.encode()
        for name, value in {**names, ":content-type": "application/json", ":message-type": message_type}.items()
    )
    prelude = (len(headers) + len(payload) + 16).to_bytes(4) + len(headers).to_bytes(4)
    prelude += crc32(prelude).to_bytes(4)
    return prelude + headers + payload + crc32(prelude + headers + payload).to_bytes(4)


def converse_frames(*texts: str) -> list[bytes]:
    return [frame(name, json.dumps(said).encode()) for name, said in converse_parts(*texts)]


def invoke_frames(*texts: str) -> list[bytes]:
    """What InvokeModelWithResponseStream makes of an Anthropic stream."""
    events = [event.partition(b"data: ")[2].strip() for event in messages_events(*texts)]
    return [frame("chunk", json.dumps({"bytes": b64encode(event).decode(), "p": "abc"}).encode()) for event in events]


#: Media type and dialect → (a whole stream in another framing, what it used).
REFRAMED: dict[tuple[str, str], tuple[list[bytes], Usage]] = {
    ("application/x-ndjson", "ollama chat"): ([line(part) for part in ollama_parts("Hel", "\n", "wörld")], OLLAMA_READ),
    ("application/x-ndjson", "ollama generate"): (
        [line(part) for part in ollama_parts("Hel", "\r", "wörld", endpoint="generate")],
        OLLAMA_READ,
    ),
    ("application/x-ndjson", "generate_content"): (
        [line(part) for part in (content_chunk("Hel", 2), content_chunk("lo", 4, finish="STOP"))],
        CONTENT_READ,
    ),
    ("application/vnd.amazon.eventstream", "converse"): (converse_frames("Hel", "\n", "wörld"), CONVERSE_READ),
    ("application/vnd.amazon.eventstream", "messages"): (invoke_frames("Hel", "\n", "wörld"), MESSAGES_READ),
}


def reader_for(media_type: str, *chunks: bytes) -> UsageReader:
    """The reader of an answer of this type, which these chunks have passed."""
    reader = answer_reader([(b"content-type", media_type.encode())], read_bodies=True, body_bytes_max=1_000_000)
    assert reader is not None
    for chunk in chunks:
        reader.feed(chunk)
    return reader


def reader_of(*chunks: bytes) -> StreamReader:
    """A reader that these chunks have passed."""
    reader = stream_reader()
    assert isinstance(reader, StreamReader)
    for chunk in chunks:
        reader.feed(chunk)
    return reader


def read(*chunks: bytes, failed: bool = False) -> Usage | None:
    """What these chunks, as a whole stream, are read to."""
    return reader_of(*chunks).result(failed=failed)
