"""Real members under random churn, watched by a monitor to which each reports what it begins and ends.

The idea, and the definition of a violation, are those of Rebalanser's resource monitor. Its randomised runs of hours
are reproduced in virtual time (tests/sims/test_randomised.py). Here threads, event loops, sockets and the library's own
engine run.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.group.blocking_group import BlockingGroup, BlockingTenure
from cobalance.settings import GroupSettings, MemberSettings

FAST = GroupSettings(session_timeout_ms=15_000, heartbeat_interval_ms=500, revocation_timeout_ms=30_000, gather_ms=0)
OWN = MemberSettings(drain_timeout_ms=20_000)
WITHIN_S = 45.0
MOST_MEMBERS = 5
STEPS = int(os.environ.get("COBALANCE_STEPS", "40"))

_count = itertools.count()


class ClaimMonitor:
    """Who works on what at this moment. Two at once, or the end of another member's work, is a violation."""

    def __init__(self) -> None:
        self.claims: dict[str, str] = {}
        self.violations: list[str] = []
        self.claimed = 0
        self._changed = threading.Condition()

    def claim(self, resource: str, member: str) -> None:
        with self._changed:
            other = self.claims.get(resource)
            if other is not None:
                self.violations.append(f"{member} begins {resource}, which {other} works on")
            self.claims[resource] = member
            self.claimed += 1
            self._changed.notify_all()

    def release(self, resource: str, member: str) -> None:
        with self._changed:
            if self.claims.get(resource) != member:
                self.violations.append(f"{member} ends {resource}, which {self.claims.get(resource)} works on")
            self.claims.pop(resource, None)
            self._changed.notify_all()

    def wait_shared(self, resources: set[str], members: set[str]) -> None:
        """Waits until exactly these are worked on by these members, evenly."""

        def shared() -> bool:
            loads = Counter(dict.fromkeys(members, 0))
            loads.update(self.claims.values())
            even = set(loads) == members and max(loads.values()) - min(loads.values()) <= 1
            return bool(self.violations) or (set(self.claims) == resources and even)

        with self._changed:
            assert self._changed.wait_for(shared, WITHIN_S), f"{self.claims} of {members} for {resources}"
        assert self.violations == []


class Churn:
    """Members that start and stop, and a list that grows and shrinks, as determined by the seed."""

    def __init__(self, url: str, seed: int) -> None:
        self.random = Random(seed)
        self.monitor = ClaimMonitor()
        self.members: dict[str, BlockingGroup] = {}
        self.resources = {f"r{number}" for number in range(8)}
        self._url, self._group = url, f"monitor-{time.time_ns()}"
        self._version, self._born = 1, 0
        self._offsets = itertools.count(1)
        transport = open_transport(url)
        Coordinator(transport, self._group).create(FAST)
        transport.close()

    def step(self) -> None:
        choices = [self.start if len(self.members) < MOST_MEMBERS else self.stop, self.change_list]
        if len(self.members) > 1:
            choices.append(self.stop)
        self.random.choice(choices)()

    def start(self) -> None:
        self._born += 1
        name = f"m{self._born}"
        group = BlockingGroup(
            self._group,
            sorted(self.resources),
            redis_url=self._url,
            settings=FAST,
            member=OWN,
            resources_version=self._version,
            work=self._work(name),
        )
        self.members[name] = group.__enter__()

    def _work(self, name: str) -> Any:
        def work(tenure: BlockingTenure) -> None:
            self.monitor.claim(tenure.resource, name)
            tenure.wait_draining()
            for _ in range(20):  # a handler that takes its time, without sleeping
                tenure.commit(next(self._offsets))
            self.monitor.release(tenure.resource, name)

        return work

    def stop(self, name: str | None = None) -> None:
        name = name or self.random.choice(sorted(self.members))
        self.members.pop(name).__exit__(None, None, None)

    def stop_all(self) -> None:
        for name in sorted(self.members):
            self.stop(name)

    def change_list(self) -> None:
        """Adds or removes a resource."""
        if self.random.random() < 0.5 and len(self.resources) > 2:
            self.resources.remove(self.random.choice(sorted(self.resources)))
        else:
            self.resources.add(f"r{next(_count) + 100}")
        self._version += 1
        for member in self.members.values():
            member.declare(sorted(self.resources), self._version)

    def check(self) -> None:
        """Rebalanser's full check: everything is worked on, once."""
        self.monitor.wait_shared(self.resources, set(self.members))


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_no_two_real_members_ever_work_on_one_resource(request: pytest.FixtureRequest, kind: str, seed: int) -> None:
    """After most changes it waits until everything is shared evenly; others follow each other as fast as possible."""
    url = f"memory://monitor-{next(_count)}" if kind == "memory" else str(request.getfixturevalue("redis_url"))
    churn = Churn(url, seed)
    with ExitStack() as stack:
        stack.callback(churn.stop_all)
        churn.start()
        for _ in range(STEPS):
            churn.step()
            if churn.random.random() < 0.7:
                churn.check()
        churn.check()
    assert churn.monitor.claims == {}
    assert churn.monitor.violations == []
    assert churn.monitor.claimed > STEPS


def test_the_monitor_sees_both_violations() -> None:
    """A second claim, and the release of another member's resource."""
    monitor = ClaimMonitor()
    monitor.claim("r", "a")
    monitor.claim("r", "b")
    monitor.release("r", "a")
    assert monitor.violations == ["b begins r, which a works on", "a ends r, which b works on"]
