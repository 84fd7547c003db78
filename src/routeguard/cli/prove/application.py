"""The application of the proof: a chat route that calls a scripted provider, and reports as it is told to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from routeguard.admitted import SCOPE_KEY, Admission, Call
from routeguard.replay import Message, Receive, Scope, Send
from routeguard.testing.scripted import Script, ScriptedProvider

#: A conversation whose bill is the same every time.
QUESTION = b'{"messages":[{"role":"user","content":"hi"}]}'
MESSAGE = {"role": "user", "content": "hi"}


@dataclass(slots=True, eq=False)
class Chat:
    """Relays the provider's stream. By default each call is begun, and reported from the stream's last chunk."""

    output_tokens_max: int
    script: Script = field(default_factory=lambda: Script(words=5))
    begins: bool = True
    reports: bool = True
    #: Calls wait here, where there is one.
    gate: anyio.Event | None = None
    #: Raised after the answer has begun.
    raises: Exception | None = None
    provider: ScriptedProvider = field(default_factory=ScriptedProvider)
    #: How often it was called, and with which admissions.
    calls: int = 0
    admissions: list[Admission] = field(default_factory=list)
    began: list[Call] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        admission: Admission = scope[SCOPE_KEY]
        self.admissions.append(admission)
        while (await receive()).get("more_body", False):
            pass
        if self.gate is not None:
            await self.gate.wait()
        call = admission.begin() if self.begins else None
        if call is not None:
            self.began.append(call)
        self.provider.script = self.script

        async def relay(message: Message) -> None:
            if call is not None and self.reports and (usage := usage_in(message)) is not None:
                call.report(usage)
            await send(message)
            if self.raises is not None and message["type"] == "http.response.body":
                raise self.raises

        request = [self._request()]

        async def given() -> Message:
            return request.pop() if request else await receive()

        await self.provider({"type": "http", "method": "POST", "path": "/chat/completions"}, given, relay)

    def _request(self) -> Message:
        asked = {
            "messages": [MESSAGE],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": self.output_tokens_max,
        }
        return {"type": "http.request", "body": json.dumps(asked).encode(), "more_body": False}


def usage_in(message: Mapping[str, object]) -> object:
    """The usage in a chunk of the scripted provider's stream; None in all but the last."""
    body = message.get("body", b"")
    if not isinstance(body, bytes) or not body.startswith(b"data: {"):
        return None
    chunk = json.loads(body.removeprefix(b"data: "))
    return chunk if chunk.get("usage") else None
