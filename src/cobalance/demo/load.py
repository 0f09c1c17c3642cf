"""Publishes keyed messages at an even rate, each with its key's next counter, until it may end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import Future

from cobalance.demo.options import BACKLOG_A_PARTITION, MESSAGES_A_KEY, RATE_A_PARTITION
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher

SLICE_S = 0.02
"""Messages are published in small bursts, one per interval."""


class LoadPublisher:
    """The publisher's thread.

    Args:
        least: publish at least this many, even if the churn is over sooner.
        seed: determines the order of the keys.
    """

    def __init__(self, url: str, topic: Topic, *, least: int, seed: int) -> None:
        self._url, self._topic, self._least = url, topic, least
        self._random = random.Random(seed)
        self._keys = max(1, least // MESSAGES_A_KEY)
        self._sent: Counter[str] = Counter()
        self._outcomes: list[Future[int]] = []
        self._may_end, self._must_end = threading.Event(), threading.Event()
        self._failure: CobalanceError | None = None
        self._thread = threading.Thread(target=self._run, name="demo-publisher", daemon=True)

    @property
    def published(self) -> int:
        """The number of messages sent so far."""
        return len(self._outcomes)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raises the thread's exception, if there is one."""
        if self._failure is not None:
            raise self._failure

    def may_end(self) -> None:
        """The churn is over: publishes the remaining messages at once, then ends."""
        self._may_end.set()

    def close(self) -> None:
        self._must_end.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether everything was published and confirmed."""
        self.check()
        return not self._thread.is_alive()

    def confirmed(self) -> dict[str, int]:
        """Key → number of its messages in RabbitMQ; complete once the thread has ended."""
        return dict(self._sent)

    def _run(self) -> None:
        try:
            with Publisher(self._url, self._topic, name="cobalance demo") as publisher:
                self._publish_all(publisher)
                for outcome in self._outcomes:
                    outcome.result()
        except CobalanceError as error:
            self._failure = error

    def _publish_all(self, publisher: Publisher) -> None:
        began = time.monotonic()
        while not (self._may_end.is_set() and self.published >= self._least):
            if self._must_end.is_set():
                return
            due = self._least
            if not self._may_end.is_set():
                a_partition = BACKLOG_A_PARTITION + RATE_A_PARTITION * (time.monotonic() - began)
                due = int(a_partition * self._topic.partitions)
            for _ in range(due - self.published):
                self._publish_one(publisher)
            self._may_end.wait(SLICE_S)

    def _publish_one(self, publisher: Publisher) -> None:
        key = f"key-{self._random.randrange(self._keys)}"
        self._sent[key] += 1
        self._outcomes.append(publisher.publish(key, f"{key}\t{self._sent[key]}".encode(), wait=False))
