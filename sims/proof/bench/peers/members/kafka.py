"""A member of a Kafka group: ``python -m proof.bench.peers.members.kafka TOPIC SETTINGS``, with librdkafka's settings as JSON.

Each message is committed when it has been handled, without waiting, as RabbitMQ's are acknowledged; what is revoked is
committed before it is given back, as Kafka's own documentation recommends.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from proof.bench.peers.members import report

if TYPE_CHECKING:
    from collections.abc import Mapping

POLL_S = 0.05


class KafkaMember:
    """A consumer, and the offsets that it has to commit."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        self._handled: dict[int, TopicPartition] = {}
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def run(self, topic: str) -> None:
        """Until SIGTERM; then it leaves the group."""
        self._consumer.subscribe([topic], on_revoke=self._revoked)
        while not self._stopping:
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self._handle(message)
            elif message is not None:
                sys.stderr.write(f"{message.error()}\n")
        self._consumer.close()

    def _handle(self, message: Any) -> None:
        partition, number = message.partition(), int(message.value())
        report.begun(partition, number)
        time.sleep(report.HANDLER_S)
        report.ended(partition, number)
        self._handled[partition] = TopicPartition(message.topic(), partition, message.offset() + 1)
        self._consumer.commit(message=message, asynchronous=True)

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        ours = [self._handled.pop(it.partition, None) for it in partitions]
        if offsets := [it for it in ours if it is not None]:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                sys.stderr.write(f"not committed: {error}\n")


if __name__ == "__main__":
    report.end_with_parent()
    program = KafkaMember(json.loads(sys.argv[2]))
    report.on_sigterm(program.stop)
    report.started()
    program.run(sys.argv[1])
