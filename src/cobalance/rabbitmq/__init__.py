"""The RabbitMQ side: topics, publishing, and consuming one partition during one tenure."""

from typing import TYPE_CHECKING

from cobalance import lazy

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.dead_letters import (
        DeadLetter,
        drop_dead_letters,
        read_dead_letters,
        replay_dead_letters,
    )
    from cobalance.rabbitmq.model.hashing import partition_of
    from cobalance.rabbitmq.model.queues import Guard, Queue
    from cobalance.rabbitmq.model.retention import Retention
    from cobalance.rabbitmq.model.stream_settings import StreamSettings
    from cobalance.rabbitmq.model.topic import Topic
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.publish.envelopes import Properties
    from cobalance.rabbitmq.publish.publisher import AsyncPublisher, Publisher
    from cobalance.rabbitmq.topics.broker import (
        check_topic,
        create_topic,
        learn_queue,
        read_topic,
        verify_topic,
    )
    from cobalance.rabbitmq.topics.deletion import delete_topic
    from cobalance.rabbitmq.topics.growth import describe_topic, grow_topic, prune_topic
    from cobalance.rabbitmq.topics.management import ListedTopic, list_topics
    from cobalance.rabbitmq.topics.sources import BoundQueues, MatchingQueues
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "cobalance.rabbitmq.consume.dead_letters": [
                "DeadLetter",
                "drop_dead_letters",
                "read_dead_letters",
                "replay_dead_letters",
            ],
            "cobalance.rabbitmq.model.hashing": ["partition_of"],
            "cobalance.rabbitmq.model.queues": ["Guard", "Queue"],
            "cobalance.rabbitmq.model.retention": ["Retention"],
            "cobalance.rabbitmq.model.stream_settings": ["StreamSettings"],
            "cobalance.rabbitmq.model.topic": ["Topic"],
            "cobalance.rabbitmq.partition.delivery": ["Delivery"],
            "cobalance.rabbitmq.publish.envelopes": ["Properties"],
            "cobalance.rabbitmq.publish.publisher": ["AsyncPublisher", "Publisher"],
            "cobalance.rabbitmq.topics.broker": [
                "check_topic",
                "create_topic",
                "learn_queue",
                "read_topic",
                "verify_topic",
            ],
            "cobalance.rabbitmq.topics.deletion": ["delete_topic"],
            "cobalance.rabbitmq.topics.growth": ["describe_topic", "grow_topic", "prune_topic"],
            "cobalance.rabbitmq.topics.management": ["ListedTopic", "list_topics"],
            "cobalance.rabbitmq.topics.sources": ["BoundQueues", "MatchingQueues"],
        },
    )

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
