"""The public API as users write it, checked by mypy in strict mode and never executed."""

from __future__ import annotations

from typing import assert_type

from cobalance import (
    AsyncPublisher,
    Batch,
    BlockingConsumerGroup,
    BlockingTenure,
    CobalanceError,
    ConsumerGroup,
    Delivery,
    Group,
    GroupAdmin,
    GroupDescription,
    GroupSettings,
    MemberSettings,
    Publisher,
    Queue,
    Retention,
    Retries,
    StreamSettings,
    Tenure,
    Topic,
    run,
)
from cobalance.admin import Resumed
from cobalance.errors import Fenced, ServerError
from cobalance.operate import GroupMetrics, ProbeServer, ProcessMetrics, Scaling, ScalingSettings, Telemetry, snapshot
from cobalance.rabbitmq import BoundQueues, MatchingQueues, create_topic, grow_topic, partition_of
from cobalance.rabbitmq.dropin.connection import GroupConnection

URL = "amqp://localhost"
SETTINGS = GroupSettings(session_timeout_ms=6_000, heartbeat_interval_ms=2_000)
MEMBER = MemberSettings(capacity=2, instance_id="pod-0")
TOPIC = Topic("orders", 12, "quorum", delivery_limit=5)


async def handle(delivery: Delivery) -> None:
    assert_type(delivery.body, bytes)
    assert_type(delivery.token, int)
    assert_type(delivery.redelivered, bool)
    assert_type(delivery.queue, str)
    assert_type(delivery.offset, int | None)


def handle_in_thread(delivery: Delivery) -> None:
    del delivery


async def handle_batch(deliveries: list[Delivery]) -> None:
    assert_type(deliveries[0].earlier_tries, int | None)


async def changed(tenures: list[Tenure]) -> None:
    """Fits any of the callbacks."""
    for tenure in tenures:
        assert_type(tenure.resource, str)
        assert_type(tenure.token, int)
        assert_type(tenure.committed, int | None)


async def work(tenure: Tenure) -> None:
    """Work on any resource."""
    while tenure.active:
        with tenure.processing():
            await tenure.commit(1)


async def members() -> None:
    """Groups of every kind."""
    async with Group(
        "copies",
        ["a", "b"],
        redis_url="redis://localhost",
        settings=SETTINGS,
        member=MEMBER,
        work=work,
        on_assigned=changed,
        on_revoked=changed,
        on_lost=changed,
    ) as group:
        assert_type(group, Group)
        assert_type(group.tenures, dict[str, Tenure])
        assert_type(await group.wait_held("a"), list[Tenure])
        assert_type(await group.describe(), GroupDescription)
        assert_type(group.health.ready, bool)
        with ProbeServer(group, port=0, hosts=["billing"]) as server:
            assert_type(server.port, int)
        async with group.leadership("a") as role:
            assert_type(role, Tenure)
        try:
            await group.commit("a", 1)
        except Fenced as error:
            assert_type(str(error), str)
        await group.leave(remain=False)
    metrics, telemetry = ProcessMetrics(), Telemetry(join_traces=True)
    async with ConsumerGroup(
        "billing", TOPIC, handle, ack="manual", prefetch=10, metrics=metrics, telemetry=telemetry
    ) as consumers:
        assert_type(consumers, ConsumerGroup)
        consumers.pause("orders-1")
        assert_type(consumers.paused, frozenset[str])
        consumers.resume("orders-1")


def programs() -> None:
    run(ConsumerGroup("billing", "orders", handle_in_thread, amqp_url=URL, on_error="dead_letter"))
    run(ConsumerGroup("billing", [Queue("a"), "b"], handle), backend="trio")
    run(ConsumerGroup("billing", BoundQueues("x"), handle_batch, batch=Batch(10, within_ms=5), prefetch=10))
    run(ConsumerGroup("billing", MatchingQueues("a.*"), handle, retries=Retries(1, first_ms=5), on_error="halt"))
    kept = Topic("payments", 4, "stream", retention=Retention(max_age="7D"))
    run(ConsumerGroup("revenue", kept, handle, streams=StreamSettings(start=7, on_unknown_offset="stop", lock=True)))
    run(
        ConsumerGroup(
            "revenue", kept, handle, streams=StreamSettings(start="next", commit_every=1, commit_interval_ms=5)
        )
    )
    with GroupConnection(URL, group="billing", redis_url="redis://localhost", telemetry=Telemetry()) as connection:
        connection.channel().start_consuming()


def administer() -> None:
    """What ``cobalance group`` does."""
    with GroupAdmin("redis://localhost", amqp_url=URL, key_prefix="staging") as admin:
        admin.create("billing", SETTINGS)
        assert_type(admin.list(), tuple[str, ...])
        described = admin.describe("billing")
        assert_type(described.resources[0].committed, int | None)
        assert_type(described.members[0].quota, tuple[int, int])
        assert_type(described.settings, GroupSettings)
        assert_type(admin.lag("billing"), dict[str, int | None])
        assert_type(admin.metrics("billing", partitions=True), GroupMetrics)
        assert_type(admin.watch("billing").snapshot(), GroupDescription)
        assert_type(snapshot("billing", amqp_url=None).resources[0].backlog.lag, int | None)
        scaling = Scaling(ScalingSettings(least=2, in_after_ms=900_000))
        assert_type(scaling.judge(admin.watch("billing").snapshot()).members, int | None)
        assert_type(admin.resume("billing", "orders-3")["orders-3"], Resumed)
        admin.reset_offsets("billing", admin.plan_offsets("billing", "earliest"))
        admin.reset_offsets("billing", {"films": -1})
        assert_type(admin.repair("billing").torn, bool)
        admin.delete("billing", force=True)


async def publish() -> None:
    """Both publishers."""
    assert_type(create_topic(URL, TOPIC), Topic)
    assert_type(grow_topic(URL, "orders", 24).layout, int)
    assert_type(partition_of("key", 12), int)
    with Publisher(URL, TOPIC, telemetry=Telemetry()) as publisher:
        assert_type(publisher.publish("key", b"body", {"h": 1}, wait=False).result(), int)
        publisher.publish(None, "text", partition=3, message_id="m", reply_to=None, expiration_ms=5)
    async with AsyncPublisher(URL, "orders") as asynchronous:
        assert_type(await asynchronous.publish(b"key", b"body"), int)


def outcome(error: CobalanceError) -> str:
    """Whether a failed call may have happened."""
    return error.outcome if isinstance(error, ServerError) else "not_executed"


def told(tenures: list[BlockingTenure]) -> None:
    """A callback in a thread."""
    assert_type(tenures[0].active, bool)


def told_plainly(tenures: list[Tenure]) -> None:
    """A plain callback of a group on an event loop."""
    assert_type(tenures[0].token, int)


def without_an_event_loop() -> None:
    """Everything in threads."""
    group = BlockingConsumerGroup(
        "billing", TOPIC, handle_in_thread, on_assigned=told, prefetch=10, connect_timeout_s=30
    )
    group.start()
    assert_type(group.tenures, dict[str, BlockingTenure])
    assert_type(group.failed, BaseException | None)
    group.stop()


async def in_a_lifespan() -> None:
    """Started here, stopped there."""
    group = ConsumerGroup("billing", TOPIC, handle, on_lost=told_plainly)
    await group.start()
    await group.stop()


def in_tests() -> None:
    """Without servers."""
    assert_type(Delivery.fake(b"{}", key="customer-1", headers={"n": 1}, topic=TOPIC), Delivery)
    assert_type(Tenure.fake("photos", commits=[]), Tenure)
