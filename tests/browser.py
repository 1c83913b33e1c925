"""A headless Chromium that tests drive over its debugging pipe, without any driver or network."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which root, as in containers, has to go without
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)
NO_BROWSER = "no Chromium is installed (Debian: apt-get install chromium)"


def find_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Tab:
    """One page of the browser; collects what it requests and what it complains about."""

    def __init__(self, to_browser: FileIO, from_browser: FileIO) -> None:
        self._out, self._in = to_browser, from_browser
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path, width: int = 1280, is_dark: bool = False) -> None:
        """Loads a file as from the disk, and waits until it is there."""
        self.show_as(width, is_dark)
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()

    def show_as(self, width: int, is_dark: bool = False, medium: str = "") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(image))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._in.read(1 << 16)
            assert more, "the browser is gone"
            self._rest += more
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        self._events.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Network.loadingFailed":
            self.complaints.append(f"failed request: {params['errorText']}")
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser with a profile folder of its own, ended with the block."""
    program = find_browser()
    assert program is not None, NO_BROWSER
    read_end, to_browser = os.pipe()
    from_browser, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(read_end), str(write_end), program, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(read_end, write_end),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_end)
    os.close(write_end)
    try:
        with os.fdopen(to_browser, "wb", buffering=0) as out, os.fdopen(from_browser, "rb", buffering=0) as back:
            yield Tab(out, back)
    finally:
        process.terminate()
        process.wait(timeout=60)


# The browser reads descriptor 3 and writes descriptor 4; both pipes first move out of the way of these two.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for place, end in enumerate(ends, start=3):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
