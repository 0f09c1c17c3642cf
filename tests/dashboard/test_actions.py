"""Actions of operators, on a real Redis and a real RabbitMQ: dry run, confirmation, and who may not."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from tests.cli_process import cobalance
from tests.dashboard.asking import Answer, ask
from tests.names import unique
from tests.streams import Stream, new_stream

from cobalance import GroupAdmin, GroupSettings
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Join, Leave, Release, ReleaseItem, Request, SetResources
from cobalance.coordinator.transport import Transport
from cobalance.dashboard import actions
from cobalance.dashboard.server import DashboardServer
from cobalance.errors import UsageError
from cobalance.journal import JournalEntry
from cobalance.rabbitmq.streams import reading_mark

PASSWORD = "correct-horse-battery"
SETTINGS = GroupSettings(
    session_timeout_ms=600_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=600_000, gather_ms=0
)
HERE = f"dashboard@{socket.gethostname()}"


class Member:
    """A member that does what a test says, and nothing by itself."""

    def __init__(self, transport: Transport, group: str) -> None:
        self._coordinator, self._number = Coordinator(transport, group), 0
        self._incarnation = self._coordinator.execute(Request(Header("m.1", 0), Join(settings=SETTINGS))).incarnation

    def ask(self, payload: SetResources | Release | Leave) -> None:
        self._number += 1
        self._coordinator.execute(Request(Header("m.1", self._number, self._incarnation), payload))

    def declare(self, *names: str) -> None:
        self.ask(SetResources(version=1, digest="d", names=tuple(sorted(names))))

    def halt(self, name: str, offset: int | None = None) -> None:
        token = next(it.token for it in self._coordinator.resources() if it.name == name)
        self.ask(Release((ReleaseItem(resource=name, token=token, offset=offset, reason="halted:ValueError"),)))


@pytest.fixture
def transport(redis_url: str) -> Iterator[Transport]:
    found = open_transport(redis_url)
    yield found
    found.close()


@pytest.fixture
def admin(redis_url: str, amqp_url: str) -> Iterator[GroupAdmin]:
    with GroupAdmin(redis_url, amqp_url=amqp_url) as found:
        yield found


@pytest.fixture
def group(admin: GroupAdmin) -> Iterator[str]:
    name = unique("actions")
    admin.create(name, SETTINGS)
    yield name
    admin.delete(name, force=True)


@pytest.fixture
def member(transport: Transport, group: str) -> Member:
    """It holds orders-0, and has halted orders-1 and orders-2."""
    found = Member(transport, group)
    found.declare("orders-0", "orders-1", "orders-2")
    found.halt("orders-1")
    found.halt("orders-2")
    return found


@attrs.define
class Operator:
    """A browser on a page of the dashboard."""

    port: int
    group: str
    headers: dict[str, str] = attrs.Factory(dict)
    cookie: str = ""

    def post(self, step: str, body: object, **headers: str) -> Answer:
        given = {"Origin": f"http://127.0.0.1:{self.port}", "Content_Type": "application/json", "Cookie": self.cookie}
        path = f"/api/v1/groups/{self.group}/{step}"
        words = body if isinstance(body, str) else json.dumps(body)
        wanted = {name: value for name, value in {**given, **self.headers, **headers}.items() if value}
        found = ask(self.port, path, "POST", words, **wanted)
        self.cookie = found.headers.get("set-cookie", self.cookie).partition(";")[0]
        return found

    def plan(self, action: str, **given: object) -> Any:
        found = self.post("dry-runs", {"action": action, **given})
        assert found.status == 200, found
        return found.json

    def confirm(self, token: str) -> Answer:
        return self.post("actions", {"token": token})


@contextmanager
def operator(
    admin: GroupAdmin, group: str, headers: dict[str, str] | None = None, **options: Any
) -> Iterator[Operator]:
    with DashboardServer(admin, port=0, allow_actions=True, **options) as server:
        yield Operator(server.port, group, headers or {})


@pytest.fixture
def browser(admin: GroupAdmin, group: str) -> Iterator[Operator]:
    with operator(admin, group) as found:
        yield found


def basic(user: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def halted(admin: GroupAdmin, group: str) -> list[str]:
    return [it.name for it in admin.describe(group).resources if it.halted]


def orders(admin: GroupAdmin, group: str) -> list[JournalEntry]:
    """What somebody changed, and said who it was."""
    return [it for it in admin.journal(group).entries() if it.by is not None]


# -- what can be done --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("member")
def test_one_partition_is_resumed(admin: GroupAdmin, group: str, browser: Operator) -> None:
    """The dry run changes nothing; confirmed, it is that one alone, and every page tells where that came from."""
    plan = browser.plan("resume", partitions=["orders-1"])
    assert plan["sentences"][0].startswith("orders-1 would be resumed, halted for ")
    assert "(ValueError)" in plan["sentences"][0]
    assert halted(admin, group) == ["orders-1", "orders-2"]
    done = browser.confirm(plan["token"])
    assert (done.status, done.json) == (200, {"sentences": ["orders-1: resumed."]})
    assert halted(admin, group) == ["orders-2"]
    assert [(it.kind, it.resource, it.by) for it in orders(admin, group)] == [("resumed", "orders-1", HERE)]
    told = f"orders-1 was resumed in the dashboard on {socket.gethostname()}"
    past = ask(browser.port, f"/api/v1/groups/{group}/handovers").json
    assert told in [it["what"] for it in past["happenings"]]
    assert any(told in it for it in admin.explain(group))


@pytest.mark.usefixtures("member")
def test_all_that_is_halted_is_resumed(admin: GroupAdmin, group: str, browser: Operator) -> None:
    """And when nothing is, there is nothing to confirm."""
    assert browser.confirm(browser.plan("resume")["token"]).status == 200
    assert halted(admin, group) == []
    again = browser.plan("resume")
    assert (again["token"], again["sentences"]) == (None, ["Nothing is halted."])


def test_settings_are_changed(admin: GroupAdmin, group: str, browser: Operator) -> None:
    """With the rules of `configure`, and its durations."""
    plan = browser.plan("settings", settings={"gather_ms": "2s", "moves_per_call": "7"})
    assert plan["sentences"] == [
        "gather_ms would be 2.0 s instead of 0.",
        "moves_per_call would be 7 instead of 50.",
        "All members go by it at once.",
    ]
    assert admin.settings(group) == SETTINGS
    assert browser.confirm(plan["token"]).json == {"sentences": ["gather_ms is 2.0 s.", "moves_per_call is 7."]}
    assert admin.settings(group) == attrs.evolve(SETTINGS, gather_ms=2_000, moves_per_call=7)
    past = ask(browser.port, f"/api/v1/groups/{group}/handovers").json
    words = f"gather_ms was set to 2000, moves_per_call was set to 7 in the dashboard on {socket.gethostname()}"
    assert words in [it["what"] for it in past["happenings"]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"session_timeout_ms": "1s"}, "above a third of session_timeout_ms"),
        ({"revocation_timeout_ms": "1 week"}, "is not a duration"),
        ({"revocation_timeout_ms": "9" * 400}, "revocation_timeout_ms: that is longer than any duration"),
        ({"moves_per_call": "many"}, "'many' is no whole number"),
        ({"mode": "sideways"}, "give 'cooperative' or 'eager'"),
        ({"offsets_known": "1"}, "there is no group setting 'offsets_known'"),
        ("all", "give an object"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_explained(browser: Operator, settings: object, words: str) -> None:
    """By the dry run."""
    found = browser.post("dry-runs", {"action": "settings", "settings": settings})
    assert found.status == 400
    assert words in found.json["error"]


@pytest.fixture
def stream(amqp_url: str) -> Iterator[Stream]:
    with new_stream(amqp_url, 10) as found:
        yield found


def test_offsets_are_reset(
    admin: GroupAdmin, group: str, transport: Transport, stream: Stream, browser: Operator
) -> None:
    """What that means for messages is said before; while somebody works them, it is refused as the commands are."""
    member = Member(transport, group)
    member.declare(stream.name, "other")
    reading_mark.remember(stream.amqp_url, Coordinator(transport, group).scope, [stream.name])
    plan = browser.plan("offsets", streams=[stream.name], to="offset", value="3")
    assert "it will be refused until they have stopped" in " ".join(plan["sentences"])
    refused = browser.confirm(plan["token"])
    assert (refused.status, "has members" in refused.json["error"]) == (400, True)
    member.halt(stream.name, offset=5)

    plan = browser.plan("offsets", streams=[stream.name], to="offset", value="3")
    assert plan["sentences"] == [
        f"{stream.name}: the next message to be read would be 3 instead of 6: up to 3 are handled again.",
        f"Halted, and then resumed: {stream.name}.",
    ]
    done = browser.confirm(plan["token"]).json["sentences"]
    assert done == [f"{stream.name}: the next message to be read is 3.", f"Resumed: {stream.name}."]
    committed = {it.name: it.committed for it in admin.describe(group).resources}
    assert committed[stream.name] == 2
    assert [(it.kind, it.by) for it in orders(admin, group)] == [("resumed", HERE), ("reset", HERE)]
    past = ask(browser.port, f"/api/v1/groups/{group}/handovers").json
    told = f"Committed offsets were set in the dashboard on {socket.gethostname()}"
    assert told in [it["what"] for it in past["happenings"]]


@pytest.mark.parametrize(
    ("to", "value", "words"),
    [
        ("latest", "", "would be 10; it has no committed offset now."),
        ("offset", "700", "does not have offset 700; the nearest is 10."),
        ("duration", "P9999999999D", "leads to before our era"),
        ("datetime", "yesterday", "is no time"),
        ("offset", "x", "no whole number"),
        ("shift", "-1", "no committed offset"),
        ("file", "/etc/passwd", "say where the offsets are to be set to"),
        ("from_file", "/etc/passwd", "say where the offsets are to be set to"),
        ("", "", "say where the offsets are to be set to"),
    ],
)
def test_where_offsets_are_reset_to(
    transport: Transport, stream: Stream, browser: Operator, *, to: str, value: str, words: str
) -> None:
    """As `reset-offsets` reads it; but no file of this machine."""
    Member(transport, browser.group).declare(stream.name)
    found = browser.post("dry-runs", {"action": "offsets", "streams": [stream.name], "to": to, "value": value})
    assert words in found.text


def test_offsets_of_what_is_no_stream(browser: Operator) -> None:
    """It is said, with the name."""
    found = browser.post("dry-runs", {"action": "offsets", "streams": ["nowhere"], "to": "earliest"})
    assert (found.status, "There is no stream 'nowhere'" in found.json["error"]) == (503, True)


# -- what a confirmation is good for -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("member")
def test_a_confirmation_counts_once(admin: GroupAdmin, group: str, browser: Operator) -> None:
    """Repeated, forged, or missing, it changes nothing, and says what to do."""
    token = browser.plan("resume", partitions=["orders-1"])["token"]
    assert browser.confirm(token).status == 200
    for other in (token, token[:-1], "", "x" * 43):
        refused = browser.confirm(other)
        assert (refused.status, "is confirmed once, within 5 min" in refused.json["error"]) == (409, True)
    assert browser.post("actions", {}).status == 409
    assert halted(admin, group) == ["orders-2"]
    assert len(orders(admin, group)) == 1


@pytest.mark.usefixtures("member")
def test_a_confirmation_expires(
    admin: GroupAdmin, group: str, browser: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was left open does nothing hours later."""
    monkeypatch.setattr(actions, "VALID_S", 0.0)
    assert browser.confirm(browser.plan("resume")["token"]).status == 409
    assert halted(admin, group) == ["orders-1", "orders-2"]


@pytest.mark.usefixtures("member")
def test_only_so_many_dry_runs_are_kept(browser: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes."""
    monkeypatch.setattr(actions, "MOST_PENDING", 2)
    first, second, third = (browser.plan("resume", partitions=[f"orders-{1 + n % 2}"])["token"] for n in range(3))
    assert [browser.confirm(it).status for it in (first, third, second)] == [409, 200, 200]


@pytest.mark.parametrize(
    "change",
    [
        lambda admin, group, _: admin.resume(group, "orders-1"),
        lambda admin, group, member: (admin.resume(group, "orders-1"), member.halt("orders-1")),
        lambda admin, group, _: admin.reset_offsets(group, {"orders-1": 4}),
        lambda admin, group, _: (admin.delete(group, force=True), admin.create(group, SETTINGS)),
    ],
    ids=["resumed", "halted again", "reset", "another group"],
)
def test_what_has_changed_since_the_dry_run_is_not_resumed(
    admin: GroupAdmin, group: str, member: Member, browser: Operator, change: Callable[..., object]
) -> None:
    """The person who confirms has seen something else."""
    token = browser.plan("resume", partitions=["orders-1"])["token"]
    change(admin, group, member)
    before = [it.seq for it in admin.journal(group).entries()]
    refused = browser.confirm(token)
    assert (refused.status, "has changed since" in refused.json["error"]) == (409, True)
    assert [it.seq for it in admin.journal(group).entries()] == before


@pytest.mark.parametrize(("read", "count"), [(True, 20), (False, 2)])
def test_offsets_of_a_stream_created_again_since_the_dry_run_are_not_reset(
    admin: GroupAdmin, group: str, transport: Transport, stream: Stream, browser: Operator, *, read: bool, count: int
) -> None:
    """Messages of the new one would be skipped. Whether it has more or fewer than the other had."""
    member = Member(transport, group)
    member.declare(stream.name)
    member.halt(stream.name, offset=5)
    if read:
        reading_mark.remember(stream.amqp_url, Coordinator(transport, group).scope, [stream.name])
    token = browser.plan("offsets", to="offset", value="8")["token"]
    stream.make_anew()
    stream.append(count)
    refused = browser.confirm(token)
    assert (refused.status, "has changed since" in refused.json["error"]) == (409, True)
    assert [it.committed for it in admin.describe(group).resources] == [5]


def test_offsets_are_reset_though_more_was_published_since(
    admin: GroupAdmin, group: str, transport: Transport, stream: Stream, browser: Operator
) -> None:
    """To what the dry run has shown, not to what is the latest now."""
    member = Member(transport, group)
    member.declare(stream.name)
    member.halt(stream.name, offset=5)
    token = browser.plan("offsets", to="latest")["token"]
    stream.append(3)
    assert browser.confirm(token).status == 200
    assert [it.committed for it in admin.describe(group).resources] == [9]


def test_settings_that_have_changed_since_the_dry_run_stay(admin: GroupAdmin, group: str, browser: Operator) -> None:
    """Also where the other change is of another setting: together they may be something that nobody looked at."""
    token = browser.plan("settings", settings={"gather_ms": "2s"})["token"]
    admin.configure(group, moves_per_call=9)
    assert browser.confirm(token).status == 409
    assert admin.settings(group) == attrs.evolve(SETTINGS, moves_per_call=9)


def test_what_happens_besides_does_not_matter(admin: GroupAdmin, group: str, member: Member, browser: Operator) -> None:
    """A group under churn can be acted on."""
    token = browser.plan("resume", partitions=["orders-1"])["token"]
    admin.resume(group, "orders-2")
    member.ask(Leave())
    assert browser.confirm(token).status == 200


@pytest.mark.usefixtures("member")
def test_a_token_is_of_one_browser_and_one_group(admin: GroupAdmin, group: str, browser: Operator) -> None:
    """Somebody who learns it cannot use it, and uses it up."""
    for other in (
        attrs.evolve(browser, cookie="", group=group),
        attrs.evolve(browser, cookie=f"cobalance_session={'x' * 43}"),
    ):
        token = browser.plan("resume")["token"]
        refused = other.confirm(token)
        assert (refused.status, "in another browser" in refused.json["error"]) == (403, True)
        assert browser.confirm(token).status == 409
    token = browser.plan("resume")["token"]
    assert attrs.evolve(browser, group="elsewhere").confirm(token).status == 403
    assert halted(admin, group) == ["orders-1", "orders-2"]


def test_the_cookie_goes_nowhere_else(browser: Operator) -> None:
    """Neither to scripts nor along with requests of other sites; and it is chosen here."""
    plan = browser.post("dry-runs", {"action": "resume"}, Cookie="cobalance_session=mine")
    words = {it.strip().partition("=")[0].lower(): it for it in plan.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite", "path"} <= set(words)
    assert words["samesite"].strip() == "SameSite=strict"
    assert words["cobalance_session"] != "cobalance_session=mine"


# -- who may not -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
        ({"Sec_Fetch_Site": "none"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": ""}, 415),
    ],
    ids=str,
)
@pytest.mark.usefixtures("member")
def test_other_sites_cannot_act(
    admin: GroupAdmin, group: str, browser: Operator, headers: dict[str, str], status: int
) -> None:
    """Neither ask for a dry run, nor confirm one that somebody has asked for; and no answer lets them read it."""
    token = browser.plan("resume")["token"]
    for step, body in (("dry-runs", {"action": "resume"}), ("actions", {"token": token})):
        refused = browser.post(step, body, **headers)
        assert refused.status == status, refused
        assert not [name for name in refused.headers if name.startswith("access-control")]
    assert halted(admin, group) == ["orders-1", "orders-2"]
    assert browser.confirm(token).status == 200, "a request that was refused uses nothing up"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.usefixtures("member")
def test_only_post_changes_anything(admin: GroupAdmin, group: str, browser: Operator, method: str) -> None:
    """No link, image or prefetch does."""
    token = browser.plan("resume")["token"]
    for step in ("dry-runs", "actions"):
        path = f"/api/v1/groups/{group}/{step}"
        words = {"Origin": f"http://127.0.0.1:{browser.port}", "Content_Type": "application/json"}
        found = ask(browser.port, path, method, json.dumps({"token": token}), Cookie=browser.cookie, **words)
        assert found.status == 405
    assert orders(admin, group) == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[1]", 400),
        ("[" * 60_000, 400),
        ('{"action": ["resume"]}', 400),
        ('{"action": "delete"}', 400),
        ('{"action": "resume", "partitions": "orders-1"}', 400),
        ('{"action": "resume", "partitions": []}', 400),
        ('{"action": "resume", "partitions": [1]}', 400),
        ('{"action": "resume", "partitions": ["\\ud800"]}', 400),
        ('{"action": "offsets", "to": ["latest"]}', 400),
        (" " * 70_000, 413),
    ],
    ids=range(11),
)
def test_requests_that_make_no_sense(browser: Operator, body: str, status: int) -> None:
    """They are refused in words."""
    found = browser.post("dry-runs", body)
    assert found.status == status
    assert found.json["error"]


@pytest.mark.usefixtures("member")
def test_without_the_flag_there_is_no_such_thing(admin: GroupAdmin, group: str) -> None:
    """No route, and pages that show no buttons."""
    with DashboardServer(admin, port=0) as server:
        browser = Operator(server.port, group)
        for step in ("dry-runs", "actions"):
            assert browser.post(step, {"action": "resume"}).status == 404
        assert 'data-actions=""' in ask(server.port, f"/groups/{group}").text
    assert halted(admin, group) == ["orders-1", "orders-2"]


@pytest.mark.parametrize("header", [None, "X-Forwarded-User"])
def test_other_machines_need_a_password(admin: GroupAdmin, header: str | None) -> None:
    """A header that any client can send is no protection."""
    with pytest.raises(UsageError, match="look at your groups and change them: give a password file"):
        DashboardServer(admin, host="0.0.0.0", port=0, allow_actions=True, user_header=header)  # noqa: S104


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--allow-actions", "--host", "0.0.0.0"], "change them: give a password file"),  # noqa: S104
        (["--user-header", "X-Forwarded-User"], "allow actions, and give its name"),
        (["--allow-actions", "--user-header", "two words"], "allow actions, and give its name"),
    ],
)
def test_wrong_usage_is_explained(words: list[str], error: str) -> None:
    """With exit code 2."""
    found = cobalance("dashboard", "--redis-url", f"memory://{unique('dashboard')}", *words)
    assert (found.code, error in found.err) == (2, True), found


# -- who it was --------------------------------------------------------------------------------------------------------


def test_the_journal_has_the_user_of_the_password(admin: GroupAdmin, group: str, redis_url: str) -> None:
    """The commands tell it, too; and without the password nothing happens."""
    with operator(admin, group, basic("alice"), password=PASSWORD) as browser:
        assert browser.post("dry-runs", {"action": "resume"}, Authorization="").status == 401
        plan = browser.plan("settings", settings={"gather_ms": "5"})
        assert plan["user"] == "alice"
        stolen = browser.post("actions", {"token": plan["token"]}, **basic("bob"))
        assert (stolen.status, "another user" in stolen.json["error"]) == (403, True)
        assert browser.confirm(browser.plan("settings", settings={"gather_ms": "5"})["token"]).status == 200
    assert [it.by for it in orders(admin, group)] == [f"alice/{HERE}"]
    told = cobalance("group", "history", group, "--redis-url", redis_url).out
    assert f"gather_ms 5 by alice in the dashboard on {socket.gethostname()}" in told


@pytest.mark.parametrize(
    ("user", "journalled"),
    [
        ("", HERE),
        ("Ada Lovelace\n", f"Ada_Lovelace_/{HERE}"),
        ("../a/b@c", f".._a_b@c/{HERE}"),
        ("é{}*", f"é___/{HERE}"),
        ("x" * 500, f"{'x' * 80}/{HERE}"),
        ("字" * 70, f"{'字' * 26}/{HERE}"),
        (PASSWORD, HERE),
        (f"me-{PASSWORD}", HERE),
        ("password=another-secret", HERE),
    ],
)
def test_a_name_is_a_word_and_no_secret(
    admin: GroupAdmin, group: str, user: str, journalled: str, caplog: pytest.LogCaptureFixture
) -> None:
    """People type a password where a name is asked for: neither journal, log nor answer has it."""
    caplog.set_level(logging.DEBUG)
    with operator(admin, group, basic(user), password=PASSWORD) as browser:
        plan = browser.plan("settings", settings={"gather_ms": "5"})
        done = browser.confirm(plan["token"])
    assert [it.by for it in orders(admin, group)] == [journalled]
    assert f"group {group}: settings by {journalled}: gather_ms is 5 ms." in caplog.text
    for secret in (PASSWORD, "another-secret"):
        assert secret not in caplog.text + done.text + repr((plan, orders(admin, group)))


def test_a_reverse_proxy_says_who_it_is(admin: GroupAdmin, group: str) -> None:
    """Only if that header was named; if it is missing or comes twice, nothing happens."""
    with operator(admin, group, {"X_Forwarded_User": "alice"}, user_header="X-Forwarded-User") as browser:
        assert browser.confirm(browser.plan("settings", settings={"gather_ms": "5"})["token"]).status == 200
        refused = browser.post("dry-runs", {"action": "resume"}, X_Forwarded_User="")
        assert (refused.status, "does not say who you are" in refused.json["error"]) == (403, True)
        for wrong in (
            {"X_Forwarded_User": "amqp://me:secret@host"},
            {"x_forwarded_user": "mallory"},
        ):  # the latter comes twice
            assert browser.post("dry-runs", {"action": "resume"}, **wrong).status == 403
    with operator(admin, group, {"X_Forwarded_User": "mallory"}) as browser:
        assert browser.confirm(browser.plan("settings", settings={"gather_ms": "6"})["token"]).status == 200
    assert [it.by for it in orders(admin, group)] == [f"alice/{HERE}", HERE]
