"""Requests that are too large or too many are refused before they do any harm, and the message names the limit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cobalance import BlockingGroup, Group, limits
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.requests import Header, Join, Request
from cobalance.errors import UsageError
from cobalance.settings import GroupSettings


@pytest.fixture
def transport() -> Iterator[MemoryTransport]:
    """A coordinator in memory."""
    made = MemoryTransport.named(f"limits-{uuid.uuid4().hex[:8]}")
    yield made
    made.close()


def test_too_many_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the coordinator can count, and not one more; the list is checked before anything is sent."""
    monkeypatch.setattr(limits, "MAX_RESOURCES", 1_000)
    names = [f"r{number}" for number in range(1_001)]
    with pytest.raises(UsageError, match=r"1,001 resources are more than a group may have \(1,000\)"):
        Group("g", names)
    Group("g", names[:-1])


@pytest.mark.parametrize("offset", [-2, 2**53, 1.5, True, "7", None])
def test_offsets_that_cannot_be_stored(transport: MemoryTransport, offset: Any) -> None:
    """Lua's numbers would confuse them with others; the greatest distinct one is stored as it is."""
    with BlockingGroup("g", ["r"], transport=transport) as group:
        (tenure,) = group.wait_held()
        with pytest.raises(UsageError, match="the offset to commit"):
            tenure.commit(offset)
        tenure.commit(2**53 - 2)
        tenure.commit(2**53 - 1)
        coordinator = Coordinator(transport, "g")
        assert next(coordinator.resources()).committed == 2**53 - 1


@pytest.mark.parametrize("version", [-1, 0, 2**53, True])
def test_versions_that_cannot_be_compared(version: Any) -> None:
    """The same holds for the version of a resource list."""
    with pytest.raises(UsageError, match="resources_version"):
        Group("g", ["r"], resources_version=version)


def test_too_many_members(transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that joins in a loop, each time as another member, is stopped."""
    monkeypatch.setattr(limits, "MAX_MEMBERS", 3)
    coordinator = Coordinator(transport, "g")
    coordinator.create(GroupSettings())
    for number in range(3):
        coordinator.execute(Request(Header(f"m{number}.1", 1), Join(settings=GroupSettings())))
    with pytest.raises(UsageError, match="has 3 members already"), BlockingGroup("g", ["r"], transport=transport):
        raise AssertionError("the body must not run")
