"""RabbitMQ below the group: topics, publishing, and consuming one partition for one tenure."""

import logging

from cobalance.rabbitmq.broker import (
    check_topic,
    create_topic,
    delete_topic,
    learn_queue,
    read_topic,
    verify_topic,
)
from cobalance.rabbitmq.delivery import Delivery
from cobalance.rabbitmq.hashing import partition_of
from cobalance.rabbitmq.management import ListedTopic, list_topics
from cobalance.rabbitmq.publisher import AsyncPublisher, Publisher
from cobalance.rabbitmq.queues import Guard, Queue
from cobalance.rabbitmq.topic import Topic

# pika warns of every refusal, many of which are answers that we asked for. Programs that have set up logging still get them; the
# others would find them on their standard error.
logging.getLogger("pika").addHandler(logging.NullHandler())

__all__ = [
    "AsyncPublisher",
    "Delivery",
    "Guard",
    "ListedTopic",
    "Publisher",
    "Queue",
    "Topic",
    "check_topic",
    "create_topic",
    "delete_topic",
    "learn_queue",
    "list_topics",
    "partition_of",
    "read_topic",
    "verify_topic",
]
