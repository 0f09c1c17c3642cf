"""A program's own group settings, and those in force."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial

import anyio
import attrs
import pytest
from tests.consumers import until
from tests.names import unique

from cobalance import BlockingGroup, Group, GroupSettings
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.group.engine import call_timeout_ms

pytestmark = pytest.mark.anyio

STORED = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500, gather_ms=0)
OTHER = attrs.evolve(STORED, session_timeout_ms=9_000, gather_ms=77)


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{unique('m')}" if request.param == "memory" else str(request.getfixturevalue("redis_url"))


@pytest.fixture(autouse=True)
def anyio_backend(caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.INFO)
    return "asyncio"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]


async def test_settings_that_differ_are_warned_of_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """With both values and the way to change them; the group's settings are in force."""
    name = unique("other")
    async with Group(name, ["r", "s"], redis_url=url, settings=STORED) as first:
        assert warnings(caplog) == []
        async with Group(name, ["r", "s"], redis_url=url, settings=OTHER) as second:
            assert first.settings == second.settings == STORED
            await second.wait_held()

    (warning,) = warnings(caplog)
    assert "session_timeout_ms is 3000 in the group and 9000 in this program" in warning
    assert "gather_ms is 0 in the group and 77 in this program" in warning
    assert f"cobalance group configure {name} --session-timeout-ms 9000 --gather-ms 77" in warning
    assert "heartbeat" not in warning


async def test_a_shorter_heartbeat_is_kept_at_once(url: str) -> None:
    """Not only after the next one by the longer interval, which is minutes away."""
    name = unique("shorter")
    hour_ms = 3_600_000
    slow = GroupSettings(session_timeout_ms=hour_ms, heartbeat_interval_ms=hour_ms // 3, revocation_timeout_ms=hour_ms)
    with closing(open_transport(url)) as transport:
        coordinator = Coordinator(transport, name)
        coordinator.create(slow)

        def renewals() -> int:
            return sum(row.expires_ms for row in coordinator.members())

        async with Group(name, ["r"], redis_url=url) as group:
            await group.wait_held("r")
            first = renewals()

            def is_heard() -> bool:
                """It may not listen yet, when it has joined only now."""
                coordinator.configure(heartbeat_interval_ms=50)
                return first < renewals()

            await until(is_heard)
            for _ in range(3):
                before = renewals()
                await until(lambda so_far=before: so_far < renewals())


async def test_who_says_nothing_is_told_nothing(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The group's own settings are what it wants."""
    name = unique("same")
    async with Group(name, ["r"], redis_url=url, settings=STORED), Group(name, ["r"], redis_url=url) as second:
        assert second.settings == STORED
    assert warnings(caplog) == []


async def test_a_change_is_in_force_and_told_at_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The settings then differ from the program's, which is worth a warning. A program without settings gets an info
    line.
    """
    name = unique("changed")
    async with Group(name, ["r"], redis_url=url, settings=STORED) as says, Group(name, ["r"], redis_url=url) as quiet:
        transport = open_transport(url)
        await anyio.to_thread.run_sync(lambda: Coordinator(transport, name).configure(gather_ms=77))
        transport.close()
        await until(lambda: says.settings.gather_ms == quiet.settings.gather_ms == 77)
    assert [line for line in warnings(caplog) if "gather_ms is 77 in the group and 0 in this program" in line]
    assert "its settings were changed: gather_ms is 77 now, and was 0" in caplog.text


async def test_a_difference_is_warned_of_again_only_when_it_is_another_one(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not when the other one of two is gone, which gets an info line."""
    name = unique("again")
    with closing(open_transport(url)) as transport:
        coordinator = Coordinator(transport, name)
        coordinator.create(STORED)
        async with Group(name, ["r"], redis_url=url, settings=OTHER) as group:
            for gather_ms in (77, 78, 77):
                await anyio.to_thread.run_sync(partial(coordinator.configure, gather_ms=gather_ms))
                await until(lambda wanted=gather_ms: group.settings.gather_ms == wanted)
    first, second = warnings(caplog)
    assert "gather_ms is 0 in the group and 77 in this program" in first
    assert "gather_ms is 78 in the group and 77 in this program" in second
    infos = [it.getMessage() for it in caplog.records if "settings were changed" in it.getMessage()]
    assert ["gather_ms is 77 now" in line for line in infos] == [True, True]


@pytest.mark.parametrize(("before", "after"), [(20_000, 1_500), (600, 6_000)])
async def test_calls_are_timed_by_the_session_timeout_in_force(redis_url: str, before: int, after: int) -> None:
    """Else an unanswered call would outlast a short session, or no slow answer be heard in a long one."""
    name = unique("timed")
    settings = GroupSettings(session_timeout_ms=before, heartbeat_interval_ms=before // 6, revocation_timeout_ms=20_000)
    async with Group(name, ["r"], redis_url=redis_url, settings=settings) as group:
        assert timeout_of(group) == call_timeout_ms(before)
        with closing(open_transport(redis_url)) as transport:
            Coordinator(transport, name).configure(session_timeout_ms=after, heartbeat_interval_ms=after // 6)
        await until(lambda: timeout_of(group) == call_timeout_ms(after))


def timeout_of(group: Group) -> int:
    transport = group.membership.coordinator.transport
    assert isinstance(transport, RedisTransport)
    return transport._timeout_ms


def test_threads_see_them_too(url: str) -> None:
    """The same in a program without async."""
    name = unique("threads")
    with (
        BlockingGroup(name, ["r"], redis_url=url, settings=STORED),
        BlockingGroup(name, ["r"], redis_url=url) as second,
    ):
        assert second.settings == STORED
