"""A system that gives no thread, or no file descriptor, for a moment costs an attempt, and nothing waits for ever."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import anyio
import pytest
from pika.adapters.select_connection import EPollPoller, IOLoop
from tests.consumers import WITHIN_S, Place, Seen, bodies_in, new_topic
from tests.streams import cut

from cobalance import Delivery
from cobalance.errors import Unreachable
from cobalance.rabbitmq.consume.dead_letter_sender import DeadLetterSender, Reason
from cobalance.rabbitmq.dropin import GroupConnection
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.threads.log_lines import ServiceThread

pytestmark = pytest.mark.anyio


class Shortage:
    """While it lasts, a method raises; otherwise it is what it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, error: Exception) -> None:
        self.lasts, self.met = False, threading.Event()
        original: Callable[..., Any] = getattr(kind, method)

        def call(*args: Any, **named: Any) -> Any:
            if self.lasts:
                self.met.set()
                raise error
            return original(*args, **named)

        monkeypatch.setattr(kind, method, call)


NO_FILE, NO_THREAD = OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")

PLACES: dict[str, tuple[type, str, Exception]] = {
    "its sockets": (IOLoop, "__init__", NO_FILE),
    "its selector": (EPollPoller, "_init_poller", NO_FILE),
    "its thread": (ServiceThread, "start", NO_THREAD),
    "its host's thread": (threading.Timer, "start", NO_THREAD),
}


def in_time(call: Callable[[], object]) -> object:
    """The result of a call that may wait for ever, on a thread that does not keep the process alive."""
    result: Future[object] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except Exception as error:  # noqa: BLE001 -- raised where it is waited for
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(WITHIN_S)


@pytest.fixture(params=PLACES)
def shortage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shortage:
    """At each place where a connection begins."""
    return Shortage(monkeypatch, *PLACES[request.param])


def test_a_connection_that_cannot_begin_has_failed(
    amqp_url: str, shortage: Shortage, caplog: pytest.LogCaptureFixture
) -> None:
    """The next attempt may succeed. That it is the system's fault is said, and nobody is asked to report it."""
    connection = BrokerConnection(amqp_url, "group/member")
    shortage.lasts = True
    with pytest.raises(Unreachable, match=r"no more (files and sockets|threads)"):
        in_time(connection.connect)
    connection.close()
    shortage.lasts = False
    in_time(connection.connect)
    assert connection.is_open
    connection.close()
    assert "report" not in caplog.text


async def test_a_member_connects_again_when_the_shortage_is_over(here: Place, shortage: Shortage) -> None:
    """It waited for ever, and so did each member that left the group."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        async with here.member(topic, handle) as group:
            await group.wait_held()
            shortage.lasts = True
            cut(group.partitions.connection)
            assert await anyio.to_thread.run_sync(shortage.met.wait, WITHIN_S)
            shortage.lasts = False
            here.publish(topic, "after")
            assert await seen.wait(1) == ["after"]


def test_a_message_is_given_up_once_there_is_a_thread_for_that(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is reported, and the next one is sent."""
    with new_topic(here.amqp_url) as topic:
        (queue,), delivery = topic.queues, Delivery.fake(b"bad", topic=topic)
        sender, reason = DeadLetterSender(here.amqp_url), Reason("g", "why")
        shortage = Shortage(monkeypatch, threading.Thread, "start", NO_THREAD)
        shortage.lasts = True
        with pytest.raises(Unreachable, match="new thread"):
            sender.send(queue, delivery, reason).result(WITHIN_S)
        shortage.lasts = False
        sender.send(queue, delivery, reason).result(WITHIN_S)
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["bad"]


def test_a_group_connection_without_a_thread_says_so(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither who waits for it to be entered nor who waits for its end waits for ever."""
    shortage = Shortage(monkeypatch, ServiceThread, "start", NO_THREAD)
    with new_topic(here.amqp_url) as topic:
        connection = GroupConnection(here.amqp_url, group=here.group, redis_url=here.redis_url)
        it = connection.channel()
        shortage.lasts = True
        it.basic_consume(topic.queue_names[0], lambda *_: None)
        with pytest.raises(RuntimeError, match="new thread"):
            in_time(lambda: connection.process_data_events(0))
        shortage.lasts = False
        in_time(connection.close)
