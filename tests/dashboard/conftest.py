"""Dashboards over groups in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.dashboard.scenes import Scene, churned

from cobalance import GroupAdmin
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.dashboard.server import DashboardServer


@pytest.fixture
def scene() -> Scene:
    """A group with a past, and another one whose name has a slash."""
    found = churned()
    found.other_group("audit/eu")
    return found


@pytest.fixture
def admin(scene: Scene) -> Iterator[GroupAdmin]:
    with GroupAdmin(transport=MemoryTransport(scene.backend.store), amqp_url="memory://dashboard") as found:
        yield found


@pytest.fixture
def port(admin: GroupAdmin) -> Iterator[int]:
    """Where a dashboard listens."""
    with DashboardServer(admin, port=0) as server:
        yield server.port
