"""RabbitMQ's mark of a group that reads a stream is deleted with the group, and with the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import anyio.from_thread
import anyio.to_thread
import pytest
from pika import exceptions as pika_errors
from pika.exchange_type import ExchangeType
from tests.cli_process import cobalance
from tests.consumers import Place, channel, place, until
from tests.names import unique
from tests.rabbitmq_user import new_user
from tests.reading import Reading, committed, member, settings
from tests.streams import Stream, connected, new_stream

from cobalance import Delivery, Tenure
from cobalance.admin import GroupAdmin
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import EVERYBODY
from cobalance.coordinator.open import open_transport
from cobalance.errors import GroupActive, PermissionMissing, QueueMissing
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.streams import reading_mark
from cobalance.rabbitmq.streams.reading_mark import mark, mark_name, may_configure, may_mark
from cobalance.servers import OwnRabbitMQ

pytestmark = pytest.mark.anyio


@pytest.fixture
def here(amqp_url: str, redis_url: str) -> Iterator[Place]:
    """Real servers, and a group that seems to have been created by its first member."""
    with place(amqp_url, redis_url) as it:
        it.doubt_offsets()
        yield it


def is_marked(here: Place, stream: Stream) -> bool:
    try:
        with channel(here.amqp_url) as it:
            it.exchange_declare(mark_name(here.coordinator.scope, stream.name), passive=True)
    except pika_errors.ChannelClosedByBroker as error:
        assert error.reply_code == 404  # noqa: PT017
        return False
    return True


async def start_next(here: Place, stream: Stream) -> None:
    """Reads from the next message on."""
    async with member(here, stream, Reading(), start="next"):
        await until(lambda: committed(here, stream) == 9)
    assert is_marked(here, stream)


@pytest.mark.parametrize("way", ["python", "shell"])
async def test_a_deleted_group_is_forgotten(here: Place, stream: Stream, way: str) -> None:
    """A new group of the same name is new to the stream, and just starts."""
    await start_next(here, stream)
    if way == "python":
        with closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
            admin.delete(here.group)
    else:
        urls = {"COBALANCE_AMQP_URL": here.amqp_url, "COBALANCE_REDIS_URL": here.redis_url}
        assert cobalance("group", "delete", here.group, environment=urls).code == 0
    assert not is_marked(here, stream)
    await start_next(here, stream)


async def test_a_group_can_be_deleted_without_rabbitmq(here: Place, stream: Stream) -> None:
    """Then the mark remains."""
    await start_next(here, stream)
    with closing(GroupAdmin(here.redis_url, amqp_url="amqp://127.0.0.1:1")) as admin:
        admin.delete(here.group)
        assert here.group not in admin.list()
    assert is_marked(here, stream)


async def test_a_deleted_group_is_forgotten_by_streams_that_have_left_its_list(here: Place, stream: Stream) -> None:
    """Their offsets are kept for a while, and are deleted as well."""
    await start_next(here, stream)
    with new_stream(here.amqp_url) as other, closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
        async with member(here, other, Reading()):
            await until(lambda: set(here.resources()) == {other.name})
        assert is_marked(here, stream)
        admin.delete(here.group)
    assert not is_marked(here, stream)


async def test_a_deletion_forgets_streams_that_were_read_while_it_waited(here: Place, stream: Stream) -> None:
    """A process still listened, and another one came and left."""
    listening = threading.Event()
    with (
        closing(open_transport(here.redis_url)) as transport,
        closing(transport.listen(lambda *_: listening.set())) as listener,
        closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin,
    ):
        listener.subscribe(here.coordinator.channel(EVERYBODY))
        assert await anyio.to_thread.run_sync(listening.wait, 30)

        def read() -> None:
            anyio.from_thread.run(start_next, here, stream)
            listener.close()

        await anyio.to_thread.run_sync(lambda: admin.delete(here.group, on_waiting=read))
    assert not is_marked(here, stream)


async def test_groups_under_other_key_prefixes_have_marks_of_their_own(here: Place, stream: Stream) -> None:
    """Another environment's group of that name has read the stream that was created again: to this one it is unknown."""
    await start_next(here, stream)
    stream.make_anew()
    stream.append(20)
    theirs = Reading()
    async with member(here, stream, theirs, start="first", key_prefix="cobalance:staging"):
        await theirs.wait(20)
    assert not is_marked(here, stream)
    async with member(here, stream, Reading()):
        await until(lambda: here.journal("halted"))
    assert committed(here, stream) == 9


async def test_a_deleted_stream_takes_it_along(here: Place, stream: Stream) -> None:
    """Whichever program deletes it."""
    await start_next(here, stream)
    with channel(here.amqp_url) as it:
        it.queue_delete(stream.name)
    assert not is_marked(here, stream)


async def test_a_seek_before_anything_was_read_makes_it(here: Place, stream: Stream) -> None:
    """As Kafka's programs do it in on_assigned: what is committed afterwards can be lost like any other offset."""

    async def go_back(tenures: list[Tenure]) -> None:
        for tenure in tenures:
            await group.seek(tenure.resource, "first")

    group = member(here, stream, Reading(), start="next", commit_every=1, on_assigned=go_back)
    async with group:
        await until(lambda: committed(here, stream) == 9)
    assert is_marked(here, stream)


async def test_half_a_mark_goes_with_the_stream_as_well(here: Place, stream: Stream) -> None:
    """Its maker died before it was bound; the next look binds it."""
    await start_next(here, stream)
    with channel(here.amqp_url) as it:
        it.exchange_delete(mark_name(here.coordinator.scope, stream.name))
        it.exchange_declare(
            mark_name(here.coordinator.scope, stream.name), ExchangeType("direct"), durable=True, auto_delete=True
        )
    async with member(here, stream, Reading(), commit_every=1):
        stream.append(1)
        await until(lambda: committed(here, stream) == 10)
    stream.delete()
    assert not is_marked(here, stream)


async def test_a_reset_that_is_refused_does_not_make_it(here: Place, stream: Stream) -> None:
    """The next member would take a stream created again for the one that was read, and skip what comes before the offset."""
    await start_next(here, stream)
    stream.make_anew()
    stream.append(20)
    with new_stream(here.amqp_url) as other, closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
        async with member(here, other, Reading()):
            await until(lambda: committed(here, other) == -1)
            with pytest.raises(GroupActive):
                admin.reset_offsets(here.group, {stream.name: 5})
            assert not is_marked(here, stream)
    async with member(here, stream, Reading()):
        await until(lambda: here.journal("halted"))
    assert committed(here, stream) == 9


@pytest.mark.parametrize("halts", [False, True])
async def test_a_reset_that_was_planned_for_another_stream_does_not_make_it(
    here: Place, stream: Stream, *, halts: bool
) -> None:
    """It was created again between the plan and the reset: the next member finds out, and skips nothing."""
    await start_next(here, stream)
    with closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
        steps = admin.plan_offsets(here.group, 5, [stream.name])
        stream.make_anew()
        stream.append(20)
        if halts:
            async with member(here, stream, Reading()):
                await until(lambda: here.journal("halted"))
        admin.reset_offsets(here.group, steps)
    assert not is_marked(here, stream)
    async with member(here, stream, Reading()):
        await until(lambda: len(here.journal("halted")) == 1 + halts)
    assert committed(here, stream) == 4


@pytest.mark.parametrize("refused", [False, True], ids=["done", "refused"])
async def test_a_reset_makes_it_before_it_resumes_the_stream(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    """Whatever it was halted for, and created again since: the next holder may look at once. A refused one does not."""
    marked: list[bool] = []
    reset = Coordinator.reset_offsets

    def note(self: Coordinator, offsets: Mapping[str, int]) -> Sequence[str]:
        marked.append(is_marked(here, stream))
        return reset(self, offsets)

    def fail(_: Delivery) -> None:
        raise ValueError

    await start_next(here, stream)
    stream.append(1)
    monkeypatch.setattr(Coordinator, "reset_offsets", note)
    with new_stream(here.amqp_url) as other, closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
        streams = settings(start="first")
        async with here.member([stream.name, other.name], fail, streams=streams, on_error="halt", retries=0):
            await until(lambda: here.journal("halted") and committed(here, other) == -1)
            stream.make_anew()
            if refused:
                with pytest.raises(GroupActive):
                    admin.reset_offsets(here.group, {stream.name: -1, other.name: -1})
            else:
                assert list(admin.reset_offsets(here.group, {stream.name: -1})) == [stream.name]
        assert set(marked) == {not refused}
        assert is_marked(here, stream) is not refused


@pytest.mark.parametrize(("configure", "may"), [(".*", True), (r"^cobalance\.read\..*", True), ("^stream", False)])
@pytest.mark.thorough
def test_whether_a_stream_may_be_marked_is_found_out_without_a_mark(
    private_rabbitmq: OwnRabbitMQ, configure: str, *, may: bool
) -> None:
    """Or the question would hide from the next one that there was none."""
    user = unique("user")
    private_rabbitmq.control("add_user", user, "secret")
    private_rabbitmq.control("set_permissions", user, configure, ".*", ".*")
    url = private_rabbitmq.url.replace("guest:guest", f"{user}:secret")
    with new_stream(private_rabbitmq.url) as made, connected(url) as connection:
        assert may_mark(connection, "group", made.name).result(60) is may
        assert not reading_mark.is_marked(connection, "group", made.name).result(60)
        assert mark(connection, "group", made.name).result(60) is may
        assert reading_mark.is_marked(connection, "group", made.name).result(60) is may


@pytest.mark.parametrize(("configure", "may"), [("^stream", True), (r"^cobalance\.read\..*", False)])
@pytest.mark.thorough
def test_who_may_not_declare_a_stream_is_told_apart(
    private_rabbitmq: OwnRabbitMQ, configure: str, *, may: bool
) -> None:
    """Whatever it is like now: that is found out when it is consumed."""
    with (
        new_user(private_rabbitmq) as user,
        new_stream(private_rabbitmq.url) as made,
        connected(user.url) as connection,
    ):
        user.permit(configure=configure)
        for queue in (made.queue, Queue(made.name, {"x-queue-type": "quorum"})):
            if may:
                assert may_configure(connection, queue).result(60)
            else:
                with pytest.raises(PermissionMissing):
                    may_configure(connection, queue).result(60)
        with pytest.raises(QueueMissing):
            may_configure(connection, Queue(unique("stream"), made.queue.arguments)).result(60)
