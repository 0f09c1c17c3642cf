"""A headless Chromium for tests of pages: found like servers are, and driven by Playwright, whose own browsers are not
needed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from playwright.sync_api import Browser, Page, sync_playwright

from cobalance.servers import ServerUnavailable, apt

VARIABLE = "COBALANCE_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


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


@attrs.frozen
class Window:
    """One page in a profile of its own, and what happened in it."""

    page: Page
    complaints: list[str] = attrs.Factory(list)
    """Everything on the console, and each error that nobody caught."""
    requests: list[str] = attrs.Factory(list)
    """The addresses of all requests."""


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """A Chromium of our own, which is stopped afterwards."""
    is_root = os.name == "posix" and os.geteuid() == 0
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=program, chromium_sandbox=not is_root, args=["--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield found
        finally:
            found.close()


@contextmanager
def window(browser: Browser, **options: Any) -> Iterator[Window]:
    """A page in a profile of its own; `options` are those of Playwright's ``new_context``."""
    context = browser.new_context(**options)
    try:
        found = Window(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(message.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        yield found
    finally:
        context.close()
