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
    #: Searched in the path; a group `model` is the model.
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
        if self.name == "chat" and not _NEWER_CAP.fullmatch(host) and "/openai/deployments/" not in path:
            return self.caps[::-1]
        return self.caps


def endpoint_of(method: str, path: str) -> Endpoint | None:
    """The endpoint that a request may be for, by its path alone."""
    if method != "POST":
        return None
    return next((endpoint for endpoint in ENDPOINTS if endpoint.path.search(path)), None)


_DEPLOYMENT = r"(?:/openai/deployments/(?P<model>[^/]+))?"  # Azure

ENDPOINTS = (
    Endpoint(
        name="chat",
        path=re.compile(_DEPLOYMENT + r"/chat/completions/?\Z"),
        fields=frozenset({"messages"}),
        caps=("max_completion_tokens", "max_tokens"),
        counts=("n",),
        asks_usage=True,
    ),
    Endpoint(
        name="completions",
        path=re.compile(_DEPLOYMENT + r"/completions/?\Z"),
        fields=frozenset({"prompt"}),
        caps=("max_tokens",),
        counts=("n", "best_of"),
        asks_usage=True,
    ),
    Endpoint(
        name="responses",
        path=re.compile(_DEPLOYMENT + r"/responses/?\Z"),
        fields=frozenset({"input", "prompt", "conversation", "previous_response_id"}),
        caps=("max_output_tokens",),
    ),
    Endpoint(
        name="messages",
        path=re.compile(r"/messages/?\Z"),
        fields=frozenset({"messages"}),
        caps=("max_tokens",),
    ),
    Endpoint(
        name="embeddings",
        path=re.compile(_DEPLOYMENT + r"/embeddings/?\Z"),
        fields=frozenset({"input"}),
        caps=(),
    ),
    Endpoint(
        name="generate_content",
        path=re.compile(r"/models/(?P<model>[^/:]+):(?:streamG|g)enerateContent\Z"),
        fields=frozenset({"contents"}),
        caps=("maxOutputTokens", "max_output_tokens"),
        caps_in=("generationConfig", "generation_config"),
        counts=("candidateCount", "candidate_count"),
    ),
    Endpoint(
        name="ollama",
        path=re.compile(r"/api/(?:chat|generate)/?\Z"),
        fields=frozenset({"messages", "prompt"}),
        caps=("num_predict",),
        caps_in=("options",),
    ),
    Endpoint(
        name="cohere",
        path=re.compile(r"/v2/chat/?\Z"),
        fields=frozenset({"messages"}),
        caps=("max_tokens",),
    ),
)
