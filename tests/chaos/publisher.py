"""Publishes numbered messages at an even rate, whatever happens to RabbitMQ."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import Future

from tests.chaos.options import HANDLER_MS, KEYS, RATE, SLOW_MS

from cobalance.errors import CobalanceError
from cobalance.lab.load import keys_of_each
from cobalance.lab.message import NumberedMessage
from cobalance.rabbitmq.consume.key_settings import Order
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher

SLICE_S = 0.05
CONFIRM_S = 30.0
AGAIN_S = 0.2


class Load:
    """The publisher's thread.

    When a confirm is missing, the outcome of everything not confirmed from there on is unknown: publishing continues
    with new messages. Confirmed messages must be processed; others may be.
    """

    def __init__(self, url: str, topic: Topic, order: Order) -> None:
        self._url, self._topic, self._by_key = url, topic, order == "key"
        self._keys = keys_of_each(topic, KEYS if self._by_key else 1)
        self._numbers: Counter[str] = Counter()
        self._slow: list[str] = []
        self._order = ""
        self.attempted: set[NumberedMessage] = set()
        self.confirmed: set[NumberedMessage] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def dawdle(self, order: str) -> None:
        """Publishes one slow message with this order for each partition, as soon as possible."""
        self._order, self._slow = order, list(self._keys)

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

    def _publish(self, publisher: Publisher) -> None:
        sent: list[tuple[NumberedMessage, Future[int]]] = []
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

    def _one(self, publisher: Publisher, count: int) -> tuple[NumberedMessage, Future[int]]:
        is_slow = bool(self._slow)
        queue = self._slow.pop() if is_slow else self._topic.queue_names[count % self._topic.partitions]
        key = random.choice(self._keys[queue])
        ordered = key if self._by_key else queue
        self._numbers[ordered] += 1
        handle_ms = SLOW_MS if is_slow else random.uniform(*HANDLER_MS)
        message = NumberedMessage(ordered, self._numbers[ordered], handle_ms, self._order if is_slow else "")
        self.attempted.add(message)
        return message, publisher.publish(key, message.body(), wait=False)

    def _take_confirmed(
        self, sent: list[tuple[NumberedMessage, Future[int]]]
    ) -> list[tuple[NumberedMessage, Future[int]]]:
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
