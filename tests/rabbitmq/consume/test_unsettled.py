"""Messages that the program has and has not settled, when their partition is asked back, kept after all, or given up."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.consumers import WITHIN_S, Place, Seen, bodies_in, new_topic, until
from tests.rabbitmq.consume.test_by_key import BY_KEY, Gate
from tests.streams import cut

from cobalance.rabbitmq import Delivery, StreamSettings, Topic
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.partition.states import PartitionState
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio

BY_BODY: dict[str, Any] = {"order": "key", "key": lambda it: it.body}
BATCHES: dict[str, Any] = {"batch": Batch(2, within_ms=1)}
FIRST: dict[str, Any] = {"streams": StreamSettings(start="first")}
BRIEF = MemberSettings(drain_timeout_ms=500)


class Gathering:
    """A manual member that settles ten messages of a partition at a time, and fails over the body ``bad``."""

    def __init__(self, here: Place, topic: Topic, **options: Any) -> None:
        self.seen, self.gathered = Seen(), defaultdict[str, dict[str, Delivery]](dict)
        self.settled = Counter[str]()
        self.member: ConsumerGroup = here.member(topic, self._handle, ack="manual", retries=0, **options)

    async def _handle(self, it: Delivery | list[Delivery]) -> None:
        for delivery in it if isinstance(it, list) else [it]:
            body = self.seen.note(delivery)
            if body == "bad":
                raise ValueError("bad")
            self.gathered[delivery.queue][body] = delivery  # in place of one that a lost channel brought
            if len(self.gathered[delivery.queue]) == 10:
                self.settle(delivery.queue)

    async def gather(self, here: Place, topic: Topic) -> None:
        """Returns once it has four messages of each of two partitions in hand."""
        await self.member.wait_held(*topic.queue_names)
        for partition in range(2):
            here.publish(topic, *range(4), partition=partition)
        await self.seen.wait(8)

    def settle(self, queue: str) -> None:
        """What has been gathered of a partition."""
        self.settled[queue] += len(self.gathered[queue])
        for delivery in self.gathered.pop(queue, {}).values():
            self.member.ack(delivery)


@asynccontextmanager
async def asked_back(here: Place, topic: Topic, member: ConsumerGroup) -> AsyncIterator[str]:
    """Another member joins, and leaves before it was given anything: a partition is asked back, and kept after all."""

    async def handle(_: Delivery) -> None: ...

    async with here.member(topic, handle, **FIRST):
        await until(lambda: any(not it.active for it in member.tenures.values()))
        (asked,) = (name for name, it in member.tenures.items() if not it.active)
        yield asked
    await until(lambda: all(it.active for it in member.tenures.values()))


KINDS = {
    "classic": ("classic", {}),
    "quorum": ("quorum", {}),
    "stream": ("stream", {}),
    "by key": ("classic", BY_BODY),
    "stream by key": ("stream", BY_BODY),
    "batches": ("quorum", BATCHES),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_partition_that_is_kept_after_all_goes_on(here: Place, kind: str) -> None:
    """On the same channel, so that nothing comes again; what arrived meanwhile is handed out, too."""
    queue_type, options = KINDS[kind]
    with new_topic(here.amqp_url, 2, queue_type) as topic:
        it = Gathering(here, topic, **options, **FIRST)
        async with it.member:
            await it.gather(here, topic)
            async with asked_back(here, topic, it.member) as asked:
                here.publish(asked, 4, 5)
                worker = it.member.partitions.workers[asked]
                await until(lambda: worker.in_flight is not None and worker.in_flight.messages == 6)
            for name in topic.queue_names:
                here.publish(name, *range(4 if name != asked else 6, 10))
            await until(lambda: it.settled == dict.fromkeys(topic.queue_names, 10))
        assert len(it.seen.bodies) == 20
        assert here.journal("abandoned") == []
        if queue_type == "stream":
            assert [it.committed for it in here.resources().values()] == [9, 9]
        else:
            assert not any(ready_messages(here.amqp_url, topic.queue_names).values())


async def test_a_partition_that_is_kept_late_goes_on(here: Place) -> None:
    """Half of the time to the deadline has passed, so that what was not begun is no longer begun. It is handed out then."""
    with new_topic(here.amqp_url, 2) as topic:
        it = Gathering(here, topic)
        async with it.member:
            await it.gather(here, topic)
            async with asked_back(here, topic, it.member) as asked:
                worker = it.member.partitions.workers[asked]
                worker.tenure.hasten(0)
                await until(lambda: worker.stopping)
            for name in topic.queue_names:
                here.publish(name, *range(4, 10))
            await until(lambda: it.settled == dict.fromkeys(topic.queue_names, 10))
        assert len(it.seen.bodies) == 20


@pytest.mark.parametrize("queue_type", ["quorum", "stream"])
@pytest.mark.parametrize("paused", [False, True])
async def test_what_waits_for_room_or_is_put_off_does_not_keep_a_partition_from_going_on(
    here: Place, queue_type: Any, *, paused: bool
) -> None:
    """It was not begun, so that it is handed out afterwards; and what the program has in hand does not come again."""
    options: dict[str, Any] = {} if paused else {"max_in_flight_per_partition": 3}
    held: dict[str, list[Delivery]] = defaultdict(list)
    seen = Seen()

    async def handle(it: Delivery) -> None:
        seen.note(it)
        held[it.queue].append(it)
        if paused and len(seen.bodies) <= 6 and len(held[it.queue]) == 3:
            member.pause(it.queue)

    with new_topic(here.amqp_url, 2, queue_type) as topic:
        for partition in range(2):
            here.publish(topic, *range(8), partition=partition)
        member = here.member(topic, handle, ack="manual", **options, **FIRST)
        async with member:
            await seen.wait(6)
            async with asked_back(here, topic, member):
                ...
            member.resume()
            while len(seen.bodies) < 16 or any(held.values()):
                for name in topic.queue_names:
                    while held[name]:
                        member.ack(held[name].pop(0))
                await anyio.sleep(0.01)
        assert len(seen.bodies) == 16
        if queue_type == "quorum":
            assert not any(ready_messages(here.amqp_url, topic.queue_names).values())


async def test_what_a_lost_channel_brought_does_not_keep_a_partition_from_going_on(here: Place) -> None:
    """It is kept after all, and what was open comes again."""
    with new_topic(here.amqp_url, 2) as topic:
        it = Gathering(here, topic)
        async with it.member:
            await it.gather(here, topic)
            async with asked_back(here, topic, it.member):
                await until(cut(it.member.partitions.connection).is_set)
            for name in topic.queue_names:
                here.publish(name, *range(4, 10))
            await until(lambda: it.settled == dict.fromkeys(topic.queue_names, 10))


async def test_other_keys_go_on_where_a_partition_is_kept_while_a_handler_runs(here: Place) -> None:
    gate = Gate("b1", "b2", "c1", "c2")
    with new_topic(here.amqp_url, 2) as topic:
        async with here.member(topic, gate.handle, **BY_KEY) as member:
            await member.wait_held(*topic.queue_names)
            for name in topic.queue_names:
                here.publish(name, "a1" if name == topic.queue_names[0] else "d1")
            await gate.begun.wait(2)
            async with asked_back(here, topic, member) as asked:
                consumer: Any = member.partitions.workers[asked]._consumer
                await until(lambda: consumer.state is PartitionState.FINISHING)
            here.publish(asked, "b1", "c1", "b2", "c2")
            await until(lambda: Counter(gate.done) == Counter(["b1", "c1", "b2", "c2"]))
            gate.let("a1", "d1")
        assert not any(ready_messages(here.amqp_url, topic.queue_names).values())
        assert Counter(gate.begun.bodies) == Counter(["a1", "d1", "b1", "c1", "b2", "c2"])


GIVEN_UP: dict[str, tuple[Any, dict[str, Any]]] = {
    "pause": ("classic", {"on_error": "pause"}),
    "halt": ("quorum", {"on_error": "halt"}),
    "by key": ("classic", {"on_error": "halt", **BY_BODY}),
    "batches": ("classic", {"on_error": "halt", **BATCHES}),
    "stream": ("stream", {"on_error": "halt", **FIRST}),
}


@pytest.mark.parametrize("case", GIVEN_UP)
async def test_a_program_hears_that_a_partition_is_given_up(here: Place, case: str) -> None:
    """It has gathered four messages, and settles them then. The failed one is the next holder's first."""
    queue_type, options = GIVEN_UP[case]
    with new_topic(here.amqp_url, 1, queue_type) as topic:
        it = Gathering(here, topic, **options)
        async with it.member:
            await it.member.wait_held(*topic.queue_names)
            (tenure,) = it.member.tenures.values()
            here.publish(topic, *range(4))
            await it.seen.wait(4)
            here.publish(topic, "bad")
            with anyio.fail_after(WITHIN_S):
                await tenure.wait_draining()
            it.settle(tenure.resource)
            end = (await until(lambda: here.journal("abandoned")))[0]
        assert end.reason == ("failed" if case == "pause" else "halted") + ":ValueError"
        if queue_type == "stream":
            assert here.resources()[tenure.resource].committed == 3
        else:
            await until(lambda: ready_messages(here.amqp_url, topic.queue_names) == {tenure.resource: 1})


@pytest.mark.parametrize("case", GIVEN_UP)
async def test_a_partition_is_given_up_without_what_the_program_does_not_settle(
    here: Place, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing waits for ever, and the log says what comes again."""
    caplog.set_level(logging.INFO, "cobalance")
    queue_type, options = GIVEN_UP[case]
    with new_topic(here.amqp_url, 1, queue_type) as topic:
        it = Gathering(here, topic, **options, member=BRIEF)
        async with it.member:
            await it.member.wait_held(*topic.queue_names)
            (name,) = topic.queue_names
            here.publish(topic, *range(4))
            await it.seen.wait(4)
            here.publish(topic, "bad")
            end = (await until(lambda: here.journal("abandoned")))[0]
            assert end.reason.endswith(":ValueError")
            assert (
                f"{name} is given up once all that was handed out is settled, in 500 ms at the latest; unsettled: 4"
                in caplog.text
            )
            assert f"{name} is given up; unsettled, so that it comes again: 4" in caplog.text
        if queue_type == "stream":
            assert here.resources()[name].committed == -1
        elif queue_type == "classic":
            assert bodies_in(here.amqp_url, name) == ["0", "1", "2", "3", "bad"]


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_unsettled_when_a_partition_is_given_up_takes_no_room_for_ever(
    here: Place, *, lost: bool
) -> None:
    """Of ``max_in_flight``, which is all partitions'."""
    gathered: list[Delivery] = []

    async def handle(it: Delivery) -> None:
        gathered.append(it)
        if it.body == b"bad":
            raise ValueError("bad")

    with new_topic(here.amqp_url, 2) as topic:
        options: dict[str, Any] = {"on_error": "halt", "max_in_flight": 4, "member": BRIEF}
        async with here.member(topic, handle, ack="manual", retries=0, **options) as member:
            await member.wait_held(*topic.queue_names)
            here.publish(topic, *range(3), "bad")
            await until(lambda: len(gathered) == 4)
            if lost:
                cut(member.partitions.connection)
            await until(lambda: here.journal("abandoned"))
            here.publish(topic, *range(4, 8), partition=1)
            await until(lambda: len(gathered) == 8)
