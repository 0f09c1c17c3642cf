"""Topics and queues on a real RabbitMQ: created, checked, read back, listed and deleted; differences are named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any

import anyio
import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import StreamLostError, UnroutableError
from tests.consumers import new_topic
from tests.names import unique
from tests.rabbitmq.topics.dying import dying

from cobalance import ConsumerGroup, servers
from cobalance.errors import (
    AuthenticationRefused,
    ChannelLost,
    PublishFailed,
    QueueMismatch,
    QueueMissing,
    TopicInUse,
    TopicMismatch,
    TopicMissing,
    Unreachable,
    UsageError,
)
from cobalance.rabbitmq import (
    Guard,
    ListedTopic,
    Publisher,
    Queue,
    Topic,
    create_topic,
    delete_topic,
    describe_topic,
    drop_dead_letters,
    grow_topic,
    learn_queue,
    list_topics,
    read_dead_letters,
    read_topic,
    replay_dead_letters,
    verify_topic,
)
from cobalance.rabbitmq.model.topic import DELIVERY_LIMIT
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.topics import broker
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.broker import check_topic, find_topic, open_layout, readable_queues
from cobalance.rabbitmq.wire.pika_internals import PatientConnection


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    """A plain pika channel."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()


@pytest.fixture(params=["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
def topic(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Topic]:
    """A topic that exists for one test."""
    made = Topic(f"broker.{request.param}", 3, request.param, delivery_limit=7 if request.param == "quorum" else None)
    create_topic(amqp_url, made)
    yield made
    with channel(amqp_url) as pika_channel:
        pika_channel.exchange_delete(made.name)
        for name in (*made.queue_names, f"{made.name}.dead", f"{made.name}-3"):
            pika_channel.queue_delete(name)


def test_creating_twice_is_harmless(topic: Topic, amqp_url: str) -> None:
    """Every process of a deployment may do it."""
    create_topic(amqp_url, topic)
    verify_topic(amqp_url, topic)
    check_topic(amqp_url, topic)


def test_a_topic_reads_back_as_it_was_made(topic: Topic, amqp_url: str) -> None:
    """Without the management API, including its arguments."""
    assert read_topic(amqp_url, topic.name) == topic


@pytest.mark.parametrize("number", [3, 6])
def test_a_queue_that_is_called_like_a_partition_is_not_deleted(number: int, topic: Topic, amqp_url: str) -> None:
    """The topic's size is recorded: a queue beyond it is somebody else's."""
    foreign = f"{topic.name}-{number}"
    with channel(amqp_url) as it:
        it.queue_declare(foreign, durable=True)
        it.basic_publish("", foreign, b"precious")
        delete_topic(amqp_url, topic.name, force=True)
        assert it.queue_declare(foreign, passive=True).method.message_count == 1
        it.queue_delete(foreign)
        assert [name for name in topic.queue_names if exists(amqp_url, name)] == []


def test_a_topic_is_deleted_with_a_queue_missing(topic: Topic, amqp_url: str) -> None:
    """What is left of it goes, and the record of its size, so that it can be made with another one."""
    with channel(amqp_url) as it:
        it.queue_delete(topic.queue_names[1])
    delete_topic(amqp_url, topic.name, force=True)
    assert not exists(amqp_url, topic.queue_names[2])
    other = Topic(topic.name, 2, topic.queue_type)
    assert create_topic(amqp_url, other) == other
    delete_topic(amqp_url, topic.name)


def test_what_is_left_of_a_topic_says_how_to_make_it_with_another_size(topic: Topic, amqp_url: str) -> None:
    """With its own size it is made again, as if something had been deleted by hand."""
    with channel(amqp_url) as it:
        it.exchange_delete(topic.name)
    with pytest.raises(TopicMismatch, match=f"not deleted completely.*topic delete {topic.name}"):
        create_topic(amqp_url, attrs.evolve(topic, partitions=2))
    assert create_topic(amqp_url, topic) == topic


def exists(url: str, queue: str) -> bool:
    """Whether there is such a queue."""
    with connected(url) as admin:
        return admin.exists(queue)


def test_nothing_is_dropped_where_there_are_no_dead_letters(amqp_url: str) -> None:
    """A message is returned far more often than RabbitMQ's own limit allows, and is still there."""
    made = Topic(unique("broker.lasting"), 1, "quorum", dead_letter=False)
    create_topic(amqp_url, made)
    assert read_topic(amqp_url, made.name) == made
    with channel(amqp_url) as it:
        it.basic_publish("", made.queue_names[0], b"kept")
        for method, properties, _ in it.consume(made.queue_names[0]):
            if (properties.headers or {}).get("x-delivery-count", 0) > 2 * DELIVERY_LIMIT:
                it.basic_ack(method.delivery_tag or 0)
                break
            it.basic_nack(method.delivery_tag or 0)
        it.cancel()
    delete_topic(amqp_url, made.name, force=True)


def test_a_limit_without_dead_letters_is_refused(amqp_url: str) -> None:
    """RabbitMQ would drop what reaches it; but a topic that was declared so is read, and consumed, as it is."""
    made = Topic(unique("broker.dropping"), 1, "quorum", dead_letter=False, delivery_limit=20)
    with pytest.raises(UsageError, match=r"delivery_limit=20 and no dead letters: RabbitMQ would drop"):
        create_topic(amqp_url, made)
    with connected(amqp_url) as admin:
        admin.declare_exchange(made.name, {})
        open_layout(admin, made)
    assert read_topic(amqp_url, made.name) == verify_topic(amqp_url, made) == made
    delete_topic(amqp_url, made.name, force=True)


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("dead_letter", [True, False])
def test_a_limit_that_handovers_alone_use_up_is_refused(limit: int, dead_letter: bool, amqp_url: str) -> None:
    """A topic that exists with it can be read and deleted."""
    made = Topic(unique("broker.low"), 1, "quorum", delivery_limit=limit, dead_letter=dead_letter)
    refusal = rf"Topic 'broker.low.*' has a delivery limit of {limit}: .*no handler was given.*at least 2"
    with pytest.raises(UsageError, match=refusal):
        create_topic(amqp_url, made)
    with connected(amqp_url) as admin:
        assert not admin.has_exchange(made.name)
        admin.declare_exchange(made.name, {})
        open_layout(admin, made)
    with pytest.raises(UsageError, match=refusal):
        create_topic(amqp_url, made)
    assert read_topic(amqp_url, made.name) == made
    delete_topic(amqp_url, made.name, force=True)


@pytest.mark.parametrize("limit", [-1, True, "3", 2**31])
def test_a_limit_that_cannot_be_is_refused(limit: Any) -> None:
    """With -1, RabbitMQ 3 drops what is returned once."""
    with pytest.raises(UsageError, match="delivery_limit"):
        Topic("orders", 1, "quorum", delivery_limit=limit)


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("length", [60, 180])
def test_a_topic_with_a_long_name_reads_back(kind: Any, length: int, amqp_url: str) -> None:
    """RabbitMQ tells the first argument that differs in 255 bytes, the queue's name included: what no longer fits is what our topics have."""
    made = create_topic(amqp_url, Topic(f"broker.{kind}.".ljust(length, "x"), 2, kind))
    try:
        assert read_topic(amqp_url, made.name) == made
        assert streams_among(amqp_url, made.queue_names) == dict.fromkeys(made.queue_names, kind == "stream")
    finally:
        delete_topic(amqp_url, made.name)


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("length", [20, 190])
def test_the_type_of_a_queue_is_found_beside_other_arguments(kind: str, length: int, amqp_url: str) -> None:
    """RabbitMQ names the first one that differs. Of a long name it tells too little of what comes before the type."""
    name = unique("kind").ljust(length, "x")
    others = {"stream": {"x-max-length-bytes": 10_000, "x-max-age": "1D"}}.get(kind, {"x-dead-letter-exchange": "away"})
    with channel(amqp_url) as it, connected(amqp_url) as admin:
        it.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **others})
        assert admin.kind(name) == (kind if length == 20 else "unknown")
        it.queue_delete(name)


def test_an_argument_that_is_cut_off_is_not_guessed_wrong(amqp_url: str) -> None:
    """The queue belongs to no topic: a program that names its arguments can consume it."""
    name = "broker.cut.".ljust(200, "x")
    with channel(amqp_url) as it:
        it.queue_declare(name, durable=True, arguments={"x-dead-letter-exchange": "elsewhere"})
        with pytest.raises(QueueMismatch, match=r"255 bytes.*give Queue"):
            learn_queue(amqp_url, name)
        it.queue_delete(name)


NAMED = [
    delete_topic,
    describe_topic,
    drop_dead_letters,
    learn_queue,
    read_dead_letters,
    read_topic,
    replay_dead_letters,
]


@pytest.mark.parametrize("function", NAMED, ids=lambda it: it.__name__)
def test_what_takes_a_name_says_so_to_who_gives_a_topic(function: Any, topic: Topic, amqp_url: str) -> None:
    """A dead-letter queue called ``Topic(name=...).dead`` was missed, or pika's own words about exchanges came."""
    with pytest.raises(UsageError, match="name is an object of type Topic: give a str"):
        function(amqp_url, topic)


def test_what_takes_a_topic_says_so_to_who_gives_its_name(topic: Topic, amqp_url: str) -> None:
    """As the others do."""
    with pytest.raises(UsageError, match="topic is an object of type str: give a Topic"):
        check_topic(amqp_url, topic.name)  # type: ignore[arg-type]


def test_a_key_reaches_its_queue_and_a_reject_the_dead_letters(topic: Topic, amqp_url: str) -> None:
    """Each partition's binding works, and so does dead-lettering."""
    pika_channel: Any
    with channel(amqp_url) as pika_channel:
        partition = topic.partition_of("order-1")
        pika_channel.confirm_delivery()
        pika_channel.basic_publish(topic.name, str(partition), b"hello", mandatory=True)
        method, _, body = next(pika_channel.consume(topic.queue_names[partition]))
        assert body == b"hello"
        pika_channel.basic_reject(method.delivery_tag, requeue=False)
        pika_channel.cancel()
        assert next(pika_channel.consume(f"{topic.name}.dead"))[2] == b"hello"


def test_a_missing_topic(amqp_url: str) -> None:
    """The message says how to create it."""
    missing = Topic("broker.missing", 2)
    for attempt in (verify_topic, check_topic):
        with pytest.raises(TopicMissing, match=r"cobalance topic create broker\.missing"):
            attempt(amqp_url, missing)
    with pytest.raises(TopicMissing):
        read_topic(amqp_url, missing.name)
    with pytest.raises(TopicMissing):
        delete_topic(amqp_url, missing.name)


def test_a_queue_that_is_taken_for_a_topic(amqp_url: str) -> None:
    """A name by itself is a topic's; the message says how to name a queue."""
    group = ConsumerGroup("g", "broker.queue", print, amqp_url=amqp_url, redis_url="memory://")
    with channel(amqp_url) as it:
        it.queue_declare("broker.queue", exclusive=False)
        with pytest.raises(TopicMissing, match=r"consumed as a list of queues, \['broker\.queue'\]; or create it with"):
            anyio.run(group.start)
        it.queue_delete("broker.queue")


def test_a_missing_queue(topic: Topic, amqp_url: str) -> None:
    """Checking does not create it by accident."""
    with channel(amqp_url) as pika_channel:
        pika_channel.queue_delete(f"{topic.name}-2")
    for _ in range(2):
        with pytest.raises(QueueMissing, match=f"{topic.name}-2.*topic create {topic.name} --partitions 3"):
            verify_topic(amqp_url, topic)


@pytest.mark.parametrize("partitions", [2, 4])
def test_another_number_of_partitions(topic: Topic, amqp_url: str, partitions: int) -> None:
    """Keys would go to the wrong partitions, and some queues would never be processed. No queue is added."""
    other = Topic(topic.name, partitions, topic.queue_type, delivery_limit=topic.delivery_limit)
    for attempt in (create_topic, verify_topic, check_topic):
        with pytest.raises(TopicMismatch, match=f"has 3 partitions, not {partitions}.*restart.*topic grow"):
            attempt(amqp_url, other)
    assert read_topic(amqp_url, topic.name).partitions == 3


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.thorough
def test_a_topic_that_is_being_created_is_not_taken_for_a_smaller_one(
    kind: Any, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys would go elsewhere, and its last queues never be processed, by who reads its name; or who is mistaken about its size."""
    made = Topic(unique("broker.slow"), 3, kind)
    by_name = Publisher(amqp_url, made.name, timeout_ms=2_000)

    def consume() -> None:
        anyio.run(ConsumerGroup("g", made.name, print, amqp_url=amqp_url, redis_url="memory://").start)

    smaller = [attrs.evolve(made, partitions=it) for it in (1, 2)]
    attempts: list[Callable[[], object]] = [
        lambda: read_topic(amqp_url, made.name),
        lambda: by_name.publish("key", b"x"),
        consume,
        lambda: grow_topic(amqp_url, made.name, 4),
        *(partial(check, amqp_url, it) for it in [*smaller, made] for check in (verify_topic, check_topic)),
    ]
    for changes in count():
        with dying(monkeypatch, changes):
            create_topic(amqp_url, made)
        with connected(amqp_url) as admin:
            if admin.has_exchange(made.marker):
                break
        for refused in attempts:
            with pytest.raises(TopicMissing, match=rf"cobalance topic create {made.name} --partitions N"):
                refused()
    assert changes > 7
    try:
        assert read_topic(amqp_url, made.name) == verify_topic(amqp_url, made) == check_topic(amqp_url, made) == made
        for it in smaller:
            with pytest.raises(TopicMismatch, match="has 3 partitions"):
                verify_topic(amqp_url, it)
        with by_name:
            by_name.publish("key", b"x")
            assert by_name.topic.partitions == 3
    finally:
        delete_topic(amqp_url, made.name, force=True)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("classic", [4]),
        ("quorum", [4]),
        ("stream", [4]),
        ("classic", [0]),
        ("classic", [1, 4]),
        ("classic", [0, 1, 2, 3, 4]),
    ],
)
def test_a_topic_without_some_of_its_queues_is_not_taken_for_a_smaller_one(
    kind: Any, missing: list[int], amqp_url: str
) -> None:
    """Its size is recorded. Creating it again brings back what is missing."""
    made = create_topic(amqp_url, Topic(unique("broker.missing"), 5, kind))
    try:
        with connected(amqp_url) as admin:
            for number in missing:
                admin.delete(made.queue_names[number])
        attempts: list[Callable[[], object]] = [
            lambda: read_topic(amqp_url, made.name),
            lambda: Publisher(amqp_url, made.name).publish("key", b"x"),
            lambda: grow_topic(amqp_url, made.name, 6),
        ]
        for refused in attempts:
            with pytest.raises(
                QueueMissing, match=f"{made.name}-{missing[0]}.*topic create {made.name} --partitions 5"
            ):
                refused()
        assert create_topic(amqp_url, made) == read_topic(amqp_url, made.name) == made
        with Publisher(amqp_url, made.name) as publisher:
            assert [publisher.publish(None, b"x", partition=it).result() for it in range(5)] == [0, 1, 2, 3, 4]
    finally:
        delete_topic(amqp_url, made.name, force=True)


def test_another_queue_type(topic: Topic, amqp_url: str) -> None:
    """The message names the argument and says that it cannot be changed."""
    other = Topic(
        topic.name, 3, "quorum" if topic.queue_type == "classic" else "classic", delivery_limit=topic.delivery_limit
    )
    for attempt in (create_topic, verify_topic):
        with pytest.raises(QueueMismatch, match=r"inequivalent arg.*cannot change"):
            attempt(amqp_url, other)


def test_a_topic_in_use_is_not_deleted_unless_forced(topic: Topic, amqp_url: str) -> None:
    """Messages are not deleted by accident."""
    with channel(amqp_url) as pika_channel:
        pika_channel.confirm_delivery()
        pika_channel.basic_publish(topic.name, "1", b"precious")
    with pytest.raises(TopicInUse, match="1 message and"):
        delete_topic(amqp_url, topic.name)
    verify_topic(amqp_url, topic)
    delete_topic(amqp_url, topic.name, force=True)
    with pytest.raises(TopicMissing):
        verify_topic(amqp_url, topic)


@pytest.mark.parametrize(
    ("arguments", "guard"),
    [
        (
            {"x-queue-type": "classic", "x-max-length": 10, "x-message-ttl": 60_000, "x-max-priority": 5},
            Guard.EXCLUSIVE,
        ),
        ({"x-queue-type": "classic", "x-single-active-consumer": True}, Guard.SINGLE_ACTIVE),
        ({"x-queue-type": "quorum", "x-delivery-limit": 3, "x-dead-letter-exchange": "true"}, Guard.NONE),
        ({"x-queue-type": "quorum", "x-single-active-consumer": True}, Guard.SINGLE_ACTIVE),
        ({"x-queue-type": "stream", "x-max-age": "1D"}, Guard.NONE),
    ],
)
def test_any_queue_can_be_read(arguments: dict[str, str | int | bool], guard: Guard, amqp_url: str) -> None:
    """AMQP cannot be asked, but each refusal reveals one argument."""
    queue = Queue("broker.learned", arguments)
    with channel(amqp_url) as pika_channel:
        pika_channel.queue_declare(queue.name, durable=True, arguments=queue.declaration)
        try:
            learned = learn_queue(amqp_url, queue.name)
        finally:
            pika_channel.queue_delete(queue.name)
    assert learned == queue
    assert learned.guard is guard


def test_a_transient_queue_can_be_read(amqp_url: str) -> None:
    """Durability and auto-deletion belong to the declaration, too."""
    queue = Queue("broker.transient", {"x-queue-type": "classic"}, durable=False, auto_delete=True)
    with channel(amqp_url) as pika_channel:
        pika_channel.queue_declare(queue.name, auto_delete=True)
        assert learn_queue(amqp_url, queue.name) == queue


def test_reading_a_missing_queue(amqp_url: str) -> None:
    """It is not created."""
    for _ in range(2):
        with pytest.raises(QueueMissing):
            learn_queue(amqp_url, "broker.nowhere")


@contextmanager
def deleted_before_channel(number: int, queue: str, url: str) -> Iterator[list[str]]:
    """A queue is deleted just before our connections open their first, second or third channel; yields what was."""
    opened, opening = count(1), PatientConnection.channel
    deleted: list[str] = []

    def channel_after_deletion(self: PatientConnection, *args: Any) -> BlockingChannel:
        if next(opened) == number:
            with channel(url) as it:
                it.queue_delete(queue)
            deleted.append(queue)
        return opening(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PatientConnection, "channel", channel_after_deletion)
        yield deleted


@pytest.mark.parametrize(
    ("reads", "channels"), [("learn", 3), ("kind", 3), ("verify", 1), ("is_unused", 3), ("delete_unused", 3)]
)
def test_what_is_read_while_it_is_deleted_is_not_created(reads: str, channels: int, amqp_url: str) -> None:
    """Its owner could not declare it again, with its arguments, and members would work it for ever."""
    queue = Queue(unique("queue"), {"x-queue-type": "classic", "x-message-ttl": 60_000, "x-max-length": 9})
    with connected(amqp_url) as admin:
        for number in range(1, channels + 1):
            admin.declare(queue)
            with deleted_before_channel(number, queue.name, amqp_url) as deleted, suppress(QueueMissing):
                getattr(admin, reads)(queue if reads == "verify" else queue.name)
            assert deleted == [queue.name]
            assert admin.state(queue.name) is None


def test_of_several_queues_those_that_can_be_used_are_read(amqp_url: str) -> None:
    """One is exclusive to another connection, one was deleted, and one would be at its first handover."""
    names = ["broker.exclusive", "broker.deleted", "broker.usable", "broker.fleeting"]
    with channel(amqp_url) as it:
        it.queue_declare(names[0], exclusive=True)
        it.queue_declare(names[2], durable=True)
        it.queue_declare(names[3], auto_delete=True)
        try:
            assert [queue.name for queue in readable_queues(amqp_url, names)] == names[2:3]
            with pytest.raises(ChannelLost, match=r"exclusive to another connection.*RESOURCE_LOCKED") as caught:
                learn_queue(amqp_url, names[0])
        finally:
            for name in names[2:]:
                it.queue_delete(name)
    assert "redelivered" not in str(caught.value)


def test_topics_are_listed(topic: Topic, amqp_url: str, rabbitmq_server: servers.RabbitMQServer) -> None:
    """The management API finds them by the mark on their exchange."""
    listed = list_topics(amqp_url, rabbitmq_server.management_url)
    assert ListedTopic(topic.name, 3) in listed


def test_listing_without_a_management_api(amqp_url: str) -> None:
    """The message says how to enable one."""
    with pytest.raises(Unreachable, match="rabbitmq-plugins enable rabbitmq_management"):
        list_topics(amqp_url, "http://127.0.0.1:1")
    with pytest.raises(UsageError, match="http://"):
        list_topics(amqp_url, "amqp://127.0.0.1")


def test_listing_with_a_wrong_password(amqp_url: str, rabbitmq_server: servers.RabbitMQServer) -> None:
    """The password is not shown."""
    url = (rabbitmq_server.management_url or "").replace("guest:guest", "guest:s3cret")
    with pytest.raises(AuthenticationRefused) as raised:
        list_topics(amqp_url, url)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Topic("or{ders", 3),
        lambda: Topic("orders", 0),
        lambda: Topic("orders", 2001),
        lambda: Topic("orders", 3, "priority"),  # type: ignore[arg-type]
    ],
)
def test_impossible_topics(make: object) -> None:
    """They are refused before any broker is contacted."""
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("is_grown", [False, True])
@pytest.mark.thorough
def test_a_large_topic_is_found_in_few_round_trips(
    is_grown: bool, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where RabbitMQ is far away, a publisher would not get through if each queue took one."""
    trips = {}
    with monkeypatch.context() as patch:
        waits = count()
        patch.setattr(PatientConnection, "_flush_output", counted(PatientConnection._flush_output, waits))
        for partitions in (3, 150):
            with new_topic(amqp_url, 2 if is_grown else partitions) as topic:
                if is_grown:
                    grow_topic(amqp_url, topic.name, partitions)
                before = next(waits)
                assert find_topic(amqp_url, topic.name).partitions == partitions
                assert check_topic(amqp_url, topic).partitions == partitions
                trips[partitions] = next(waits) - before
    assert trips[150] < trips[3] + 20


def counted(function: Callable[..., Any], calls: Iterator[int]) -> Callable[..., Any]:
    """The function, whose calls are counted."""

    def call(*args: Any, **options: Any) -> Any:
        next(calls)
        return function(*args, **options)

    return call


def test_queues_are_found_by_number(amqp_url: str) -> None:
    """Single ones may be missing, and names may be so long that RabbitMQ does not tell them in full."""
    numbers = [*range(70), 72, 75, 84]
    for prefix in ("found", "f" * 245):
        with channel(amqp_url) as declaring:
            for number in numbers:
                declaring.queue_declare(f"{prefix}-{number}", exclusive=False, auto_delete=False)
            with connected(amqp_url) as admin:
                assert list(admin.partition_numbers(prefix)) == numbers
            for number in [*numbers, 76]:
                declaring.queue_delete(f"{prefix}-{number}")


def test_a_lookup_takes_no_longer_than_it_is_allowed(amqp_url: str) -> None:
    """Although each answer comes in time."""
    with new_topic(amqp_url, 1) as topic, connected(amqp_url, 60_000, in_all=True) as admin:
        admin._connection.give_up_at = 0.0
        with pytest.raises(StreamLostError):
            admin.exists(topic.queue_names[0])
    with pytest.raises(Unreachable, match=r"had not answered all .* allow it more time"):  # noqa: PT012, SIM117
        with connected(amqp_url, 1_000, in_all=True) as admin:
            while True:
                admin.exists("none")


def is_routed(url: str, exchange: str, key: str) -> bool:
    """Whether a queue takes what is published like this."""
    with channel(url) as it:
        it.confirm_delivery()
        try:
            it.basic_publish(exchange, key, b"x", mandatory=True)
        except UnroutableError:
            return False
    return True


def test_creating_a_topic_again_restores_its_bindings(topic: Topic, amqp_url: str) -> None:
    """Of queues that are there, too; others may have unbound them by hand. While another process changes it, nothing is done."""
    with connected(amqp_url) as admin, Publisher(amqp_url, topic) as publisher:
        admin.unbind(topic.queue_names[1], topic.name, topic.routing_keys(1))
        with connected(amqp_url) as other, other.changing(topic.name):
            assert create_topic(amqp_url, topic) == topic
            with pytest.raises(PublishFailed, match="no queue takes"):
                publisher.publish(None, b"x", partition=1)
        assert create_topic(amqp_url, topic) == topic
        for key in topic.routing_keys(1):
            assert is_routed(amqp_url, topic.name, key)


@pytest.mark.thorough
def test_creating_a_topic_again_does_not_open_a_layout_that_is_closed(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a growth that was interrupted, wherever that was: what came into it would be behind what is in the new one."""
    before = list[bool]()
    for changes in count():
        with dying(monkeypatch, changes):
            grow_topic(amqp_url, topic.name, 4)
        before = [is_routed(amqp_url, topic.name, topic.routing_key(it)) for it in range(3)]
        current = create_topic(amqp_url, topic)
        assert [is_routed(amqp_url, topic.name, topic.routing_key(it)) for it in range(3)] == before
        if current.layout > 1:
            break
    assert before == [False] * 3
    delete_topic(amqp_url, topic.name, force=True)


def test_a_topic_that_is_made_with_another_size_meanwhile_is_not_bound_as_the_former_one(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at it and its lock. A publisher that knows the former one would not notice."""
    verify_again, other = broker.verify, attrs.evolve(topic, partitions=topic.partitions + 1)

    def verify_and_remake(admin: Admin, asked_for: Topic) -> Topic:
        monkeypatch.undo()
        found = verify_again(admin, asked_for)
        delete_topic(amqp_url, topic.name, force=True)
        create_topic(amqp_url, other)
        return found

    monkeypatch.setattr(broker, "verify", verify_and_remake)
    create_topic(amqp_url, topic)
    assert not is_routed(amqp_url, topic.name, topic.routing_key(1))
    assert is_routed(amqp_url, topic.name, other.routing_key(1))
