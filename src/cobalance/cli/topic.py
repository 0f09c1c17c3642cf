"""``cobalance topic``."""

from __future__ import annotations

from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from cobalance.cli.options import AmqpUrl, Json, ManagementUrl, Name
from cobalance.cli.output import print_json, print_table, remark
from cobalance.errors import UsageError, counted
from cobalance.rabbitmq import Retention, Topic, create_topic, delete_topic, describe_topic, grow_topic, prune_topic
from cobalance.rabbitmq import list_topics as find_topics
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL


def create(
    name: Name,
    /,
    *,
    partitions: Annotated[
        int, Parameter(help="Four to eight times the number of processes you expect; growing pauses the topic.")
    ],
    queue_type: Annotated[
        Literal["classic", "quorum", "stream"], Parameter(name="--type", help="Type of its queues.")
    ] = "classic",
    delivery_limit: Annotated[
        int | None,
        Parameter(help="quorum only: deliveries before a message is dead-lettered, at least 2; 200 if left out."),
    ] = None,
    dead_letter: Annotated[bool, Parameter(help="Keep rejected messages in NAME.dead; not for streams.")] = True,
    max_age: Annotated[str | None, Parameter(help="stream only: how long messages are kept, e.g. 7D or 12h.")] = None,
    max_bytes: Annotated[int | None, Parameter(help="stream only: the size to keep of each partition.")] = None,
    group: Annotated[
        str | None, Parameter(help="Also create queues for this group, with all messages from now on: NAME@GROUP.")
    ] = None,
    json: Json = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Create a topic. An identical topic that exists already is left as it is."""
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
    made = create_topic(amqp_url, topic, group=group)
    if json:
        print_json(attrs.asdict(made))


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
    force: Annotated[
        bool, Parameter(negative="", help="Delete it even with messages and consumers, which are lost.")
    ] = False,
    json: Json = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Delete a topic with its queues, unless they have messages or consumers.

    Takes two seconds longer than with --force: messages may be on their way. If interrupted, run it again to continue.
    """
    delete_topic(amqp_url, Topic(name, 1).name, force=force)
    if json:
        print_json({"topic": name, "deleted": True})


def grow(
    name: Name,
    /,
    *,
    partitions: Annotated[int, Parameter(help="The new number of partitions.")],
    json: Json = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Give a topic more partitions. Publishers and consumers continue, and each key's messages stay in order.

    The new partitions are consumed once the old ones are empty and everything in them is acknowledged. If interrupted,
    run it again to continue.

    Refused where publishers would not notice: the exchange has an alternate exchange, or other queues are bound to it.
    With --management-url, such a queue is seen before it is given a message.
    """
    topic = grow_topic(amqp_url, name, partitions, management_url=management_url)
    if json:
        print_json(attrs.asdict(topic))
    else:
        remark(f"topic {name} has {counted(topic.partitions, 'partition')} (layout {topic.layout})")


def prune(
    name: Name,
    /,
    *,
    json: Json = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Delete the remains of a topic's earlier layouts: old queues without messages and consumers.

    If programs without a consumer may hold messages of classic queues, give --management-url: then such a queue is kept.
    Without, RabbitMQ tells only of those that hold messages of quorum queues.
    """
    pruned = prune_topic(amqp_url, name, management_url=management_url)
    rows = [{"queue": queue, "result": "deleted" if gone else "still in use"} for queue, gone in pruned.items()]
    if json:
        print_json(rows)
    else:
        print_table(("QUEUE", "RESULT"), (tuple(row.values()) for row in rows))


def describe(name: Name, /, *, json: Json = False, amqp_url: AmqpUrl = DEFAULT_AMQP_URL) -> None:
    """Show a topic's queues: those of its present layout, and those of layouts from before it was grown.

    READY counts messages that wait for a consumer, without those already delivered to one.
    """
    topic, partitions, dead = describe_topic(amqp_url, name)
    rows = [
        {
            "layout": it.layout,
            "queue": it.queue,
            "state": "present" if it.layout == topic.layout else "old" if it.state.ready else "old, empty",
            "ready": it.state.ready,
            "consumers": it.state.consumers,
        }
        for it in partitions
    ]
    if json:
        print_json(
            {"topic": name, "type": topic.queue_type, "layout": topic.layout, "dead_letters": dead, "queues": rows}
        )
        return
    print_table(("LAYOUT", "QUEUE", "STATE", "READY", "#CONSUMERS"), (tuple(row.values()) for row in rows))
    if dead:
        remark(f"warning: {counted(dead, 'message')} given up, waiting in {name}.dead.")
