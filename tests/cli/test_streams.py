"""Streams on the command line: created, consumed, described, and their offsets reset; on real servers."""

import json
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
import pytest
from tests.cli_process import Outcome, Running, cobalance, running
from tests.names import unique
from tests.streams import new_stream

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.journal import Journal
from cobalance.rabbitmq import Publisher, Retention, Topic, create_topic, delete_topic, read_topic
from cobalance.settings import GroupSettings

HANDLER = """
def show(delivery):
    print(delivery.queue, delivery.offset, delivery.body.decode(), flush=True)


def fail(delivery):
    raise ValueError("no customer of that name")
"""
COUNT = 30
SETTINGS = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500, revocation_timeout_ms=5_000)


@attrs.define
class Shop:
    """A new group, and a topic of one stream with thirty messages."""

    topic: Topic
    coordinator: Coordinator
    environment: dict[str, str]
    folder: Path

    @property
    def stream(self) -> str:
        return self.topic.queue_names[0]

    @property
    def committed(self) -> dict[str, int | None]:
        """Stream → committed offset."""
        return {row.name: row.committed for row in self.coordinator.resources()}

    def publish(self, *bodies: object) -> None:
        with Publisher(self.environment["COBALANCE_AMQP_URL"], self.topic) as publisher:
            for body in bodies:
                publisher.publish("k", str(body).encode(), wait=False)
            assert publisher.flush()

    def run(self, *arguments: str) -> Outcome:
        return cobalance(*arguments, environment=self.environment)

    def reset(self, *options: str) -> Outcome:
        return self.run("group", "reset-offsets", self.coordinator.group, *options)

    def consume(self, until: str, *options: str) -> list[int]:
        """Runs a member until its handler has printed this, then stops it, and returns the offsets that it handled."""
        with self.consumer(*options) as consumer:
            consumer.wait_for(until)
            outcome = consumer.end(signal.SIGTERM)
        assert outcome.code == 0
        return [int(line.split()[1]) for line in outcome.out.splitlines()]

    def consumer(self, *options: str) -> AbstractContextManager[Running]:
        command = ("consume", self.topic.name, "--group", self.coordinator.group, "--handler", "shop:show", *options)
        return running(*command, folder=self.folder, environment=self.environment)


@pytest.fixture
def shop(redis_url: str, amqp_url: str, tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "shop.py").write_text(HANDLER)
    transport = open_transport(redis_url)
    coordinator = Coordinator(transport, unique("cli"))
    coordinator.create(SETTINGS)
    it = Shop(
        Topic(unique("cli"), 1, "stream"),
        coordinator,
        {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url},
        tmp_path,
    )
    create_topic(amqp_url, it.topic)
    it.publish(*range(COUNT))
    yield it
    delete_topic(amqp_url, it.topic.name, force=True)
    transport.close()


def test_a_topic_of_streams(shop: Shop, amqp_url: str) -> None:
    """With a retention, which other queues do not have."""
    name = unique("cli")
    create = ("topic", "create", name, "--partitions", "2")
    assert shop.run(*create, "--type", "stream", "--max-age", "7D", "--max-bytes", "99999999") == Outcome(0, "", "")
    made = read_topic(amqp_url, name)
    delete_topic(amqp_url, name)
    assert (made.queue_type, made.partitions) == ("stream", 2)
    assert made.retention == Retention(max_age="7D", max_bytes=99_999_999)
    refused = shop.run(*create, "--max-age", "7D")
    assert (refused.code, "for streams" in refused.err) == (2, True)


def test_a_stream_is_consumed_on_from_where_the_last_member_left(shop: Shop) -> None:
    """No message comes twice, and describe shows the progress."""
    assert shop.consume(f"{shop.stream} {COUNT - 1} ") == list(range(COUNT))
    assert shop.committed == {shop.stream: COUNT - 1}
    shop.publish("more")
    (row,) = json.loads(shop.run("group", "describe", shop.coordinator.group, "--json").out)
    assert (row["current_offset"], row["log_end_offset"], row["lag"]) == (COUNT - 1, COUNT, 1)
    assert shop.consume("more") == [COUNT]


@pytest.mark.thorough
def test_where_a_new_group_begins(shop: Shop) -> None:
    """The start and the lock are options of consume."""
    assert shop.consume(f" {COUNT - 1} ", "--start", "28", "--commit-every", "1", "--lock") == [28, 29]


@pytest.mark.parametrize("start", ["latest", "2026-13-01T00:00:00"])
def test_a_start_that_is_none(shop: Shop, start: str) -> None:
    """An error before anything is joined."""
    with shop.consumer("--start", start) as consumer:
        outcome = consumer.wait()
    assert (outcome.code, "time" in outcome.err) == (2, True)


@pytest.mark.thorough
def test_a_reset_is_shown_then_done_and_journalled(shop: Shop) -> None:
    """Nothing is changed without --execute; then messages are delivered again from the given one on."""
    shop.coordinator.reset_offsets({shop.stream: COUNT - 1})
    flags = ("--topic", f"{shop.topic.name}:0", "--to-offset", "27")
    shown = shop.reset(*flags, "--json")
    expected = {"topic": shop.topic.name, "partition": "0", "new_offset": 27, "committed": 26}
    assert json.loads(shown.out) == [{"group": shop.coordinator.group, **expected}]
    assert "dry run" in shown.err
    assert shop.committed == {}
    done = shop.reset(*flags, "--execute")
    assert (done.code, done.err) == (0, "")
    assert done.out.split()[:5] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "COMMITTED"]
    entry = [it for it in Journal(shop.coordinator.transport, shop.coordinator.group).entries() if it.kind == "reset"][
        -1
    ]
    assert (entry.resource, entry.committed, entry.reason) == (shop.stream, 26, f"was {COUNT - 1}")
    assert shop.consume(f" {COUNT - 1} ") == [27, 28, 29]


@pytest.mark.thorough
def test_a_reset_resumes_what_is_halted(shop: Shop) -> None:
    """And says so, whether the group has members or, after all of them have left, only remembers the halt."""
    flags = ("--retries", "0", "--on-error", "halt", "--start", "first", "--handler", "shop:fail")
    command = ("consume", shop.topic.name, "--group", shop.coordinator.group, *flags)
    with running(*command, folder=shop.folder, environment=shop.environment) as consumer:
        consumer.wait_for("its partition is halted")
        while (done := shop.reset("--all-topics", "--to-offset", "27", "--execute")).code:
            assert "has members" in done.err  # its release is on the way
        assert done.err == f"Halted until now, and resumed: {shop.stream}.\n"
        while "halted: ValueError" not in shop.run("group", "describe", shop.coordinator.group, "--json").out:
            assert consumer.process.poll() is None  # it comes to the same failure
        assert consumer.end(signal.SIGTERM).code == 0
    done = shop.reset("--all-topics", "--to-offset", "27", "--execute")
    assert done.err == f"Halted until now, and resumed: {shop.stream}.\n"
    assert shop.consume(f" {COUNT - 1} ") == [27, 28, 29]


def test_out_of_range_is_told(shop: Shop) -> None:
    """It is moved to the nearest offset."""
    told = shop.reset("--resource", shop.stream, "--to-offset", "7000")
    assert f"does not have offset 7000; the nearest is {COUNT}" in told.err


def test_a_plan_is_exported_and_carried_out(shop: Shop, amqp_url: str) -> None:
    """--from-file reads what --export writes."""
    with new_stream(amqp_url, 5) as lone:
        flags = ("--topic", shop.topic.name, "--resource", lone.name)
        written = shop.reset(*flags, "--to-offset", "3", "--export")
        path = shop.folder / "plan.csv"
        path.write_text(written.out)
        assert written.out.startswith(f"{shop.topic.name},0,3\n")
        assert shop.reset("--from-file", str(path), "--execute").code == 0
        journal = Journal(shop.coordinator.transport, shop.coordinator.group).entries()
        assert {it.resource: it.committed for it in journal if it.kind == "reset"} == {shop.stream: 2, lone.name: 2}


@pytest.mark.thorough
def test_a_group_with_a_member_is_refused(shop: Shop) -> None:
    """Its offsets stay. After a crash, the command waits for its session."""
    flags = ("--all-topics", "--to-earliest", "--execute")
    with shop.consumer("--commit-every", "1") as consumer:
        consumer.wait_for(f"{shop.stream} {COUNT - 1} ")
        refused = shop.reset(*flags)
        assert (refused.code, "has members" in refused.err) == (1, True)
        assert shop.committed != {shop.stream: -1}
        consumer.process.kill()
        consumer.wait()
        while (again := shop.reset(*flags)).code:  # it counts as a member for two more heartbeats
            assert "has members" in again.err
    assert shop.committed == {shop.stream: -1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--topic", "TOPIC"), "Give one of"),
        (("--to-earliest",), "Say which streams"),
        (("--topic", "TOPIC", "--all-topics", "--to-earliest"), "Say which streams"),
        (("--topic", "TOPIC:0,1", "--to-earliest"), "partitions 0 to 0"),
        (("--topic", "TOPIC", "--to-earliest", "--execute", "--export"), "Give one of --dry-run"),
        (("--resource", "no-such-stream", "--to-earliest"), "no stream 'no-such-stream'"),
    ],
    ids=str,
)
def test_what_makes_no_sense(shop: Shop, options: tuple[str, ...], words: str) -> None:
    """One line says so, and nothing is done."""
    outcome = shop.reset(*(it.replace("TOPIC", shop.topic.name) for it in options))
    assert outcome.code in {1, 2}
    assert words in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_queues_keep_no_offsets(shop: Shop, amqp_url: str) -> None:
    """Acknowledged messages are gone."""
    name = unique("cli")
    create_topic(amqp_url, Topic(name, 1))
    outcome = shop.reset("--topic", name, "--to-earliest")
    delete_topic(amqp_url, name, force=True)
    assert (outcome.code, "keeps no offsets" in outcome.err) == (2, True)
