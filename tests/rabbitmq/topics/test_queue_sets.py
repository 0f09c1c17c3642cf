"""Queue sets of groups on a real RabbitMQ: what else happens to their topic, and what they get of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partialmethod
from itertools import count

import anyio
import anyio.to_thread
import pytest
from pika.exceptions import UnroutableError
from tests.consumers import WITHIN_S, Place, Seen, channel, until
from tests.names import unique
from tests.rabbitmq.topics.dying import dying

from cobalance.errors import (
    CobalanceError,
    PublishFailed,
    QueueMissing,
    TopicInUse,
    TopicMismatch,
    TopicMissing,
    UsageError,
)
from cobalance.rabbitmq import (
    Delivery,
    Publisher,
    Topic,
    check_topic,
    create_topic,
    delete_topic,
    grow_topic,
    read_topic,
    verify_topic,
)
from cobalance.rabbitmq.topics import broker
from cobalance.rabbitmq.topics.admin import DIRECT, Admin, connected
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.rabbitmq.topics.queue_sets import is_set, sets_marker


def held(url: str, topic: Topic) -> int:
    """How many messages its queues have; those that do not exist have none."""
    return sum(it or 0 for it in ready_messages(url, topic.queue_names).values())


@pytest.mark.thorough
def test_a_topic_whose_growth_was_interrupted_gets_no_set(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it died. The set alone would take what is published, confirmed, and the growth could not go on."""
    for changes in count():
        with dying(monkeypatch, changes):
            grow_topic(amqp_url, topic.name, topic.partitions + 1)
        if read_topic(amqp_url, topic.name).layout > topic.layout:
            break  # it had died after its last step but one
        with connected(amqp_url) as admin:
            is_begun = admin.exists(f"{topic.name}.v2-0")
        if not is_begun:
            continue
        with pytest.raises(TopicInUse, match=f"being grown.*cobalance topic grow {topic.name} --partitions"):
            create_topic(amqp_url, topic, group="audit")
        with channel(amqp_url) as it, suppress(UnroutableError):
            it.basic_publish(topic.name, topic.routing_key(0), b"x", mandatory=True)
            assert held(amqp_url, topic)
    assert changes > 5
    grown = grow_topic(amqp_url, topic.name, topic.partitions + 1)
    own = create_topic(amqp_url, topic, group="audit")
    try:
        with Publisher(amqp_url, topic) as publisher:
            publisher.publish("key", b"x")
        assert (held(amqp_url, grown), held(amqp_url, own)) == (1, 1)
    finally:
        delete_topic(amqp_url, own.name, force=True)


@pytest.mark.thorough
def test_a_topic_that_is_deleted_while_its_growth_is_interrupted_goes_completely(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what there is of the new layout: one that is created again would be taken for being grown."""
    for changes in count():
        with dying(monkeypatch, changes):
            grow_topic(amqp_url, topic.name, 3)
        is_over = read_topic(amqp_url, topic.name).layout > 1
        delete_topic(amqp_url, topic.name, force=True)
        with connected(amqp_url) as admin:
            assert not [name for name in Topic(topic.name, 3, layout=2).queue_names if admin.exists(name)]
            assert not [it for it in ("v2.3", "v2.3.newest", "v2") if admin.has_exchange(f"{topic.name}.{it}")]
        create_topic(amqp_url, topic)
        if is_over:
            break
    assert changes > 5
    delete_topic(amqp_url, create_topic(amqp_url, topic, group="audit").name, force=True)


def remake(url: str, topic: Topic, how: str) -> None:
    """Deletes the topic, or only its exchange, and creates it again."""
    if how == "deleted":
        delete_topic(url, topic.name, force=True)
    else:
        with connected(url) as admin:
            admin.delete_exchange(topic.name)
    create_topic(url, topic)


@pytest.mark.parametrize("how", ["deleted", "lost its exchange"])
@pytest.mark.parametrize("server", ["RabbitMQ", "memory://"])
def test_a_set_of_a_topic_that_was_made_anew_is_not_taken_for_whole(
    how: str, server: str, request: pytest.FixtureRequest
) -> None:
    """It gets nothing of it, until it is created again."""
    url = request.getfixturevalue("amqp_url") if server == "RabbitMQ" else f"memory://{unique('sets')}"
    topic = create_topic(url, Topic(unique("sets"), 2))
    own = create_topic(url, topic, group="audit")
    remake(url, topic, how)
    attempts: list[Callable[[], object]] = [
        lambda: verify_topic(url, own),
        lambda: check_topic(url, own),
        lambda: read_topic(url, own.name),
        lambda: create_topic(url, own),
    ]
    for refused in attempts:
        with pytest.raises(TopicMissing, match=f"not bound.*topic create {topic.name} --partitions N --group audit"):
            refused()
    assert create_topic(url, topic, group="audit") == own == verify_topic(url, own) == read_topic(url, own.name)
    with Publisher(url, topic) as publisher:
        publisher.publish("key", b"x")
    assert (held(url, topic), held(url, own)) == (1, 1)
    for name in (topic.name, own.name):
        delete_topic(url, name, force=True)
    with connected(url) as admin:
        assert not admin.has_exchange(f"{own.name}.v1.bound")


def test_a_set_of_a_topic_that_was_made_anew_with_another_size_is_deleted_first(topic: Topic, amqp_url: str) -> None:
    """Its queues hold messages of the former one, whose keys were elsewhere."""
    own = create_topic(amqp_url, topic, group="audit")
    delete_topic(amqp_url, topic.name, force=True)
    other = create_topic(amqp_url, Topic(topic.name, 3))
    with pytest.raises(TopicMismatch, match=f"has 2 partitions, not 3.*topic delete {own.name}"):
        create_topic(amqp_url, other, group="audit")
    delete_topic(amqp_url, own.name)
    assert create_topic(amqp_url, other, group="audit").partitions == 3
    delete_topic(amqp_url, own.name)


def test_a_set_that_has_lost_a_queue_is_made_whole_through_its_topic(topic: Topic, amqp_url: str) -> None:
    """As a topic, it would be bound to itself alone."""
    own = create_topic(amqp_url, topic, group="audit")
    with connected(amqp_url) as admin:
        admin.delete(own.queue_names[1])
    with pytest.raises(QueueMissing):
        create_topic(amqp_url, own)
    create_topic(amqp_url, topic, group="audit")
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish(None, b"x", partition=1)
    assert held(amqp_url, own) == 1
    delete_topic(amqp_url, own.name, force=True)


def test_a_publisher_does_not_begin_where_a_set_would_hide_that_a_queue_is_missing(topic: Topic, amqp_url: str) -> None:
    """RabbitMQ returns nothing that it can put into the set's queue, so the topic's own group alone would not get it."""
    own = create_topic(amqp_url, topic, group="audit")
    with connected(amqp_url) as admin:
        admin.delete(topic.queue_names[0])
    for asked_for in (topic, topic.name):
        with pytest.raises(QueueMissing, match=f"{topic.queue_names[0]}.*topic create {topic.name} --partitions 2"):
            Publisher(amqp_url, asked_for).publish(None, b"x", partition=0)
    assert held(amqp_url, own) == 0
    delete_topic(amqp_url, own.name)


def test_a_publisher_says_where_a_set_hides_that_a_queue_was_deleted(
    topic: Topic, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the set's queue alone has taken is not confirmed to the program; nothing more is published until it is back."""
    own = create_topic(amqp_url, topic, group="audit")
    with Publisher(amqp_url, topic, unseen_failures="log") as publisher:
        outcomes = [publisher.publish(None, b"x", partition=it % 2, wait=False) for it in range(200)]
        assert [it.result(WITHIN_S) for it in outcomes] == 100 * [0, 1]
        with connected(amqp_url) as admin:
            admin.delete(topic.queue_names[0])
        with pytest.raises(
            PublishFailed, match="a queue is gone, so it may be in the queues of other groups"
        ) as failure:
            publisher.publish(None, b"x", partition=0)
        assert failure.value.outcome == "unknown"
        assert f"no queue '{topic.queue_names[0]}'" in caplog.text
        with pytest.raises(QueueMissing, match=f"topic create {topic.name} --partitions 2"):
            publisher.publish(None, b"x", partition=0)
        create_topic(amqp_url, topic, group="audit")
        publisher.publish(None, b"again", partition=0)
    assert (held(amqp_url, topic), held(amqp_url, own)) == (101, 202)
    delete_topic(amqp_url, own.name, force=True)


@pytest.mark.thorough
def test_a_set_whose_creation_was_interrupted_is_not_taken_for_whole(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it died, nobody consumes queues that are not all bound. Asked for again, it goes on."""
    own = topic.for_group("audit")
    for changes in count():
        with dying(monkeypatch, changes):
            create_topic(amqp_url, topic, group="audit")
        with suppress(TopicMissing):
            assert verify_topic(amqp_url, own) == own
            with Publisher(amqp_url, topic) as publisher:
                for partition in range(2):
                    publisher.publish(None, b"x", partition=partition)
            assert held(amqp_url, own) == 2
            break
    assert changes > 10
    create_topic(amqp_url, topic, group="audit")
    delete_topic(amqp_url, own.name, force=True)


def test_a_topic_whose_sets_are_gone_can_be_grown(topic: Topic, amqp_url: str) -> None:
    """When the last of them is."""
    for group in ("audit", "reports"):
        create_topic(amqp_url, topic, group=group)
    for group in ("audit", "reports"):
        with pytest.raises(UsageError, match="has queue sets"):
            grow_topic(amqp_url, topic.name, 3)
        delete_topic(amqp_url, topic.for_group(group).name)
    assert grow_topic(amqp_url, topic.name, 3).partitions == 3


@pytest.mark.thorough
def test_what_an_interrupted_creation_has_left_of_a_set_can_be_deleted(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it died; nothing keeps the topic from being grown then."""
    own = topic.for_group("audit")
    is_over = False
    for changes in count():
        with dying(monkeypatch, changes):
            create_topic(amqp_url, topic, group="audit")
            is_over = True
        with connected(amqp_url) as admin:
            is_there = admin.has_exchange(f"{own.name}.sets")
        with nullcontext() if is_there else pytest.raises(TopicMissing):
            delete_topic(amqp_url, own.name, force=True)
        with connected(amqp_url) as admin:
            assert not any(admin.has_exchange(f"{it.name}.sets") for it in (topic, own))
        if is_over:
            break
    assert changes > 10
    assert grow_topic(amqp_url, topic.name, 3).partitions == 3


@pytest.mark.anyio
async def test_who_consumes_a_set_is_told_that_its_topic_was_made_anew(
    here: Place, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on with what it has, and gets what is published once the set was created again."""
    own, seen = create_topic(here.amqp_url, topic, group="audit"), Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    async with here.member(own.name, handle, refresh_ms=100):
        await until(lambda: set(here.resources()) == set(own.queue_names))
        await anyio.to_thread.run_sync(remake, here.amqp_url, topic, "deleted")
        await until(lambda: "not bound" in caplog.text)
        await anyio.to_thread.run_sync(lambda: create_topic(here.amqp_url, topic, group="audit"))
        with Publisher(here.amqp_url, topic) as publisher:
            publisher.publish("key", b"x")
        assert await seen.wait(1) == ["x"]
    delete_topic(here.amqp_url, own.name, force=True)


def test_no_topic_is_called_like_a_marker_of_another_one(topic: Topic, amqp_url: str) -> None:
    """``orders.sets`` kept ``orders`` from being grown, and went with it."""
    ends = ("sets", "v1", "v2", "v1.2", "v2.3", "v1.2.newest", "v1.bound")
    for end in ends:
        with pytest.raises(UsageError, match="cannot be a topic's name"):
            Topic(f"{topic.name}.{end}", 1)
    others = [Topic(f"{topic.name}{end}", 1) for end in (".dead", ".changing", "-1", ".bound", ".newest")]
    for other in others:
        create_topic(amqp_url, other)
    assert grow_topic(amqp_url, topic.name, 3) == verify_topic(amqp_url, topic)
    for other in others:
        delete_topic(amqp_url, other.name, force=True)
    assert read_topic(amqp_url, topic.name).partitions == 3


@pytest.mark.parametrize("step", ["mark_sets", "open_layout"])
def test_nothing_else_happens_to_a_topic_while_its_set_is_created(
    step: str, topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set would be left without its marker, or would get nothing of its topic."""
    own, do, ends = topic.for_group("audit"), getattr(broker, step), list[str]()

    def do_and_delete(admin: Admin, *arguments: Topic) -> None:
        do(admin, *arguments)
        for name in (own.name, topic.name):
            with suppress(TopicInUse):
                delete_topic(amqp_url, name, force=True)
                ends.append(name)

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "changing", partialmethod(Admin.changing, patience_s=0))
        patch.setattr(broker, step, do_and_delete)
        with suppress(CobalanceError):
            create_topic(amqp_url, topic, group="audit")
    assert ends == []
    with connected(amqp_url) as admin:
        assert is_set(admin, own)
        assert admin.has_exchange(sets_marker(topic.name))
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("key", b"x")
    assert held(amqp_url, own) == 1
    delete_topic(amqp_url, own.name, force=True)


def test_a_set_that_cannot_be_bound_leaves_no_marker_that_says_it_is(topic: Topic, amqp_url: str) -> None:
    """One without a binding would stay for ever, and keep the topic from being grown."""
    with connected(amqp_url) as admin:
        with pytest.raises(TopicMissing, match=f"Exchange '{topic.name}@audit.sets'"):
            admin.declare_attached(sets_marker(topic.name), f"{topic.name}@audit.sets")
        assert not admin.has_exchange(sets_marker(topic.name))
    assert grow_topic(amqp_url, topic.name, 3).partitions == 3


def test_a_marker_that_was_never_bound_goes_with_its_set(topic: Topic, amqp_url: str) -> None:
    """A creation that died has left it; that of another set is bound, and stays."""
    audit, reports = topic.for_group("audit"), topic.for_group("reports")
    with connected(amqp_url) as admin, channel(amqp_url) as it:
        admin.declare_exchange(sets_marker(audit.name), {})
        it.exchange_declare(sets_marker(topic.name), DIRECT, durable=True, auto_delete=True)
        delete_topic(amqp_url, audit.name)
        assert not admin.has_exchange(sets_marker(topic.name))
        for own in (audit, reports):
            assert create_topic(amqp_url, topic, group=own.name.partition("@")[2]) == own
        delete_topic(amqp_url, audit.name)
        assert admin.has_exchange(sets_marker(topic.name))
        delete_topic(amqp_url, reports.name)
        assert not admin.has_exchange(sets_marker(topic.name))


def test_what_is_left_of_a_set_of_another_size_is_deleted_first(topic: Topic, amqp_url: str) -> None:
    """Its creation was interrupted, and its topic created again: the number that it was to have is no remedy."""
    own = topic.for_group("audit")
    with connected(amqp_url) as admin:
        admin.declare_exchange(sets_marker(own.name), {})
        for queue in Topic(own.name, 3).queues:
            admin.declare(queue)
    with pytest.raises(TopicMismatch, match=f"{own.name}-2 exists.*topic delete {own.name}"):
        create_topic(amqp_url, topic, group="audit")
    delete_topic(amqp_url, own.name)
    assert create_topic(amqp_url, topic, group="audit") == own
    delete_topic(amqp_url, own.name)
