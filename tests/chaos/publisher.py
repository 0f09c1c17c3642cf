"""Publishes numbered messages at an even rate, whatever happens to RabbitMQ."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import Future

from tests.chaos.history import Message
from tests.chaos.options import RATE

from cobalance.errors import CobalanceError
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher

SLICE_S = 0.05
CONFIRM_S = 30.0
AGAIN_S = 0.2


class Load:
    """The publisher's thread.

    When a confirm is missing, the outcome of everything not confirmed from there on is unknown: a new epoch begins, and
    publishing continues with new messages. Confirmed messages must be processed; others may be.
    """

    def __init__(self, url: str, topic: Topic) -> None:
        self._url, self._topic = url, topic
        self._keys = _a_key_for_each(topic)
        self._epoch = 0
        self._seqs: Counter[str] = Counter()
        self._slow: list[str] = []
        self._dawdles = 0
        self.attempted: set[Message] = set()
        self.confirmed: set[Message] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def dawdle(self) -> int:
        """Publishes one slow message for each partition, as soon as possible; returns the number they bear."""
        self._dawdles += 1
        self._slow = list(self._keys)
        return self._dawdles

    def stop(self) -> None:
        """Ends when all messages sent have been confirmed, or have failed."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with Publisher(self._url, self._topic, name="chaos") as publisher:
                    self._publish(publisher)
            except CobalanceError:
                self._stop.wait(AGAIN_S)
            self._epoch += 1
            self._seqs.clear()

    def _publish(self, publisher: Publisher) -> None:
        sent: list[tuple[Message, Future[int]]] = []
        began, count = time.monotonic(), 0
        try:
            while not self._stop.wait(SLICE_S):
                for _ in range(int((time.monotonic() - began) * RATE) - count):
                    sent.append(self._one(publisher, count))
                    count += 1
                sent = self._take_confirmed(sent)
        finally:
            until = time.monotonic() + CONFIRM_S
            for message, outcome in sent:
                if _is_confirmed(outcome, until - time.monotonic()):
                    self.confirmed.add(message)

    def _one(self, publisher: Publisher, count: int) -> tuple[Message, Future[int]]:
        is_slow = bool(self._slow)
        queue = self._slow.pop() if is_slow else self._topic.queue_names[count % self._topic.partitions]
        self._seqs[queue] += 1
        message = Message(queue, self._epoch, self._seqs[queue], self._dawdles if is_slow else None)
        self.attempted.add(message)
        return message, publisher.publish(self._keys[queue], message.body(), wait=False)

    def _take_confirmed(self, sent: list[tuple[Message, Future[int]]]) -> list[tuple[Message, Future[int]]]:
        for message, outcome in sent:
            if outcome.done():
                outcome.result()
                self.confirmed.add(message)
        return [(message, outcome) for message, outcome in sent if not outcome.done()]


def _is_confirmed(outcome: Future[int], within_s: float) -> bool:
    try:
        outcome.result(max(0.0, within_s))
    except (CobalanceError, TimeoutError):
        return False
    return True


def _a_key_for_each(topic: Topic) -> dict[str, str]:
    """Partition queue → a key that leads there."""
    keys: dict[str, str] = {}
    number = 0
    while len(keys) < topic.partitions:
        key = f"key-{number}"
        keys.setdefault(topic.queue_names[topic.partition_of(key)], key)
        number += 1
    return keys
