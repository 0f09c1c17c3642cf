"""Groups are administered from Python, on a real Redis with working members."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
from tests.faults.eventually import eventually
from tests.names import unique
from tests.streams import new_stream

from cobalance import BlockingGroup, ConsumerGroup, Group, GroupAdmin, GroupSettings, Publisher, Tenure, Topic
from cobalance.admin import Shift
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Join, Request
from cobalance.errors import GroupActive, GroupExists, QueueMissing, UnknownGroup, Unreachable, UsageError
from cobalance.rabbitmq import create_topic, delete_topic

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=250, rejoin_grace_ms=0, gather_ms=0)
BRIEF = attrs.evolve(SETTINGS, session_timeout_ms=900)
"""For tests that wait for the end of a session."""
NAMES = ("films", "photos", "songs", "texts")


@pytest.fixture
def admin(redis_url: str, amqp_url: str) -> Iterator[GroupAdmin]:
    """On the shared servers."""
    with GroupAdmin(redis_url, amqp_url=amqp_url) as made:
        yield made


@pytest.fixture
def name(admin: GroupAdmin) -> str:
    name = unique("admin")
    admin.create(name, SETTINGS)
    return name


# -- making and deleting -------------------------------------------------------------------------------------------------


def test_a_group_from_its_creation_to_its_end(admin: GroupAdmin) -> None:
    """Created, listed, configured, deleted; doing so twice is an error that says so."""
    name = unique("admin")
    admin.create(name)
    with pytest.raises(GroupExists):
        admin.create(name)
    assert name in admin.list()
    assert admin.configure(name, gather_ms=10).gather_ms == admin.settings(name).gather_ms == 10
    assert [entry.kind for entry in admin.journal(name).entries()] == ["incarnation", "configured", "configured"]
    admin.delete(name)
    assert name not in admin.list()
    for ask in (admin.delete, admin.describe, admin.repair, admin.settings, admin.journal, admin.trust_offsets):
        with pytest.raises(UnknownGroup):
            ask(name)


def test_a_group_with_a_member_is_not_deleted(admin: GroupAdmin, name: str, redis_url: str) -> None:
    """Without force. It can be deleted once the member has left."""
    with BlockingGroup(name, NAMES, redis_url=redis_url) as member:
        member.wait_held(*NAMES)
        with pytest.raises(GroupActive, match="has members"):
            admin.delete(name)
    admin.delete(name)


async def test_members_that_crashed_are_waited_for(admin: GroupAdmin, name: str, redis_url: str) -> None:
    """Nothing was there to end their sessions."""
    admin.configure(name, session_timeout_ms=BRIEF.session_timeout_ms)
    transport = open_transport(redis_url)
    Coordinator(transport, name).execute(Request(Header("m.1", 1), Join(settings=BRIEF)))
    transport.close()
    with pytest.raises(GroupActive):
        admin.delete(name)
    await eventually(lambda: admin.describe(name).state == "Empty")
    await anyio.to_thread.run_sync(admin.delete, name)
    assert name not in admin.list()


async def test_by_force_no_two_are_ever_at_work(admin: GroupAdmin, name: str, redis_url: str) -> None:
    """Two members and a new one, while the group is deleted again and again: tokens increase, offsets of held resources
    stay, and each resource is worked by one member at a time.
    """
    at_work: dict[str, int] = {}
    highest: dict[str, int] = {}
    overlaps: list[str] = []

    async def work(tenure: Tenure) -> None:
        if at_work.get(tenure.resource) or tenure.token <= highest.get(tenure.resource, 0):
            overlaps.append(tenure.resource)
        at_work[tenure.resource], highest[tenure.resource] = tenure.token, tenure.token
        try:
            await tenure.commit((tenure.committed or 0) + 1)
            await tenure.wait_draining()
        finally:
            at_work[tenure.resource] = 0

    def member() -> Group:
        return Group(name, NAMES, redis_url=redis_url, settings=BRIEF, work=work)

    def joined() -> set[str]:
        return {it.id for it in admin.describe(name).members} if name in admin.list() else set()

    admin.configure(name, session_timeout_ms=BRIEF.session_timeout_ms)
    with anyio.fail_after(180):
        async with member() as first, member() as second:
            await eventually(lambda: len(first.tenures) == len(second.tenures) == 2)
            for _ in range(3):
                ids = {first.member, second.member}
                await anyio.to_thread.run_sync(lambda: admin.delete(name, force=True))
                # A member has its next id before it joins with it: only what it joined with is taken away by the next
                # round.
                await eventually(lambda ids=ids: len(joined() - ids) == 2)  # type: ignore[misc]
            assert {*first.tenures, *second.tenures} == set(NAMES)
            async with member() as newcomer:
                await newcomer.wait_held()
                await eventually(lambda: len(first.tenures) + len(second.tenures) + len(newcomer.tenures) == 4)
    assert overlaps == []
    assert all(row.committed for row in admin.describe(name).resources)


# -- looking -------------------------------------------------------------------------------------------------------------


async def test_a_description_is_made_of_values(admin: GroupAdmin, name: str, redis_url: str) -> None:
    """The owner and offset of each resource, and the settings in force."""
    async with Group(name, NAMES[:2], redis_url=redis_url) as member:
        await member.wait_held(*NAMES[:2])
        await member.commit("films", 7)
        found = await anyio.to_thread.run_sync(admin.describe, name)
        of_itself = await member.describe()
        rows, at_ms = found.resources, found.at_ms
        assert found == attrs.evolve(of_itself, members=found.members, resources=rows, at_ms=at_ms)
        assert of_itself.at_ms >= found.at_ms
        tokens = {it.resource: it.token for it in member.tenures.values()}
    assert (found.name, found.state, found.settings) == (name, "Stable", SETTINGS)
    (it,) = found.members
    assert (it.id, it.state, it.capacity, it.quota, it.pending) == (found.coordinator, "active", 1, (2, 2), 0)
    assert it.resources == NAMES[:2]
    assert it.host == it.label.split("/")[0]
    assert it.expires_in_ms is not None
    assert 0 < it.expires_in_ms <= SETTINGS.session_timeout_ms
    assert {row.name: (row.state, row.owner, row.token, row.committed) for row in found.resources} == {
        "films": ("held", it.id, tokens["films"], 7),
        "photos": ("held", it.id, tokens["photos"], None),
    }
    assert found.are_alike
    assert (found.expires_at, found.offsets_known) == (None, True)


async def test_what_members_name_and_what_was_let_go_is_told(admin: GroupAdmin, name: str, redis_url: str) -> None:
    """Each member's list if they differ. A resource that no list names any more keeps its offset."""
    async with Group(name, ("films", "photos"), redis_url=redis_url) as old:
        await old.wait_held("films", "photos")
        await old.commit("films", 41)
        async with Group(name, ("photos", "songs"), redis_url=redis_url) as new:
            await new.wait_held("songs")
            found = admin.describe(name)
            assert not found.are_alike
            named = {it.id: it.resources for it in found.subscriptions}
            assert {it.id: named[it.subscription] for it in found.members} == {
                old.member: ("films", "photos"),
                new.member: ("photos", "songs"),
            }
            await old.leave()
            await eventually(lambda: admin.describe(name).let_go)
            found = admin.describe(name)
    (gone,) = found.let_go
    assert (gone.name, gone.committed) == ("films", 41)
    assert 6.9 < gone.forgotten_in_ms / 86_400_000 <= 7
    assert {row.name for row in found.resources} == {"photos", "songs"}
    assert all(row.is_named for row in found.resources)


async def test_lag_is_told_for_queues_and_streams(admin: GroupAdmin, name: str, redis_url: str, amqp_url: str) -> None:
    """It is unknown for other resources. Without RabbitMQ it is an error."""
    topic = Topic(unique("admin"), 1)
    create_topic(amqp_url, topic)
    with new_stream(amqp_url, 10) as stream, Publisher(amqp_url, topic) as publisher:
        for _ in range(3):
            publisher.publish("key", b"x")
        (queue,) = topic.queue_names
        async with Group(name, [queue, stream.name, "no-queue"], redis_url=redis_url) as member:
            await member.wait_held(queue, stream.name, "no-queue")
            await member.commit(stream.name, 5)
        found = await anyio.to_thread.run_sync(admin.lag, name)
        assert found == {queue: 3, stream.name: 4, "no-queue": None}
        with GroupAdmin(redis_url, amqp_url="amqp://127.0.0.1:1") as elsewhere, pytest.raises(Unreachable):
            await anyio.to_thread.run_sync(elsewhere.lag, name)
    delete_topic(amqp_url, topic.name, force=True)


# -- putting right -------------------------------------------------------------------------------------------------------


async def test_a_halted_partition_is_resumed_by_the_name_it_is_shown_by(
    admin: GroupAdmin, name: str, redis_url: str, amqp_url: str
) -> None:
    """Or by topic and number. The result says what is not halted or does not exist."""
    topic, tries = Topic(unique("admin"), 2), itertools.count(1)
    create_topic(amqp_url, topic)
    bad = True

    async def handle(_: object) -> None:
        next(tries)
        if bad:
            raise ValueError("no such customer")

    def halted() -> list[str]:
        return [row.name for row in admin.describe(name).resources if row.halted]

    with Publisher(amqp_url, topic) as publisher:
        publisher.publish(None, b"x", partition=1)
    async with ConsumerGroup(name, topic, handle, retries=0, on_error="halt", redis_url=redis_url, amqp_url=amqp_url):
        await eventually(halted)
        (shown,) = (row for row in admin.describe(name).resources if row.halted)
        assert (shown.name, shown.state) == (f"{topic.name}-1", "halted")
        assert "ValueError" in str(shown.halted)
        bad = False
        assert admin.resume(name, shown.name, f"{topic.name}:0", "nothing") == {
            f"{topic.name}-1": "resumed",
            f"{topic.name}-0": "not_halted",
            "nothing": "unknown",
        }
        await eventually(lambda: next(tries) > 2)
        assert halted() == []
        assert admin.resume(name, every=True) == {}
        with pytest.raises(UsageError, match="Name the partitions"):
            admin.resume(name)
        with pytest.raises(UsageError, match="Name the partitions"):
            admin.resume(name, "x", every=True)
    delete_topic(amqp_url, topic.name, force=True)


@pytest.mark.parametrize("offsets", ["earliest", None, 3, [("films", 3)]], ids=str)
def test_offsets_that_are_none_are_refused(admin: GroupAdmin, name: str, offsets: Any) -> None:
    """A plan's steps, or a dictionary."""
    with pytest.raises(UsageError, match="give what plan_offsets"):
        admin.reset_offsets(name, offsets)


@pytest.mark.parametrize("settings", [{}, {"session_timeout_ms": 9_000}, 0], ids=str)
def test_a_group_is_not_created_with_what_are_no_settings(admin: GroupAdmin, name: str, settings: Any) -> None:
    """An empty dictionary was taken for the defaults."""
    with pytest.raises(UsageError, match="give a GroupSettings"):
        admin.create(name, settings)


async def test_offsets_are_planned_and_reset(admin: GroupAdmin, name: str, redis_url: str, amqp_url: str) -> None:
    """A plan changes nothing; it needs a stream. A plain mapping works for other resources."""
    with new_stream(amqp_url, 10) as stream:
        async with Group(name, [stream.name, "films"], redis_url=redis_url) as member:
            await member.wait_held(stream.name, "films")
            await member.commit(stream.name, 5)
            await member.commit("films", 7)

        def committed() -> dict[str, int | None]:
            return {row.name: row.committed for row in admin.describe(name).resources}

        def reset() -> None:
            (step,) = admin.plan_offsets(name, Shift(-2), [stream.name])
            assert (step.next, committed()[stream.name]) == (4, 5)
            assert admin.plan_offsets(name, {stream.name: 0})[0].committed == -1
            admin.reset_offsets(name, [step])
            admin.reset_offsets(name, {"films": -1})
            assert committed() == {stream.name: 3, "films": -1}
            with pytest.raises(QueueMissing):
                admin.plan_offsets(name, "latest", ["films"])

        await anyio.to_thread.run_sync(reset)


def test_the_journal_has_on_whose_behalf_a_change_is(admin: GroupAdmin, name: str) -> None:
    """If that is said, of that one only; and a name that could be mistaken for something else is refused."""
    admin.on_behalf_of("alice").configure(name, gather_ms=1)
    admin.configure(name, gather_ms=2)
    assert [it.by for it in admin.journal(name).entries() if it.kind == "configured"] == [None, "alice", None]
    for wrong in ("", "two words", "x" * 300, "a\nb"):
        with pytest.raises(UsageError, match="user"):
            admin.on_behalf_of(wrong)


def test_a_repair_says_what_it_found(admin: GroupAdmin, name: str) -> None:
    """Usually nothing."""
    mended = admin.repair(name)
    assert (mended.torn, mended.changed) == (False, {})


@pytest.mark.parametrize("wrong", [{"redis_url": 3}, {"amqp_url": "x"}, {"management_url": "x"}, {"key_prefix": "{x}"}])
def test_what_cannot_be_is_refused_where_it_is_given(wrong: dict[str, Any]) -> None:
    """By its name."""
    with pytest.raises(UsageError, match=next(iter(wrong)).replace("_", "[_ ]") + "|AMQP URL"):
        GroupAdmin(**wrong)
