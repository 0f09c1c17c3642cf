"""Cobalance with its default settings, on classic or quorum queues."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.settings import GroupSettings
from proof.bench.peers.rabbitmq import QueuePublisher
from proof.bench.peers.team import python

SETTINGS = GroupSettings()


@attrs.frozen
class Cobalance:
    """A Cobalance group on queues of one kind."""

    kind: str
    redis_url: str = attrs.field(repr=False)
    amqp_url: str = attrs.field(repr=False)
    beat_s: float = SETTINGS.heartbeat_interval_ms / 1000
    patience_s: float = 30.0

    @property
    def name(self) -> str:
        return f"cobalance-{self.kind}"

    @property
    def title(self) -> str:
        return f"Cobalance, {self.kind} queues"

    def open(self, partitions: int) -> _CobalanceTopic:
        topic = Topic(f"peers-{uuid.uuid4().hex[:8]}", partitions, self.kind)  # type: ignore[arg-type]  # checked there
        place = _CobalanceTopic(create_topic(self.amqp_url, topic), self.redis_url, self.amqp_url)
        # Else the first process waits for a session: an empty Redis may have lost the group.
        Coordinator(open_transport(self.redis_url), topic.name).create(SETTINGS)
        return place


@attrs.frozen
class _CobalanceTopic:
    topic: Topic
    redis_url: str
    amqp_url: str
    environment: Mapping[str, str] = {}

    @property
    def command(self) -> list[str]:
        return python("proof.bench.peers.members.cobalance", self.topic.name, self.redis_url, self.amqp_url)

    def publisher(self) -> QueuePublisher:
        return QueuePublisher(self.amqp_url, self.topic.queue_names)

    def close(self) -> None:
        delete_topic(self.amqp_url, self.topic.name, force=True)
