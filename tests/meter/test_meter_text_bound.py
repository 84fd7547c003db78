"""The input bound of a call counts every text, and not the JSON that frames it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routeguard.meter.endpoints import endpoint_of
from routeguard.meter.provider_call import ProviderCall, read_call
from routeguard.meter.text_bound import OBJECT_TOKENS, input_bound

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


def bytes_of(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_texts_count_with_their_bytes_wherever_a_dialect_puts_them(texts: list[str]) -> None:
    parts = [{"type": "text", "text": text} for text in texts]
    arguments = dict(enumerate(texts))
    bodies: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": text} for text in texts]},
        {"messages": [{"role": "user", "content": parts}]},
        {"system": parts, "messages": []},
        {"input": [{"role": "user", "content": parts}]},
        {"instructions": "".join(texts), "input": ""},
        {"input": texts},
        {"prompt": texts},
        {"contents": [{"parts": [{"text": text} for text in texts]}]},
        {"contents": [], "systemInstruction": {"parts": [{"text": text} for text in texts]}},
        {"messages": [{"role": "tool", "tool_call_id": "1", "content": text} for text in texts]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": parts}]}]},
        {"messages": [{"role": "user", "unheard_of": texts}]},
        {"messages": [], "unheard_of": {"deep": [{"er": texts}]}},
        {
            "messages": [
                {
                    "role": "a",
                    "content": [{"type": "tool_use", "input": arguments}],
                }
            ]
        },
        {"contents": [{"parts": [{"functionCall": {"name": "f", "args": {"a": texts}}}]}]},
        {"messages": [], "tools": [{"function": {"name": "f", "description": text}} for text in texts]},
        {"messages": [], "response_format": {"json_schema": {"schema": {"enum": texts}}}},
    ]

    for body in bodies:
        assert input_bound(body) >= bytes_of(*texts), body


def test_what_frames_the_text_costs_a_few_tokens_an_object() -> None:
    body: Any = {"model": "m" * 90, "stream": True, "messages": [{"role": "user", "content": "hi"}] * 3}

    assert input_bound(body) == 3 * (2 + OBJECT_TOKENS)


def test_what_a_provider_renders_as_json_counts_as_json() -> None:
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

    assert input_bound({"messages": [], "tools": tools}) == len(json.dumps(tools))


def test_a_file_counts_as_media_and_a_data_url_in_a_text_as_text() -> None:
    url = "data:image/png;base64," + "A" * 1000
    files: list[Any] = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 1000}},
        {"inlineData": {"mimeType": "image/png", "data": "A" * 1000}},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": "A" * 1000}},
        {"type": "file", "file": {"file_data": url}},
    ]
    texts: list[Any] = [
        {"type": "text", "text": url},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A" * 1000}},
    ]

    assert [input_bound({"messages": [{"content": [file]}]}) < 100 for file in files] == [True] * len(files)
    assert [input_bound({"messages": [{"content": [text]}]}) > 1000 for text in texts] == [True, True]


@pytest.mark.parametrize("field", ["prompt", "input"])
@pytest.mark.parametrize("number", [0, 7, 50256])
def test_a_text_given_as_the_numbers_of_its_tokens_counts_one_at_least_for_each(field: str, number: int) -> None:
    assert input_bound({field: [number] * 1000}) >= 1000
    assert input_bound({field: [[number] * 500, [number] * 500]}) >= 1000


def test_a_role_as_long_as_a_text_counts_as_one() -> None:
    assert input_bound({"messages": [{"role": "x" * 1000, "content": ""}]}) == 1000 + OBJECT_TOKENS
    assert input_bound({"messages": [{"role": "assistant", "content": ""}]}) == OBJECT_TOKENS


def test_a_text_that_grows_when_it_is_normalised_counts_at_its_largest() -> None:
    assert input_bound({"messages": [{"content": "\ufdfa"}]}) == 33 + OBJECT_TOKENS


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chat"),
        ("/chat/completions/", "chat"),
        ("/openai/deployments/d/chat/completions", "chat"),
        ("/v1/completions", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "messages"),
        ("/v1/embeddings", "embeddings"),
        ("/v1beta/models/gemini-2.5-flash:generateContent", "generate_content"),
        ("/v1/projects/p/locations/l/publishers/google/models/g:streamGenerateContent", "generate_content"),
        ("/api/chat", "ollama"),
        ("/v2/chat", "cohere"),
        ("/v2/embed", None),
        ("/v1/chat", None),
        ("/v1/models", None),
        ("/v1/responses/resp_1", None),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/v1/responses/compact", None),
        ("/V1/Chat/Completions", "chat"),
        ("/openai/Deployments/d/chat/completions", "chat"),
        ("/v1/chat//completions//", "chat"),
        ("/v1beta/tunedModels/mine:generateContent", "generate_content"),
        ("/v1/projects/p/locations/l/endpoints/1:streamGenerateContent/", "generate_content"),
        ("/v1beta/models/g:batchGenerateContent", None),
        ("/v1/images/generations", None),
        ("/v1/models/g:embedContent", None),
        ("/chat/completions\n", None),
    ],
)
def test_an_endpoint_is_known_by_its_path(path: str, name: str | None) -> None:
    endpoint = endpoint_of("POST", path)

    assert (endpoint and endpoint.name) == name
    assert endpoint_of("GET", path) is None


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/v1/chat/completions", {"model": "gpt-5-mini", "messages": []}, "gpt-5-mini"),
        ("/openai/deployments/mine/chat/completions", {"messages": []}, "mine"),
        ("/openai/deployments/mine/chat/completions", {"model": "gpt-5-mini", "messages": []}, "gpt-5-mini"),
        ("/v1beta/models/gemini-2.5-flash:generateContent", {"model": "x", "contents": []}, "gemini-2.5-flash"),
        ("/v1beta/tunedModels/mine:generateContent", {"contents": []}, "mine"),
        ("/openai/Deployments/Mine/chat/completions", {"messages": []}, "Mine"),
        ("/api/v1/chat/completions", {"model": "m", "prompt": "hi"}, "m"),
        ("/v1/agents/completions", {"agent_id": "a", "messages": []}, ""),
        ("/v1/chat/completions", {"model": 5, "messages": []}, ""),
    ],
)
def test_the_model_is_found_where_the_dialect_names_it(path: str, body: Any, model: str) -> None:
    endpoint = endpoint_of("POST", path)
    assert endpoint is not None

    call = read_call(endpoint, host="h", path=path, body=json.dumps(body).encode(), encoding=None)

    assert isinstance(call, ProviderCall)
    assert call.model == model
