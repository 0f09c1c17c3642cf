"""``order="key"``: keys side by side, one key in order, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import attrs
import pytest
from pika.spec import BasicProperties
from tests.consumers import SETTINGS, WITHIN_S, Place, Seen, bodies_in, channel, new_topic, until
from tests.streams import new_stream

from cobalance import Publisher
from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery, Topic, read_dead_letters
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.settings import MemberSettings
from cobalance.threads.wakeup import Wakeup

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def first_letter(delivery: Delivery) -> str:
    """The key of a message in these tests."""
    return delivery.body.decode()[0]


BY_KEY: dict[str, Any] = {"order": "key", "key": first_letter}
SOON = Retries(1_000, first_ms=20, last_ms=20)
LATE = Retries(9, first_ms=600_000, last_ms=600_000)


@pytest.fixture(params=["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
def topic(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Topic]:
    """One partition, for each kind of queue."""
    with new_topic(amqp_url, 1, request.param) as it:
        yield it


class Gate:
    """A handler that stays in each message until it is let through, and checks that no key runs twice at a time."""

    def __init__(self, *open_: str) -> None:
        self.begun, self.done, self.running = Seen(), list[str](), defaultdict[str, int](int)
        self.most = 0
        self._events: dict[str, anyio.Event] = defaultdict(anyio.Event)
        self.let(*open_)

    def let(self, *bodies: str) -> None:
        """Lets these messages through, now or when they come."""
        for body in bodies:
            self._events[body].set()

    async def handle(self, delivery: Delivery) -> None:
        body, key = self.begun.note(delivery), first_letter(delivery)
        assert not self.running[key], "two messages of a key at a time"
        self.running[key] += 1
        self.most = max(self.most, sum(self.running.values()))
        try:
            await self._events[body].wait()
        finally:
            self.running[key] -= 1
        self.done.append(body)


def plain(gate: Gate) -> Any:
    """The same handler, as a plain function that blocks its thread."""
    loop = anyio.lowlevel.current_token()

    def handle(delivery: Delivery) -> None:
        anyio.from_thread.run(gate.handle, delivery, token=loop)

    return handle


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_keys_are_handled_side_by_side_and_each_in_order(here: Place, topic: Topic, is_plain: bool) -> None:
    """A message waits for the one before it with its key, and for nothing else."""
    gate = Gate()
    here.publish(topic, "a1", "a2", "b1", "c1", "b2")
    async with here.member(topic, plain(gate) if is_plain else gate.handle, **BY_KEY):
        assert sorted(await gate.begun.wait(3)) == ["a1", "b1", "c1"]
        gate.let("b1")
        await gate.begun.wait(4)
        gate.let("a1", "b2")
        await gate.begun.wait(5)
        assert gate.begun.bodies[3:] == ["b2", "a2"]
        gate.let("a2", "c1")
        await until(lambda: len(gate.done) == 5)
    assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_no_more_handlers_run_than_concurrency_in_all_partitions(here: Place, is_plain: bool) -> None:
    """Partitions share the places, and none is left out while another has much to do."""
    gate = Gate()
    with new_topic(here.amqp_url, 2) as topic:
        here.publish(topic, *(f"{chr(ord('a') + n)}1" for n in range(10)), partition=0)
        here.publish(topic, *(f"{chr(ord('A') + n)}1" for n in range(10)), partition=1)
        async with here.member(topic, plain(gate) if is_plain else gate.handle, **BY_KEY, concurrency=3) as member:
            await gate.begun.wait(3)
            await until(lambda: here_is_taken(here, topic) and len(member.partitions._places._waiting) == 2)
            letters = [chr(ord(first) + n) for first in "aA" for n in range(10)]
            while len(gate.begun.bodies) < len(letters):
                begun = len(gate.begun.bodies)
                gate.let(gate.begun.bodies[begun - 1])
                await gate.begun.wait(begun + 1)
            upper = [at for at, body in enumerate(gate.begun.bodies) if body.isupper()]
            lower = [at for at, body in enumerate(gate.begun.bodies) if body.islower()]
            assert max(min(upper), min(lower)) < 5, "each partition waits its turn only"
            gate.let(*(f"{letter}1" for letter in letters))
            await until(lambda: len(gate.done) == len(letters))
    assert gate.most == 3


async def test_a_failed_message_holds_up_its_key_alone(here: Place, topic: Topic) -> None:
    """It is tried again before the next of its key, while other keys go on."""
    seen, done, bad = Seen(), list[str](), {"a1"}

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) in bad:
            raise ValueError
        done.append(delivery.body.decode())

    here.publish(topic, "a1", "b1", "a2", "b2", "c1")
    async with here.member(topic, handle, **BY_KEY, retries=SOON):
        await until(lambda: len(done) == 3)
        assert sorted(done) == ["b1", "b2", "c1"]
        await until(lambda: seen.bodies.count("a1") > 2)
        bad.clear()
        await until(lambda: len(done) == 5)
    assert done[3:] == ["a1", "a2"]
    assert here.journal("abandoned") == []


async def test_a_message_given_up_lets_its_key_go_on(here: Place, topic: Topic) -> None:
    """It becomes a dead letter, and what waited behind it is handled."""
    done = list[str]()

    async def handle(delivery: Delivery) -> None:
        if delivery.body == b"a1":
            raise ValueError
        done.append(delivery.body.decode())

    here.publish(topic, "a1", "a2", "b1")
    async with here.member(topic, handle, **BY_KEY, retries=Retries(1, first_ms=5), on_error="dead_letter"):
        await until(lambda: len(done) == 2)
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["a1"]


async def test_on_error_park_keeps_the_key_waiting_and_the_partition_at_work(here: Place, topic: Topic) -> None:
    """The partition is not given up over one key, whose messages go to the next holder, in order."""
    seen, heir = Seen(), Seen()

    async def fail_a(delivery: Delivery) -> None:
        if seen.note(delivery).startswith("a"):
            raise ValueError

    async def handle(delivery: Delivery) -> None:
        heir.note(delivery)

    here.publish(topic, "a1", "b1", "a2")
    async with here.member(topic, fail_a, **BY_KEY, retries=0, on_error="park") as member:
        await until(lambda: {"a1", "b1"} <= set(seen.bodies))
        here.publish(topic, "c1")
        await until(lambda: "c1" in seen.bodies)
        assert list(member.tenures) == list(topic.queue_names)
    assert seen.bodies.count("a1") == 1, "parked for seconds"
    async with here.member(topic, handle):
        assert await heir.wait(2) == ["a1", "a2"]
    assert here.journal("abandoned", "forced") == []


@pytest.mark.parametrize("on_error", ["pause", "halt", "raise"])
async def test_what_ends_the_partition_waits_for_the_other_keys(here: Place, topic: Topic, on_error: Any) -> None:
    """Their handlers finish, and nothing that they finished comes again."""
    begun, done, may_end, heir = Seen(), list[str](), anyio.Event(), Seen()

    async def handle(delivery: Delivery) -> None:
        body = begun.note(delivery)
        if body == "a1":
            await begun.wait(2)
            raise ValueError(body)
        await may_end.wait()
        done.append(body)

    async def let_end() -> None:
        await begun.wait(2)
        for _ in range(20):  # the failure has been followed by then, and has to wait
            await anyio.lowlevel.checkpoint()
        may_end.set()

    here.publish(topic, "a1", "b1", "a2", "b2")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(let_end)
        try:
            async with here.member(topic, handle, **BY_KEY, retries=0, on_error=on_error, concurrency=2) as member:
                await until(lambda: here.journal("abandoned") or member.failed is not None)
        except ValueError as error:
            assert str(error) == "a1"  # noqa: PT017 -- it is raised with "raise" alone
            assert on_error == "raise"
    assert done[0] == "b1"
    here.coordinator.resume(topic.queue_names[0])
    async with here.member(topic, _noting(heir)):
        expected = [it for it in ("a1", "a2", "b2") if it not in done]
        assert await heir.wait(len(expected)) == expected


def _noting(seen: Seen) -> Any:
    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    return handle


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_a_handover_waits_only_for_what_was_begun(here: Place, topic: Topic, is_plain: bool) -> None:
    """Nothing is begun any more once half of the time is over; the next holder gets the rest, in order."""
    gate, heir = Gate("b1", "b2", "c1"), Seen()
    here.publish(topic, "a1", "b1", "a2", "b2", "c1", "a3")
    handler = plain(gate) if is_plain else gate.handle
    async with here.member(topic, handler, **BY_KEY, concurrency=2) as member:
        await until(lambda: len(gate.done) == 3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(member.leave)
            await until(lambda: all(worker.stopping for worker in member.partitions.workers.values()))
            gate.let("a1")
    assert sorted(gate.begun.bodies) == sorted(gate.done) == ["a1", "b1", "b2", "c1"]
    async with here.member(topic, _noting(heir)):
        assert await heir.wait(2) == ["a2", "a3"]
    assert here.journal("abandoned", "forced") == []


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_a_handover_finishes_what_was_sent_ahead_while_there_is_time(
    here: Place, topic: Topic, is_plain: bool
) -> None:
    """All of it, key by key, so that nothing is delivered a second time."""
    gate = Gate("b1", "b2", "a2", "a3")
    here.publish(topic, "a1", "b1", "a2", "b2", "a3")
    async with here.member(topic, plain(gate) if is_plain else gate.handle, **BY_KEY) as member:
        await until(lambda: len(gate.done) == 2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(member.leave)
            await next(iter(member.tenures.values())).wait_draining()
            gate.let("a1")
    assert gate.done[2:] == ["a1", "a2", "a3"]
    assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}


async def test_nothing_runs_beside_itself_after_a_lost_connection(here: Place, topic: Topic) -> None:
    """What was begun ends first; what is unfinished then comes again, in order within its key."""
    gate = Gate("b1", "b2")
    here.publish(topic, "a1", "b1", "a2", "b2")
    async with here.member(topic, gate.handle, **BY_KEY) as member:
        await until(lambda: len(gate.done) == 2)
        await until(lambda: _acknowledged(member) == 2)
        member.partitions.connection.submit(lambda: 1 / 0)
        await until(lambda: _begins_nothing(member))
        gate.let("a1", "a2")
        await until(lambda: gate.done.count("a2") == 1)
    assert gate.begun.bodies == ["a1", "b1", "b2", "a1", "a2"]


async def test_each_message_keeps_its_own_failures_after_a_lost_connection(here: Place, topic: Topic) -> None:
    """Messages that differ in their headers alone are not mistaken for each other."""
    calls, may_end = list[str](), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        calls.append(delivery.headers["customer"])
        if calls[-1] == "b" or calls.count("a") > 1:
            raise ValueError(calls[-1])
        await may_end.wait()

    with channel(here.amqp_url) as it:
        for customer in "ab":
            it.basic_publish("", topic.queue_names[0], b"{}", BasicProperties(headers={"customer": customer}))
    options = {"order": "key", "key": lambda it: it.headers["customer"], "on_error": "dead_letter"}
    async with here.member(topic, handle, **options, retries=attrs.evolve(LATE, most=1)) as member:
        await until(lambda: len(calls) == 2)
        member.partitions.connection.submit(lambda: 1 / 0)
        await until(lambda: _begins_nothing(member))
        may_end.set()
        await until(lambda: len(calls) == 4 and read_dead_letters(here.amqp_url, topic.name))
    (dead,) = read_dead_letters(here.amqp_url, topic.name)
    assert (sorted(calls), dead.error, dead.failures) == (["a", "a", "b", "b"], "ValueError: b", 2)


async def test_a_failed_message_joins_no_batch_after_a_lost_connection(here: Place, topic: Topic) -> None:
    """One before it, whose acknowledgement was lost, has not failed."""
    calls = list[list[str]]()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.append([it.body.decode() for it in deliveries])
        if "a2" in calls[-1]:
            raise ValueError

    options = {"batch": Batch(9, within_ms=10), "retries": attrs.evolve(LATE, most=1), "on_error": "dead_letter"}
    here.publish(topic, "a1")
    async with here.member(topic, handle, **BY_KEY, **options, ack_interval_ms=600_000) as member:
        await until(lambda: calls == [["a1"]])
        here.publish(topic, "a2")
        await until(lambda: len(calls) == 2)
        member.partitions.connection.submit(lambda: 1 / 0)
        await until(lambda: len(calls) == 4)
    assert calls == [["a1"], ["a2"], ["a1"], ["a2"]]
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["a2"]


def _begins_nothing(member: Any) -> bool:
    """Until what runs has ended, and there is a new channel."""
    (worker,) = member.partitions.workers.values()
    return bool(worker.by_key._closed)


def _acknowledged(member: Any) -> int:
    (worker,) = member.partitions.workers.values()
    return 0 if worker._consumer is None else int(worker._consumer.progress.committed)


async def test_the_key_is_the_publishers(here: Place) -> None:
    """Text and bytes are one key; what has none is in order with its partition."""
    keys, four = list[Any](), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        keys.append(delivery.key)
        if len(keys) == 4:
            four.set()
        await four.wait()

    with new_topic(here.amqp_url, 1) as topic:
        with Publisher(here.amqp_url, topic) as publisher:
            publisher.publish("é", b"1")
            publisher.publish("é".encode(), b"2")
            publisher.publish(b"\xff", b"3")
            publisher.publish(None, b"4")
            publisher.publish("k", b"5", {"x-partition-key": "own"})
        async with here.member(topic, handle, order="key"):
            await until(lambda: len(keys) == 5)
    assert sorted(map(str, keys[:4])) == sorted(map(str, ["é", b"\xff", None, "own"])), "side by side"
    assert keys[4] == "é"


async def test_what_waits_for_its_key_holds_up_no_other(here: Place, topic: Topic) -> None:
    """Though it has arrived alone, and nothing could be begun then."""
    gate = Gate("b1")
    here.publish(topic, "a1")
    async with here.member(topic, gate.handle, **BY_KEY) as member:
        await gate.begun.wait(1)
        here.publish(topic, "a2")
        await until(lambda: _unbegun(member) == 1)
        here.publish(topic, "b1")
        await until(lambda: gate.done == ["b1"])
        gate.let("a1", "a2")
        await until(lambda: len(gate.done) == 3)


async def test_batches_are_of_one_key(here: Place, topic: Topic) -> None:
    """What has gathered behind a message of its key is handled together, up to the batch's size."""
    batches, first = list[list[str]](), anyio.Event()

    async def handle(deliveries: list[Delivery]) -> None:
        batches.append([it.body.decode() for it in deliveries])
        if batches[-1] == ["a1"]:
            await first.wait()

    here.publish(topic, "a1")
    async with here.member(topic, handle, **BY_KEY, batch=Batch(3, within_ms=10)) as member:
        await until(lambda: batches == [["a1"]])
        here.publish(topic, "a2", "b1", "a3", "a4", "a5")
        await until(lambda: ["b1"] in batches and _unbegun(member) == 4)
        first.set()
        await until(lambda: sum(map(len, batches)) == 6)
    assert [it for it in batches if it[0].startswith("a")] == [["a1"], ["a2", "a3", "a4"], ["a5"]]


def here_is_taken(here: Place, topic: Topic) -> bool:
    """Whether RabbitMQ has sent everything."""
    return not any(ready_messages(here.amqp_url, topic.queue_names).values())


def _unbegun(member: Any) -> int:
    """How many messages wait for one of their key."""
    (worker,) = member.partitions.workers.values()
    order = worker.by_key._order
    return sum(len(line) - order._taken.get(key, 0) for key, line in order._lines.items())


async def test_a_batch_that_fails_is_tried_message_by_message(here: Place, topic: Topic) -> None:
    """Only the message that fails is given up, and order within the key holds."""
    done = list[str]()

    async def handle(deliveries: list[Delivery]) -> None:
        if any(it.body == b"a2" for it in deliveries):
            raise ValueError
        done.extend(it.body.decode() for it in deliveries)

    here.publish(topic, "a1", "a2", "a3")
    options = {"batch": Batch(3, within_ms=500), "retries": 0, "on_error": "dead_letter"}
    async with here.member(topic, handle, **BY_KEY, **options):
        await until(lambda: len(done) == 2)
    assert done == ["a1", "a3"]
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["a2"]


async def test_a_hung_handler_costs_its_message_and_no_other_key(here: Place, topic: Topic) -> None:
    """It is cancelled on the event loop and tried again; the others never notice."""
    seen, done = Seen(), list[str]()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "a1" and seen.bodies.count("a1") == 1:
            await anyio.sleep_forever()
        done.append(delivery.body.decode())

    here.publish(topic, "a1", "b1", "a2")
    own = MemberSettings(drain_timeout_ms=5_000, max_processing_ms=300)
    async with here.member(topic, handle, **BY_KEY, retries=SOON, member=own):
        await until(lambda: len(done) == 3)
    assert done == ["b1", "a1", "a2"]
    assert here.journal("abandoned", "forced") == []


async def test_acknowledging_by_hand_frees_nothing_but_the_message(here: Place, topic: Topic) -> None:
    """The next of a key begins when the handler returns; what is not acknowledged goes to the next holder."""
    taken, heir = dict[str, Delivery](), Seen()

    async def handle(delivery: Delivery) -> None:
        taken[delivery.body.decode()] = delivery

    here.publish(topic, "a1", "a2", "b1")
    own = MemberSettings(drain_timeout_ms=1_000)  # all of which it waits for the acknowledgement of a1
    async with here.member(topic, handle, **BY_KEY, ack="manual", member=own) as member:
        await until(lambda: len(taken) == 3)
        member.ack(taken["a2"])
        member.ack(taken["b1"])
        await member.leave()
    async with here.member(topic, _noting(heir)):
        assert await heir.wait(1) == ["a1"]


async def test_of_a_stream_the_prefix_is_committed_before_which_all_is_finished(here: Place) -> None:
    """The next holder begins behind it: what was finished beyond is repeated, nothing is left out."""
    gate, heir = Gate("b1", "c1"), Seen()
    with new_stream(here.amqp_url) as stream:
        here.publish(stream.name, "a1", "b1", "c1", "a2")
        async with here.member([stream.name], gate.handle, **BY_KEY, streams=_from_first()) as member:
            await until(lambda: len(gate.done) == 2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(member.leave)
                await next(iter(member.tenures.values())).wait_draining()
                gate.let("a1")
        assert gate.begun.bodies[0] == "a1"
        assert "a1" in gate.done
        async with here.member([stream.name], _noting(heir), streams=_from_first()):
            rest = [it for it in ("a2",) if it not in gate.done]
            assert await heir.wait(len(rest)) == rest


def _from_first() -> Any:
    from cobalance import StreamSettings

    return StreamSettings(start="first")


async def test_a_thread_that_ends_late_is_waited_for(here: Place, topic: Topic) -> None:
    """Plain handlers of different keys run in threads of their own, and a handover waits for each."""
    both, may_end, ended = threading.Barrier(2), threading.Event(), list[str]()

    def handle(delivery: Delivery) -> None:
        both.wait(WITHIN_S)
        may_end.wait(WITHIN_S)
        ended.append(delivery.body.decode())

    here.publish(topic, "a1", "b1")
    async with here.member(topic, handle, **BY_KEY) as member, anyio.create_task_group() as tasks:
        await until(lambda: both.n_waiting == 0 and member.partitions.workers and _busy(member) == 2)
        tasks.start_soon(member.leave)
        await next(iter(member.tenures.values())).wait_draining()
        may_end.set()
    assert sorted(ended) == ["a1", "b1"]
    assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}


async def test_a_partition_that_is_aborted_gives_its_places_back(here: Place) -> None:
    """Also the one that it was waiting for; otherwise each abort would leave fewer handlers to the process."""
    may_end, begun = threading.Event(), list[str]()

    def handle(delivery: Delivery) -> None:
        begun.append(delivery.body.decode())
        if begun == ["a1"]:
            may_end.wait(WITHIN_S)

    own = MemberSettings(drain_timeout_ms=500, max_processing_ms=500)
    options: dict[str, Any] = {"concurrency": 1, "on_error": "dead_letter", "retries": 0, "member": own}
    with new_topic(here.amqp_url, 2) as topic:
        here.publish(topic, "a1", "b1", partition=0)
        async with here.member(topic, handle, **BY_KEY, **options) as member:
            await until(lambda: begun == ["a1"] and len(member.partitions._places._waiting) == 1)
            await until(lambda: here.journal("abandoned"))
            may_end.set()
            here.publish(topic, "x1", partition=1)
            await until(lambda: {"x1", "b1"} <= set(begun))
            await until(lambda: member.partitions._places._free == 1)


async def test_a_drain_that_waits_for_room_is_quiet(here: Place, topic: Topic) -> None:
    """What is sent ahead waits for the handler that has the room, without trying again and again."""
    gate = Gate("b1", "c1")
    here.publish(topic, "a1", "b1", "c1")
    async with here.member(topic, gate.handle, **BY_KEY, max_in_flight=1) as member:
        await gate.begun.wait(1)
        worker: Any = next(iter(member.partitions.workers.values()))
        await until(lambda: worker._in_line)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(member.leave)
            await next(iter(member.tenures.values())).wait_draining()
            opened, open_slots = list[object](), worker.by_key.open_slots
            worker.by_key.open_slots = lambda start_soon: opened.append(open_slots(start_soon))
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
            assert len(opened) < 20
            gate.let("a1")
    assert sorted(gate.done) == ["a1", "b1", "c1"]


async def test_a_message_that_ends_does_not_wake_all_that_wait_for_room(
    here: Place, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred wait; one of them gets the room."""
    count, woken, notify = 100, Counter[Wakeup](), Wakeup.notify

    def counted(self: Wakeup) -> None:
        woken[self] += 1
        notify(self)

    gate = Gate("0")
    here.publish(topic, *map(str, range(count)))
    limits = {"concurrency": count, "max_in_flight": 1, "key": lambda it: it.body}
    async with here.member(topic, gate.handle, **{**BY_KEY, **limits}) as member:
        (worker,) = await until(member.partitions.workers.values)
        in_line: set[Wakeup] = worker._in_line
        await until(lambda: len(in_line) == count - 2)  # one runs, one has ended
        monkeypatch.setattr(Wakeup, "notify", counted)
        waiting = set(in_line)
        gate.let(*map(str, range(1, count)))
        await until(lambda: len(gate.done) == count)
        assert sum(woken[it] for it in waiting) <= 2 * count


async def test_a_batch_that_had_to_wait_grows_no_larger(here: Place, topic: Topic) -> None:
    """It was put back unbegun when the partition was paused, and messages of its key are behind it."""
    batches, may_end = list[list[str]](), anyio.Event()

    async def handle(deliveries: list[Delivery]) -> None:
        batches.append([it.body.decode() for it in deliveries])
        await may_end.wait()

    here.publish(topic, "x1", "x2", "x3", *(f"a{n}" for n in range(1, 7)))
    async with here.member(topic, handle, **BY_KEY, batch=Batch(3), max_in_flight=3) as member:
        await until(lambda: batches)
        (worker,) = member.partitions.workers.values()
        await until(lambda: worker._in_line)
        member.pause(*topic.queue_names)
        await until(lambda: not worker._in_line)
        member.resume(*topic.queue_names)
        may_end.set()
        await until(lambda: sum(map(len, batches)) == 9)
    assert max(map(len, batches)) <= 3


async def test_a_retry_that_is_far_away_holds_no_handover_up(here: Place, topic: Topic) -> None:
    """The message goes to the next holder at once, as where a partition waits in place."""
    seen = Seen()

    async def fail(delivery: Delivery) -> None:
        seen.note(delivery)
        raise ValueError

    here.publish(topic, "a1")
    own = MemberSettings(drain_timeout_ms=600_000)
    patient = attrs.evolve(SETTINGS, revocation_timeout_ms=600_000)
    async with here.member(topic, fail, **BY_KEY, retries=LATE, member=own, settings=patient) as member:
        await seen.wait(1)
        with anyio.fail_after(WITHIN_S):  # half of the time to the deadline is minutes
            await member.leave()
    await until(lambda: ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 1})


def _busy(member: Any) -> int:
    (worker,) = member.partitions.workers.values()
    return sum(slot.watch.is_busy for slot in worker.slots)


async def _awaited_key(delivery: Delivery) -> str:
    return first_letter(delivery)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "keys"}, "'partition' or 'key'"),
        ({"concurrency": 4}, "for order='key'"),
        ({"key": first_letter}, "for order='key'"),
        ({"order": "key", "concurrency": 0}, "concurrency is 0"),
        ({"order": "key", "key": lambda: "a"}, "key cannot be called"),
        ({"order": "key", "key": _awaited_key}, "async function"),
        ({"order": "key", "retries": Retries(3, mode="park")}, "leave out mode='park'"),
        ({"on_error": "park"}, "for order='key'"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], words: str) -> None:
    """Before anything is consumed, in words that say what to do."""
    place = Place("memory://never", "memory://never")
    with pytest.raises(UsageError, match=words):
        place.member(["q"], _noting(Seen.__new__(Seen)), **options)


async def test_a_message_whose_key_cannot_be_found_is_given_up(here: Place, topic: Topic) -> None:
    """Nobody knows what it has to wait for, so no handler gets it; the others go on."""
    seen = Seen()

    def key(delivery: Delivery) -> str:
        return {"a1": "a", "c1": "c"}[delivery.body.decode()]

    here.publish(topic, "a1", "b1", "c1")
    async with here.member(topic, _noting(seen), order="key", key=key, on_error="dead_letter"):
        await seen.wait(2)
    assert sorted(seen.bodies) == ["a1", "c1"]
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["b1"]


class Odd:
    """A key of which the program's code raises when it is hashed, or compared with another one."""

    def __init__(self, *, hashed: BaseException | None = None, compared: BaseException | None = None) -> None:
        self.hashed, self.compared = hashed, compared

    def __hash__(self) -> int:
        if self.hashed is not None:
            raise self.hashed
        return 1

    def __eq__(self, other: object) -> bool:
        if self.compared is not None:
            raise self.compared
        return self is other


ODD = [
    ({"hashed": RecursionError()}, r"key\(delivery\) has failed: RecursionError"),
    ({"hashed": asyncio.CancelledError()}, r"key\(delivery\) has failed: CancelledError"),
    ({"compared": TypeError()}, r"key=\.\.\. has returned .*\(TypeError\): return text, a number, or a tuple"),
    ({"compared": asyncio.CancelledError()}, r"key=\.\.\. has returned .*\(CancelledError\)"),
]


@pytest.mark.parametrize(("faults", "words"), ODD)
async def test_a_key_that_cannot_be_hashed_or_compared_fails_its_message(
    here: Place, topic: Topic, faults: dict[str, Any], words: str
) -> None:
    """As where the key function itself raises, whatever it is; and so it does where only a failed message's key waits."""
    seen, failed, both_came = Seen(), Seen(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "a1":
            await both_came.wait()

    async def note(delivery: Delivery, error: Exception) -> None:
        assert re.match(words, str(error))
        failed.note(delivery)

    def key(delivery: Delivery) -> Odd:
        return Odd(**faults) if delivery.body == b"b1" else Odd()

    here.publish(topic, "a1", "b1", "c1")
    options: dict[str, Any] = {"order": "key", "key": key, "on_error": "dead_letter", "on_failure": note}
    async with here.member(topic, handle, **options) as member:
        assert await failed.wait(1) == ["b1"]
        both_came.set()
        assert sorted(await seen.wait(2)) == ["a1", "c1"]
        assert member.failed is None
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["b1"]


async def test_a_key_function_that_raises_a_cancellation_fails_its_message(here: Place, topic: Topic) -> None:
    """It has asked a future that was cancelled, say; nobody has cancelled the member."""
    seen = Seen()

    def key(delivery: Delivery) -> str:
        if delivery.body == b"b1":
            raise asyncio.CancelledError
        return first_letter(delivery)

    here.publish(topic, "a1", "b1", "c1")
    async with here.member(topic, _noting(seen), order="key", key=key, on_error="dead_letter"):
        assert sorted(await seen.wait(2)) == ["a1", "c1"]
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["b1"]


async def test_a_key_that_changes_while_its_message_is_worked_is_still_one_key(here: Place, topic: Topic) -> None:
    """It is hashed and compared when a message arrives, and never again."""
    seen, counter = Seen(), [0]

    class Changing(Odd):
        def __hash__(self) -> int:
            return counter[0]

    async def handle(delivery: Delivery) -> None:
        counter[0] += 1
        seen.note(delivery)

    one = Changing()
    here.publish(topic, "a1", "a2", "a3")
    async with here.member(topic, handle, order="key", key=lambda _: one) as member:
        await seen.wait(3)
        assert member.failed is None
    assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}
