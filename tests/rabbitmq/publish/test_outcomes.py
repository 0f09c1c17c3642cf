"""The outcomes of messages that no call waited for, and publishers copied by a fork."""

import asyncio
import logging
import multiprocessing
import signal
from concurrent.futures import Future

import pytest
from pika import BlockingConnection, URLParameters

from cobalance.errors import PublishFailed, UsageError
from cobalance.rabbitmq import Publisher, Topic

WAIT_S = 60


def lose_a_queue(amqp_url: str, topic: Topic) -> None:
    """Makes publishing to partition 0 fail from now on."""
    with BlockingConnection(URLParameters(amqp_url)) as connection:
        connection.channel().queue_delete(topic.queue_names[0])


def publish(publisher: Publisher, *partitions: int) -> list[Future[int]]:
    """Publishes without waiting."""
    return [publisher.publish(None, b"x", partition=it, wait=False) for it in partitions]


def test_leaving_after_failures_that_nobody_has_seen(amqp_url: str, topic: Topic) -> None:
    """Leaving raises, with the number of failures and the last one."""
    with pytest.raises(PublishFailed, match=r"2 messages .* no queue takes routing key") as raised:  # noqa: PT012, SIM117
        with Publisher(amqp_url, topic) as publisher:
            lose_a_queue(amqp_url, topic)
            publish(publisher, 0, 1, 0)
    assert raised.value.outcome == "not_executed"


def test_flush_tells(amqp_url: str, topic: Topic) -> None:
    """It reports each failure once, so leaving need not."""
    with Publisher(amqp_url, topic) as publisher:
        lose_a_queue(amqp_url, topic)
        publish(publisher, 1)
        assert publisher.flush()
        futures = publish(publisher, 0)
        with pytest.raises(PublishFailed, match="1 message "):
            publisher.flush()
        assert isinstance(futures[0].exception(WAIT_S), PublishFailed)
        assert publisher.flush()


def test_failures_that_somebody_has_seen(amqp_url: str, topic: Topic) -> None:
    """Checked by the future's exception, its result, a callback, or a task that awaits it; or by a call that waits."""

    async def look(future: Future[int]) -> None:
        with pytest.raises(PublishFailed):
            await asyncio.wrap_future(future)

    with Publisher(amqp_url, topic) as publisher:
        lose_a_queue(amqp_url, topic)
        first, second, third, fourth = publish(publisher, 0, 0, 0, 0)
        assert first.exception(WAIT_S)
        with pytest.raises(PublishFailed):
            second.result(WAIT_S)
        third.add_done_callback(lambda future: future.exception())
        asyncio.run(look(fourth))
        with pytest.raises(PublishFailed):
            publisher.publish(None, b"x", partition=0)


def test_failures_are_logged_by_choice(amqp_url: str, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    """For programs whose last messages are not worth an error."""
    with Publisher(amqp_url, topic, unseen_failures="log") as publisher:
        lose_a_queue(amqp_url, topic)
        publish(publisher, 0)
    assert [it.levelno for it in caplog.records if "1 message " in it.getMessage()] == [logging.ERROR]
    with pytest.raises(UsageError, match="unseen_failures is 'ignore'"):
        Publisher(amqp_url, topic, unseen_failures="ignore")  # type: ignore[arg-type]


def test_leaving_with_an_error_of_ones_own(amqp_url: str, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    """The program's error is not hidden by failures, which are logged."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117
        with Publisher(amqp_url, topic) as publisher:
            lose_a_queue(amqp_url, topic)
            publish(publisher, 0)
            _ = 1 / 0
    assert "1 message " in caplog.text


def test_after_a_fork(amqp_url: str, topic: Topic) -> None:
    """A copy raises at once, having no I/O thread; the original goes on, as does one never entered."""
    unused = Publisher(amqp_url, topic)
    with Publisher(amqp_url, topic) as publisher:
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(publisher, unused), daemon=True)
        child.start()
        child.join(WAIT_S)
        child.kill()
        assert child.exitcode == 0
        assert publisher.publish(None, b"x", partition=1).result() == 1


def in_child(publisher: Publisher, unused: Publisher) -> None:
    """Raises unless all is as expected, which shows in the exit code."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # the test's timeout is the parent's
    with pytest.raises(UsageError, match="fork"):
        publisher.publish("a", b"x")
    with pytest.raises(UsageError, match="fork"):
        publisher.flush()
    publisher.close()
    with unused:
        assert unused.publish(None, b"x", partition=1).result() == 1
