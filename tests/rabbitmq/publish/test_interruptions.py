"""Calls of a publisher that a signal handler interrupts by raising, at each moment at which Python may run one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from pika import spec
from tests.consumers import bodies_in, new_topic
from tests.interruptions import WAIT_S, Interrupted, interrupted, wait_for_the_end_of
from tests.rabbitmq.publish.publishing import connection_of, receive, stored

from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Publisher, Topic


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


def interrupt(*_: object) -> None:
    raise Interrupted


def test_a_call_that_a_signal_interrupts_gives_its_place_back(amqp_url: str, topic: Topic) -> None:
    """It waits for room in the window, and is not sent."""
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Publisher(amqp_url, topic, window=1) as publisher:
            receive(publisher, spec.Connection.Blocked("low on memory"))
            publisher.publish("a", b"x", wait=False)
            receive(publisher, spec.Connection.Blocked("low on memory"))  # by now it has its place

            def interrupt_who_waits() -> None:
                while not publisher._channel.window.line:
                    pass
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

            threading.Thread(target=interrupt_who_waits, daemon=True).start()
            with pytest.raises(Interrupted):
                publisher.publish("a", b"interrupted")
            receive(publisher, spec.Connection.Unblocked())
            publisher.publish("a", b"y")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x", b"y"]


def test_a_call_that_fails_on_its_way_out_gives_its_place_back(
    amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has room in the window, and was not handed to the connection."""
    with Publisher(amqp_url, topic, window=1) as publisher:
        monkeypatch.setattr(publisher._channel._connection, "submit", interrupt)
        with pytest.raises(Interrupted):
            publisher.publish("a", b"interrupted")
        monkeypatch.undo()
        publisher.publish("a", b"y")
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"y"]


def test_a_call_that_is_interrupted_as_it_wakes_the_connections_thread(
    amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call wakes it."""
    with Publisher(amqp_url, topic, window=1) as publisher:
        publisher.publish("a", b"x")
        monkeypatch.setattr(publisher._channel._connection._loop, "add_callback_threadsafe", interrupt)
        with pytest.raises(Interrupted):
            publisher.publish("a", b"interrupted")
        monkeypatch.undo()
        publisher.publish("a", b"y")
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x", b"y"]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_calls_that_are_interrupted_at_any_moment(amqp_url: str, topic: Topic) -> None:
    """As time limits by SIGALRM do. Python drops one that strikes in a destructor, and says so."""
    before, random, stops = signal.signal(signal.SIGALRM, interrupt), Random(1), 0
    try:
        with Publisher(amqp_url, topic, window=8) as publisher:
            give_up_at = time.monotonic() + WAIT_S
            while stops < 2_000 and time.monotonic() < give_up_at:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0003))
                    publisher.publish("a", b"x", wait=random.random() < 0.5)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    stops += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert publisher.flush()
            publisher.publish("a", b"y")  # behind what is left in the line
            unsettled = publisher._channel.window._unsettled
            assert all(it.ended.wait(WAIT_S) for it in unsettled.copy()), "flush waits for none that was given up"
            assert not unsettled
            assert not publisher._channel.window._inside
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stops
