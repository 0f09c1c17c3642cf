"""Every example runs, on real servers, and does what it says."""

from __future__ import annotations

import difflib
import json
import signal
import socket
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pika
import pytest
from tests.programs import EXAMPLES, Programs, create_group, no_topic, programs, wait_for_members

from cobalance import BlockingGroup
from cobalance.rabbitmq import Publisher, Topic, create_topic, delete_topic

TESTS = Path(__file__).parents[1]


@pytest.fixture
def run(redis_url: str, amqp_url: str) -> Iterator[Programs]:
    with programs(redis_url, amqp_url) as running:
        yield running


def publish(amqp_url: str, topic: Topic, count: int) -> None:
    """Publishes this many messages, numbered from 0, with a few keys."""
    create_topic(amqp_url, topic)
    with Publisher(amqp_url, topic) as publisher:
        for number in range(count):
            publisher.publish(f"key-{number % 8}", f"{number}".encode(), wait=False)
        assert publisher.flush()


def in_order(lines: list[tuple[str, int]]) -> bool:
    """Whether the numbers rise within each queue."""
    numbers = defaultdict(list)
    for queue, number in lines:
        numbers[queue].append(number)
    return all(them == sorted(set(them)) for them in numbers.values())


def test_each_example_is_run() -> None:
    """A new file in examples/ needs a test here, or where the container is tested."""
    tested = Path(__file__).read_text() + (TESTS / "examples/test_compose.py").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert path.name in tested


@pytest.mark.thorough
def test_quickstart(run: Programs, redis_url: str, amqp_url: str) -> None:
    """It publishes twenty orders, handles each of them once, and leaves when asked to."""
    create_group(redis_url, "billing")
    with no_topic(amqp_url, "orders"):
        process = run.start("quickstart.py")
        run.read_until(lambda: len(run.lines) == 20)
        run.stop(process)
        assert run.rest() == []
    numbers = [int(line.split()[2]) for line in run.lines]
    assert sorted(numbers) == list(range(20))
    assert in_order([(line.split()[0], int(line.split()[2])) for line in run.lines])


@pytest.mark.parametrize("example", ["trio_consumer.py", "sync_consumer.py", "blocking_consumer.py"])
def test_consumers(run: Programs, redis_url: str, amqp_url: str, example: str) -> None:
    """A second process joins under load, and takes over when the first leaves: everything is handled once, in order."""
    name = example.partition("_")[0]
    topic = Topic(f"{name}-orders", 4)
    create_group(redis_url, name)
    with no_topic(amqp_url, topic.name):
        publish(amqp_url, topic, 400)
        first = run.start(example)
        run.read_until(lambda: len(run.lines) == 10)
        second = run.start(example)
        run.read_until(lambda: len(run.lines) == 400)
        run.stop(first)
        publish(amqp_url, topic, 40)
        run.read_until(lambda: len(run.lines) == 440)
        run.stop(second, signal.SIGINT)
    handled = [(line.split()[0], int(line.split()[1])) for line in run.lines]
    assert in_order(handled[:400])
    assert in_order(handled[400:])


@pytest.mark.thorough
def test_draw_journal(run: Programs, redis_url: str, tmp_path: Path) -> None:
    """A picture with a lane for each resource and the host of each member; draw_journal.py."""
    name = f"drawn-{uuid.uuid4().hex[:8]}"
    create_group(redis_url, name)
    with BlockingGroup(name, ["films", "photos"], redis_url=redis_url) as group:
        group.wait_held("films", "photos")
    run.wait(run.start("draw_journal.py", name, str(tmp_path / "lanes.svg")))
    picture = (tmp_path / "lanes.svg").read_text("utf-8")
    assert picture.startswith("<svg ")
    for word in ("films", "photos", f"held by {socket.gethostname()}/"):
        assert word in picture


@pytest.mark.thorough
def test_request_reply(run: Programs, redis_url: str, amqp_url: str) -> None:
    """Two services share the requests of a client, which gets each reply once."""
    create_group(redis_url, "square")
    with no_topic(amqp_url, "square-requests"):
        services = [run.start("request_reply.py", "serve") for _ in range(2)]
        run.wait(run.start("request_reply.py"))
        wait_for_members(redis_url, "square", len(services))
        for service in services:
            run.stop(service)
        assert sorted(run.rest()) == sorted(f"{number} squared is {number**2}" for number in range(10))


@pytest.mark.thorough
def test_graceful_shutdown(run: Programs, redis_url: str, amqp_url: str) -> None:
    """SIGTERM while handlers run (graceful_shutdown.py): running ones finish, others wait for the next process."""
    topic = Topic("slow-orders", 2)
    create_group(redis_url, "shop")
    with no_topic(amqp_url, topic.name):
        publish(amqp_url, topic, 40)
        process = run.start("graceful_shutdown.py")
        run.read_until(lambda: len(run.lines) == 3)
        run.stop(process)
        words = [line.split() for line in [*run.lines, *run.rest()]]
        begun, done = ([it[1:] for it in words if it[0] == kind] for kind in ("begun", "done"))
        assert sorted(begun) == sorted(done)
        assert words[-1] == ["left"]
        with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
            channel = connection.channel()
            left = sum(channel.queue_declare(it, passive=True).method.message_count or 0 for it in topic.queue_names)
        assert left == 40 - len(done)
        assert left > 0


def test_manual_ack(run: Programs, redis_url: str, amqp_url: str) -> None:
    """manual_ack.py stores in batches, and acknowledges all of them."""
    topic = Topic("bulk-orders", 4)
    create_group(redis_url, "bulk")
    with no_topic(amqp_url, topic.name):
        publish(amqp_url, topic, 100)
        process = run.start("manual_ack.py")
        run.read_until(lambda: sum(len(line.split()) - 1 for line in run.lines) == 100)
        run.stop(process)
        assert len(run.lines) < 100
        with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
            for queue in topic.queue_names:
                assert connection.channel().queue_declare(queue, passive=True).method.message_count == 0


@pytest.mark.thorough
def test_stream_manual_commit(run: Programs, redis_url: str, amqp_url: str) -> None:
    """stream_manual_commit.py counts every payment once, in order, though another process takes over half of them."""
    topic = Topic("payments", 4, "stream")
    with no_topic(amqp_url, topic.name):
        create_group(redis_url, "revenue")
        publish(amqp_url, topic, 400)
        published = 400

        def count_all() -> None:
            run.read_until(lambda: sum(int(line.split()[4]) for line in run.lines) == published)

        first = run.start("stream_manual_commit.py")
        count_all()
        second = run.start("stream_manual_commit.py")
        while len({line.split()[0] for line in run.lines}) < 2:
            publish(amqp_url, topic, 40)
            published += 40
            count_all()
        run.stop(first)
        publish(amqp_url, topic, 40)
        published += 40
        count_all()
        run.stop(second)
        assert run.rest() == []
    assert in_order([(line.split()[1], int(line.split()[2])) for line in run.lines])


@pytest.mark.thorough
def test_any_resource(run: Programs, redis_url: str, tmp_path: Path) -> None:
    """any_resource.py: the folders are shared, every file is worked once and in order, also by the next process."""
    create_group(redis_url, "inbox")
    names = [uuid.uuid4().hex[:8] for _ in range(4)]
    for name in names:
        (tmp_path / name).mkdir()
    files = 0

    def round_() -> set[int]:
        """Adds a file to each folder; returns the processes that worked them."""
        nonlocal files
        for name in names:
            (tmp_path / name / f"{files:06}").touch()
        files += 1
        return {int(run.read().split()[0]) for _ in names}

    first = run.start("any_resource.py", str(tmp_path))
    assert round_() == {first.pid}
    second = run.start("any_resource.py", str(tmp_path))
    while round_() != {first.pid, second.pid}:
        pass
    run.stop(first)
    assert round_() == {second.pid}
    run.stop(second)
    worked = [line.split() for line in run.lines]
    assert in_order([(folder, int(file)) for _, folder, file in worked])
    assert Counter(folder for _, folder, _ in worked) == dict.fromkeys(names, files)


@pytest.mark.thorough
def test_threads(run: Programs, redis_url: str) -> None:
    """threads.py: the tenants are shared, none is worked by two at a time, and all are handed over in the end."""
    create_group(redis_url, "tenants")
    first = run.start("threads.py")
    run.read_until(lambda: len(run.lines) == 6)
    second = run.start("threads.py")
    run.read_until(lambda: sum(line.startswith(f"{second.pid} begins") for line in run.lines) == 3)
    run.stop(first)
    run.read_until(lambda: sum(line.startswith(f"{second.pid} begins") for line in run.lines) == 6)
    run.stop(second)
    run.rest()
    holders: dict[str, tuple[str, str]] = {}
    for pid, verb, tenant, token in (line.split() for line in run.lines):
        if verb == "begins":
            assert tenant not in holders
            holders[tenant] = pid, token
        else:
            assert holders.pop(tenant) == (pid, token)
    assert holders == {}


@pytest.mark.long_campaign
def test_tune_from_journal(run: Programs, tmp_path: Path) -> None:
    """tune_from_journal.py: a group that is deployed twice, its journal, the fits, a recommendation, and its page."""
    run.wait(run.start("tune_from_journal.py", str(tmp_path)))
    said = "\n".join(run.rest())
    assert "warehouse:" in said
    assert "drain_ms " in (tmp_path / "churn" / "calibration.txt").read_text()
    found = json.loads((tmp_path / "tune.json").read_text())
    assert found["decision"] == "change"
    assert found["command"].startswith("cobalance group configure warehouse --")
    assert found["command"] in said
    assert found["recommended"]["settings"]["revocation_timeout_ms"] > 3_000
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.thorough
def test_active_backup(run: Programs, redis_url: str) -> None:
    """active_backup.py: one leads after the other, each under a higher token."""
    create_group(redis_url, "nightly-report")
    processes = [run.start("active_backup.py") for _ in range(3)]
    for process in processes:
        run.wait(process)
    rounds = [(int(line.split()[0]), int(line.split()[4].rstrip(","))) for line in run.rest()]
    leaders = list(dict.fromkeys(rounds))
    assert sorted(pid for pid, _ in leaders) == sorted(process.pid for process in processes)
    assert rounds == [leader for leader in leaders for _ in range(3)]
    assert [token for _, token in leaders] == sorted({token for _, token in leaders})


class PikaQueues:
    """The queues of the two pika examples, and the output of their programs."""

    names: ClassVar = [f"pika-{number}" for number in range(4)]

    def __init__(self, run: Programs, amqp_url: str) -> None:
        self._run = run
        self._connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        self._channel = self._connection.channel()
        self._published = 0
        for name in self.names:
            self._channel.queue_declare(name, durable=True)

    def round(self) -> dict[str, int]:
        """Publishes one message to each queue; when all are handled, returns the process that handled it, by queue."""
        self._published += 1
        for name in self.names:
            self._channel.basic_publish("", name, f"{self._published}".encode())
        owners: dict[str, int] = {}
        while len(owners) < len(self.names):
            pid, queue, number = self._run.read().split()
            if int(number) == self._published:
                owners[queue] = int(pid)
        return owners

    def rounds_until(self, shares: list[int]) -> dict[str, int]:
        """Runs rounds until the processes have these shares of the queues."""
        while True:
            owners = self.round()
            if sorted(Counter(owners.values()).values()) == shares:
                return owners

    def handled(self, queue: str) -> list[int]:
        """The messages of a queue in the order in which they were handled."""
        return [int(line.split()[2]) for line in self._run.lines if line.split()[1] == queue]

    def close(self) -> None:
        for name in self.names:
            assert self._channel.queue_delete(name).method.NAME == "Queue.DeleteOk"
        self._connection.close()


@pytest.fixture
def pika_queues(run: Programs, amqp_url: str) -> Iterator[PikaQueues]:
    queues = PikaQueues(run, amqp_url)
    yield queues
    queues.close()


def test_pika_before(run: Programs, pika_queues: PikaQueues) -> None:
    """pika_before.py is a sound program: alone it handles everything in order, and ends on Ctrl-C."""
    process = run.start("pika_before.py")
    for _ in range(20):
        assert set(pika_queues.round().values()) == {process.pid}
    run.stop(process, signal.SIGINT)
    for name in pika_queues.names:
        assert pika_queues.handled(name) == list(range(1, 21))


@pytest.mark.thorough
def test_pika_after(run: Programs, pika_queues: PikaQueues, redis_url: str) -> None:
    """pika_after.py: 1 → 3 processes, one leaves, one is killed. Balanced; in order, once, except for the kill."""
    create_group(redis_url, "pika")
    first = run.start("pika_after.py")
    pika_queues.rounds_until([4])
    second = run.start("pika_after.py")
    pika_queues.rounds_until([2, 2])
    third = run.start("pika_after.py")
    pika_queues.rounds_until([1, 1, 2])
    run.stop(first, signal.SIGINT)
    owners = pika_queues.round()
    assert Counter(owners.values()) == {second.pid: 2, third.pid: 2}
    for name in pika_queues.names:
        numbers = pika_queues.handled(name)
        assert numbers == list(range(1, len(numbers) + 1))
    run.kill(second)
    owners = pika_queues.round()
    assert set(owners.values()) == {third.pid}
    for name in pika_queues.names:
        numbers = pika_queues.handled(name)
        assert list(dict.fromkeys(numbers)) == list(range(1, max(numbers) + 1))
    run.stop(third, signal.SIGINT)


def test_the_drop_in_changes_three_lines() -> None:
    """From pika_before.py to pika_after.py."""
    before, after = (
        [line for line in (EXAMPLES / name).read_text().splitlines() if line]
        for name in ("pika_before.py", "pika_after.py")
    )
    changed = [line for line in difflib.ndiff(before, after) if line[:2] == "+ "]
    gone = [line for line in difflib.ndiff(before, after) if line[:2] == "- "]
    assert len(changed) <= 3
    assert len(gone) <= 1


def test_watch_lag(run: Programs, redis_url: str, amqp_url: str) -> None:
    """Messages that are published and not consumed count as lag."""
    topic = Topic(f"behind-{uuid.uuid4().hex[:8]}", 2)
    publish(amqp_url, topic, 7)
    create_group(redis_url, topic.name)
    with BlockingGroup(topic.name, topic.queue_names, redis_url=redis_url) as member:
        member.wait_held(*topic.queue_names)
        run.start("watch_lag.py")
        expected = f"{topic.name}: Stable, members: 1, behind: 7, halted: []"
        run.read_until(lambda: expected in run.lines)
    delete_topic(amqp_url, topic.name, force=True)
