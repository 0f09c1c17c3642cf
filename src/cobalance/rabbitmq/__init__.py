"""RabbitMQ below the group: topics, publishing, and consuming one partition for one tenure."""

from cobalance.rabbitmq.broker import (
    check_topic,
    create_topic,
    delete_topic,
    learn_queue,
    read_topic,
    verify_topic,
)
from cobalance.rabbitmq.dead_letters import DeadLetter, drop_dead_letters, read_dead_letters, replay_dead_letters
from cobalance.rabbitmq.delivery import Delivery
from cobalance.rabbitmq.envelopes import Properties
from cobalance.rabbitmq.growth import describe_topic, grow_topic, prune_topic
from cobalance.rabbitmq.hashing import partition_of
from cobalance.rabbitmq.management import ListedTopic, list_topics
from cobalance.rabbitmq.publisher import AsyncPublisher, Publisher
from cobalance.rabbitmq.queues import Guard, Queue
from cobalance.rabbitmq.retention import Retention
from cobalance.rabbitmq.sources import BoundQueues, MatchingQueues
from cobalance.rabbitmq.stream_settings import StreamSettings
from cobalance.rabbitmq.topic import Topic

__all__ = [
    "AsyncPublisher",
    "BoundQueues",
    "DeadLetter",
    "Delivery",
    "Guard",
    "ListedTopic",
    "MatchingQueues",
    "Properties",
    "Publisher",
    "Queue",
    "Retention",
    "StreamSettings",
    "Topic",
    "check_topic",
    "create_topic",
    "delete_topic",
    "describe_topic",
    "drop_dead_letters",
    "grow_topic",
    "learn_queue",
    "list_topics",
    "partition_of",
    "prune_topic",
    "read_dead_letters",
    "read_topic",
    "replay_dead_letters",
    "verify_topic",
]
