"""An upload that is refused, as curl, Node and Chromium see it. A tool that is not on the machine skips by name."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.guarding import Counting
from tests.sockets.browser import tool, visiting
from tests.sockets.server import Ledger, Serve, Signal
from tests.sockets.wire import WAIT_SECONDS

UPLOAD_BYTES = 50_000_000
#: Beyond 8 MB a client that reads nothing while it writes may miss its answer.
NODE_BYTES = 6_000_000
FETCH = """
const body = new Uint8Array(Number(process.argv[2]));
const headers = {"content-type": "application/json"};
for (let n = 0; n < 5; n++) {
  try {
    const answer = await fetch(process.argv[1], {method: "POST", headers, body});
    console.log(answer.status, (await answer.json()).error.reason);
  } catch (error) { console.log(error.cause?.code ?? error.message); }
}
"""

PAGE = """<script type="module">
const body = new Uint8Array(%d), found = [];
for (let n = 0; n < 3; n++) {
  try {
    const answer = await fetch("/chat", {method: "POST", headers: {"content-type": "application/json"}, body});
    found.push([answer.status, (await answer.json()).error.reason]);
  } catch (error) { found.push(["failed", error.message]); }
}
await fetch("/found", {method: "POST", body: JSON.stringify(found)});
</script>"""


@pytest.fixture(scope="session")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("upload") / "upload"
    with path.open("wb") as file:
        file.truncate(UPLOAD_BYTES)
    return path


@pytest.mark.parametrize(
    ("options", "asks_first"),
    [([], True), (["-H", "Expect:"], False), (["-H", "Expect:", "-H", "Transfer-Encoding: chunked"], False)],
    ids=["asks first", "sends at once", "chunked"],
)
def test_curl_sees_why_an_upload_of_50_mb_is_refused(
    serve: Serve, upload: Path, options: list[str], asks_first: bool
) -> None:
    curl = tool("curl")
    app = Counting()
    site = serve(app)
    command = [curl, "--silent", "--show-error", "--noproxy", "*", "--max-time", str(WAIT_SECONDS), "--request", "POST"]
    command += ["--upload-file", str(upload), "--header", "content-type: application/json", *options]
    command += ["--write-out", "\n%{http_code} %{size_upload}", f"{site.url}/chat"]

    run = subprocess.run(command, capture_output=True, text=True, check=True)

    body, _, written = run.stdout.rpartition("\n")
    status, sent = written.split()
    assert (status, json.loads(body)["error"]["reason"]) == ("413", "request_too_large")
    assert app.calls == 0
    assert site.ledger() == Ledger()
    if asks_first:
        assert (int(sent), site.exchanges[0].reads) == (0, 0)


def test_node_sees_why_an_upload_of_6_mb_is_refused(serve: Serve) -> None:
    node = tool("node")
    app = Counting()
    site = serve(app)
    command = [node, "--input-type=module", "--eval", FETCH, f"{site.url}/chat", str(NODE_BYTES)]

    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_SECONDS)

    assert run.stdout.splitlines() == ["413 request_too_large"] * 5
    assert app.calls == 0


def test_chromium_sees_why_an_upload_of_50_mb_is_refused(serve: Serve, tmp_path: Path) -> None:
    reported = Signal()
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        if scope["path"] == "/found":
            found.extend(json.loads(body))
            reported.give()
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PAGE.encode() % UPLOAD_BYTES})

    site = serve(app)
    with visiting(f"{site.url}/", tmp_path):
        reported.wait()

    assert found == [[413, "request_too_large"]] * 3
