"""Publishing with confirms: nothing is lost silently, order is kept, and every failure states its outcome."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import anyio
import attrs
import pytest
from pika import spec
from pika.exceptions import UnroutableError
from tests.consumers import bodies_in
from tests.faults.proxy import FaultProxy
from tests.interruptions import wait_for_the_end_of
from tests.rabbitmq.publish.publishing import WAIT_S, broker, connection_of, get, impatient, receive, stored

from cobalance.errors import PublishFailed, TopicMismatch, TopicMissing, Unreachable, UsageError
from cobalance.rabbitmq import AsyncPublisher, Publisher, Topic, create_topic, delete_topic, grow_topic
from cobalance.rabbitmq.wire.connection import BrokerConnection


def test_nothing_is_lost_and_order_is_kept(amqp_url: str, topic: Topic) -> None:
    """Four threads share a publisher and a small window; each one's messages keep the order of its calls."""

    def work(worker: int) -> None:
        for number in range(500):
            publisher.publish(f"key-{worker}", f"{worker}:{number}".encode(), wait=False)

    with Publisher(amqp_url, topic, window=64) as publisher, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
        assert publisher.flush()
    messages = stored(amqp_url, topic)
    for worker in range(4):
        mine = [body for body in messages[topic.partition_of(f"key-{worker}")] if body.startswith(b"%d:" % worker)]
        assert mine == [b"%d:%d" % (worker, number) for number in range(500)]


def test_a_message_is_persistent_stamped_and_in_its_place(amqp_url: str, topic: Topic) -> None:
    """The future's result is the partition; headers arrive; every message has an id of its own."""
    with Publisher(amqp_url, topic) as publisher:
        partitions = [publisher.publish("order-1", b"x", {"kind": "order"}).result() for _ in range(2)]
    assert partitions == [topic.partition_of("order-1")] * 2
    with broker(amqp_url) as channel:
        got = [get(channel, topic.queue_names[partitions[0]])[1] for _ in range(2)]
    assert got[0].message_id != got[1].message_id
    assert (got[0].delivery_mode, got[0].headers) == (2, {"x-partition-key": "order-1", "kind": "order"})
    assert got[0].timestamp


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_tasks_publish_at_once(backend: str, amqp_url: str, topic: Topic) -> None:
    """The window is smaller than the number of tasks."""

    async def main() -> None:
        async with AsyncPublisher(amqp_url, topic, window=8) as publisher, anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(publisher.publish, str(number), str(number).encode())

    anyio.run(main, backend=backend)
    messages = stored(amqp_url, topic)
    for number in range(100):
        assert str(number).encode() in messages[topic.partition_of(str(number))]


def test_a_missing_topic(amqp_url: str) -> None:
    """It is detected before anything is published."""
    with pytest.raises(TopicMissing), Publisher(amqp_url, Topic("publisher.nowhere", 2)):
        pass


def test_a_wrong_number_of_partitions(amqp_url: str, topic: Topic) -> None:
    """Keys would go to the wrong partitions."""
    with pytest.raises(TopicMismatch), Publisher(amqp_url, Topic(topic.name, 3)):
        pass


def remade(url: str, topic: Topic, partitions: int) -> Topic:
    """The topic, deleted and recreated with another number of partitions, and grown as often as it had been."""
    delete_topic(url, topic.name, force=True)
    made = create_topic(url, attrs.evolve(topic, partitions=partitions, layout=1))
    return made if topic.layout == 1 else grow_topic(url, topic.name, partitions + 1)


@pytest.mark.parametrize("partitions", [2, 6])
@pytest.mark.parametrize("is_grown", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_topic_that_is_made_anew_with_another_size(
    partitions: int, is_grown: bool, by_name: bool, amqp_url: str, topic: Topic
) -> None:
    """An idle publisher does not send keys elsewhere than others: it stops, or goes on with what it is given by name."""
    before = grow_topic(amqp_url, topic.name, 5) if is_grown else topic
    keys = [f"customer-{number}" for number in range(20)]
    with Publisher(amqp_url, topic.name if by_name else before, unseen_failures="log") as publisher:
        publisher.publish(keys[0], b"of the former")
        after = remade(amqp_url, before, partitions)
        sent = [publisher.publish(key, b"x", wait=False) for key in keys]
        if by_name:
            assert [it.result(WAIT_S) for it in sent] == [after.partition_of(key) for key in keys]
            assert publisher.topic.partitions == after.partitions
        for it in sent if not by_name else ():
            failure = it.exception(WAIT_S)
            assert isinstance(failure, PublishFailed)
            assert failure.outcome == "not_executed"
            assert f"has {after.partitions} partitions, not {before.partitions}" in str(failure)
    assert sum(len(it) for it in stored(amqp_url, after).values()) == (len(keys) if by_name else 0)


def test_a_program_that_knows_the_partition_alone(amqp_url: str, topic: Topic) -> None:
    """Others may publish under its number. Both bindings go when the topic is grown."""
    with broker(amqp_url) as channel:
        channel.confirm_delivery()
        for key in topic.routing_keys(1):
            channel.basic_publish(topic.name, key, b"x", mandatory=True)
        assert topic.routing_keys(1) == ("1/4", "1")
        grown = grow_topic(amqp_url, topic.name, 5)
        for key in topic.routing_keys(1):
            with pytest.raises(UnroutableError):
                channel.basic_publish(topic.name, key, b"x", mandatory=True)
        for key in grown.routing_keys(1):
            channel.basic_publish(topic.name, key, b"x", mandatory=True)
    assert len(stored(amqp_url, topic)[1]) == len(stored(amqp_url, grown)[1]) == 2


def test_a_topic_of_an_earlier_version(amqp_url: str, topic: Topic) -> None:
    """Its queues were bound under the partition alone."""
    with broker(amqp_url) as channel:
        for partition in range(4):
            channel.queue_unbind(topic.queue_names[partition], topic.name, topic.routing_key(partition))
    with (
        Publisher(amqp_url, topic) as publisher,
        pytest.raises(PublishFailed, match=r"earlier version.*topic delete.*create it again"),
    ):
        publisher.publish("key", b"x")


def test_an_unroutable_message(amqp_url: str, topic: Topic) -> None:
    """RabbitMQ would drop and confirm it; here it fails, and its neighbours do not."""
    with Publisher(amqp_url, topic) as publisher:
        with broker(amqp_url) as channel:
            channel.queue_delete(topic.queue_names[topic.partition_of("a")])
        keys = ["a", next(key for key in "bcdefgh" if topic.partition_of(key) != topic.partition_of("a"))]
        lost, fine = [publisher.publish(key, b"x", wait=False) for key in keys]
        with pytest.raises(
            PublishFailed, match=f"no queue takes routing key.*topic create {topic.name} --partitions 4"
        ) as raised:
            lost.result(WAIT_S)
        assert raised.value.outcome == "not_executed"
        assert fine.result(WAIT_S) == topic.partition_of(keys[1])


def test_a_message_that_a_full_queue_refuses_fails(amqp_url: str) -> None:
    """A queue that rejects publishes once it has one; another group's queue has taken them all, so they may be there."""
    full = create_topic(amqp_url, Topic("publisher.full", 1))
    others = create_topic(amqp_url, full, group="others").queue_names[0]
    with broker(amqp_url) as channel:
        channel.queue_delete(full.queue_names[0])
        channel.queue_declare(full.queue_names[0], arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.queue_bind(full.queue_names[0], full.name, full.routing_key(0))
    try:
        with Publisher(amqp_url, full) as publisher:
            errors = [publisher.publish("a", b"x", wait=False).exception(WAIT_S) for _ in range(10)]
        refused = [error for error in errors if isinstance(error, PublishFailed)]
        assert refused
        assert all("nack" in str(error) and error.outcome == "unknown" for error in refused)
        assert len(bodies_in(amqp_url, others)) == len(errors)
    finally:
        delete_topic(amqp_url, full.name, force=True)


def test_a_lost_connection_is_unknown_for_some_and_made_again(amqp_url: str, topic: Topic) -> None:
    """Unconfirmed messages fail with the outcome "unknown" where that is true; the next call reconnects."""
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("a", b"before")
        connection = connection_of(publisher)
        # The socket stops reading first, so that no confirm can arrive for what is sent afterwards.
        transport = connection._pika._transport  # type: ignore[union-attr]
        cut = threading.Event()
        connection.submit(lambda: (cut.wait(WAIT_S), transport._sock.shutdown(socket.SHUT_RDWR)))
        doomed = [publisher.publish("a", b"doomed", wait=False) for _ in range(3)]
        cut.set()
        errors = [future.exception(WAIT_S) for future in doomed]
        assert all(isinstance(error, PublishFailed) for error in errors)
        assert publisher.publish("a", b"after").result(WAIT_S) == topic.partition_of("a")
    assert stored(amqp_url, topic)[topic.partition_of("a")][-1] == b"after"


def test_an_unconfirmed_message_is_unknown(amqp_url: str, topic: Topic) -> None:
    """Without a confirm in time, the broker may still have it."""
    publisher = Publisher(amqp_url, topic)
    publisher._channel._confirmed = lambda *_: None  # type: ignore[method-assign]
    with publisher, impatient(publisher), pytest.raises(PublishFailed, match="no confirm came in time") as raised:
        publisher.publish("a", b"x")
    assert raised.value.outcome == "unknown"


def test_a_message_whose_publisher_was_closed_is_unknown(amqp_url: str, topic: Topic) -> None:
    """The failure says why, as it does if nothing was sent."""
    publisher = Publisher(amqp_url, topic, unseen_failures="log")
    publisher._channel._confirmed = lambda *_: None  # type: ignore[method-assign]
    with publisher:
        sent = publisher.publish("a", b"x", wait=False)
        receive(publisher, spec.Connection.Blocked("low on memory"))
        held = publisher.publish("a", b"y", wait=False)
        publisher._timeout_ms = 100
    for future, outcome in ((sent, "unknown"), (held, "not_executed")):
        failure = future.exception(WAIT_S)
        assert isinstance(failure, PublishFailed)
        assert failure.outcome == outcome
        assert ": its publisher was closed." in str(failure)


def test_a_blocking_broker_makes_publishers_wait(amqp_url: str, topic: Topic) -> None:
    """Nothing is sent while it blocks; waiting messages are sent in order afterwards."""
    with Publisher(amqp_url, topic) as publisher:
        receive(publisher, spec.Connection.Blocked("low on memory"))
        waiting = [publisher.publish("a", str(n).encode(), wait=False) for n in range(3)]
        assert not any(future.done() for future in waiting)
        receive(publisher, spec.Connection.Unblocked())
        for future in waiting:
            future.result(WAIT_S)
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"0", b"1", b"2"]


def test_a_blocking_broker_and_the_end_of_patience(amqp_url: str, topic: Topic) -> None:
    """The message is not sent, now or later; and waiting messages remain bounded."""
    with Publisher(amqp_url, topic, window=1) as publisher:
        receive(publisher, spec.Connection.Blocked("low on memory"))
        with impatient(publisher), pytest.raises(PublishFailed, match="blocks publishers") as refused:
            publisher.publish("a", b"x")
        publisher.publish("a", b"y", wait=False)
        with impatient(publisher), pytest.raises(PublishFailed, match="window was full") as full:
            publisher.publish("a", b"z")
        assert (refused.value.outcome, full.value.outcome) == ("not_executed", "not_executed")
        receive(publisher, spec.Connection.Unblocked())
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"y"]


def test_what_nobody_waits_for_any_more_is_not_kept_while_a_broker_blocks(amqp_url: str, topic: Topic) -> None:
    """An alarm may last for hours, and each message that timed out has made room for another."""
    with Publisher(amqp_url, topic, window=1) as publisher:
        receive(publisher, spec.Connection.Blocked("low on memory"))
        with impatient(publisher):
            for _ in range(10):
                with pytest.raises(PublishFailed, match="blocks publishers"):
                    publisher.publish("a", b"x")
        assert len(publisher._channel._held) <= 1
        receive(publisher, spec.Connection.Unblocked())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_blocking_broker_and_tasks(backend: str, amqp_url: str, topic: Topic) -> None:
    """The same for tasks; one that is cancelled while waiting frees its place."""

    async def main() -> None:
        async with AsyncPublisher(amqp_url, topic, window=1) as publisher:
            receive(publisher, spec.Connection.Blocked("low on memory"))
            with impatient(publisher), pytest.raises(PublishFailed, match="blocks publishers"):
                await publisher.publish("a", b"x")
            for body in (b"cancelled on its way", b"cancelled too, so it gave its place back"):
                with anyio.move_on_after(0):
                    await publisher.publish("a", body)
            receive(publisher, spec.Connection.Unblocked())
            await publisher.publish("a", b"y")

    anyio.run(main, backend=backend)
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"y"]


def test_a_partition_may_be_named_and_has_to_exist(amqp_url: str, topic: Topic) -> None:
    """It is used whatever the key is; it must exist."""
    with Publisher(amqp_url, topic) as publisher:
        assert publisher.publish("a", b"x", partition=3).result() == 3
        assert publisher.publish(None, b"y", partition=0).result() == 0
        with pytest.raises(UsageError, match="has 4 partitions: 4 is none of them"):
            publisher.publish("a", b"x", partition=4)
        with pytest.raises(UsageError, match="partition is -1"):
            publisher.publish("a", b"x", partition=-1)
    assert stored(amqp_url, topic) == {3: [b"x"], 0: [b"y"]}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_topic_by_its_name(backend: str, amqp_url: str, topic: Topic) -> None:
    """It is looked up when the publisher is entered."""

    async def main() -> None:
        async with AsyncPublisher(amqp_url, topic.name) as publisher:
            assert publisher.topic.partitions == topic.partitions
            assert await publisher.publish("a", b"x", message_id="m") == topic.partition_of("a")

    publisher = Publisher(amqp_url, topic.name)
    with pytest.raises(UsageError, match="looked up when its publisher is entered"):
        publisher.topic  # noqa: B018
    with publisher:
        assert publisher.publish("a", b"x").result() == topic.partition_of("a")
    anyio.run(main, backend=backend)


def test_a_name_that_is_none(amqp_url: str) -> None:
    """The name must be valid, and the topic must exist."""
    with pytest.raises(UsageError):
        Publisher(amqp_url, "no name")
    with pytest.raises(UsageError):
        Publisher(amqp_url, 5)  # type: ignore[arg-type]
    with pytest.raises(TopicMissing), Publisher(amqp_url, "publisher.nowhere"):
        pass


def test_a_failure_on_the_way_to_the_connection(amqp_url: str, topic: Topic) -> None:
    """Whatever it is, the message has an outcome, and so have those after it."""
    with Publisher(amqp_url, topic) as publisher:

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("no memory")

        for lane in publisher._channel._lanes:
            lane.channel.basic_publish = fail  # type: ignore[method-assign]
        both_sent = threading.Event()
        connection_of(publisher).submit(lambda: both_sent.wait(WAIT_S))
        broken, next_one = [publisher.publish("a", b"x", wait=False) for _ in range(2)]
        both_sent.set()
        assert "no memory" in str(broken.exception(WAIT_S))
        next_one.exception(WAIT_S)
        assert publisher.flush()


def test_the_end_of_patience_while_the_io_thread_is_held_up(amqp_url: str, topic: Topic) -> None:
    """For example by a slow callback of a future. The message is not sent later, either."""
    with Publisher(amqp_url, topic) as publisher:
        go_on = threading.Event()
        connection_of(publisher).submit(lambda: go_on.wait(WAIT_S))
        with impatient(publisher), pytest.raises(PublishFailed, match="callback") as raised:
            publisher.publish("a", b"late")
        assert raised.value.outcome == "not_executed"
        go_on.set()
    assert not stored(amqp_url, topic)


def test_no_broker(closed_port_url: str) -> None:
    """It is unreachable, and nothing was sent."""
    with pytest.raises(Unreachable) as raised:
        Publisher(closed_port_url, Topic("orders", 1)).publish("a", b"x")
    assert raised.value.outcome == "not_executed"


@pytest.fixture
def closed_port_url() -> str:
    """A URL that no server listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}/"


def test_a_connection_that_is_lost_at_once(amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost before its channel is requested, which would never be answered."""
    connect = BrokerConnection.connect

    def connect_in_vain(self: BrokerConnection, timeout_ms: int = 10_000) -> None:
        connect(self, timeout_ms)
        self.close()

    monkeypatch.setattr(BrokerConnection, "connect", connect_in_vain)
    refusal: list[Unreachable] = []

    def publish() -> None:
        with pytest.raises(Unreachable, match="as soon as it was made") as caught, Publisher(amqp_url, topic):
            pass
        refusal.append(caught.value)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert refusal


def test_closing_waits_for_confirms(amqp_url: str, topic: Topic) -> None:
    """The last messages published are as safe as the first."""
    with Publisher(amqp_url, topic) as publisher:
        futures = [publisher.publish("a", b"x", wait=False) for _ in range(500)]
    assert all(future.result(0) == topic.partition_of("a") for future in futures)


def test_a_lookup_that_leaves_no_time_to_connect(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, besides what became of the rest."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://guest:guest@127.0.0.1:{silent.getsockname()[1]}/"
        publisher = Publisher(url, topic, timeout_ms=200)
        monkeypatch.setattr(publisher._channel, "_find_topic", lambda ms: threading.Event().wait(ms / 1000) or topic)
        with pytest.raises(Unreachable, match=rf"Looking up topic {topic.name} had taken \d\.\d s of the timeout"):
            publisher.publish("a", b"x")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_entering_that_is_cancelled(
    backend: str, amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it opens all the same is closed, unless the publisher is entered again."""
    begun, go_on = threading.Event(), threading.Event()
    connect = BrokerConnection.connect

    def connect_late(connection: BrokerConnection, timeout_ms: int) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        connect(connection, timeout_ms)

    async def enter_in_vain(publisher: AsyncPublisher) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publisher.__aenter__)
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()

    async def main() -> None:
        publisher, other = (AsyncPublisher(amqp_url, topic, name=name) for name in ("cancelled", "entered again"))
        await enter_in_vain(publisher)
        await enter_in_vain(other)
        go_on.set()
        async with other:
            await other.publish("a", b"x")
        wait_for_the_end_of("amqp cancelled", "amqp entered again", "cobalance-call", "cobalance call")
        async with publisher:
            await publisher.publish("a", b"y")

    monkeypatch.setattr(BrokerConnection, "connect", connect_late)
    anyio.run(main, backend=backend)
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x", b"y"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_that_wait_for_a_connection_share_a_thread(backend: str, amqp_url: str, topic: Topic) -> None:
    """Those that are cancelled leave none behind, and what still waits is published."""

    async def main() -> None:
        async with AsyncPublisher(proxy.through(amqp_url), topic) as publisher:
            proxy.refuse()
            connection_of(publisher).close()
            older = set(threading.enumerate())
            async with anyio.create_task_group() as staying, anyio.create_task_group() as leaving:
                for _ in range(50):
                    leaving.start_soon(publisher.publish, "a", b"cancelled")
                    staying.start_soon(publisher.publish, "a", b"patient")
                await anyio.wait_all_tasks_blocked()
                leaving.cancel_scope.cancel()
                calls = [
                    it for it in set(threading.enumerate()) - older if it.name in {"cobalance-call", "cobalance call"}
                ]
                assert len(calls) == 1
                proxy.heal()

    with FaultProxy(urlsplit(amqp_url).port or 0) as proxy:
        anyio.run(main, backend=backend)
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"patient"] * 50


@pytest.mark.anyio
async def test_tasks_that_wait_for_a_connection_have_their_own_time(
    amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose time is up does not wait for the attempt to end; one that has time left makes the next."""
    async with AsyncPublisher(amqp_url, topic) as publisher:
        connect, go_on = publisher._channel._connect, threading.Event()

        def connect_in_vain(_: int) -> bool:
            monkeypatch.setattr(publisher._channel, "_connect", connect)
            assert go_on.wait(WAIT_S)
            return False

        monkeypatch.setattr(publisher._channel, "_connect", connect_in_vain)
        connection_of(publisher).close()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publisher.publish, "a", b"x")
            await anyio.wait_all_tasks_blocked()
            with impatient(publisher), pytest.raises(Unreachable, match="no answer in time"):
                await publisher.publish("a", b"late")
            go_on.set()
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x"]
