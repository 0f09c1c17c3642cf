"""Kafka-style consumer groups for RabbitMQ, and for any other set of resources, without stop-the-world.

When processes come, go, crash or hang, only the surplus moves, and it moves only after its holder has finished and
committed, or a timeout has fired. Everything else never pauses.
"""

from cobalance.admin import GroupAdmin, GroupDescription
from cobalance.blocking import BlockingTenure
from cobalance.errors import CobalanceError
from cobalance.group import Group
from cobalance.rabbitmq.batches import Batch
from cobalance.rabbitmq.blocking_consumer import BlockingConsumerGroup
from cobalance.rabbitmq.broker import create_topic
from cobalance.rabbitmq.consumer_group import ConsumerGroup
from cobalance.rabbitmq.delivery import Delivery
from cobalance.rabbitmq.dropin import GroupConnection
from cobalance.rabbitmq.publisher import AsyncPublisher, Publisher
from cobalance.rabbitmq.queues import Queue
from cobalance.rabbitmq.retention import Retention
from cobalance.rabbitmq.retries import Retries
from cobalance.rabbitmq.sources import BoundQueues, MatchingQueues
from cobalance.rabbitmq.stream_settings import StreamSettings
from cobalance.rabbitmq.topic import Topic
from cobalance.runner import run
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.tenure import Tenure
from cobalance.threads import BlockingGroup

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
