"""A headless Chromium for tests of pages: found like servers are, and driven by Playwright, whose own browsers are not
needed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import axe_core_python
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from cobalance.servers import ServerUnavailable, apt

Theme = Literal["light", "dark"]

WITHIN_S = 60.0

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


def until(page: Page, expression: str) -> Any:
    """Waits until an expression is true in the page, whichever that is by then, and returns its value."""
    give_up_at = time.monotonic() + WITHIN_S
    while True:
        try:
            if found := page.evaluate(expression):
                return found
            page.evaluate("new Promise(done => setTimeout(done, 20))")  # to wait for frames would ask for them
        except PlaywrightError as error:
            if "navigation" not in str(error):
                raise
        assert time.monotonic() < give_up_at, f"never true: {expression}; {page.inner_text('body')}"


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def focus_by_tab(page: Page, selector: str) -> None:
    """Presses Tab until an element has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"Tab never reaches {selector}")


def complaints_of_axe(page: Page) -> Any:
    """What axe-core finds against WCAG 2.1 AA: contrast, names of controls, roles."""
    page.evaluate((Path(axe_core_python.__file__).parent / "axe.min.js").read_text() + "; true")
    return page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}).then(it => it.violations.map("
        "v => [v.id, v.nodes.map(n => n.html.slice(0, 200) + ' ' + n.failureSummary)]))"
    )
