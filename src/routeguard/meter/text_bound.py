"""How many input tokens a provider can make of a request body.

Rules that live here:

- UTF-8 bytes bound tokens, so every text counts with its bytes: the largest of raw, NFC and NFKC.
- What a provider renders as JSON (tool schemas, arguments, response formats) counts as the JSON it is. What only frames
  the text (the keys of messages and parts, their roles and types) is paid by `OBJECT_TOKENS` for each object: chat
  templates add 3 to 7 tokens a message.
- What is not known to be framing counts.
- A file in base64 is a media part and counts as one, not as text.
"""

import json

from routeguard.body.strict_json import JsonObject, JsonValue
from routeguard.body.text_size import is_data_url, normalised_bytes


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Counted for each object that frames text: a message, a part, a tool call.
OBJECT_TOKENS = 8

#: Top-level fields that say how to answer, and are not read to the model.
_SETTINGS = _names(
    "background best_of dimensions encoding_format frequency_penalty include keep_alive logit_bias logprobs"
    " max_completion_tokens max_output_tokens max_tokens metadata modalities model n options parallel_tool_calls"
    " presence_penalty previous_response_id prompt_cache_key reasoning reasoning_effort safetySettings"
    " safety_identifier safety_settings seed service_tier stop stop_sequences store stream stream_options temperature"
    " thinking top_k top_logprobs top_p truncation user verbosity"
)
#: Fields whose objects and lists frame text.
_FRAMES = _names(
    "content contents file function functionCall functionResponse function_call image_url input input_audio"
    " instructions messages output parts prompt source summary system systemInstruction system_instruction tool_calls"
)
#: Of these, an object is arguments or a result: Anthropic's `tool_use.input`, beside Responses' list of that name.
_FRAMES_AS_LIST = _names("input output")
#: Strings under these keys say what an object is, which its `OBJECT_TOKENS` pay.
_LABELS = _names("role type")
#: A longer string is no label: some templates render whatever role they are given.
_LABEL_CHARS_MAX = 64
#: Under these keys a `data:` URL is a file. A model that is shown one as text reads it as text.
_FILE_URLS = _names("file_data file_url image_url url")
#: Objects that hold a file in base64 (Gemini).
_FILES = _names("inlineData inline_data")
#: Beside one of these, `data` is a file in base64 (Anthropic, OpenAI's sound).
_FILE_TYPES = _names("format media_type mimeType mime_type")


def input_bound(document: JsonObject) -> int:
    """Input tokens of a strict JSON body, at most, before what the provider adds unseen."""
    return sum(_bound_of_field(key, value) for key, value in document.items() if key not in _SETTINGS)


def _bound_of_field(key: str, value: JsonValue) -> int:
    if isinstance(value, str):
        is_file = key in _FILE_URLS and is_data_url(value)
        is_label = key in _LABELS and len(value) <= _LABEL_CHARS_MAX
        return 0 if is_label or is_file else normalised_bytes(value)
    if value is None or key in _FILES:
        return 0
    if isinstance(value, (dict, list)) and (key not in _FRAMES or (key in _FRAMES_AS_LIST and isinstance(value, dict))):
        return _bound_of_json(value)
    return _bound_of_frame(value)


def _bound_of_frame(value: JsonValue) -> int:
    # The depth of a strict document is bounded, and with it the recursion.
    if isinstance(value, dict):
        is_file = "data" in value and _holds_file(value)
        fields = (_bound_of_field(key, inner) for key, inner in value.items() if not (is_file and key == "data"))
        return OBJECT_TOKENS + sum(fields)
    if isinstance(value, list):
        return sum(map(_bound_of_frame, value))
    return normalised_bytes(value) if isinstance(value, str) else _bound_of_json(value)


def _holds_file(value: JsonObject) -> bool:
    """Whether `data` is a file. Anthropic's documents may be plain text."""
    is_text = value.get("type") == "text" or str(value.get("media_type")).startswith("text/")
    return not is_text and not _FILE_TYPES.isdisjoint(value)


def _bound_of_json(value: JsonValue) -> int:
    if isinstance(value, (dict, list)) and not value:
        return 0
    # A zero counts: in a prompt that is made of the numbers of tokens it is one of them.
    return normalised_bytes(json.dumps(value, ensure_ascii=False))
