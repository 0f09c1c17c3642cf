"""Streams read by real processes that come, go and are killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from tests.consumers import new_topic
from tests.names import unique
from tests.programs import SETTINGS, Programs, create_group, programs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.rabbitmq import Publisher, Topic

READER = Path(__file__).parents[2] / "stream_reader.py"


@pytest.fixture
def run(redis_url: str, amqp_url: str) -> Iterator[Programs]:
    with programs(redis_url, amqp_url) as running:
        yield running


def publish(amqp_url: str, topic: Topic, count: int) -> None:
    """Publishes messages over all streams."""
    with Publisher(amqp_url, topic) as publisher:
        for number in range(count):
            publisher.publish(f"key-{number}", b"", wait=False)
        assert publisher.flush()


class Rounds:
    """Messages published a few hundred at a time."""

    def __init__(self, run: Programs, amqp_url: str, topic: Topic) -> None:
        self._run, self._amqp_url, self._topic = run, amqp_url, topic
        self._published = 0

    def another(self) -> None:
        """Publishes another round."""
        publish(self._amqp_url, self._topic, 400)
        self._published += 400

    def finish(self) -> None:
        """Waits until all are handled."""
        self._run.read_until(lambda: len(self._run.lines) == self._published)


def committed(redis_url: str, group: str) -> dict[str, int]:
    """Stream → committed offset."""
    transport = open_transport(redis_url)
    try:
        return {
            row.name: -1 if row.committed is None else row.committed
            for row in Coordinator(transport, group).resources()
        }
    finally:
        transport.close()


def places(lines: list[str]) -> list[tuple[int, str, int, int]]:
    """Process, stream, offset and token of each handled message."""
    return [(int(pid), stream, int(offset), int(token)) for pid, stream, offset, token in map(str.split, lines)]


@pytest.mark.thorough
def test_a_crash_repeats_only_what_was_not_committed(run: Programs, redis_url: str, amqp_url: str) -> None:
    """After a kill -9 the next process starts right after the committed offset, and nothing is missing."""
    group = unique("crash")
    create_group(redis_url, group, attrs.evolve(SETTINGS, session_timeout_ms=2_000))
    with new_topic(amqp_url, 1, "stream") as topic:
        publish(amqp_url, topic, 400)
        first = run.start(READER, group, topic.name, "10")
        run.read_until(lambda: len(run.lines) == 95)
        run.kill(first)
        (known,) = committed(redis_url, group).values()
        second = run.start(READER, group, topic.name, "10")
        run.read_until(lambda: bool(run.lines) and run.lines[-1].split()[2] == "399")
        run.stop(second)
        handled = places([*run.lines, *run.rest()])
        assert (*committed(redis_url, group).values(),) == (399,)
    before = [offset for pid, _, offset, _ in handled if pid == first.pid]
    after = [offset for pid, _, offset, _ in handled if pid == second.pid]
    assert before == list(range(len(before)))
    assert after == list(range(known + 1, 400))
    assert 69 <= known <= before[-1]  # at least one commit of ten behind a process that handles hundreds a second
    assert len({token for *_, token in handled}) == 2


def test_processes_come_and_go(run: Programs, redis_url: str, amqp_url: str) -> None:
    """Every message once, in order, and by one process at a time, though the streams move each time."""
    group = unique("churn")
    create_group(redis_url, group)
    with new_topic(amqp_url, 4, "stream") as topic:
        rounds = Rounds(run, amqp_url, topic)
        rounds.another()
        first = run.start(READER, group, topic.name, "50")
        rounds.finish()
        second = run.start(READER, group, topic.name, "50")
        while not any(int(line.split()[0]) == second.pid for line in run.lines):
            rounds.another()
            rounds.finish()
        rounds.another()
        run.stop(first)
        rounds.finish()
        run.stop(second)
        assert run.rest() == []
    handled = places(run.lines)
    offsets: defaultdict[str, list[int]] = defaultdict(list)
    owners: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for pid, stream, offset, token in handled:
        offsets[stream].append(offset)
        if owners[stream][-1:] != [(token, pid)]:
            owners[stream].append((token, pid))
    assert all(them == list(range(len(them))) for them in offsets.values())
    assert all(them == sorted(them) for them in owners.values())
    assert {pid for them in owners.values() for _, pid in them} == {first.pid, second.pid}
