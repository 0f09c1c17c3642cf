"""``cobalance topic``."""

from __future__ import annotations

from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from cobalance.cli.options import DEFAULT_AMQP_URL, AmqpUrl, Json, ManagementUrl, Name
from cobalance.cli.output import print_json, print_table
from cobalance.errors import UsageError
from cobalance.rabbitmq import Retention, Topic, create_topic, delete_topic
from cobalance.rabbitmq import list_topics as find_topics


def create(
    name: Name,
    /,
    *,
    partitions: Annotated[int, Parameter(help="For good: take four to eight times the processes you expect.")],
    queue_type: Annotated[
        Literal["classic", "quorum", "stream"], Parameter(name="--type", help="Of its queues.")
    ] = "classic",
    delivery_limit: Annotated[int, Parameter(help="quorum only: tries before a message is dead-lettered.")] = 20,
    dead_letter: Annotated[bool, Parameter(help="Keep rejected messages in NAME.dead; not for streams.")] = True,
    max_age: Annotated[str | None, Parameter(help="stream only: how long messages are kept, e.g. 7D or 12h.")] = None,
    max_bytes: Annotated[int | None, Parameter(help="stream only: how much of a partition is kept.")] = None,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Create a topic. One that exists already and is the same is left as it is."""
    if queue_type != "stream" and (max_age or max_bytes):
        raise UsageError("--max-age and --max-bytes are for streams.")
    topic = Topic(
        name,
        partitions,
        queue_type,
        delivery_limit=delivery_limit,
        dead_letter=dead_letter,
        retention=Retention(max_age=max_age, max_bytes=max_bytes),
    )
    create_topic(amqp_url, topic)


def list_topics(
    *, amqp_url: AmqpUrl = DEFAULT_AMQP_URL, management_url: ManagementUrl = None, json: Json = False
) -> None:
    """List the topics of the virtual host. Asks RabbitMQ's management API."""
    topics = find_topics(amqp_url, management_url)
    if json:
        print_json([attrs.asdict(topic) for topic in topics])
    else:
        print_table(("TOPIC", "#PARTITIONS"), ((topic.name, topic.partitions) for topic in topics))


def delete(
    name: Name,
    /,
    *,
    force: Annotated[bool, Parameter(negative="", help="Even with messages and consumers, which are lost.")] = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Delete a topic with its queues."""
    delete_topic(amqp_url, Topic(name, 1).name, force=force)
