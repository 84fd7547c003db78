"""A headless Chromium, driven through its DevTools protocol: what a person sees and does."""

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_SECONDS = 60
WAIT_SECONDS = 60


def find_browser() -> str | None:
    """A Chromium on PATH."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class CommandFailed(Exception):
    """The browser would not do it, for example because the page is being left."""


class Browser:
    """One tab."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        switches = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-proxy-server"]
        self._process = subprocess.Popen(
            [program, *switches, "--remote-debugging-port=0", f"--user-data-dir={self._folder.name}", "about:blank"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self._ids = itertools.count(1)
        #: Errors of the page: exceptions, refused resources, what it wrote to the console as an error.
        self.errors: list[str] = []
        port, _ = self._devtools()
        self._socket = connect(f"ws://127.0.0.1:{port}{self._target(port)}", max_size=None, proxy=None)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(START_SECONDS)
        with suppress(OSError):
            self._folder.cleanup()

    def command(self, method: str, **parameters: Any) -> Any:
        """Send one command and return its result; what happens meanwhile is kept."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=WAIT_SECONDS))
            if message.get("id") == number:
                if "error" in message:
                    raise CommandFailed(message["error"]["message"])
                return message["result"]
            self._hear(message)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, expression: str) -> None:
        """Ask the page until the expression holds. Fails with the page's text."""
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            with suppress(CommandFailed):
                if self.evaluate(f"Boolean({expression})"):
                    return
            assert time.monotonic() < ends, (expression, self.evaluate("document.body.innerText"), self.errors)
            time.sleep(0.02)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Go to a page and wait until it is loaded."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)
        self.command("Page.navigate", url=url)
        self.wait_until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url[:20])})")

    def key(self, key: str) -> None:
        """Press one key."""
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key)
        down: dict[str, Any] = {"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
        if text is not None:
            down["text"] = text
        self.command("Input.dispatchKeyEvent", **down)
        self.command("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type into whatever has the focus."""
        self.command("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        answer = self.command("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _devtools(self) -> tuple[int, str]:
        port_file, ends = Path(self._folder.name, "DevToolsActivePort"), time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError, ValueError):
                port, path = port_file.read_text().split()
                return int(port), path
            assert time.monotonic() < ends, "the browser did not start"
            time.sleep(0.05)

    def _target(self, port: int) -> str:
        with closing(HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)) as connection:
            connection.request("GET", "/json/list")
            pages = [one for one in json.loads(connection.getresponse().read()) if one["type"] == "page"]
        address: str = pages[0]["webSocketDebuggerUrl"]
        return address[address.index("/devtools") :]

    def _hear(self, message: dict[str, Any]) -> None:
        kind, what = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(str(what["exceptionDetails"]))
        elif kind == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.errors.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")
        elif kind == "Runtime.consoleAPICalled" and what["type"] == "error":
            self.errors.append(str(what["args"]))
