"""Kafka's groups: the new protocol and the classic one, each with Kafka's defaults and with quicker timers."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from cobalance_sims.spark.errors import JavaMissing
from cobalance_sims.spark.java import find_java
from proof.bench.peers.kafka.broker import PrivateKafka
from proof.bench.peers.kafka.fetch import KafkaUnavailable, fetch_broker, fetch_client
from proof.bench.peers.team import python

ADMIN_TIMEOUT_S = 60.0
QUIET = {"log_level": "3"}
"""librdkafka writes to standard error; this leaves its errors."""

IMPORT_PATH = "PYTHONPATH"


@attrs.frozen
class Protocol:
    """How a group's members agree, and how often they say that they live."""

    name: str
    title: str
    client: Mapping[str, str]
    """Settings of its consumers."""
    group: Mapping[str, str]
    """Settings that the broker keeps for the group."""
    beat_s: float


CLASSIC = {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}
PROTOCOLS = (
    Protocol("kafka", "Kafka, KIP-848", {"group.protocol": "consumer"}, {}, 5.0),
    Protocol(
        "kafka-tuned",
        "Kafka, KIP-848, heartbeat 1 s, session 5 s",
        {"group.protocol": "consumer"},
        {"consumer.heartbeat.interval.ms": "1000", "consumer.session.timeout.ms": "5000"},
        1.0,
    ),
    Protocol("kafka-classic", "Kafka, classic, cooperative-sticky", CLASSIC, {}, 3.0),
    Protocol(
        "kafka-classic-tuned",
        "Kafka, classic, heartbeat 1 s, session 5 s",
        {**CLASSIC, "heartbeat.interval.ms": "1000", "session.timeout.ms": "5000"},
        {},
        1.0,
    ),
)


@contextmanager
def private_kafka() -> Iterator[Kafka]:
    """A private broker, and a client to import.

    Raises:
        KafkaUnavailable: something of it cannot be fetched, or there is no Java; the message says what to do.
    """
    client, jars = fetch_client(), fetch_broker()
    try:
        java = find_java()
    except JavaMissing as error:
        raise KafkaUnavailable(f"Kafka's broker needs a Java, as Spark does. {error}") from error
    sys.path.append(str(client))
    with PrivateKafka(java.home / "bin" / "java", jars) as broker:
        yield Kafka(broker.address, str(client))


@attrs.frozen
class Kafka:
    """A broker and where its client is imported from."""

    address: str
    client: str

    def peers(self) -> list[KafkaGroup]:
        return [KafkaGroup(self, protocol) for protocol in PROTOCOLS]


@attrs.frozen
class KafkaGroup:
    """Groups of one protocol."""

    kafka: Kafka
    protocol: Protocol
    patience_s: float = 120.0

    @property
    def name(self) -> str:
        return self.protocol.name

    @property
    def title(self) -> str:
        return self.protocol.title

    @property
    def beat_s(self) -> float:
        return self.protocol.beat_s

    def open(self, partitions: int) -> _KafkaTopic:
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"peers-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.kafka.address, **QUIET})
        for created in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            created.result(ADMIN_TIMEOUT_S)
        if self.protocol.group:
            _set_of_group(admin, name, self.protocol.group)
        return _KafkaTopic(self.kafka, name, self.protocol.client, admin)


def _set_of_group(admin: Any, group: str, settings: Mapping[str, str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(ADMIN_TIMEOUT_S)


@attrs.frozen
class _KafkaTopic:
    kafka: Kafka
    name: str
    client: Mapping[str, str]
    admin: Any

    @property
    def command(self) -> list[str]:
        settings = {"bootstrap.servers": self.kafka.address, "group.id": self.name, **self.client}
        return python("proof.bench.peers.members.kafka", self.name, json.dumps(settings))

    @property
    def environment(self) -> dict[str, str]:
        return {IMPORT_PATH: ":".join([*sys.path, self.kafka.client])}

    def publisher(self) -> _KafkaPublisher:
        return _KafkaPublisher(self.kafka.address, self.name)

    def close(self) -> None:
        for deleted in self.admin.delete_topics([self.name]).values():
            deleted.result(ADMIN_TIMEOUT_S)


class _KafkaPublisher:
    def __init__(self, address: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        # Idempotent, or what it has to send again would arrive behind younger messages.
        settings = {"bootstrap.servers": address, "linger.ms": "0", "enable.idempotence": "true"}
        self._producer = Producer({**settings, **QUIET})

    def publish(self, partition: int, number: int) -> None:
        self._producer.produce(self._topic, str(number).encode(), partition=partition)

    def rest(self, seconds: float) -> None:
        # The producer's own threads send; what they report is of no interest but at the end.
        self._producer.poll(0)
        time.sleep(seconds)

    def close(self) -> None:
        if unsent := self._producer.flush(60):
            raise KafkaUnavailable(f"{unsent} messages could not be published within a minute.")
