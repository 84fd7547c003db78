"""Which fields a request may hand on to a provider: what changes the price, and how much output it may ask for.

Rules that live here:

- They hold for model bodies, which are told by their fields: `messages`, `input`, `contents` or `prompt`.
- JSON body, form and query are one request: frameworks read a parameter from any of them.
- A field counts in snake_case, camelCase and kebab-case alike, because an alias in the application may read any.
- A field counts by being there; null overrides what the application would have sent, so null counts too.
- A message may repeat a name from the tables below, never one the client made up.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from routeguard.body.strict_json import JsonObject, JsonValue
from routeguard.errors import Rejected


class FieldRules(Protocol):
    """The part of the body rules that concerns fields."""

    @property
    def output_tokens_max(self) -> int: ...
    @property
    def models(self) -> frozenset[str] | None: ...
    @property
    def allowed_fields(self) -> frozenset[str]: ...
    @property
    def only_fields(self) -> frozenset[str] | None: ...


class Fields(NamedTuple):
    """The named values of one request. A named tuple, because each request makes one."""

    #: The JSON body if it is an object, then the objects that an SDK call merges into it.
    objects: tuple[JsonObject, ...]
    #: Names and values of form and query, which are all text.
    texts: Sequence[tuple[str, str]]
    #: Every name among them, so that a check sees at once whether there is anything to look into.
    names: frozenset[str]
    #: Whether they look like the parameters of a model call.
    is_model_body: bool


def _spelled(names: str) -> dict[str, str]:
    """Each way to spell each of the snake_case names, with that name."""
    table = {}
    for name in names.split():
        first, *others = name.split("_")
        camel = first + "".join(word.capitalize() for word in others)
        table.update(dict.fromkeys((name, camel, name.replace("_", "-")), name))
    return table


_MODEL_FIELDS = frozenset({"messages", "input", "contents", "prompt"})

#: Refused by being there. `model`, `tools`, `prompt` and `reasoning` are looked into below.
_PRICE_FIELDS = _spelled(
    "service_tier speed previous_response_id conversation background store context_management cached_content "
    "mcp_servers container web_search_options search_settings plugins models route transforms provider prediction "
    "fallbacks inference_geo additional_model_request_fields performance_config modalities audio"
)
_LOOKED_INTO = frozenset({"model", "tools", "prompt", "reasoning", "reasoning.mode"})
_WATCHED = frozenset({*_PRICE_FIELDS, *_LOOKED_INTO})

#: `maxTokens`, the camelCase of the first, is what Bedrock calls it.
_OUTPUT_CAPS = _spelled("max_tokens max_completion_tokens max_output_tokens max_new_tokens num_predict")
_ANSWER_COUNTS = _spelled("n best_of candidate_count")
_OUTPUT_FIELDS = frozenset({*_OUTPUT_CAPS, *_ANSWER_COUNTS})
_SETTINGS = frozenset(_spelled("generation_config inference_config options parameters"))
#: Where a request says how much output it wants: in one of these, inside one of these, or by several prompts.
_OUTPUT_PLACES = frozenset({*_OUTPUT_FIELDS, *_SETTINGS, "prompt"})

#: Arguments by which the Python SDKs (OpenAI, google-genai) take parameters of the call that are not their own.
_MERGED = ("extra_body", "config")

# A tool is a plain function if it says nothing that a function has no use for: OpenAI's two shapes, Anthropic's,
# Cohere's, and Gemini's list of declarations. Hosted tools (web search, code execution, MCP) bill beside the tokens
# and loop on the provider's side. LiteLLM looks for Gemini's keys whatever the type says, hence the whole key set.
_FUNCTION_TYPES = frozenset({"function", "custom"})
_FUNCTION_KEYS = frozenset(
    {"type", "function", "custom", "name", "description", "parameters", "strict", "format", "input_schema"}
    | {"parameter_definitions", "input_examples", "cache_control", "defer_loading", "allowed_callers"}
)
_DECLARATION_KEYS = frozenset({"functionDeclarations", "function_declarations"})

_LENGTH_DIGITS_MAX = 18


def read_fields(document: JsonValue, texts: Sequence[tuple[str, str]]) -> Fields:
    """The fields of a request; `document` is its JSON body, None if it has none."""
    objects: tuple[JsonObject, ...] = ()
    if type(document) is dict:
        objects = (document,)
        for name in _MERGED:
            if type(inner := document.get(name)) is dict:
                objects += (inner,)
    names = frozenset().union(*objects, dict(texts))
    return Fields(objects, texts, names, not _MODEL_FIELDS.isdisjoint(names))


def check_price_fields(fields: Fields, rules: FieldRules) -> str | None:
    """The one model of the operator's list that the request names, or None.

    Raises:
        Rejected: 400 `unsupported_field` or `model_not_allowed`.
    """
    if rules.only_fields is not None:
        _check_listed(fields, rules.only_fields)
    if not fields.is_model_body or _WATCHED.isdisjoint(fields.names):
        return None
    model = _check_model(fields, rules)
    for name in _price_changing(fields):
        if not _is_allowed(name, rules):
            raise Rejected(
                "unsupported_field",
                f"The field `{name}` can change what a call costs and is not accepted here. Leave it out, "
                "or have the operator allow it with ROUTEGUARD_ALLOW_FIELDS.",
                status=400,
            )
    return model


def check_output_fields(fields: Fields, rules: FieldRules) -> None:
    """Refuse a request for more output than was priced.

    Raises:
        Rejected: 400 `output_too_large`.
    """
    if not fields.is_model_body or _OUTPUT_PLACES.isdisjoint(fields.names):
        return
    for place in _output_places(fields):
        for name in sorted(_OUTPUT_FIELDS.intersection(place)):
            _check_output_field(name, place[name], rules)
    for name, text in fields.texts:
        if name in _OUTPUT_FIELDS:
            _check_output_field(name, _digits(text), rules)
    for body in fields.objects:
        # Legacy completions answer each prompt of a list, each with the whole output cap.
        prompts = body.get("prompt")
        if type(prompts) is list and sum(type(prompt) in (str, list) for prompt in prompts) > 1:
            raise _too_much_output("`prompt` may hold one prompt, not several.")


def _check_listed(fields: Fields, only_fields: frozenset[str]) -> None:
    is_listed = all(name in only_fields for name, _ in fields.texts)
    if fields.objects and is_listed:
        is_listed = fields.objects[0].keys() <= only_fields
    if not is_listed:
        accepted = ", ".join(f"`{name}`" for name in sorted(only_fields))
        raise Rejected(
            "unsupported_field",
            f"The request has a field that is not accepted here. Accepted: {accepted}.",
            status=400,
        )


def _check_model(fields: Fields, rules: FieldRules) -> str | None:
    """One of the configured models costs no more than the dearest, which is reserved: it needs no permission.

    Without configured models there is nothing to compare with, and any is let through or none.
    """
    asked: list[JsonValue] = [body["model"] for body in fields.objects if "model" in body]
    asked += [text for name, text in fields.texts if name == "model"]
    if not asked or (rules.models is None and _is_allowed("model", rules)):
        return None
    models = rules.models or frozenset()
    named = set()
    for model in asked:
        if type(model) is not str or model not in models:
            raise Rejected(
                "model_not_allowed",
                "The `model` asked for is not served here. Leave it out, or ask for one that the operator has listed "
                "in ROUTEGUARD_MODEL.",
                status=400,
            )
        named.add(model)
    return named.pop() if len(named) == 1 else None


def _price_changing(fields: Fields) -> Iterator[str]:
    """Names of the price-changing fields that are there, as the client spelled them."""
    for body in fields.objects:
        for name in sorted(_WATCHED.intersection(body)):
            if name in _PRICE_FIELDS or _changes_price(name, body[name]):
                yield name if name != "reasoning" else "reasoning.mode"
    for name, _ in fields.texts:
        if name in _WATCHED and name not in ("prompt", "reasoning"):
            yield name


def _changes_price(name: str, value: JsonValue) -> bool:
    match name:
        case "tools":
            return not (type(value) is list and all(_is_plain_function(tool) for tool in value))
        case "prompt":  # a stored prompt: its text is not in the body
            return type(value) is dict
        case "reasoning":  # `mode: pro` read 1,331 input tokens that were not in the body
            return type(value) is dict and "mode" in value
        case _:
            return True


def _is_plain_function(tool: JsonValue) -> bool:
    if type(tool) is not dict:
        return False
    if "type" in tool:
        kind = tool["type"]
        return type(kind) is str and kind in _FUNCTION_TYPES and tool.keys() <= _FUNCTION_KEYS
    if "name" in tool:
        return tool.keys() <= _FUNCTION_KEYS
    return bool(tool) and tool.keys() <= _DECLARATION_KEYS


def _is_allowed(name: str, rules: FieldRules) -> bool:
    """Whether the operator let the field through, in whichever spelling.

    An `=` list lets through what it names. Only `prompt` is not enough for a stored prompt: it is there for its text.
    """
    if name == "model" and rules.models is not None:
        return True
    listed = rules.allowed_fields
    if rules.only_fields is not None:
        listed = (listed | rules.only_fields) - {"prompt"}
    if name == "reasoning.mode" and "reasoning" in listed:
        return True
    return _plain_spelling(name) in map(_plain_spelling, listed)


def _plain_spelling(name: str) -> str:
    return _PRICE_FIELDS.get(name, name)


def _output_places(fields: Fields) -> Iterable[JsonObject]:
    for body in fields.objects:
        yield body
        for name in _SETTINGS.intersection(body):
            settings = body[name]
            if type(settings) is dict:
                yield settings


def _check_output_field(name: str, value: JsonValue, rules: FieldRules) -> None:
    if name in _ANSWER_COUNTS:
        if type(value) is not int or value != 1:
            raise _too_much_output(f"`{name}` must be 1, or be left out.")
    elif type(value) is not int or not 0 < value <= rules.output_tokens_max:
        raise _too_much_output(f"`{name}` must be a whole number from 1 to {rules.output_tokens_max}.")


def _digits(text: str) -> int | None:
    """The number a text plainly is. A longer one is above any limit and read as none."""
    if text.isascii() and text.isdigit() and len(text) <= _LENGTH_DIGITS_MAX:
        return int(text)
    return None


def _too_much_output(message: str) -> Rejected:
    return Rejected("output_too_large", message, status=400)
