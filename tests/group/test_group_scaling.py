"""Members of the public group that enter simultaneously, and the first callback of a single member."""

from __future__ import annotations

import itertools
import time
from typing import Literal

import anyio
import attrs
import pytest

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.group.group import Group
from cobalance.group.tenure import Tenure
from cobalance.settings import GroupSettings, MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

# Six members share one event loop here, and must not be considered dead because they wait for each other.
UNHURRIED = GroupSettings(
    session_timeout_ms=9_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=20_000, gather_ms=0
)
OWN = MemberSettings(drain_timeout_ms=15_000)
NAMES = tuple(f"r{number}" for number in range(6))
WITHIN_S = 60.0

_count = itertools.count()


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return (
        f"memory://scaling-{next(_count)}" if request.param == "memory" else str(request.getfixturevalue("redis_url"))
    )


def new_group(url: str, settings: GroupSettings) -> str:
    name = f"scaling-{time.time_ns()}"
    transport = open_transport(url)
    Coordinator(transport, name).create(settings)
    transport.close()
    return name


class Stage:
    """Who works on what, as reported by the work itself, so that two workers at once would be noticed."""

    def __init__(self) -> None:
        self.workers: dict[str, str] = {}
        self._changed = anyio.Event()

    async def work(self, name: str, tenure: Tenure) -> None:
        assert tenure.resource not in self.workers, (
            f"{self.workers[tenure.resource]} and {name} work on {tenure.resource}"
        )
        self.workers[tenure.resource] = name
        self._notice()
        await tenure.wait_draining()
        del self.workers[tenure.resource]
        self._notice()

    def _notice(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_one_each(self, members: set[str]) -> None:
        """Waits until each of these works on one, and everything is worked on."""
        with anyio.fail_after(WITHIN_S):
            while sorted(self.workers.values()) != sorted(members):
                await self._changed.wait()


async def test_six_that_enter_at_once_have_one_each(url: str) -> None:
    """In whatever order the server sees them: one resource each, never worked by two."""
    group, stage, may_go = new_group(url, UNHURRIED), Stage(), anyio.Event()

    async def member(name: str) -> None:
        async def work(tenure: Tenure) -> None:
            await stage.work(name, tenure)

        async with Group(group, NAMES, redis_url=url, settings=UNHURRIED, member=OWN, work=work):
            await may_go.wait()

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(member, f"m{number}")
        await stage.wait_one_each({f"m{number}" for number in range(6)})
        assert set(stage.workers) == set(NAMES)
        may_go.set()
    assert stage.workers == {}


@pytest.mark.parametrize("mode", ["cooperative", "eager"])
async def test_a_single_member_is_assigned_all_five_in_one_callback(
    url: str, mode: Literal["cooperative", "eager"]
) -> None:
    """One event with five resources, and one tenure each until it leaves."""
    settings = attrs.evolve(UNHURRIED, mode=mode)
    assigned: list[list[str]] = []
    revoked: list[str] = []

    async def on_assigned(tenures: list[Tenure]) -> None:
        assigned.append(sorted(it.resource for it in tenures))

    async def on_revoked(tenures: list[Tenure]) -> None:
        revoked.extend(it.resource for it in tenures)

    group = Group(
        new_group(url, settings), NAMES[:5], redis_url=url, settings=settings, member=OWN,
        on_assigned=on_assigned, on_revoked=on_revoked,
    )  # fmt: skip
    async with group:
        with anyio.fail_after(WITHIN_S):
            await group.wait_held(*NAMES[:5])
        assert revoked == []
    assert assigned == [list(NAMES[:5])]
    assert sorted(revoked) == list(NAMES[:5])
