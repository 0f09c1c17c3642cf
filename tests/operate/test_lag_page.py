"""What autoscalers read, on real servers."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry
from tests.cli_process import SECRET, cobalance, running
from tests.consumers import Place, until
from tests.faults.proxy import proxy_to
from tests.names import unique
from tests.operate.described import group
from tests.streams import new_stream

from cobalance import Delivery, Group, GroupAdmin, Topic
from cobalance.description import Backlog
from cobalance.journal import Journal
from cobalance.operate.group_metrics import GroupMetrics
from cobalance.operate.http_listener import HttpListener
from cobalance.operate.lag_page import lag_pages
from cobalance.operate.tally import Tally
from cobalance.operate.watch import Watch
from cobalance.settings import GroupSettings

pytestmark = pytest.mark.anyio

Found = tuple[int, dict[str, Any]]


def ask(port: int, name: str, what: str = "lag", **headers: str) -> Found:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", f"/api/v1/groups/{name}/{what}", headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def serving(redis_url: str, amqp_url: str, *names: str) -> Iterator[int]:
    """An exporter's port."""
    with (
        GroupAdmin(redis_url, amqp_url=amqp_url) as admin,
        HttpListener({}, find_page=lag_pages(admin.metrics(*names).snapshot)) as listener,
    ):
        yield listener.port


async def test_a_number_while_all_of_it_is_known(here: Place, topic: Topic) -> None:
    """Of all partitions; also when nobody is there, so that a group can be scaled up from nothing."""
    gate = anyio.Event()

    async def wait(_: Delivery) -> None:
        await gate.wait()

    with serving(here.redis_url, here.amqp_url) as port:
        async with here.member(topic, wait) as one:
            await one.wait_held(*topic.queue_names)
            here.publish(topic, 1, 2)
            here.publish(topic, 3, partition=1)
            status, found = await until(lambda: it if (it := ask(port, here.group))[1].get("lag") == 3 else None)
            assert (status, found["partitions"], found["unknown_lag_partitions"]) == (200, 2, 0)
            assert found["oldest_ms"] > 0
            gate.set()
            await until(lambda: ask(port, here.group)[1]["lag"] == 0)
        here.publish(topic, 4, 5)
        await until(lambda: ask(port, here.group)[1]["lag"] == 2)
        assert ask(port, here.group)[1]["oldest_ms"] is None


async def test_a_stream_that_was_made_anew_is_no_0(redis_url: str, amqp_url: str) -> None:
    """What was committed in the one before says nothing of it. All that counts work says that it does not know, and why."""
    name, said = unique("anew"), list[str]()
    with new_stream(amqp_url, 6) as stream, serving(redis_url, amqp_url) as port:
        async with Group(name, [stream.name], redis_url=redis_url) as member:
            await member.wait_held(stream.name)
            await member.commit(stream.name, 5)
        assert await until(lambda: ask(port, name)[1]["lag"] == 0)
        stream.make_anew()
        stream.append(4)
        with GroupAdmin(redis_url, amqp_url=amqp_url) as admin:
            found = await anyio.to_thread.run_sync(lambda: admin.snapshot(name, on_unknown=said.append))
            doctor = await anyio.to_thread.run_sync(admin.examine, name)
            why = await anyio.to_thread.run_sync(admin.explain, name, stream.name)
        status, told = await until(lambda: it if (it := ask(port, name))[1]["lag"] != 0 else None)
    (row,) = found.resources
    assert (row.backlog.lag, row.backlog.log_end_offset, row.verdict, found.verdict) == (None, 3, None, None)
    assert (status, told["lag"], told["unknown_lag_partitions"]) == (503, None, 1)
    (error,) = [it for it in doctor if (it.subject, it.check) == (name, "streams")]
    assert (error.level, f"{stream.name} ends before its committed offset" in error.message) == ("error", True)
    assert f"cobalance group reset-offsets {name} --resource {stream.name}" in (error.advice or "")
    assert [it for it in why if "is unknown: the stream ends before" in it]
    assert [f"LAG of {stream.name} is unknown: it ends before" in it for it in said] == [True]


async def test_a_broker_that_is_away_is_no_0(here: Place, topic: Topic) -> None:
    """503 with the reason for as long as it is; nothing of before is kept."""
    with proxy_to(here.amqp_url) as proxy, serving(here.redis_url, proxy.through(here.amqp_url)) as port:
        async with here.member(topic, print) as one:
            await one.wait_held(*topic.queue_names)
            await until(lambda: ask(port, here.group)[0] == 200)
            proxy.refuse()
            proxy.reset()
            found = await until(lambda: it[1] if (it := ask(port, here.group))[0] == 503 else None)
            assert (found["lag"], found["unknown_lag_partitions"]) == (None, 2)
            assert "RabbitMQ" in found["error"]
            proxy.heal()
            await until(lambda: ask(port, here.group)[0] == 200)


async def test_a_broker_that_refuses_the_login_is_no_0(here: Place, topic: Topic) -> None:
    """The answer does not quote the password."""
    with serving(here.redis_url, here.amqp_url.replace("guest:guest", f"guest:{SECRET}")) as port:
        async with here.member(topic, print) as one:
            await one.wait_held(*topic.queue_names)
            found = await until(lambda: it[1] if "refuse" in (it := ask(port, here.group))[1]["error"] else None)
    assert found["lag"] is None
    assert SECRET not in str(found)


async def test_a_redis_that_is_away_is_no_0(redis_url: str, amqp_url: str) -> None:
    """503 with the reason, whether the group has been seen before or not."""
    with proxy_to(redis_url) as proxy, GroupAdmin(redis_url) as admin:
        names = unique("lag"), unique("lag")
        for name in names:
            admin.create(name)
        with serving(proxy.through(redis_url), amqp_url) as port:
            assert "partitions" in ask(port, names[0])[1]
            proxy.refuse()
            proxy.reset()
            for name in names:
                status, found = await until(
                    lambda name=name: it if (it := ask(port, name))[1].keys() == {"error"} else None
                )
                assert status == 503
                assert "Redis" in found["error"]


async def test_what_is_no_queue_has_no_number(here: Place) -> None:
    """The partitions whose lag is unknown are named."""
    folders = [f"folder-{letter}" for letter in "abcdefg"]
    with serving(here.redis_url, here.amqp_url) as port:
        async with Group(here.group, folders, redis_url=here.redis_url) as one:
            await one.wait_held(*folders)
            status, found = await until(lambda: it if "folder" in (it := ask(port, here.group))[1]["error"] else None)
    assert (status, found["lag"], found["unknown_lag_partitions"]) == (503, None, 7)
    assert "folder-a, folder-b, folder-c, folder-d, folder-e, … is unknown" in found["error"]


async def test_a_group_without_partitions_has_no_number(redis_url: str, amqp_url: str) -> None:
    """Its first member names them; until then messages may wait that nobody counts."""
    name = unique("lag/eu")
    with GroupAdmin(redis_url) as admin, serving(redis_url, amqp_url) as port:
        admin.create(name)
        status, found = ask(port, name.replace("/", "%2F"))
        assert (status, found["group"], found["lag"]) == (503, name, None)
        assert "no partitions" in found["error"]
        admin.delete(name)
        await until(lambda: ask(port, name.replace("/", "%2F"))[0] == 404)


def test_a_group_that_recovers_has_no_number() -> None:
    """Members that have not come back yet may work other partitions."""
    page = lag_pages(lambda _: group("Recovering", backlog=Backlog(lag=0)))("/api/v1/groups/g/lag")
    assert page is not None
    answer = page()
    assert (answer.status, json.loads(answer.body)["lag"]) == (503, None)


def test_groups_that_there_are_not(redis_url: str, amqp_url: str) -> None:
    """404 for those, and for those that this exporter is not about; 400 for what no group can be called."""
    name = unique("lag")
    with GroupAdmin(redis_url) as admin, serving(redis_url, amqp_url, "another") as port:
        admin.create(name)
        assert ask(port, name)[0] == 404
        assert "about other groups" in ask(port, "nobody")[1]["error"]
        assert ask(port, "%00")[0] == 400
        assert ask(port, f"{name}/lag")[1] == {"error": "no such page"}


def test_a_scrape_and_the_page_share_one_look(here: Place) -> None:
    """Within a second nothing is read twice, no matter who asks first."""
    if here.redis_url.startswith("memory"):
        here.coordinator.create(GroupSettings())
    made = list[str]()

    def watch(name: str) -> Watch:
        made.append(name)
        return Watch(here.coordinator, None, clock=lambda: 0)

    journal = Journal(here.coordinator.transport, here.group)
    metrics, registry = GroupMetrics(lambda: [here.group], watch, lambda _: Tally(journal)), CollectorRegistry()
    first = metrics.snapshot(here.group)
    registry.register(metrics)
    assert registry.get_sample_value("cobalance_group_members", {"group": here.group}) == 0
    assert metrics.snapshot(here.group) is first
    assert made == [here.group]


def test_the_command_serves_it_under_a_name_of_the_cluster(redis_url: str, amqp_url: str, tmp_path: Path) -> None:
    """Beside the metrics; under a name that it does not know, it answers nobody."""
    name, urls = unique("lag"), {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    assert cobalance("group", "create", name, environment=urls).code == 0
    command = ("metrics", "--port", "0", "--host-name", "cobalance-metrics.shop.svc")
    with running(*command, folder=tmp_path, environment=urls) as exporter:
        exporter.wait_for("metrics at http://127.0.0.1:")
        port = int(next(it for it in exporter.err if "metrics at" in it).partition("127.0.0.1:")[2].partition("/")[0])
        assert ask(port, name, Host="cobalance-metrics.shop.svc:9464")[0] == 503
        assert ask(port, name, Host="evil.example")[0] == 421
        assert ask(port, name, "desired-members")[1]["error"].startswith(
            "the lag, or what members got done, is not known"
        )
        assert ask(port, "nobody", "desired-members")[0] == 404
        assert exporter.end(signal.SIGTERM).code == 0
