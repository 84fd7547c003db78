"""SmolLM2 135M behind llama.cpp's server, told how to call tools; and a provider that passes calls on and counts them.

Run as a program it is that server: it prints its base URL, and lives until its standard input closes.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from examples.fastapi_app import local_model

KEY = "of-a-server-on-the-loopback"
#: The longest wait for what the model is asked: a busy machine makes ten tokens a second.
WAIT_SECONDS = 60


@contextmanager
def small_model() -> Iterator[str]:
    """Its base URL, while it runs."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        try:
            base_url = child.stdout.readline().strip()
            assert base_url, "the local model did not start"
            yield base_url
        finally:
            child.kill()


@dataclass
class Call:
    """One call as it reached the model."""

    #: Output tokens it may have, and had; None where no answer said.
    cap: int
    used: int | None = None
    #: Tools that the model itself called in its answer.
    tools: int = 0


class Counted:
    """The application of a provider that asks the model and remembers every call, in the order of arrival."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self.calls: list[Call] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body", False):
            body += message["body"]
        body += message["body"]
        asked = json.loads(body)
        call = Call(asked.get("max_tokens") or asked["max_completion_tokens"])
        self.calls.append(call)
        url = self._base_url + scope["path"].removeprefix("/v1")
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            kind = answer.headers["content-type"]
            start = {"status": answer.status_code, "headers": [(b"content-type", kind.encode())]}
            await send({"type": "http.response.start", **start})
            whole = b""
            async for chunk in answer.aiter_raw():
                whole += chunk
                _note(call, whole, is_stream="event-stream" in kind)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _note(call: Call, body: bytes, *, is_stream: bool) -> None:
    """What an answer says so far: read here on its own, and not with what is tested."""
    events = [line.removeprefix(b"data: ") for line in body.split(b"\n\n")] if is_stream else [body]
    tools = set()
    for event in events:
        try:
            said = json.loads(event)
        except ValueError:
            continue
        for choice in said.get("choices", []):
            message = choice.get("message") or choice.get("delta") or {}
            tools |= {tool.get("index", number) for number, tool in enumerate(message.get("tool_calls") or [])}
        if said.get("usage"):
            call.used = said["usage"]["completion_tokens"]
    call.tools = len(tools)


def main() -> None:
    weights = local_model.find_weights()
    assert weights is not None, f"{local_model.WEIGHTS_PACKAGE} is not installed"
    settings = local_model.settings_for(weights, api_key=KEY)
    settings.chat_template = Path(__file__).with_name("tool_calls.jinja").read_text()
    local_model.serve(settings)


if __name__ == "__main__":
    main()
