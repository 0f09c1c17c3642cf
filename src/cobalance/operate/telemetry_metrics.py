"""Metrics by OpenTelemetry's conventions for messaging, by group and topic."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The conventions' buckets."""


@attrs.define(eq=False)
class Series:
    """Of one topic, and of the group that processes it; without one, of what is published there."""

    topic: str
    labels: Mapping[str, str]
    counts: dict[str | None, int] = attrs.field(factory=lambda: defaultdict(int))
    """Messages, by the type of their error."""
    _failed: dict[str, Mapping[str, str]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, group: str | None, topic: str) -> Series:
        labels = {
            "messaging.system": "rabbitmq",
            "messaging.operation.name": "publish" if group is None else "process",
            "messaging.destination.template": topic,
        }
        return cls(topic, labels | ({} if group is None else {"messaging.consumer.group.name": group}))

    def labels_of(self, error: str | None) -> Mapping[str, str]:
        """Made once, since that is done for each message."""
        if error is None:
            return self.labels
        found = self._failed.get(error)
        if found is None:
            found = self._failed[error] = {**self.labels, "error.type": error}
        return found


class MessagingMetrics:
    """What is sent, and what is consumed.

    Messages are counted here and read at each collection, since that costs a message a fraction of what an increment of
    OpenTelemetry's counter does.
    """

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._series: dict[tuple[str | None, str], Series] = {}
        for name, words, is_sent in (
            ("messaging.client.sent.messages", "Messages that were sent to RabbitMQ.", True),
            ("messaging.client.consumed.messages", "Messages that handlers were called with.", False),
        ):
            meter.create_observable_counter(name, [self._reader(is_sent=is_sent)], "{message}", words)
        self._sending, self._processing = (
            meter.create_histogram(name, "s", words, explicit_bucket_boundaries_advisory=SECONDS)
            for name, words in (
                ("messaging.client.operation.duration", "From a message's publishing to its confirm."),
                ("messaging.process.duration", "How long a call of a handler took."),
            )
        )

    def series(self, group: str | None, topic: str) -> Series:
        """The one of a topic: looked up once, kept by whoever counts."""
        with self._lock:
            return self._series.setdefault((group, topic), Series.of(group, topic))

    def forget(self, group: str, topic: str) -> Series | None:
        """Shows it no more. If it comes back, it is counted from 0."""
        with self._lock:
            return self._series.pop((group, topic), None)

    def sent(self, series: Series, error: str | None, seconds: float) -> None:
        """The outcome of a message is known."""
        with self._lock:
            series.counts[error] += 1
        self._sending.record(seconds, series.labels_of(error))

    def begun(self, series: Series, messages: int) -> None:
        """A handler is called with these."""
        with self._lock:
            series.counts[None] += messages

    def ended(self, series: Series, error: str | None, seconds: float) -> None:
        """It has returned, or raised."""
        self._processing.record(seconds, series.labels_of(error))

    def _reader(self, *, is_sent: bool) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> list[Observation]:
            with self._lock:
                now = [(it, dict(it.counts)) for (group, _), it in self._series.items() if (group is None) == is_sent]
            return [Observation(count, it.labels_of(error)) for it, counts in now for error, count in counts.items()]

        return read
