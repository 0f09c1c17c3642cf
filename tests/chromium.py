"""A headless Chromium for tests of pages, found like servers are, and driven over a pipe with its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cobalance.servers import ServerUnavailable, apt

VARIABLE = "COBALANCE_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
ANSWER_TIMEOUT_S = 60.0

_QUIET = (
    "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio",
    "--remote-debugging-pipe",
)  # fmt: skip


def find_chromium() -> str:
    """The program: the one that the environment names, the machine's own, or a package installed for the purpose.

    Raises:
        ServerUnavailable: there is none; the message says what to install.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return given
    found = _installed()
    if found is None and apt.can_install():
        with apt.only_installer():
            if _installed() is None:
                apt.install(["chromium"])
        found = _installed()
    if found is None:
        raise ServerUnavailable(
            f"There is no Chromium: none of {', '.join(NAMES)} is on PATH, there is no macOS app, and this is not root on Debian, "
            f"who could install it. Install Chromium or Chrome, or set {VARIABLE} to its program."
        )
    return found


def _installed() -> str | None:
    on_path = (shutil.which(name) for name in NAMES)
    apps = (app for app in MAC_APPS if os.access(app, os.X_OK))
    return next((it for it in (*on_path, *apps) if it), None)


class Page:
    """One page in one browser, and all its events."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._unread = to_browser, from_browser, b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """All events so far, as the protocol has them."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One call of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def open(self, url: str) -> None:
        """Loads a page completely."""
        before = len(self.events)
        self.ask("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[before:]):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """Evaluates a JavaScript expression on this page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """Writes the whole page as a PNG."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """Everything on the console, errors and warnings included."""
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """The addresses of all requests."""
        sent = (event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [params["request"]["url"] for params in sent]

    def _next(self) -> dict[str, Any]:
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline_s - time.monotonic()))
            received = os.read(self._from, 1 << 20) if ready else b""
            assert received, "Chromium ended, or does not answer"
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """A page of a Chromium of our own, which is stopped afterwards."""
    alone = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="cobalance-chromium-", ignore_cleanup_errors=True) as profile:
        # Chromium reads descriptor 3 and writes descriptor 4; a shell puts them there.
        script = f'exec 3<&{to_browser[0]} 4>&{from_browser[1]}; exec "$@"'
        command = ["bash", "-c", script, "chromium", program, *_QUIET, *alone, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command, pass_fds=(to_browser[0], from_browser[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Page(to_browser[1], from_browser[0])
        finally:
            process.kill()
            process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
