"""Publishes messages, each at its time."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import attrs

from cobalance.errors import CobalanceError
from cobalance.lab.message import NumberedMessage
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher


@attrs.frozen
class TimedMessage:
    """A message, when it is to be published, and under which routing key."""

    at_s: float
    """Since the beginning; those in the past are published at once."""
    key: str
    message: NumberedMessage


class LoadPublisher:
    """The publisher's thread.

    Args:
        plan: the messages in the order of their times; it may go on for ever.
        least: publish at least this many, unless the plan is shorter.
        every_s: publish what has become due this often, in bursts, which costs less; 0 means each at its time.
    """

    def __init__(
        self, url: str, topic: Topic, plan: Iterator[TimedMessage], *, least: int = 0, every_s: float = 0.0
    ) -> None:
        self._url, self._topic, self._plan, self._least, self._every_s = url, topic, plan, least, every_s
        self._outcomes: list[Future[int]] = []
        self._began_s = 0.0
        self._may_end, self._must_end = threading.Event(), threading.Event()
        self._failure: CobalanceError | None = None
        self._thread = threading.Thread(target=self._run, name="load publisher", daemon=True)
        self.messages: list[NumberedMessage] = []
        """All messages sent so far."""

    def start(self, began_s: float | None = None) -> None:
        """Begins, or has begun on this time of the monotonic clock."""
        self._began_s = time.monotonic() if began_s is None else began_s
        self._thread.start()

    def check(self) -> None:
        """Raises the thread's exception, if there is one."""
        if self._failure is not None:
            raise self._failure

    def may_end(self) -> None:
        """Publishes what is missing of the least number at once, then ends."""
        self._may_end.set()

    def close(self) -> None:
        """Ends now."""
        self._must_end.set()
        self._may_end.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether everything was published and confirmed."""
        self.check()
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Publisher(self._url, self._topic, name="cobalance load") as publisher:
                for it in self._plan:
                    early_s = self._began_s + it.at_s - time.monotonic()
                    if early_s > 0:
                        self._may_end.wait(max(early_s, self._every_s))
                    if self._must_end.is_set() or (self._may_end.is_set() and len(self.messages) >= self._least):
                        break
                    self._outcomes.append(publisher.publish(it.key, it.message.body(), wait=False))
                    self.messages.append(it.message)
                for outcome in self._outcomes:
                    outcome.result()
        except CobalanceError as error:
            self._failure = error


def key_of_each(topic: Topic) -> dict[str, str]:
    """Partition queue → a routing key that leads there."""
    return {queue: key for queue, (key,) in keys_of_each(topic, 1).items()}


def keys_of_each(topic: Topic, count: int) -> dict[str, list[str]]:
    """Partition queue → this many routing keys that lead there."""
    keys: dict[str, list[str]] = {name: [] for name in topic.queue_names}
    for number in itertools.count():
        queue = topic.queue_names[topic.partition_of(f"key-{number}")]
        if len(keys[queue]) < count:
            keys[queue].append(f"key-{number}")
        elif all(len(it) == count for it in keys.values()):
            break
    return keys
