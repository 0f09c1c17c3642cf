"""The pages in a real Chromium, over a group under churn: what they show, how keys move through them, and for whom."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page
from tests.chromium import Theme, Window, browser, complaints_of_axe, focus_by_tab, press, until, window
from tests.dashboard import frames
from tests.dashboard.asking import ask
from tests.dashboard.scenes import GROUP
from tests.names import unique
from tests.operate.test_tuned import TUNED

from cobalance import Delivery, GroupAdmin
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.transport import PartlyListed, Script
from cobalance.dashboard.server import DashboardServer
from cobalance.errors import Unreachable
from cobalance.operate.tuned import store
from cobalance.testing import Broker, Churn

PAGES = {
    "groups": "",
    "group": "groups/billing",
    "handovers": "groups/billing/handovers",
    "partition": "groups/billing/partitions/orders-0",
    "member": "groups/billing/members/{member}",
    "tuning": "groups/billing/tuning",
    "topics": "topics",
    "status": "status",
}
FILLED = {
    "groups": "document.querySelector('tbody tr a')",
    "group": "document.querySelector('.virtual .row a[href]') && document.querySelector('.sentences li')",
    "handovers": "document.querySelector('.changes li') && document.querySelector('.legend li')",
    "partition": "document.querySelector('.history tbody tr') && document.querySelector('.sentences li')",
    "member": "document.querySelector('.history tbody tr') && document.querySelector('.holds tbody tr')",
    "tuning": "document.querySelector('.strip:not([hidden])') && document.querySelector('.commands li')",
    "topics": "document.querySelector('tbody tr a')",
    "status": "document.querySelector('tbody .badge.OK')",
}
"""True once a page shows what there is."""


class Handler:
    """Does not return from one message until the tests are over, at any holder."""

    def __init__(self) -> None:
        self.are_over = threading.Event()

    def __call__(self, order: Delivery) -> None:
        if order.body == b"stuck":
            self.are_over.wait()


@pytest.fixture(scope="module")
def handle() -> Handler:
    return Handler()


@pytest.fixture(scope="module")
def churn(handle: Handler) -> Iterator[Churn]:
    """Members that consume, come, go and crash; one handler does not return."""
    broker = Broker(unique("dashboard"))
    found = Churn("billing", broker)
    orders = broker.create_topic("orders", partitions=6)
    first, second, _ = (found.join(orders, handle) for _ in range(3))
    broker.publish(orders, "customer-1", *[str(number) for number in range(20)])
    found.until(lambda: broker.is_empty(orders))
    found.crash(first)
    found.leave(second)
    found.join(orders, handle)
    for number in range(30):  # some of it for either of those that stay
        broker.publish(orders, f"customer-{number}", "order")
    found.until(lambda: broker.is_empty(orders))
    broker.publish(orders, "customer-2", "stuck", "waiting")
    yield found
    handle.are_over.set()
    found.close()


@pytest.fixture(scope="module")
def url(churn: Churn) -> Iterator[str]:
    transport = MemoryTransport(churn._store)
    store(Coordinator(transport, "billing"), TUNED)
    with (
        GroupAdmin(transport=transport, amqp_url=churn.broker.url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        yield server.url


@pytest.fixture(scope="module")
def program(chromium: str) -> Iterator[Browser]:
    with browser(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def notebook(program: Browser) -> Iterator[Window]:
    """A window of a notebook's size."""
    with window(program, viewport={"width": 1280, "height": 800}) as found:
        yield found


@pytest.fixture
def page(notebook: Window) -> Iterator[Page]:
    """Whatever a test did, nothing was complained of on its console."""
    notebook.complaints.clear()
    notebook.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    yield notebook.page
    notebook.page.goto("about:blank")  # what a test left behind asks for nothing while the next one begins
    assert notebook.complaints == []


def show(page: Page, url: str, name: str) -> None:
    page.goto(url + PAGES[name].format(member=first_member(url)))
    until(page, f"Boolean({FILLED[name]})")


def first_member(url: str) -> str:
    """The id of a member."""
    return str(ask(urlsplit(url).port or 0, "/api/v1/groups/billing").json["members"][0]["id"])


BROKEN = """[...document.querySelectorAll('td')].filter(cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return /^[\\d.,]+$/.test(cell.textContent) && new Set([...range.getClientRects()].map(it => it.top)).size > 1;
}).map(cell => cell.textContent)"""
"""Numbers that go on in a second line."""


@pytest.fixture(scope="module", params=[360, 1280, 3840])
def sized(program: Browser, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A window of a phone's size, a notebook's and a large screen's."""
    size = {"width": request.param, "height": request.param * 9 // 16 if request.param > 600 else 740}
    with window(program, viewport=size, is_mobile=request.param < 600) as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_each_page_at_each_size(sized: Window, url: str, name: str, theme: Theme) -> None:
    """It is filled, fits the width, asks nobody else for anything, and writes nothing to the console."""
    sized.complaints.clear()
    sized.requests.clear()
    sized.page.emulate_media(color_scheme=theme)
    show(sized.page, url, name)
    assert sized.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert sized.page.evaluate(BROKEN) == []
    assert sized.page.evaluate("document.getElementById('live').textContent") == "live"
    assert url + PAGES[name].format(member=first_member(url)) in sized.requests
    assert [it for it in sized.requests if not it.startswith(url)] == []
    sized.page.goto("about:blank")  # this page asks for nothing while the next one begins
    assert sized.complaints == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_is_for_everybody(page: Page, url: str, name: str, theme: Theme) -> None:
    """axe-core finds nothing."""
    page.emulate_media(color_scheme=theme)
    show(page, url, name)
    assert complaints_of_axe(page) == []


def test_the_way_from_the_groups_to_a_partition_by_keys(page: Page, url: str) -> None:
    """Tab, arrows and Enter are enough, and the grid answers what a partition waits for."""
    show(page, url, "groups")
    focus_by_tab(page, "tbody a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.page === 'group' && Boolean({FILLED['group']})")
    focus_by_tab(page, ".virtual")
    press(page, "ArrowDown", "ArrowDown")
    until(page, "document.querySelector('.answer').textContent.includes('orders-1 is held by')")
    assert page.evaluate("document.querySelector('[aria-selected=true]').id") == page.evaluate(
        "document.querySelector('.virtual').getAttribute('aria-activedescendant')"
    )
    press(page, "End")
    until(page, "document.querySelector('.answer').textContent.includes('orders-5 is held by')")
    focus_by_tab(page, ".answer a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.partition === 'orders-5' && Boolean({FILLED['partition']})")


def test_the_way_to_a_member_and_what_it_holds_by_keys(page: Page, url: str) -> None:
    """From the group to a member, from there to a partition, and back to who has it; tabs lead to the other pages."""
    show(page, url, "group")
    focus_by_tab(page, ".side tbody a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.page === 'member' && Boolean({FILLED['member']})")
    member = page.evaluate("document.body.dataset.member")
    assert member == first_member(url)
    focus_by_tab(page, ".holds tbody a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.page === 'partition' && Boolean({FILLED['partition']})")
    focus_by_tab(page, ".history tbody a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.member === {member!r} && Boolean({FILLED['member']})")
    focus_by_tab(page, "#pages li:last-child a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.page === 'tuning' && Boolean({FILLED['tuning']})")
    assert page.evaluate("document.querySelector('#pages [aria-current]').textContent") == "Tuning"


def test_a_member_says_what_it_runs_and_when_it_acknowledged(page: Page, url: str) -> None:
    """What it has not said is a dash, and one that has done nothing yet says so."""
    fact = "[...document.querySelectorAll('.facts div')].find(it => it.firstChild.textContent === {!r}).lastChild.textContent"
    said = set[str]()
    for it in ask(urlsplit(url).port or 0, "/api/v1/groups/billing").json["members"]:
        page.goto(url + PAGES["member"].format(member=it["id"]))
        until(page, f"Boolean({FILLED['member']}) && {fact.format('Version')} === {version('cobalance')!r}")
        said.add(re.sub(r"[\d.]+\s\w+", "a time", page.evaluate(fact.format("Last ack"))))
    assert said <= {"a time ago", "none yet"}
    assert "a time ago" in said


def test_what_was_recommended_stands_beside_what_is_in_force(page: Page, url: str, churn: Churn) -> None:
    """With the gain, when it was stored, and of what it was computed; without a recommendation, the command for one."""
    told_by = "document.querySelector('.tuned li') && document.querySelector('.tuned').innerText"
    cell = "document.querySelector('td[data-label=Recommended]').textContent"
    show(page, url, "tuning")
    told = until(page, told_by)
    assert told.startswith("A change is recommended: stored 20")
    assert "computed from this group's journal, 20" in told
    assert TUNED.sentences[0] in told
    assert page.evaluate(cell) == "12\u00a0s"
    transport = MemoryTransport(churn._store)
    coordinator = Coordinator(transport, "billing")
    damaged = Script.of("damaged", "return redis.call('HSET', KEYS[1], 'json', '{\"version\": 1}')")
    removed = Script.of("removed", "return redis.call('UNLINK', KEYS[1])")
    try:
        for script, first in [
            (
                damaged,
                "The recommendation that is stored is unknown. What cobalance:1:{billing}:tuned holds is damaged.",
            ),
            (removed, "No recommendation is stored. The last of these commands stores one."),
        ]:
            transport.call(script, [coordinator.tuned_key], [])
            with (
                GroupAdmin(transport=transport, amqp_url=churn.broker.url) as admin,
                DashboardServer(admin, port=0) as server,
            ):
                show(page, server.url, "tuning")
                assert until(page, told_by).startswith(first)
                assert page.evaluate(cell) == "\N{EN DASH}"
                page.goto("about:blank")
    finally:
        store(coordinator, TUNED)


def test_a_topic_leads_to_its_partitions(page: Page, url: str) -> None:
    """In the group that works it, and to no others."""
    show(page, url, "topics")
    assert page.evaluate("document.querySelector('tbody tr').textContent.startsWith('ordersbilling')")
    focus_by_tab(page, "tbody th a")
    press(page, "Enter")
    until(page, f"document.body?.dataset.page === 'group' && Boolean({FILLED['group']})")
    assert page.evaluate("document.querySelector('.grid input').value") == "orders-"
    assert page.evaluate("document.querySelector('.grid .sum').textContent") == "6 partitions"


def test_a_page_fetches_all_its_modules_at_once(page: Page, url: str) -> None:
    """The shell names them, and a browser that has them fetches none again."""
    show(page, url, "handovers")
    shell = ask(urlsplit(url).port or 0, "/groups/billing/handovers").text
    loaded = page.evaluate(
        "performance.getEntriesByType('resource').map(it => it.name).filter(it => it.endsWith('.js'))"
    )
    assert {it.removeprefix(url) for it in loaded} == set(re.findall(r'modulepreload" href="/([^"]+)"', shell))
    module = ask(urlsplit(url).port or 0, "/static/grid.js")
    assert module.headers["cache-control"] == "no-cache"
    assert ask(urlsplit(url).port or 0, "/static/grid.js", If_None_Match=module.headers["etag"]).status == 304


def test_what_is_well_can_be_left_out_of_the_status(page: Page, url: str) -> None:
    """What is left has something to do."""
    show(page, url, "status")
    focus_by_tab(page, ".choice input")
    press(page, " ")
    until(page, "document.querySelector('tbody .badge.OK') === null")


def test_the_timeline_by_keys(page: Page, url: str) -> None:
    """Arrows choose partitions and spans, each described in words; a replay runs, and L is back at the present."""
    show(page, url, "handovers")
    focus_by_tab(page, ".timeline")
    details = "document.querySelector('.details').textContent"
    press(page, "ArrowDown")
    last = until(page, f"{details}.startsWith('orders-0: held by') && {details}")
    press(page, "ArrowLeft")
    until(page, f"{details}.startsWith('orders-0') && {details} !== {last!r}")
    before = page.evaluate("document.querySelector('[aria-label^=\"Length\"]').value")
    press(page, "-")
    assert page.evaluate("document.querySelector('[aria-label^=\"Length\"]').value") != before
    press(page, " ")
    until(page, "document.querySelector('.moment').textContent !== 'now'")
    press(page, "l")
    until(page, "document.querySelector('.moment').textContent === 'now'")


WRITTEN = """window.written = new Set();
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  written.add(text);
  fillText.call(this, text, x, y);
};"""
"""Remembers the texts that are drawn."""


def test_long_names_of_partitions_are_told_apart_on_a_phone(program: Browser) -> None:
    """On the timeline they lose their beginnings, which are the same."""
    churn = Churn("long", Broker(unique("dashboard")))
    churn.join_resources([f"demo-88f31c-orders-{number}" for number in range(3)])
    with (
        GroupAdmin(transport=MemoryTransport(churn._store), amqp_url=churn.broker.url) as admin,
        DashboardServer(admin, port=0) as server,
        window(program, viewport={"width": 360, "height": 740}, is_mobile=True) as phone,
    ):
        phone.page.add_init_script(WRITTEN)
        phone.page.goto(f"{server.url}groups/long/handovers")
        for number in range(3):
            until(phone.page, f"[...written].some(it => /^….*-{number}$/.test(it))")
    churn.close()


def test_a_story_that_has_ended_is_replayed(page: Page) -> None:
    """Up to its last change, rather than left red; where nobody tells a story, a button does it."""
    churn = Churn("story", Broker(unique("dashboard")))
    members = [churn.join_resources(["a", "b"]) for _ in range(2)]
    moment, over = "document.querySelector('.moment').textContent", "document.querySelector('main > .notice')"
    with (
        GroupAdmin(transport=MemoryTransport(churn._store), amqp_url=churn.broker.url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        page.goto(f"{server.url}groups/story/handovers?story")
        until(page, FILLED["handovers"])
        assert page.evaluate(f"{over}.hidden && {moment}") == "now"
        for it in members:
            churn.leave(it)
        until(page, f"!{over}.hidden && {moment} !== 'now'")
        until(page, "document.querySelector('[aria-pressed=true]') === null")
        assert complaints_of_axe(page) == []
        page.goto(f"{server.url}groups/story/handovers")
        until(page, f"{over} && !{over}.hidden && {moment} === 'now'")
        page.evaluate(f"{over}.querySelector('button').click()")
        until(page, f"document.querySelector('[aria-pressed=true]') === null && {moment} !== 'now'")
        page.goto("about:blank")
    churn.close()


def test_a_group_that_does_not_exist_is_said_to_be_missing(page: Page, url: str, notebook: Window) -> None:
    """In place of a page without anything in it."""
    for path in ("groups/nope", "groups/nope/handovers", "groups/nope/partitions/orders-0"):
        page.goto(url + path)
        until(page, "document.querySelector('main h1')?.textContent === 'Not found'")
        assert "'nope' does not exist" in page.inner_text("main .notice")
        assert page.evaluate("document.querySelector('main a').pathname") == "/"
        assert complaints_of_axe(page) == []
    page.goto("about:blank")
    notebook.complaints.clear()  # of the answer 404


def test_the_slider_goes_back_through_the_journal(page: Page, url: str) -> None:
    """At its beginning, nothing of what came later is shown."""
    show(page, url, "handovers")
    changes = "document.querySelectorAll('.changes li').length"
    everything = page.evaluate(changes)
    focus_by_tab(page, "input[type=range]")
    page.evaluate(
        "(s => { s.value = 1; s.dispatchEvent(new Event('input')) })(document.querySelector('input[type=range]'))"
    )
    until(page, f"{changes} < {everything}")
    assert "created" in page.evaluate("document.querySelector('.changes').textContent")


CUTS = """window.cuts = 0;
const fillRect = CanvasRenderingContext2D.prototype.fillRect;
CanvasRenderingContext2D.prototype.fillRect = function (x, y, wide, high) {
  cuts += wide === 3 && high > 3;
  fillRect.call(this, x, y, wide, high);
};"""
"""Counts the red ends of bars as they are drawn."""


def test_a_window_in_the_past_has_no_end_that_was_still_to_come(page: Page, port: int) -> None:
    """Neither in red, where tenures were ended by force later, nor in words."""
    past = ask(port, f"/api/v1/groups/{GROUP}/handovers?from_ms=0").json
    cut = {past["ends"].index(it) for it in ("forced", "expired")}
    first = min(it[5] for it in past["spans"] if it[7] in cut)
    page.goto(f"http://127.0.0.1:{port}/groups/{GROUP}/handovers")
    until(page, f"Boolean({FILLED['handovers']})")
    page.evaluate(CUTS + "true")
    until(page, "cuts > 0")
    part = (first - 500 - past["first_ms"]) / (past["now_ms"] - past["first_ms"])
    page.evaluate(
        "part => { const s = document.querySelector('input[type=range]'); s.step = 'any';"
        " s.value = 1000 * part; s.dispatchEvent(new Event('input')) }",
        part,
    )
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.evaluate("cuts = 0")
    focus_by_tab(page, ".timeline")
    described = set[str]()
    for _ in past["resources"]:
        press(page, "ArrowDown")
        described.add(until(page, "document.querySelector('.details > p + p')?.parentNode.textContent"))
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("cuts") == 0
    assert not [it for it in described if "Then:" in it or "…" not in it]


def test_what_happens_is_seen_without_loading_again(page: Page, url: str, churn: Churn, handle: Handler) -> None:
    """A member that joins appears, and so does what moved to it, with the cause."""
    show(page, url, "group")
    rows = "document.querySelectorAll('.side tbody tr').length"
    before = page.evaluate(rows)
    joined = churn.join("orders", handle)
    until(page, f"{rows} === {before + 1}")
    show(page, url, "handovers")
    churn.leave(joined)
    until(page, "/began to leave/.test(document.querySelector('.changes').textContent)")


def test_a_handler_that_hangs_is_what_needs_attention(page: Page, url: str) -> None:
    """Its partition comes first where that is asked for, with its lag and the age of what is in flight."""
    show(page, url, "group")
    until(page, "document.querySelector('.facts').textContent.includes('Lag2')")
    page.evaluate(
        "(s => { s.value = 'lag'; s.dispatchEvent(new Event('change')) })(document.querySelector('.grid select'))"
    )
    until(page, "document.querySelector('[aria-rowindex=\"1\"] > :nth-child(3)').textContent === '2'")


def test_what_waits_for_what_is_unknown_without_rabbitmq(page: Page, port: int) -> None:
    """Nothing says that nothing is left to do."""
    page.goto(f"http://127.0.0.1:{port}/groups/{GROUP}")
    waits = "[...document.querySelectorAll('.virtual .row:not([hidden]) > :nth-child(4)')].map(it => it.textContent)"
    found = until(page, f"{waits}.some(it => it.includes('held by')) && {waits}")
    assert {it.partition(": held")[0] for it in found if "held by" in it} == {"unknown"}


def test_a_state_of_unknown_age_is_not_just_begun(page: Page, url: str) -> None:
    """The end of a place that is kept may have been put off."""
    show(page, url, "group")
    row = {"age_ms": None, "deadline_in_ms": None, "tried_in_ms": None}
    dated = "async (row) => (await import('/static/model.js')).Model.prototype.dated(row, 1000)"
    assert page.evaluate(dated, row)["since"] is None
    assert page.evaluate(dated, {**row, "age_ms": 400})["since"] == 600


def test_whoever_prefers_no_motion_has_none(page: Page, url: str) -> None:
    """A replay goes on in steps of a second."""
    page.emulate_media(reduced_motion="reduce")
    show(page, url, "handovers")
    page.evaluate(
        "window.frames_ = 0, window.raf_ = requestAnimationFrame, window.requestAnimationFrame = f => raf_(t => { frames_++; f(t) }), true"
    )
    page.evaluate("new Promise(done => setTimeout(done, 2000))")
    assert page.evaluate("frames_") <= 10


@pytest.fixture(scope="module")
def large() -> Iterator[str]:
    with frames.large() as url:
        yield url


COUNTED = """(async () => {
  const box = document.querySelector('%s'), pen = CanvasRenderingContext2D.prototype, { fillText } = pen;
  let drawn = 0;
  pen.fillText = function (...text) { drawn++; fillText.apply(this, text); };
  const changes = new MutationObserver(found => drawn += found.length);
  changes.observe(box, { subtree: true, attributeFilter: ['aria-rowindex'] });
  for (let step = 0; step < 60; step++) { box.scrollTop += 400; await new Promise(requestAnimationFrame); }
  await new Promise(requestAnimationFrame);
  return [box.scrollTop, drawn, document.querySelectorAll('.virtual .row').length];
})()"""
"""How far it scrolled, how many rows or texts were drawn for it, and how many rows there are."""


RIGHT = """[...document.querySelectorAll('.virtual .row:not([hidden])')].every(
  row => Number(row.querySelector('a').textContent.split('-')[1]) + 1 === Number(row.getAttribute('aria-rowindex')))"""
"""Each row in sight is the one of its place."""


@pytest.mark.parametrize(("path", "box"), frames.PAGES.items())
def test_two_thousand_partitions(page: Page, large: str, path: str, box: str) -> None:
    """They are there, and only what comes into sight is drawn; `frames` measures how long that takes."""
    page.goto(large + path)
    until(page, f"document.querySelector('{box}')?.scrollHeight > 40_000")
    top, drawn, rows = page.evaluate(COUNTED % box)
    assert top == 24_000
    assert 0 < drawn < 60 * 100
    assert rows < 100
    if rows:
        assert page.evaluate(RIGHT)


class Partly(MemoryTransport):
    """As of a cluster with a node that is silent."""

    def list_groups(self, key_prefix: str = "cobalance") -> list[str]:
        raise PartlyListed("Groups may be missing, <b>since</b>", super().list_groups(key_prefix))


@pytest.mark.parametrize("name", ["groups", "topics"])
def test_a_page_says_that_groups_may_be_missing(page: Page, churn: Churn, name: str) -> None:
    """Beside those that there are."""
    with (
        GroupAdmin(transport=Partly(churn._store), amqp_url=churn.broker.url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        show(page, server.url, name)
        assert page.inner_text(".notice") == "Groups may be missing, <b>since</b>"
        assert complaints_of_axe(page) == []
        page.goto("about:blank")


class Away(MemoryTransport):
    """As of a Redis that can be away."""

    is_away = False

    def call(self, *request: Any) -> Any:
        if self.is_away:
            raise Unreachable("Redis is away")
        return super().call(*request)


def test_old_verdicts_are_dim_while_redis_is_away(page: Page, churn: Churn) -> None:
    """Nobody takes a green badge for how it is now; it has its colour again as soon as there is news."""
    transport = Away(churn._store)
    tint = "document.querySelector('main .badge.OK, main .badge.STALL, main .badge.WARN')"
    tint = f"{tint} && getComputedStyle({tint}).backgroundColor"
    with (
        GroupAdmin(transport=transport, amqp_url=churn.broker.url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        show(page, server.url, "group")
        coloured = until(page, tint)
        assert coloured != "rgba(0, 0, 0, 0)"
        transport.is_away = True
        until(page, f"{tint} === 'rgba(0, 0, 0, 0)'")
        assert page.inner_text("#live") != "live"
        assert complaints_of_axe(page) == []
        transport.is_away = False
        until(page, f"{tint} !== 'rgba(0, 0, 0, 0)'")
        page.goto("about:blank")


def test_names_are_text(page: Page) -> None:
    """A group and partitions that are named like scripts stay words."""
    evil = "<img/src=x/onerror=alert(1)>"
    churn = Churn(evil, Broker(unique("dashboard")))
    churn.join_resources([evil, "b"])
    with (
        GroupAdmin(transport=MemoryTransport(churn._store), amqp_url=churn.broker.url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        quoted = page.evaluate(f"encodeURIComponent({evil!r})")
        group = f"groups/{quoted}"
        for path in ("", "topics", group, f"{group}/handovers", f"{group}/tuning", f"{group}/partitions/{quoted}"):
            page.goto(server.url + path)
            until(
                page,
                f"document.querySelector('main').textContent.includes({evil!r}) || document.querySelector('.timeline') !== null",
            )
            assert page.evaluate("document.images.length") == 0
        page.goto("about:blank")
    churn.close()
