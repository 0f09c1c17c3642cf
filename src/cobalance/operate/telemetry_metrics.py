"""Metrics by OpenTelemetry's conventions for messaging, by group and topic."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter

    Series = tuple[str | None, str, str | None]
    """Group, topic and type of error."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The conventions' buckets."""


class MessagingMetrics:
    """What is sent, and what is consumed.

    Messages are counted here and read at each collection, since that costs a message a fraction of what an increment of
    OpenTelemetry's counter does.
    """

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._sent: Counter[Series] = Counter()
        self._consumed: Counter[Series] = Counter()
        self._labels: dict[Series, dict[str, str]] = {}
        for name, words, counts in (
            ("messaging.client.sent.messages", "Messages that were sent to RabbitMQ.", self._sent),
            ("messaging.client.consumed.messages", "Messages that handlers were called with.", self._consumed),
        ):
            meter.create_observable_counter(name, [self._reader(counts)], "{message}", words)
        self._sending, self._processing = (
            meter.create_histogram(name, "s", words, explicit_bucket_boundaries_advisory=SECONDS)
            for name, words in (
                ("messaging.client.operation.duration", "From a message's publishing to its confirm."),
                ("messaging.process.duration", "How long a call of a handler took."),
            )
        )

    def sent(self, topic: str, error: str | None, seconds: float) -> None:
        """The outcome of a message is known."""
        series = (None, topic, error)
        self._add(self._sent, series, 1)
        self._sending.record(seconds, self._of(series))

    def consumed(self, group: str, topic: str, messages: int) -> None:
        """A handler is called with these."""
        self._add(self._consumed, (group, topic, None), messages)

    def processed(self, group: str, topic: str, error: str | None, seconds: float) -> None:
        """It has ended."""
        self._processing.record(seconds, self._of((group, topic, error)))

    def _add(self, counts: Counter[Series], series: Series, messages: int) -> None:
        with self._lock:
            counts[series] += messages

    def _reader(self, counts: Counter[Series]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> list[Observation]:
            with self._lock:
                now = dict(counts)
            return [Observation(value, self._of(series)) for series, value in now.items()]

        return read

    def _of(self, series: Series) -> dict[str, str]:
        found = self._labels.get(series)
        if found is None:
            group, topic, error = series
            found = {
                "messaging.system": "rabbitmq",
                "messaging.operation.name": "publish" if group is None else "process",
                "messaging.destination.template": topic,
            }
            found |= {} if group is None else {"messaging.consumer.group.name": group}
            found |= {} if error is None else {"error.type": error}
            self._labels[series] = found
        return found
