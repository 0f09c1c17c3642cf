"""RabbitMQ says "no messages, no consumers" also of a queue that it cannot ask; nothing is deleted or skipped for that."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar, cast

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.consumers import new_topic, take_in_vain
from tests.faults.proxy import FaultProxy, proxy_to
from tests.faults.rabbitmq_servers import Leader
from tests.rabbitmq.topics.test_broker import channel
from tests.rabbitmq.topics.test_growth import finish_first

from cobalance.errors import TopicInUse, Unreachable
from cobalance.rabbitmq import delete_topic, grow_topic, prune_topic, read_dead_letters, verify_topic
from cobalance.rabbitmq.topics import layouts, queue_state
from cobalance.rabbitmq.topics.broker import queue_states, ready_messages
from cobalance.rabbitmq.topics.layouts import LayoutSource
from cobalance.rabbitmq.topics.queue_state import ROUND_TRIPS, QueueState, read_state
from cobalance.servers import OwnRabbitMQ

T = TypeVar("T")


def put_in(url: str, queue: str, body: bytes = b"precious") -> None:
    with channel(url) as it:
        it.confirm_delivery()
        it.basic_publish("", queue, body, mandatory=True)


class Hesitant:
    """A channel on which one answer, to the first question about the way, comes late."""

    def __init__(self, real: BlockingChannel, proxy: FaultProxy) -> None:
        self._real, self._proxy, self._asked = real, proxy, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def flow(self, active: bool) -> bool:
        self._proxy.delay(0 if self._asked else 400, "to_client")
        self._asked = True
        return self._real.flow(active)


@pytest.mark.parametrize("fault", ["silent", "gone"])
@pytest.mark.thorough
def test_a_queue_without_a_leader_is_neither_pruned_nor_deleted(private_rabbitmq: OwnRabbitMQ, fault: str) -> None:
    """It may hold messages, as here."""
    url = private_rabbitmq.url
    with new_topic(url, 1, "quorum") as topic:
        (old,) = topic.queue_names
        put_in(url, old)
        grow_topic(url, topic.name, 2)
        with getattr(Leader(private_rabbitmq, old), fault)():
            for delete in (prune_topic, delete_topic):
                with pytest.raises(Unreachable):
                    delete(url, topic.name)
        assert prune_topic(url, topic.name) == {old: False}
        assert finish_first(url, old) == b"precious"
        assert prune_topic(url, topic.name) == {old: True}


@pytest.mark.thorough
def test_what_is_with_a_consumer_that_is_not_counted_is_not_pruned(private_rabbitmq: OwnRabbitMQ) -> None:
    """Its leader answers again while it is looked at: now it counts that consumer, too."""
    url = private_rabbitmq.url
    with new_topic(url, 1, "quorum") as topic:
        (old,) = topic.queue_names
        put_in(url, old)
        grow_topic(url, topic.name, 2)
        leader = Leader(private_rabbitmq, old)
        with channel(url) as it:
            next(it.consume(old))
            assert while_silent(leader, lambda: prune_topic(url, topic.name)) == {old: False}
        assert finish_first(url, old) == b"precious"


@pytest.mark.thorough
def test_what_is_with_an_active_consumer_is_not_pruned_after_an_election(
    private_rabbitmq: OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a leader the queue seems to be empty. With the next one, a consumer that is not active is not counted."""
    url = private_rabbitmq.url
    with new_topic(url, 1, "quorum") as topic:
        (old,) = topic.queue_names
        put_in(url, old)
        grow_topic(url, topic.name, 2)
        leader = Leader(private_rabbitmq, old)

        def while_gone(*arguments: Any) -> QueueState:
            with leader.gone():
                return read_state(*arguments)

        with channel(url) as it:
            next(it.consume(old))
            with monkeypatch.context() as patch:
                patch.setattr(queue_state, "read_state", while_gone)
                assert prune_topic(url, topic.name) == {old: False}
        assert finish_first(url, old) == b"precious"
        assert prune_topic(url, topic.name) == {old: True}


def test_looking_for_messages_leaves_their_order_alone(amqp_url: str) -> None:
    """They were with a consumer before, and the leader does not say that they are there."""
    with new_topic(amqp_url, 1, "quorum") as topic:
        (queue,) = topic.queue_names
        for body in "abc":
            put_in(amqp_url, queue, body.encode())
        take_in_vain(amqp_url, queue, ahead=3)
        with channel(amqp_url) as it, pytest.MonkeyPatch.context() as patch:
            patch.setattr(queue_state, "read_state", lambda *_: QueueState(0, 0))
            assert not queue_state.is_unused(it, queue, "quorum")
        with channel(amqp_url) as it:  # one for all: what a channel gives back changes places by itself
            messages = it.consume(queue)
            assert [next(messages)[2] for _ in "abc"] == [b"a", b"b", b"c"]


def while_silent(leader: Leader, ask: Callable[[], T]) -> T:
    """Asks while the leader is silent, which soon answers; how soon, a busy machine decides."""
    answers = threading.Event()

    def ask_until_it_answers() -> T:
        while not answers.is_set():
            with suppress(Unreachable):
                return ask()
        return ask()

    with ThreadPoolExecutor(1) as asking:
        with leader.silent():
            answer = asking.submit(ask_until_it_answers)
        answers.set()
        return answer.result()


@pytest.mark.thorough
def test_messages_are_counted_once_the_leader_answers(private_rabbitmq: OwnRabbitMQ) -> None:
    """Neither a lag nor a dead letter is overlooked."""
    url = private_rabbitmq.url
    with new_topic(url, 1, "quorum") as topic:
        (queue,) = topic.queue_names
        dead = f"{topic.name}.dead"
        for name in (queue, dead):
            put_in(url, name)
        assert while_silent(Leader(private_rabbitmq, queue), lambda: ready_messages(url, [queue])) == {queue: 1}
        letters = while_silent(Leader(private_rabbitmq, dead), lambda: read_dead_letters(url, topic.name))
        assert [it.size for it in letters] == [len(b"precious")]
        with Leader(private_rabbitmq, dead).silent(), pytest.raises(Unreachable, match="its leader does not answer"):
            read_dead_letters(url, topic.name)


@pytest.mark.thorough
def test_what_a_silent_leader_has_is_unknown(private_rabbitmq: OwnRabbitMQ) -> None:
    """The others are reported, and that it exists."""
    url = private_rabbitmq.url
    with new_topic(url, 2, "quorum") as topic:
        silent, other = topic.queue_names
        put_in(url, silent)
        with Leader(private_rabbitmq, silent).silent():
            verify_topic(url, topic)
            assert queue_states(url, [silent, other]).by_queue == {other: QueueState(0, 0)}


@pytest.mark.thorough
def test_a_way_that_is_slow_for_a_moment_makes_no_silent_leader_known(private_rabbitmq: OwnRabbitMQ) -> None:
    """The answer of one whose leader is silent takes longer than the way by a quarter of a second."""
    url = private_rabbitmq.url
    with new_topic(url, 1, "quorum") as topic, proxy_to(url) as proxy, channel(proxy.through(url)) as real:
        (queue,) = topic.queue_names
        put_in(url, queue)
        with Leader(private_rabbitmq, queue).silent(), pytest.raises(Unreachable):
            read_state(cast("BlockingChannel", Hesitant(real, proxy)), queue)


def test_an_empty_queue_at_the_end_of_a_long_way_is_known_to_be_empty(amqp_url: str) -> None:
    """Each answer takes as long as that of a silent leader nearby."""
    with new_topic(amqp_url, 1, "quorum") as topic, proxy_to(amqp_url) as proxy:
        proxy.delay(150)
        with channel(proxy.through(amqp_url)) as it:
            assert read_state(it, topic.queue_names[0]) == QueueState(0, 0)


def test_a_long_way_is_measured_once_for_all_queues(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that asks for the lag of many empty queues from afar has 20 s for all of them."""
    asked: list[BlockingChannel] = []
    flow = BlockingChannel.flow

    def noted(self: BlockingChannel, active: bool) -> bool:
        asked.append(self)
        return flow(self, active)

    monkeypatch.setattr(BlockingChannel, "flow", noted)
    with new_topic(amqp_url, 4) as topic, proxy_to(amqp_url) as proxy:
        proxy.delay(150)
        states = queue_states(proxy.through(amqp_url), topic.queue_names).by_queue
        assert states == dict.fromkeys(topic.queue_names, QueueState(0, 0))
    assert 0 < len(asked) < 3 * ROUND_TRIPS  # once more if the machine was busy


@pytest.mark.parametrize("fault", ["silent", "gone"])
@pytest.mark.thorough
def test_a_new_layout_waits_for_an_old_one_without_a_leader(
    private_rabbitmq: OwnRabbitMQ, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left there would come late."""
    monkeypatch.setattr(layouts, "SETTLE_MS", 0)
    url = private_rabbitmq.url
    with new_topic(url, 1, "quorum") as topic:
        (old,) = topic.queue_names
        put_in(url, old)
        grown = grow_topic(url, topic.name, 2)
        source = LayoutSource(grown, url)
        with getattr(Leader(private_rabbitmq, old), fault)(), pytest.raises(Unreachable):
            source.look({})
        assert source.look({}).resources == (old,)
        finish_first(url, old)
        assert source.look({}).resources == grown.queue_names


def test_a_stream_that_has_just_been_written_to_is_not_deleted(amqp_url: str) -> None:
    """RabbitMQ's count of it is up to five seconds old: mostly it cannot tell yet, and sometimes it just has counted."""
    with new_topic(amqp_url, 1, "stream") as topic:
        put_in(amqp_url, topic.queue_names[0])
        with pytest.raises(TopicInUse, match=r"messages or consumers|still has 1 message"):
            delete_topic(amqp_url, topic.name)


@pytest.mark.thorough
def test_a_classic_queue_whose_process_hangs_hides_no_other(private_rabbitmq: OwnRabbitMQ) -> None:
    """It leaves the connection without an answer. Those after it are asked on another one."""
    url = private_rabbitmq.url
    with new_topic(url, 4) as topic:
        well, hung, *others = topic.queue_names
        put_in(url, others[-1])
        with Leader(private_rabbitmq, hung).silent():
            found = queue_states(url, topic.queue_names, timeout_ms=1_000)
            assert found.by_queue == {well: QueueState(0, 0), others[0]: QueueState(0, 0), others[1]: QueueState(1, 0)}
            assert found.silent == {hung}
            in_vain = queue_states(url, [hung, well], timeout_ms=60_000, within_ms=1_000)
            assert not in_vain.by_queue
            assert in_vain.silent == {hung}
        with pytest.raises(Unreachable):
            queue_states("amqp://127.0.0.1:1", [well])
