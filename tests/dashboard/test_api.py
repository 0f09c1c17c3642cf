"""The JSON API, as a program asks it, over groups in this process."""

from __future__ import annotations

import gc
import shlex
import socket
import ssl
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
import redis
import trustme
from tests.cli_process import SECRET
from tests.dashboard.asking import ask, events, stream
from tests.dashboard.scenes import Scene

from cobalance import GroupAdmin
from cobalance.cli.app import app
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.transport import Reply, Script
from cobalance.dashboard import server as dashboard_server
from cobalance.dashboard.feeds import FORGOTTEN_S, Feeds
from cobalance.dashboard.server import DashboardServer
from cobalance.dashboard.status import FRESH_S as STATUS_FRESH_S
from cobalance.dashboard.status import Status
from cobalance.dashboard.tuning import commands as tuning_commands
from cobalance.dashboard.values import plain
from cobalance.operate import Finding
from cobalance.servers import OwnRedis
from cobalance.servers.ports import free_port
from cobalance.settings import GroupSettings


def test_all_groups_those_that_need_attention_first(port: int) -> None:
    """A row each, with what draws attention in words; what is not known is null."""
    groups = ask(port, "/api/v1/groups").json["groups"]
    assert [it["name"] for it in groups] == ["g", "audit/eu"]
    g = groups[0]
    assert (g["state"], g["members"], g["partitions"], g["lag"], g["verdict"]) == ("Reconciling", 5, 12, None, None)
    assert g["draining"] == 2
    assert len([it for it in g["attention"] if "waits for web-" in it]) == 2
    assert g["moves_last_hour"] == 31


def test_a_group_is_its_snapshot(port: int, admin: GroupAdmin) -> None:
    """The same value as in Python, with why it is as it is."""
    found = ask(port, "/api/v1/groups/g").json
    assert found.pop("sentences")[0] == "Group g is Reconciling: 5 members, 12 partitions."
    assert found == plain(admin.snapshot("g"))
    assert set(found) == {it.name for it in attrs.fields(type(admin.snapshot("g")))}


def test_a_name_with_a_slash_is_one_name(port: int) -> None:
    """Percent-encoded, in the API and in the pages."""
    assert ask(port, "/api/v1/groups/audit%2Feu").json["name"] == "audit/eu"
    assert 'data-group="audit/eu"' in ask(port, "/groups/audit%2Feu").text
    assert ask(port, "/api/v1/groups/audit/eu").status == 404


def test_a_partition_with_its_past(port: int) -> None:
    """Why it is where it is, and who had it before."""
    found = ask(port, "/api/v1/groups/g/partitions/orders-003").json
    assert found["sentences"][0].startswith("orders-003 is held by web-4/4714 (m4)")
    assert [it["who"] for it in found["history"]] == ["web-4/4714", "web-1/4711", "web-1/4711"]
    assert found["partition"]["state"] == "held"


def test_a_member_at_work(port: int) -> None:
    """What it does in sentences, what it holds, and what it had."""
    rows = ask(port, "/api/v1/groups/g").json["resources"]
    owner = next(it["owner"] for it in rows if it["state"] == "pending")
    found = ask(port, f"/api/v1/groups/g/members/{owner}").json
    sentences = " ".join(found["sentences"])
    assert f"{found['who']} is at work. It joined" in sentences
    assert f"It holds {found['partition_count']} of 12 partitions; its share is " in sentences
    assert {it["owner"] for it in found["partitions"]} == {owner}
    draining = [it["name"] for it in found["partitions"] if it["state"] == "pending"]
    assert f"It is handing over {', '.join(draining)}; by force in" in sentences
    assert found["lag"] is None  # its resources are no queues
    began = [it["from_ms"] for it in found["history"]]
    assert began == sorted(began, reverse=True)


def test_a_member_that_is_gone(port: int) -> None:
    """Since when, how that came, and what it had: the journal knows."""
    found = ask(port, "/api/v1/groups/g/members/m2").json
    assert found["member"] is None
    assert found["who"] == "web-2/4712"
    assert found["sentences"][0].endswith("it was silent for longer than the session timeout.")
    assert found["partitions"] == []
    assert {it["end"] for it in found["history"] if it["state"] == "held"} >= {"expired"}


def test_settings_beside_what_the_journal_says(port: int) -> None:
    """Drains, forced moves and expiries; with advice where a timeout was too short."""
    found = {it["name"]: it for it in ask(port, "/api/v1/groups/g/tuning").json["settings"]}
    assert list(found)[:3] == ["session_timeout_ms", "heartbeat_interval_ms", "revocation_timeout_ms"]
    assert set(found) == {it.name for it in attrs.fields(GroupSettings)}
    revocation = found["revocation_timeout_ms"]
    assert revocation["observed_ms"]["all"] >= revocation["observed_ms"]["half"] >= 400
    assert "3 resources were not finished in time" in " ".join(revocation["sentences"])
    assert revocation["advice"] == "Make handlers finish sooner, or raise it."
    assert "1 session ended by this timeout." in found["session_timeout_ms"]["sentences"]
    assert found["rejoin_grace_ms"]["sentences"] == []


def test_the_commands_that_recommend_settings_exist(port: int) -> None:
    """They parse as they stand, with any name of a group."""
    commands = [*ask(port, "/api/v1/groups/g/tuning").json["commands"], *tuning_commands("an evil; name", "staging")]
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "cobalance"
        app.parse_args(words, print_error=False, exit_on_error=False)
    assert sum("an evil; name" in shlex.split(it) for it in commands) == 2


def test_topics_by_group(port: int) -> None:
    """Each with what is left to do; unknown is null."""
    found = ask(port, "/api/v1/topics").json
    assert found["left_out"] == 0
    assert [(it["topic"], it["group"], it["partitions"], it["lag"]) for it in found["topics"]] == [
        ("orders", "g", 12, None)
    ]
    with events(port, "/api/v1/topics/events") as messages:
        assert next(messages) == found


def test_status_is_what_doctor_finds_once_a_minute(admin: GroupAdmin) -> None:
    """Those findings first that need attention, for however many ask."""
    looks, now = list[int](), [0.0]

    class Examined(GroupAdmin):
        def examine(self, *groups: str) -> Sequence[Finding]:
            looks.append(1)
            return super().examine(*groups)

    with Examined(transport=admin._transport, amqp_url="memory://dashboard") as other:
        status = Status(other, clock=lambda: now[0])
        with ThreadPoolExecutor(10) as threads:
            found = [*threads.map(lambda _: status.look(), range(20))]
        assert len(looks) == 1
        levels = [it["level"] for it in found[0]["findings"]]
        assert levels == sorted(levels, key=["error", "warning", "unknown", "ok"].index)
        assert {it["subject"] for it in found[0]["findings"]} == {"Redis", "g", "audit/eu"}
        assert any(it["check"] == "handovers" and it["level"] == "warning" for it in found[0]["findings"])
        assert found[0]["versions"]["cobalance"]
        now[0] += STATUS_FRESH_S
        status.look()
        assert len(looks) == 2


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/groups/nobody", 404, "nobody"),
        ("/api/v1/groups/nobody/events", 404, "nobody"),
        ("/api/v1/groups/%00", 400, "name"),
        ("/api/v1/groups/g/partitions/orders-999", 400, "orders-999"),
        ("/api/v1/groups/g/members/m99", 400, "m99"),
        ("/api/v1/groups/nobody/tuning", 404, "nobody"),
        ("/api/v1/groups/g/handovers?from_ms=yesterday", 400, "whole number"),
        ("/api/v1/groups/g/handovers?from_ms=99999999999999999999", 400, "whole number"),
    ],
)
def test_errors_say_what_is_wrong(port: int, path: str, status: int, words: str) -> None:
    """As JSON."""
    found = ask(port, path)
    assert found.status == status
    assert words in found.json["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_reads(port: int, method: str) -> None:
    """There is nothing to be changed by any other method."""
    for path in ("/api/v1/groups", "/api/v1/groups/g", "/"):
        assert ask(port, path, method).status == 405


def test_a_stream_begins_with_everything_and_goes_on_with_what_changed(port: int, scene: Scene) -> None:
    """Two partitions that move are two rows, not twelve."""
    with events(port, "/api/v1/groups/g/events") as messages:
        first = next(messages)
        assert first["all"]
        assert len(first["resources"]) == 12
        assert {it["id"]: it["number"] for it in first["group"]["members"]}["m5"] == 4
        draining = {it["name"] for it in first["resources"] if it["state"] == "pending"}
        scene.settle()
        moved, seq = set[str](), first["seq"]
        while not draining <= moved:
            message = next(messages)
            assert not message["all"]
            moved |= {it["name"] for it in message["resources"] if it["state"] == "held"}
            seq = message["seq"]
        assert moved == draining
        assert seq > first["seq"]


def test_a_stream_is_compressed_for_browsers(port: int) -> None:
    """Each event comes whole, though the stream goes on."""
    with stream(port, "/api/v1/groups/g/events", Accept_Encoding="gzip") as answer:
        assert answer.getheader("Content-Encoding") == "gzip"
        unpacked = zlib.decompressobj(wbits=31).decompress(answer.read1())
        assert unpacked.startswith(b'data: {"group":{"name":"g"')
        assert unpacked.endswith(b"\n\n")


class Counting(MemoryTransport):
    """Counts how often members are asked what they have in flight, which each snapshot does once."""

    looks = reads = 0

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        self.looks += script.name == "report"
        return super().call(script, keys, args)

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        """Each look reads the journal on once."""
        self.reads += 1
        return super().read_stream(key, after, count)


def test_ten_that_look_at_once_cost_as_much_as_one(scene: Scene) -> None:
    """The servers are asked once, no matter who else waits for the answer; and again once a second has passed."""
    transport, now_s = Counting(scene.backend.store), 0.0
    with GroupAdmin(transport=transport, amqp_url="memory://dashboard") as admin:
        feeds, begin = Feeds(admin, clock=lambda: now_s), threading.Barrier(10)

        def look() -> int:
            begin.wait()
            return feeds.feed("g").look().number

        for number, at_s in ((1, 0.0), (1, 0.9), (2, 1.5)):
            now_s = at_s
            with ThreadPoolExecutor(10) as threads:
                assert {it.result() for it in [threads.submit(look) for _ in range(10)]} == {number}
            assert transport.reads == number + 1  # at first the oldest entry is read, too
            assert transport.looks in {1, number}  # the watch below has a clock of its own


def test_a_deleted_group_is_forgotten(scene: Scene) -> None:
    """A dashboard that runs for months keeps nothing of groups that come and go."""
    now_s = 0.0
    with GroupAdmin(transport=MemoryTransport(scene.backend.store), amqp_url="memory://dashboard") as admin:
        feeds = Feeds(admin, clock=lambda: now_s)
        admin.create("fleeting", GroupSettings())
        assert "fleeting" in {it["name"] for it in feeds.overview.look()}
        feeds.feed("fleeting").look()
        admin.delete("fleeting")
        now_s = 10 * FORGOTTEN_S
        feeds.feed("g").look()
        feeds.overview.look()
        gc.collect()
        assert set(feeds._watches) == {"g", "audit/eu"}


def test_a_group_that_nobody_could_have_made_hides_no_other(private_redis: OwnRedis) -> None:
    """Anybody can write a key that looks like a group's."""
    url = private_redis.url
    with redis.Redis.from_url(url) as client, GroupAdmin(url, amqp_url="memory://dashboard") as admin:
        admin.create("sound", GroupSettings())
        client.hset("cobalance:1:{two words}:state", "x", "x")
        rows = {it["name"]: it for it in Feeds(admin).overview.look()}
        assert rows["sound"]["state"] == "Empty"
        assert "not allowed in names" in rows["two words"]["problem"]


def test_a_page_does_not_wait_for_rabbitmq_to_begin(scene: Scene) -> None:
    """What Redis has comes first, then the rest; here from a RabbitMQ that accepts a connection and says nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        GroupAdmin(
            transport=MemoryTransport(scene.backend.store), amqp_url=f"amqp://127.0.0.1:{mute.getsockname()[1]}"
        ) as admin,
        DashboardServer(admin, port=0) as server,
        events(server.port, "/api/v1/groups/g/events") as messages,
    ):
        first = next(messages)
        assert first["all"]
        assert len(first["resources"]) == 12
        assert first["group"]["servers"] == []
        assert ask(server.port, "/api/v1/groups/g/handovers").json["spans"]
        second = next(messages)
        assert not second["all"]
        assert "RabbitMQ" in second["group"]["servers"][-1]["problem"]


def test_a_rabbitmq_that_cannot_be_reached_is_said(scene: Scene) -> None:
    """What it would know is null, and its password is not shown."""
    url = f"amqp://me:{SECRET}@127.0.0.1:{free_port()}"
    with (
        GroupAdmin(transport=MemoryTransport(scene.backend.store), amqp_url=url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        answers = [ask(server.port, path) for path in ("/api/v1/groups", "/api/v1/groups/g")]
        with events(server.port, "/api/v1/groups/g/events") as messages:
            group = next(messages)["group"]
    assert "RabbitMQ" in answers[0].json["groups"][0]["problem"]
    assert "RabbitMQ" in group["servers"][-1]["problem"]
    assert answers[1].json["resources"][0]["backlog"]["lag"] is None
    assert SECRET not in answers[0].text + answers[1].text + str(group)


def test_a_stream_ends_with_the_server(admin: GroupAdmin) -> None:
    """Nobody who looks keeps it from stopping."""
    with DashboardServer(admin, port=0) as server, events(server.port, "/api/v1/groups/g/events") as messages:
        next(messages)
        server.__exit__()
        assert all(not it["all"] for it in messages)


@pytest.mark.parametrize("is_https", [False, True])
def test_a_browser_that_does_not_read_is_cut_off(
    is_https: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Suspended, or on a machine that sleeps: the server stops all the same, without a word in the log."""
    monkeypatch.setattr(dashboard_server, "GRACE_S", 0.2)
    authority, file = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    store = Scene(1_000, members=1).backend.store
    with GroupAdmin(transport=MemoryTransport(store), amqp_url="memory://dashboard") as admin:
        server = DashboardServer(admin, port=0, certificate=file if is_https else None)
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        with server, socket.socket() as plain_browser:
            plain_browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            plain_browser.connect(("127.0.0.1", server.port))
            browser = trusting.wrap_socket(plain_browser, server_hostname="127.0.0.1") if is_https else plain_browser
            with browser:
                browser.sendall(b"GET /api/v1/groups/g/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert browser.recv(4) == b"HTTP"
                ending = threading.Thread(target=server.__exit__)
                ending.start()
                ending.join(60)
                assert not ending.is_alive()
    assert not [it for it in caplog.records if it.levelname in {"WARNING", "ERROR"}]


def test_a_group_that_is_deleted_ends_its_streams(port: int, admin: GroupAdmin) -> None:
    """With the reason."""
    with events(port, "/api/v1/groups/audit%2Feu/events") as messages:
        next(messages)
        admin.delete("audit/eu", force=True)
        assert "audit/eu" in next(it for it in messages if it.get("event") == "problem")["error"]
    assert [it["name"] for it in ask(port, "/api/v1/groups").json["groups"]][:1] == ["g"]
