"""The futures of messages: their callbacks run on the publisher's own thread, and their owners may give them up."""

import asyncio
import logging
import sys
import threading
from concurrent.futures import Future

import pytest
from pika import spec
from tests.rabbitmq.publish.publishing import WAIT_S, connection_of, receive, stored

from cobalance.errors import Unreachable, UsageError
from cobalance.rabbitmq import Publisher, Topic


def test_a_future_that_its_owner_cancels(amqp_url: str, topic: Topic) -> None:
    """The message cannot be recalled, and its place in the window is not lost."""
    with Publisher(amqp_url, topic, window=2) as publisher:
        receive(publisher, spec.Connection.Blocked("low on memory"))
        futures = [publisher.publish("a", b"x", wait=False) for _ in range(2)]
        assert not any(future.cancel() for future in futures)
        receive(publisher, spec.Connection.Unblocked())
        publisher.publish("a", b"y")
        assert publisher.flush()
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x", b"x", b"y"]


def test_a_callback_that_ends_its_thread(amqp_url: str, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    """Not the publisher's: it is logged, others hear of it, and publishing goes on."""
    told = threading.Event()
    with Publisher(amqp_url, topic, window=2) as publisher, caplog.at_level(logging.ERROR, "cobalance.rabbitmq"):
        receive(publisher, spec.Connection.Blocked("low on memory"))
        future, behind = (publisher.publish("a", b"x", wait=False) for _ in range(2))
        future.add_done_callback(lambda _: sys.exit("by mistake"))
        future.add_done_callback(lambda _: behind.add_done_callback(lambda _: sys.exit("again")))
        future.add_done_callback(lambda _: told.set())
        receive(publisher, spec.Connection.Unblocked())
        publisher.publish("a", b"y")
        assert told.wait(WAIT_S)
    assert "SystemExit: by mistake" in caplog.text
    assert "SystemExit: again" in caplog.text
    with pytest.raises(SystemExit):  # on its own thread it ends what it means to
        future.add_done_callback(lambda _: sys.exit("on purpose"))


def test_callbacks_publish_while_the_window_is_full(amqp_url: str, topic: Topic) -> None:
    """They do not wait for room, which only their own thread can make, and each other's order holds."""
    told: list[Exception | None] = []

    def publish_on(_: Future[int]) -> None:
        try:
            for body in (b"c", b"d"):
                publisher.publish("a", body, wait=False)
            told.append(None)
        except Exception as error:  # noqa: BLE001 -- concurrent.futures would only log it
            told.append(error)

    with Publisher(amqp_url, topic, window=2) as publisher:
        receive(publisher, spec.Connection.Blocked("low on memory"))
        for body in (b"a", b"b"):
            publisher.publish("a", body, wait=False).add_done_callback(publish_on)
        receive(publisher, spec.Connection.Unblocked())
        assert publisher.flush()
        assert publisher.flush()  # what the callbacks have published
    assert told == [None] * 2
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"a", b"b", *[b"c", b"d"] * 2]


def test_callbacks_cannot_wait(amqp_url: str, topic: Topic) -> None:
    """Nor for another connection: they would wait for the thread that they hold up."""
    refused: dict[str, Exception] = {}

    def try_all(_: Future[int]) -> None:
        for call in (lambda: publisher.publish("a", b"y"), publisher.flush, publisher.close, publisher.__enter__):
            try:
                call()
            except UsageError as error:
                refused[str(error).split(" ")[0]] = error

    def publish_on(_: Future[int]) -> None:
        try:
            publisher.publish("a", b"y", wait=False)
        except Unreachable as error:
            refused["lost"] = error

    with Publisher(amqp_url, topic, unseen_failures="log") as publisher:
        receive(publisher, spec.Connection.Blocked("low on memory"))
        future = publisher.publish("a", b"x", wait=False)
        future.add_done_callback(try_all)
        receive(publisher, spec.Connection.Unblocked())
        publisher.publish("a", b"z")  # goes on
        assert refused.keys() == {"publish", "flush", "close", "with"}
        assert "wait=False" in str(refused["publish"])
        receive(publisher, spec.Connection.Blocked("low on memory"))
        publisher.publish("a", b"lost", wait=False).add_done_callback(publish_on)
        connection_of(publisher).close()
        assert refused["lost"].outcome == "not_executed"  # type: ignore[attr-defined]
        publisher.publish("a", b"again")
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x", b"z", b"again"]


def test_waiting_for_a_future_in_a_task_and_giving_up(amqp_url: str, topic: Topic) -> None:
    """`asyncio` cancels a future that its task stops waiting for."""

    async def main(publisher: Publisher) -> None:
        for _ in range(4):
            future = asyncio.wrap_future(publisher.publish("a", b"x", wait=False))
            future.cancel()
        await asyncio.wrap_future(publisher.publish("a", b"y", wait=False))

    with Publisher(amqp_url, topic, window=2) as publisher:
        asyncio.run(main(publisher))
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"x"] * 4 + [b"y"]
