"""Calls of a publisher that a signal handler interrupts by raising, at each moment at which Python may run one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from pika import spec
from tests.consumers import bodies_in, new_topic
from tests.interruptions import WAIT_S, interrupted, wait_for_the_end_of
from tests.rabbitmq.publish.test_publisher import connection_of, receive

from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Publisher


@contextmanager
def publisher_and_another_thread(url: str, **options: Any) -> Iterator[tuple[Publisher, ThreadPoolExecutor]]:
    """A publisher of a topic of its own, and a thread beside this one."""
    with new_topic(url) as topic, ThreadPoolExecutor(1) as pool:
        publisher = Publisher(url, topic, unseen_failures="log", **options)
        publisher.__enter__()
        yield publisher, pool
        publisher.close()
        assert bodies_in(url, topic.queue_names[0])[-1] == "last"


@pytest.mark.parametrize("wait", [True, False])
def test_a_call_with_room(wait: bool, amqp_url: str) -> None:
    """Others publish on, and no place is lost or won."""
    with publisher_and_another_thread(amqp_url, window=2) as (publisher, other):
        moment = 0
        while interrupted(lambda: publisher.publish("a", b"x", wait=wait), moment):
            other.submit(publisher.publish, "a", b"y").result(WAIT_S)
            moment += 1
        assert moment > 50
        assert places_are_free(publisher)
        other.submit(publisher.publish, "a", b"last").result(WAIT_S)


@pytest.mark.parametrize("wait", [True, False])
def test_a_call_that_waits_for_room(wait: bool, amqp_url: str) -> None:
    """The same while RabbitMQ blocks publishers, and a message that is kept takes the only place."""
    with publisher_and_another_thread(amqp_url, window=1) as (publisher, other):
        moment, is_interrupted = 0, True
        while is_interrupted:
            receive(publisher, spec.Connection.Blocked("low on memory"))
            publisher.publish("a", b"kept", wait=False)
            receive(publisher, spec.Connection.Blocked("low on memory"))  # by now it has its place
            with unblocked_for_who_waits(publisher):
                is_interrupted = interrupted(lambda: publisher.publish("a", b"x", wait=wait), moment)
            other.submit(publisher.publish, "a", b"y").result(WAIT_S)
            moment += 1
        assert moment > 50
        assert places_are_free(publisher)
        other.submit(publisher.publish, "a", b"last").result(WAIT_S)


@contextmanager
def unblocked_for_who_waits(publisher: Publisher) -> Iterator[None]:
    """RabbitMQ takes messages again once somebody waits for room, or at the end."""
    is_over = threading.Event()

    def unblock() -> None:
        while not (publisher._channel.window.line or is_over.wait(0.001)):
            pass
        receive(publisher, spec.Connection.Unblocked())

    thread = threading.Thread(target=unblock, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(WAIT_S)


def places_are_free(publisher: Publisher) -> bool:
    """Once everything is settled, exactly as many messages as before find room."""
    assert publisher.flush()
    receive(publisher, spec.Connection.Blocked("low on memory"))
    kept = [publisher.publish("a", b"kept", wait=False) for _ in range(publisher._channel.window.most)]
    publisher._timeout_ms = 50
    with pytest.raises(PublishFailed, match="window was full"):
        publisher.publish("a", b"too many", wait=False)
    publisher._timeout_ms = 30_000
    receive(publisher, spec.Connection.Unblocked())
    return all(it.result(WAIT_S) == 0 for it in kept)


USES: dict[str, Callable[[Future[int]], object]] = {
    "result": lambda it: it.result(),
    "exception": lambda it: it.exception(),
    "callback": lambda it: it.add_done_callback(lambda _: None),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_wait_for_a_future(use: Callable[[Future[int]], object], amqp_url: str) -> None:
    """The publisher's thread, which is to set it, goes on."""
    with publisher_and_another_thread(amqp_url, window=1) as (publisher, other):
        moment, is_interrupted = 0, True
        while is_interrupted:
            receive(publisher, spec.Connection.Blocked("low on memory"))
            future = publisher.publish("a", b"x", wait=False)
            go_on = threading.Timer(0.001, receive, (publisher, spec.Connection.Unblocked()))
            go_on.start()
            is_interrupted = interrupted(lambda it=future: use(it), moment)  # type: ignore[misc]
            go_on.join()
            other.submit(publisher.publish, "a", b"last").result(WAIT_S)
            moment += 1
        assert moment > 1


def test_a_flush(amqp_url: str) -> None:
    """It waits for a message that another thread has published."""
    with publisher_and_another_thread(amqp_url, window=2) as (publisher, other):
        moment, is_interrupted = 0, True
        while is_interrupted:
            future = other.submit(publisher.publish, "a", b"x", wait=False).result(WAIT_S)
            is_interrupted = interrupted(publisher.flush, moment)
            assert future.result(WAIT_S) == 0
            other.submit(publisher.publish, "a", b"last").result(WAIT_S)
            moment += 1
        assert moment > 10


def test_connecting(amqp_url: str) -> None:
    """Another thread connects afterwards, and closing the publisher does not wait for ever."""
    with publisher_and_another_thread(amqp_url) as (publisher, other):
        moment, is_interrupted = 0, True
        while is_interrupted:
            other.submit(connection_of(publisher).close).result(WAIT_S)
            is_interrupted = interrupted(lambda: publisher.publish("a", b"x"), moment)
            other.submit(publisher.publish, "a", b"last").result(WAIT_S)
            moment += 5


def test_closing(amqp_url: str) -> None:
    """Another thread enters it again."""
    with publisher_and_another_thread(amqp_url) as (publisher, other):
        moment, is_interrupted = 0, True
        while is_interrupted:
            is_interrupted = interrupted(publisher.close, moment)
            other.submit(publisher.close).result(WAIT_S)
            other.submit(publisher.__enter__).result(WAIT_S)
            other.submit(publisher.publish, "a", b"last").result(WAIT_S)
            moment += 5


def test_entering(amqp_url: str) -> None:
    """Nothing stays of it: neither a connection nor a thread. It can be entered again."""
    with new_topic(amqp_url) as topic:
        moment, is_interrupted = 0, True
        while is_interrupted:
            publisher = Publisher(amqp_url, topic, name="interrupted")
            is_interrupted = interrupted(publisher.__enter__, moment, in_threading=False)
            if is_interrupted:
                wait_for_the_end_of("amqp interrupted", "cobalance call")
                publisher.__enter__()
            publisher.publish("a", b"x")
            publisher.close()
            moment += 2
        assert moment > 10
        assert len(bodies_in(amqp_url, topic.queue_names[0])) == moment // 2
