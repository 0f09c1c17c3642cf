"""Health, as probes ask for it: readiness that lasts, liveness that is about the engine, and no group that fails unseen."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import attrs
import pytest
from tests.faults.eventually import eventually

from cobalance import BlockingGroup, Group, Tenure
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.errors import GroupFailed, MembershipError, Unreachable
from cobalance.group import health
from cobalance.settings import GroupSettings, MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=100, revocation_timeout_ms=10_000, gather_ms=0
)
BRIEF = attrs.evolve(SETTINGS, session_timeout_ms=600)
"""For tests that wait for the end of a session."""
WITHIN_S = 60.0

_count = itertools.count()


@pytest.fixture
def url() -> str:
    """A group of its own, in this process."""
    return f"memory://health-{next(_count)}"


def made(url: str, *names: str, settings: GroupSettings = SETTINGS, **options: Any) -> Group:
    return Group("g", names or ("r",), redis_url=url, settings=settings, **options)


def shown(group: Group | BlockingGroup) -> tuple[str, bool, bool]:
    """State, liveness and readiness."""
    it = group.health
    return it.state, it.live, it.ready


def is_dead(group: Group) -> bool:
    return not group.health.live


async def test_ready_from_joining_to_leaving(url: str) -> None:
    """Not ready before, nor while it drains; always alive."""
    draining, go_on = anyio.Event(), anyio.Event()

    async def work(tenure: Tenure) -> None:
        await tenure.wait_draining()
        draining.set()
        await go_on.wait()

    group = made(url, work=work)
    assert shown(group) == ("new", True, False)
    async with anyio.create_task_group() as tasks:
        async with group:
            await group.wait_held("r")
            assert shown(group) == ("member", True, True)
            assert (group.health.reasons, group.health.member, group.health.held) == ((), group.member, 1)
            assert (group.health.heard_at or 0) > 0
            tasks.start_soon(group.leave)
            with anyio.fail_after(WITHIN_S):
                await draining.wait()
            assert shown(group) == ("draining", True, False)
            assert "handed over" in group.health.reasons[0]
            go_on.set()
        assert shown(group) == ("left", True, False)


async def test_a_member_without_any_partition_is_ready(url: str) -> None:
    """A rolling update waits for the new process before it stops the old one, which has the only partition till then."""
    async with made(url) as old:
        await old.wait_held("r")
        async with made(url) as new:
            assert (new.health.held, new.health.ready) == (0, True)


class Silent(MemoryTransport):
    """A Redis that can be cut off."""

    cut = False

    def call(self, *args: Any) -> Any:
        if self.cut:
            raise Unreachable("Redis cannot be reached.")
        return super().call(*args)


async def test_an_outage_of_redis_makes_nobody_unready(url: str) -> None:
    """Restarting every process would not bring it back; the reason says what is wrong."""
    transport = Silent(MemoryTransport.named(url.partition("://")[2]).store)
    async with made(url, settings=BRIEF, transport=transport) as group:
        await group.wait_held("r")
        transport.cut = True
        await eventually(lambda: group.health.reasons)
        assert shown(group) == ("member", True, True)
        assert "coordinator does not answer" in group.health.reasons[0]
        assert group.health.held == 0
        transport.cut = False
        await eventually(lambda: not group.health.reasons)
        await group.wait_held("r")


async def test_a_program_that_goes_on_beside_a_failed_group_is_not_ready(url: str) -> None:
    """From the moment it fails; not alive either, once it has handed over. What the exception says is not shown."""

    async def work(_: Tenure) -> None:
        raise ValueError("secret")

    group = made(url, work=work)
    await group.start()
    await eventually(lambda: group.failed)
    assert (group.health.state, group.health.ready) == ("failed", False)
    await eventually(lambda: not group.health.live)
    assert group.health.reasons == ("it has failed: a ValueError in the program's code",)
    with pytest.raises(ValueError, match="secret"):
        await group.stop()
    assert shown(group) == ("failed", False, False)


async def test_a_group_that_could_not_be_entered_has_failed(url: str) -> None:
    """Whatever refused it: it stays out, and says why, though without what the program's own exception says."""

    class Refused(Group):
        async def _prepare(self) -> None:
            raise ValueError("secret")

    class Late(Group):
        async def _enter_group(self) -> None:
            await super()._enter_group()
            raise Unreachable("RabbitMQ cannot be reached.")

    silent = Silent(MemoryTransport.named("silent").store)
    silent.cut = True
    refusals = [
        (made(url, transport=silent), "it was not entered: Redis cannot be reached."),
        (Refused("g", ["r"], redis_url=url), "it was not entered: a ValueError"),
        (Late("g", ["r"], redis_url=url), "it was not entered: RabbitMQ cannot be reached."),
    ]
    for group, reason in refusals:
        with pytest.raises((Unreachable, ValueError)) as caught:
            async with group:
                pass
        await eventually(partial(is_dead, group))  # once its threads have ended
        assert shown(group) == ("failed", False, False)
        assert group.health.reasons == (reason,)
        assert group.failed is caught.value


async def test_a_group_that_was_left_before_it_was_entered_has_not_failed(url: str) -> None:
    """Its entry was cancelled, or somebody stopped it."""

    class Slow(Group):
        async def _prepare(self) -> None:
            await anyio.sleep_forever()

    cancelled, stopped = Slow("g", ["r"], redis_url=url), Slow("g", ["r"], redis_url=url)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await cancelled.__aenter__()
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            with pytest.raises(MembershipError):
                await stopped.start()

        tasks.start_soon(start)
        await eventually(lambda: stopped.membership.is_open)
        await stopped.stop()
    for group in (cancelled, stopped):
        assert shown(group) == ("left", True, False)
        assert group.failed is None


async def test_a_member_that_a_bug_of_ours_has_ended_is_not_alive(url: str) -> None:
    """Its engine stopped, so nothing keeps it going."""
    group = made(url)
    await group.start()
    group.membership.engine._events.put(RuntimeError("a bug"))
    await eventually(lambda: not group.health.live)
    assert shown(group) == ("failed", False, False)
    with pytest.raises(GroupFailed):
        await group.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that does nothing for two session timeouts is not alive."""
    monkeypatch.setattr(health, "LEAST_SILENCE_MS", 0)


class Held(Group):
    """A group whose engine can be made to hang."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self._sample = self.membership.sample
        self.membership.sample = self.sample  # type: ignore[method-assign]

    def sample(self) -> Iterator[Any]:
        if self.hangs.is_set():
            self.go_on.wait(WITHIN_S)
        return self._sample()


@pytest.mark.usefixtures("impatient")
async def test_an_engine_that_hangs_is_not_alive(url: str) -> None:
    """Whatever else works."""
    async with Held("g", ("r",), redis_url=url, settings=BRIEF) as group:
        await group.wait_held("r")
        group.hangs.set()
        await eventually(lambda: not group.health.live)
        assert "has done nothing for" in group.health.reasons[-1]
        group.hangs.clear()
        group.go_on.set()
        await eventually(lambda: group.health.live)


@pytest.mark.usefixtures("impatient")
async def test_a_handler_that_hangs_leaves_its_member_alive(url: str) -> None:
    """It costs its resource, and not the process."""
    begun = anyio.Event()

    async def work(tenure: Tenure) -> None:
        with tenure.processing():
            begun.set()
            await anyio.sleep_forever()

    own = MemberSettings(max_processing_ms=60_000, drain_timeout_ms=100)
    async with made(url, work=work, member=own) as group:
        await begun.wait()
        heard_at = group.health.heard_at or 0
        await eventually(lambda: (group.health.heard_at or 0) > heard_at + 2)
        assert shown(group) == ("member", True, True)


def test_a_group_of_threads_has_the_same_health(url: str) -> None:
    """From any thread."""
    group = BlockingGroup("g", ("r",), redis_url=url, settings=SETTINGS)
    assert shown(group) == ("new", True, False)
    with group:
        assert shown(group) == ("member", True, True)
    assert shown(group) == ("left", True, False)
