"""One provider call as it is about to be sent: read, bounded, and written again with its output cap.

Rules that live here:

- The cap that is reserved for is the cap that is sent. A larger one is lowered, an absent one is added by the name of
  the dialect; one that is no positive whole number, or two that differ, is refused.
- What the caller wrote and nothing here has to change is sent byte for byte.
"""

import json
from dataclasses import dataclass

from routeguard.body.strict_json import JsonObject, JsonValue, NotJson, parse_json, survey_json
from routeguard.errors import BudgetExceeded, Rejected
from routeguard.meter.endpoints import Endpoint
from routeguard.meter.text_bound import input_bound

#: Largest body of a call that is metered. A larger one is refused: it would have to be held to be bounded.
BODY_BYTES_MAX = 32 * 1024 * 1024

#: Service tiers and speeds that cost the standard price or less.
_STANDARD_TIERS = frozenset({"auto", "default", "flex", "standard", "standard_only", "batch", "on_demand"})


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """A request to a known endpoint, understood."""

    endpoint: Endpoint
    host: str
    path: str
    document: JsonObject
    #: The model it names, or an empty string.
    model: str
    #: Input tokens at most, before what the provider adds unseen.
    input_tokens: int
    media_parts: int
    #: It asks for a service tier or a speed that may cost more than the standard.
    asks_dearer_tier: bool

    @property
    def streams(self) -> bool:
        """Whether the answer is asked for as an event stream that has to be told to report usage."""
        return self.endpoint.asks_usage and self.document.get("stream") is True


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is sent for a call."""

    #: None: what the caller wrote.
    body: bytes | None
    #: The most the answer can hold; 0 for a call without output.
    output_tokens: int
    #: Usage was asked for by us alone: its chunk is not the caller's.
    hides_usage: bool
    #: How many answers the call produces side by side.
    answers: int = 1


def read_call(endpoint: Endpoint, *, host: str, path: str, body: bytes, encoding: str | None) -> ProviderCall | None:
    """The call in a request to this endpoint; None when its body is that of something else.

    Raises:
        BudgetExceeded: What it would send cannot be read, hence not bounded.
    """
    check_size(body, BODY_BYTES_MAX)
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise _unreadable("its body is compressed")
    try:
        text = body.decode()
        document = parse_json(text)
        survey = survey_json(document, text)
    except (UnicodeDecodeError, NotJson, Rejected):
        raise _unreadable("its body is not strict JSON in UTF-8") from None
    if not isinstance(document, dict) or endpoint.fields.isdisjoint(document):
        return None
    named = endpoint.model_in(path) or ""
    model = document.get("model")
    # Gemini's model stands in the path; Azure's path holds the deployment, and the body may name the model.
    if isinstance(model, str) and model and endpoint.name != "generate_content":
        named = model
    return ProviderCall(
        endpoint,
        host,
        path,
        document,
        named,
        input_bound(document),
        survey.media_parts,
        any(_is_dearer(document.get(name)) for name in ("service_tier", "serviceTier", "speed")),
    )


def write_call(call: ProviderCall, *, default: int, most: int | None, clamps: bool = True) -> Outgoing:
    """What to send for a call.

    Args:
        call: What the caller wants to send.
        default: Output cap to send where the caller gave none.
        most: Largest output cap to send; None for any.
        clamps: False leaves the caps as they are, and refuses nothing (the observe mode).

    Raises:
        BudgetExceeded: The caps contradict each other or are none.
    """
    changes: JsonObject = {}
    output_tokens, answers = 0, 1
    if call.endpoint.caps:
        try:
            answers = _answers(call)
            asked = _asked_cap(call)
        except BudgetExceeded:
            if clamps:
                raise
            answers, asked = 1, None
        cap = default if asked is None else asked if most is None else min(asked, most)
        output_tokens = answers * ((cap if clamps or asked is None else asked) + _predicted_tokens(call))
        if clamps and cap != asked:
            changes.update(_with_cap(call, cap))
    asks_usage = call.streams and _wants_asking(call.document.get("stream_options"))
    if asks_usage:
        options = call.document.get("stream_options")
        changes["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    if not changes:
        return Outgoing(None, output_tokens, asks_usage, answers)
    body = json.dumps({**call.document, **changes}, ensure_ascii=False, separators=(",", ":")).encode()
    return Outgoing(body, output_tokens, asks_usage, answers)


def check_size(body: bytes | bytearray, bytes_max: int | None) -> None:
    """Refuse a body of more than `bytes_max`.

    Raises:
        BudgetExceeded: It is larger.
    """
    if bytes_max is not None and len(body) > bytes_max:
        raise _unreadable("its body is too large")


def _unreadable(why: str) -> BudgetExceeded:
    """A call that cannot be bounded because it cannot be read."""
    return BudgetExceeded(
        f"a provider call was not sent: {why}, so that nobody can tell what it costs", reason="unreadable"
    )


def _wants_asking(options: JsonValue) -> bool:
    return options is None or (isinstance(options, dict) and options.get("include_usage") is not True)


def _asked_cap(call: ProviderCall) -> int | None:
    """The output cap the caller gave; None for none.

    Raises:
        BudgetExceeded: It is no positive whole number, or there are two that differ.
    """
    _, holder = _holder(call)
    given = {name: holder[name] for name in call.endpoint.caps if holder.get(name) is not None}
    if not given:
        return None
    caps = {value for value in given.values() if type(value) is int and value > 0}
    if len(caps) != 1 or any(type(value) is not int or value < 1 for value in given.values()):
        raise _refused(f"its output cap ({', '.join(sorted(given))}) must be one whole number above 0")
    return caps.pop()


def _with_cap(call: ProviderCall, cap: int) -> JsonObject:
    """The fields of the body that have to change for this cap: those that are there, else the first name."""
    holder_name, holder = _holder(call)
    names = call.endpoint.cap_names(call.host, call.path)
    given = [name for name in names if holder.get(name) is not None]
    changed: JsonObject = dict.fromkeys(given or names[:1], cap)
    return changed if holder_name is None else {holder_name: {**holder, **changed}}


def _holder(call: ProviderCall) -> tuple[str | None, JsonObject]:
    """The object that holds the caps, and its name; no name for the body itself.

    Raises:
        BudgetExceeded: It is there in two spellings, of which the provider reads one.
    """
    names = call.endpoint.caps_in
    if not names:
        return None, call.document
    found = {name: value for name in names if isinstance(value := call.document.get(name), dict)}
    if len(found) > 1:
        raise _refused(f"{' and '.join(found)} say the same twice")
    for name, holder in found.items():
        return name, holder
    return names[0], {}


def _answers(call: ProviderCall) -> int:
    """How many answers the call produces, each as long as the cap.

    Raises:
        BudgetExceeded: Their number is none.
    """
    _, holder = _holder(call)
    answers = 1
    for name in call.endpoint.counts:
        count = holder.get(name)
        if count is None:
            continue
        if type(count) is not int or count < 1:
            raise _refused(f"{name} must be a whole number above 0")
        answers = max(answers, count)
    prompts = call.document.get("prompt")
    if call.endpoint.name in ("completions", "chat") and isinstance(prompts, list):
        # Each prompt of a list is answered; a list of numbers is one prompt in tokens.
        answers *= max(sum(isinstance(prompt, (str, list)) for prompt in prompts), 1)
    return answers


def _predicted_tokens(call: ProviderCall) -> int:
    """Output beside the cap: what was predicted and did not come is billed as if it had (OpenAI)."""
    prediction = call.document.get("prediction")
    return 0 if prediction is None else input_bound({"prediction": prediction})


def _is_dearer(tier: JsonValue) -> bool:
    return tier is not None and not (isinstance(tier, str) and tier.lower() in _STANDARD_TIERS)


def _refused(why: str, *, reason: str = "output_cap") -> BudgetExceeded:
    return BudgetExceeded(f"a provider call was not sent: {why}", reason=reason)
