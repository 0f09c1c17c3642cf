"""Kafka-style consumer groups for RabbitMQ, and for any other set of resources, without stop-the-world.

When processes come, go, crash or hang, only the surplus moves, and it moves only after its holder has finished and
committed, or a timeout has fired. Everything else never pauses.
"""

from typing import TYPE_CHECKING

from cobalance import lazy

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin, GroupDescription
    from cobalance.errors import CobalanceError
    from cobalance.group.blocking import BlockingTenure
    from cobalance.group.blocking_group import BlockingGroup
    from cobalance.group.group import Group
    from cobalance.group.runner import run
    from cobalance.group.tenure import Tenure
    from cobalance.rabbitmq.consume.blocking_consumer import BlockingConsumerGroup
    from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
    from cobalance.rabbitmq.dropin.connection import GroupConnection
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.retention import Retention
    from cobalance.rabbitmq.model.retries import Retries
    from cobalance.rabbitmq.model.stream_settings import StreamSettings
    from cobalance.rabbitmq.model.topic import Topic
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.publish.publisher import AsyncPublisher, Publisher
    from cobalance.rabbitmq.topics.broker import create_topic
    from cobalance.rabbitmq.topics.sources import BoundQueues, MatchingQueues
    from cobalance.settings import GroupSettings, MemberSettings
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "cobalance.admin": ["GroupAdmin", "GroupDescription"],
            "cobalance.errors": ["CobalanceError"],
            "cobalance.group.blocking": ["BlockingTenure"],
            "cobalance.group.blocking_group": ["BlockingGroup"],
            "cobalance.group.group": ["Group"],
            "cobalance.group.runner": ["run"],
            "cobalance.group.tenure": ["Tenure"],
            "cobalance.rabbitmq.consume.blocking_consumer": ["BlockingConsumerGroup"],
            "cobalance.rabbitmq.consume.consumer_group": ["ConsumerGroup"],
            "cobalance.rabbitmq.dropin.connection": ["GroupConnection"],
            "cobalance.rabbitmq.model.batches": ["Batch"],
            "cobalance.rabbitmq.model.queues": ["Queue"],
            "cobalance.rabbitmq.model.retention": ["Retention"],
            "cobalance.rabbitmq.model.retries": ["Retries"],
            "cobalance.rabbitmq.model.stream_settings": ["StreamSettings"],
            "cobalance.rabbitmq.model.topic": ["Topic"],
            "cobalance.rabbitmq.partition.delivery": ["Delivery"],
            "cobalance.rabbitmq.publish.publisher": ["AsyncPublisher", "Publisher"],
            "cobalance.rabbitmq.topics.broker": ["create_topic"],
            "cobalance.rabbitmq.topics.sources": ["BoundQueues", "MatchingQueues"],
            "cobalance.settings": ["GroupSettings", "MemberSettings"],
        },
    )

__all__ = [
    "AsyncPublisher",
    "Batch",
    "BlockingConsumerGroup",
    "BlockingGroup",
    "BlockingTenure",
    "BoundQueues",
    "CobalanceError",
    "ConsumerGroup",
    "Delivery",
    "Group",
    "GroupAdmin",
    "GroupConnection",
    "GroupDescription",
    "GroupSettings",
    "MatchingQueues",
    "MemberSettings",
    "Publisher",
    "Queue",
    "Retention",
    "Retries",
    "StreamSettings",
    "Tenure",
    "Topic",
    "create_topic",
    "run",
]
