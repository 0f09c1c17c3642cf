"""A queue that a process did not know when it was granted is read first, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumers import Place, new_topic, until
from tests.names import unique

from cobalance.rabbitmq.consume import known_queues
from cobalance.rabbitmq.consume.known_queues import KnownQueues
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.topics.admin import connected

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture
def name(here: Place) -> Iterator[str]:
    """A queue that no program names."""
    queue = Queue(unique("unknown"), {"x-queue-type": "classic"})
    with connected(here.amqp_url) as admin:
        admin.declare(queue)
        yield queue.name
        assert admin.ready(queue.name) == 0
        admin.delete(queue.name)


async def test_of_queues_that_come_and_go_the_last_ones_are_remembered(
    here: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the group began with, and that are worked now, always are."""
    monkeypatch.setattr(known_queues, "MOST_ENDED", 1)
    with new_topic(here.amqp_url, 4) as topic:
        first, *others = topic.queue_names
        async with here.member([first], lambda _: None) as group:
            await group.wait_held(first)
            known = group.partitions.queues
            for it in (first, name, *others):
                if it != first:
                    known.learn(it)
                known.current(it)
            for it in (first, *others):
                known.note_end(it)
            assert set(known.names) == {first, name, others[-1]}
            assert known.current(others[0]) is None
            assert known.learn(others[0]).name == others[0]


async def test_a_tenure_that_is_over_when_its_queue_was_read_leaves_the_next_one_alone(
    here: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue was lost and granted again while the event loop was busy, and all of that is heard at once. Messages of the
    second tenure can be acknowledged.
    """
    reading, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    read: Callable[[KnownQueues, str], Queue] = KnownQueues._read

    def slowly(queues: KnownQueues, name: str) -> Queue:
        threads.append(threading.current_thread())
        reading.set()
        go_on.wait()
        return read(queues, name)

    monkeypatch.setattr(KnownQueues, "_read", slowly)
    held: list[Any] = []
    with new_topic(here.amqp_url) as topic:
        async with here.member(topic, held.append, ack="manual") as group:
            await group.wait_held(*topic.queue_names)
            group.membership.begin(name, 1, None)
            group.membership.flush()
            await until(reading.is_set)
            group.membership.abort(name, 1, "lost")  # what the engine calls, on its own thread
            group.membership.begin(name, 2, None)
            group.membership.flush()
            go_on.set()
            threads[0].join()
            here.publish(name, 1)
            await until(lambda: held)
            assert group.partitions.workers[name].tenure.token == 2
            group.ack(held[0])
            assert group.partitions.workers[name].is_settled(held[0])
            group.membership.abort(name, 2, "lost")
            group.membership.flush()
            await until(lambda: name not in group.partitions.workers)
