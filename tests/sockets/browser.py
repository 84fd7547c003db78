"""Programs that are clients, where the machine has them. One that is not there skips its tests by name."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def tool(*names: str) -> str:
    """Path of the first of these programs that is there."""
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    pytest.skip(f"{names[0]} is not on this machine")


@contextmanager
def visiting(url: str, profile: Path) -> Iterator[None]:
    """A headless Chromium on this page until the block ends."""
    command = [tool(*BROWSERS), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--no-proxy-server", "--no-first-run", "--disable-extensions", "--remote-debugging-port=0"]
    browser = subprocess.Popen(
        [*command, f"--user-data-dir={profile}", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
