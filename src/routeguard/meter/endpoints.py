"""Which requests are provider calls: a table of the dialects that are metered.

A call is known by its path and the fields of its body, never by its host: compatible servers, proxies and Azure serve
the same dialects elsewhere. What is not in the table passes through a metered client untouched and uncounted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Hosts whose chat models take the newer name of the output cap, and some of them only that. A compatible server may
#: know nothing but `max_tokens`.
_NEWER_CAP = re.compile(r"(?:.+\.)?(?:openai\.com|openai\.azure\.com|cognitiveservices\.azure\.com|ai\.azure\.com)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One kind of provider call."""

    name: str
    #: Searched in the plain path; a group `model` is the model.
    path: re.Pattern[str]
    #: The body has at least one of these fields; another request to the same path is none of ours.
    fields: frozenset[str]
    #: Names of the output cap; one that is absent is sent by the first name. Empty: the answer has no output.
    caps: tuple[str, ...]
    #: The object inside the body that holds the caps, in each spelling; empty: the body itself.
    caps_in: tuple[str, ...] = ()
    #: Fields that multiply the output.
    counts: tuple[str, ...] = ()
    #: Streams report usage only when asked by `stream_options`.
    asks_usage: bool = False

    def cap_names(self, host: str, path: str) -> Sequence[str]:
        """Names of the output cap at this host, the one to send first."""
        is_azure = "/openai/deployments/" in _plain(path).lower()
        if self.name == "chat" and not is_azure and not _NEWER_CAP.fullmatch(host):
            return self.caps[::-1]
        return self.caps

    def model_in(self, path: str) -> str | None:
        """The model, or the deployment, that the path names."""
        found = self.path.search(_plain(path))
        return found.groupdict().get("model") if found else None


def endpoint_of(method: str, path: str) -> Endpoint | None:
    """The endpoint that a request may be for, by its path alone."""
    if method != "POST":
        return None
    path = _plain(path)
    return next((endpoint for endpoint in ENDPOINTS if endpoint.path.search(path)), None)


def _plain(path: str) -> str:
    """Without doubled and trailing slashes: a server that cuts them bills the call."""
    return re.sub("/{2,}", "/", path).rstrip("/")


_DEPLOYMENT = r"(?:/openai/deployments/(?P<model>[^/]+))?"  # Azure


def _path(end: str) -> re.Pattern[str]:
    """Plain paths that end like this, in any case, as Azure reads them."""
    return re.compile(end + r"\Z", re.IGNORECASE)


ENDPOINTS = (
    Endpoint(
        name="chat",
        path=_path(_DEPLOYMENT + "/chat/completions"),
        fields=frozenset({"messages", "prompt"}),  # OpenRouter takes a prompt here as well
        caps=("max_completion_tokens", "max_tokens"),
        counts=("n", "best_of"),
        asks_usage=True,
    ),
    Endpoint(
        name="completions",
        path=_path(_DEPLOYMENT + "/completions"),
        fields=frozenset({"prompt", "messages"}),  # Mistral's agents take messages at `/agents/completions`
        caps=("max_tokens",),
        counts=("n", "best_of"),
        asks_usage=True,
    ),
    Endpoint(
        name="responses",
        path=_path(_DEPLOYMENT + "/responses"),
        fields=frozenset({"input", "prompt", "conversation", "previous_response_id"}),
        caps=("max_output_tokens",),
    ),
    Endpoint(
        name="messages",
        path=_path("/messages"),
        fields=frozenset({"messages"}),
        caps=("max_tokens",),
    ),
    Endpoint(
        name="embeddings",
        path=_path(_DEPLOYMENT + "/embeddings"),
        fields=frozenset({"input"}),
        caps=(),
    ),
    Endpoint(
        name="generate_content",
        path=_path("/(?P<model>[^/:]+):(?:stream)?generateContent"),
        fields=frozenset({"contents"}),
        caps=("maxOutputTokens", "max_output_tokens"),
        caps_in=("generationConfig", "generation_config"),
        counts=("candidateCount", "candidate_count"),
    ),
    Endpoint(
        name="ollama",
        path=_path("/api/(?:chat|generate)"),
        fields=frozenset({"messages", "prompt"}),
        caps=("num_predict",),
        caps_in=("options",),
    ),
    Endpoint(
        name="cohere",
        path=_path("/v2/chat"),
        fields=frozenset({"messages"}),
        caps=("max_tokens",),
    ),
)
