"""The group's own tasks: whatever ends one of them ends the membership, and is reported at once, as a handler's failure is."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import pytest
from tests.consumers import WITHIN_S, Place, new_topic
from tests.streams import cut

from cobalance import Delivery
from cobalance.rabbitmq.consume.discovery import Discovery
from cobalance.rabbitmq.consume.fencing import Fence, Fencing
from cobalance.rabbitmq.topics.other_groups import OtherGroups
from cobalance.rabbitmq.wire.reconnection import Reconnection

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def handle(_: Delivery) -> None: ...


@pytest.mark.parametrize(
    ("service", "method"), [(Discovery, "run"), (Fencing, "run"), (OtherGroups, "watch"), (Reconnection, "run")]
)
async def test_whatever_ends_a_service_of_the_group_is_logged_stored_and_raised(
    here: Place, service: type, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not raised for the first time when the group is left, while health knows of a normal leave."""
    begun = anyio.Event()

    async def fail(*_: object) -> None:
        await begun.wait()
        raise KeyError("a bug of ours")

    monkeypatch.setattr(service, method, fail)
    with new_topic(here.amqp_url) as topic:
        group = here.member(topic.name, handle, management_url="http://guest:guest@127.0.0.1:1")
        await group.start()
        with anyio.fail_after(WITHIN_S):
            await group.wait_held()
            begun.set()
            if service is Reconnection:
                cut(group.partitions.connection)
            await group.wait_left()
        assert isinstance(group.failed, KeyError)
        assert group.health.state == "failed"
        assert group.health.reasons == ("it has failed: a KeyError in the group's own code",)
        told = [it.getMessage() for it in caplog.records if "KeyError" in it.getMessage()]
        assert len(told) == 1
        assert "report this" in told[0]
        with pytest.raises(KeyError):
            await group.stop()


async def test_a_group_is_left_while_a_frozen_member_is_looked_for(here: Place) -> None:
    """The management API may take its whole time for each of its answers."""
    begun, answered = threading.Event(), threading.Event()

    class Slow(Fence):
        def sweep(self) -> int:
            begun.set()
            answered.wait(WITHIN_S)
            answered.set()
            return 0

    fencing = Fencing(Slow(here.coordinator, here.amqp_url, "http://127.0.0.1:1"), 1_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fencing.run)
        fencing.look()
        await anyio.to_thread.run_sync(begun.wait)
        tasks.cancel_scope.cancel()
    assert not answered.is_set()
    answered.set()
