"""The actions' dialogs in a real Chromium: by keys alone, at each size, for everybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from tests.chromium import Theme, Window, browser, complaints_of_axe, focus_by_tab, press, until, window
from tests.dashboard.scenes import GROUP, Scene, churned

from cobalance import GroupAdmin
from cobalance.dashboard.server import DashboardServer

HALTED = "orders-005"

DIALOG = "document.querySelector('dialog')"


@pytest.fixture
def scene() -> Scene:
    """A partition is halted, and one has an offset."""
    found = churned()
    holder = next(it for it in found.group.members.values() if not it.is_over and HALTED in it.holds)
    holder.release(HALTED, delivered=3, committed=1, offset=7, reason="halted:ValueError")
    found.hear()
    return found


@pytest.fixture
def url(admin: GroupAdmin) -> Iterator[str]:
    with DashboardServer(admin, port=0, allow_actions=True) as server:
        yield f"{server.url}groups/{GROUP}"


@pytest.fixture(scope="module")
def program(chromium: str) -> Iterator[Browser]:
    with browser(chromium) as found:
        yield found


@pytest.fixture
def notebook(program: Browser) -> Iterator[Window]:
    with window(program, viewport={"width": 1280, "height": 800}) as found:
        yield found


def by_keys(page: Page, name: str) -> None:
    """Opens a dialog."""
    until(page, f"[...document.querySelectorAll('.act')].some(it => it.textContent === {name!r} && !it.hidden)")
    for _ in range(5):
        focus_by_tab(page, ".act")
        if page.evaluate("document.activeElement.textContent") == name:
            break
    press(page, "Enter")
    until(page, f"{DIALOG}?.open")


def confirm(page: Page) -> None:
    """The focus is on what would change, where another Enter does nothing; the next stop does it."""
    until(page, "document.activeElement.className.includes('answered')")
    press(page, "Enter", "Tab")
    assert page.evaluate("document.activeElement.textContent") == "Do it"
    press(page, "Enter")


def told(page: Page, title: str) -> str:
    """What a dialog says under that title."""
    until(page, f"document.querySelector('dialog h3')?.textContent === {title!r}")
    return str(page.evaluate("document.querySelector('.answered .sentences').textContent"))


def test_a_halted_partition_is_resumed_by_keys(notebook: Window, url: str, admin: GroupAdmin) -> None:
    """Enter shows what would change, Tab and Enter do it, Escape closes; the handovers page then tells it."""
    page = notebook.page
    page.goto(url)
    by_keys(page, "Resume all halted…")
    assert f"{HALTED} would be resumed" in told(page, "This would change")
    assert [it.name for it in admin.describe(GROUP).resources if it.halted] == [HALTED]
    confirm(page)
    assert told(page, "Done") == f"{HALTED}: resumed."
    until(page, "document.activeElement.textContent === 'Close'")
    press(page, "Escape")
    until(page, f"{DIALOG} === null")
    assert [it.name for it in admin.describe(GROUP).resources if it.halted] == []
    until(page, "document.querySelector('.act')?.hidden")
    until(page, "document.activeElement.id === 'main'")
    page.goto(f"{url}/handovers")
    until(page, f"/{HALTED} was resumed in the dashboard on /.test(document.querySelector('.changes')?.textContent)")
    assert notebook.complaints == []


def test_groups_in_another_order(notebook: Window, url: str, scene: Scene) -> None:
    """By name, or those first that hand over most."""
    scene.other_group("audit/eu")
    page = notebook.page
    page.goto(url.partition("groups/")[0])
    names = "[...document.querySelectorAll('tbody th')].map(it => it.textContent).join()"
    until(page, f"{names}.includes('audit/eu')")
    for order, expected in (
        ("being handed over", "g,audit/eu"),
        ("name", "audit/eu,g"),
        ("being handed over", "g,audit/eu"),
    ):
        page.select_option("select", order)
        assert page.evaluate(names) == expected
    cells = (
        "[...document.querySelectorAll('tbody td[data-label=\"Being handed over\"]')].map(it => it.textContent).join()"
    )
    until(page, f"/^[1-9],0$/.test({cells})")
    assert notebook.complaints == []


PIXEL = """(name) => {
  const canvas = document.querySelector(".timeline canvas");
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const y = Math.round(rem * 1.7) + name * Math.round(rem * 1.45) + 4;
  const scale = devicePixelRatio;
  return [...canvas.getContext("2d").getImageData(canvas.width - 8 * scale, y * scale, 1, 1).data].slice(0, 3);
}"""
"""The colour of a partition's row now, near its upper edge: the bar of what nobody works for a moment does not reach there."""


def test_a_halted_partition_stands_out_on_the_timeline(notebook: Window, url: str, scene: Scene) -> None:
    """In the colour of what is wrong, in full height; and the legend has it."""
    scene.pass_time(20_000)
    page = notebook.page
    page.goto(f"{url}/handovers")
    until(page, "/halted/.test(document.querySelector('.legend')?.textContent)")
    bad = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bad').trim()")
    assert f"{HALTED} was halted (ValueError)nobody works it" in page.inner_text(".changes").replace("\n", "")
    until(page, f"String(({PIXEL})({int(HALTED[-1])})) === '{','.join(str(it) for it in bytes.fromhex(bad[1:]))}'")
    assert notebook.complaints == []


def test_settings_are_changed_by_keys(notebook: Window, url: str, admin: GroupAdmin) -> None:
    """What is left empty stays; after another key nothing can be confirmed that was not shown."""
    page = notebook.page
    page.goto(f"{url}/tuning")
    until(page, "document.querySelector('.settings tbody tr')")
    by_keys(page, "Change settings…")
    for _ in range(20):
        press(page, "Tab")
        if page.evaluate("document.activeElement.closest('label')?.textContent.includes('gather_ms')"):
            break
    page.keyboard.type("2s")
    press(page, "Enter")
    assert "gather_ms would be 2.0 s instead of 0." in told(page, "This would change")
    page.evaluate("document.querySelector('dialog input').focus()")
    page.keyboard.type("1")
    assert page.evaluate("document.querySelector('.confirm').hidden")
    press(page, "Backspace", "Enter")
    assert "gather_ms would be" in told(page, "This would change")
    confirm(page)
    assert told(page, "Done") == "gather_ms is 2.0 s."
    assert admin.settings(GROUP).gather_ms == 2_000
    assert notebook.complaints == []


def test_what_was_changed_meanwhile_is_said(notebook: Window, url: str, admin: GroupAdmin) -> None:
    """In the dialog, which then offers another dry run."""
    page = notebook.page
    page.goto(url)
    by_keys(page, "Resume all halted…")
    told(page, "This would change")
    admin.resume(GROUP, HALTED)
    confirm(page)
    until(page, "/has changed since/.test(document.querySelector('dialog [role=alert]')?.textContent)")
    until(page, "document.activeElement.textContent === 'Show what would change'")
    press(page, "Enter")
    assert told(page, "There is nothing to do") == "Nothing is halted."
    assert page.evaluate("document.querySelector('dialog [role=alert]').textContent") == ""


def test_nothing_is_chosen_beforehand(notebook: Window, url: str) -> None:
    """Of where offsets are reset to; and what cannot be is explained."""
    page = notebook.page
    page.goto(f"{url}/partitions/{HALTED}")
    by_keys(page, "Reset its offset…")
    assert page.evaluate("document.querySelector('dialog select').value") == ""
    press(page, "Enter")
    page.evaluate("document.querySelector('dialog button[type=submit]').click()")
    assert page.evaluate("document.querySelector('dialog select:invalid') !== null")
    page.select_option("dialog select", "offset")
    page.fill("dialog input", "3")
    press(page, "Enter")
    until(page, f"document.querySelector('dialog [role=alert]')?.textContent.includes({HALTED!r})")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_each_dialog_at_each_size(program: Browser, url: str, theme: Theme, width: int) -> None:
    """It fits, and axe-core finds nothing against WCAG 2.1 AA, open and answered."""
    size = {"width": width, "height": width * 9 // 16 if width > 600 else 740}
    with window(program, viewport=size, is_mobile=width < 600, color_scheme=theme) as found:
        for path, name in (
            ("", "Resume all halted…"),
            ("", "Reset all offsets…"),
            (f"/partitions/{HALTED}", "Resume…"),
            ("/tuning", "Change settings…"),
        ):
            found.page.goto(url + path)
            by_keys(found.page, name)
            if "Resume" in name:
                told(found.page, "This would change")
            box = found.page.evaluate(
                f"(it => [it.left, it.right, it.top, it.bottom])({DIALOG}.getBoundingClientRect())"
            )
            assert box[0] >= 0
            assert box[1] <= width
            assert box[2] >= 0
            assert box[3] <= size["height"]
            assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert found.page.evaluate(f"{DIALOG}.scrollWidth <= {DIALOG}.clientWidth")
            assert complaints_of_axe(found.page) == []
        assert [it for it in found.requests if not it.startswith(url.partition("groups")[0])] == []
        assert found.complaints == []


def test_a_dashboard_that_only_reads_has_no_buttons(notebook: Window, admin: GroupAdmin) -> None:
    """On none of the pages that have them otherwise."""
    page = notebook.page
    with DashboardServer(admin, port=0) as server:
        for path in ("", f"/partitions/{HALTED}", "/tuning"):
            page.goto(f"{server.url}groups/{GROUP}{path}")
            until(page, "document.getElementById('live').textContent === 'live'")
            assert page.evaluate("document.querySelector('.act, dialog')") is None
        page.goto("about:blank")
