"""The range of offsets: as high as the coordinator can tell that they do not decrease."""

from __future__ import annotations

import itertools

import pytest

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import OffsetRegressed, UsageError
from cobalance.group.blocking_group import BlockingGroup
from cobalance.limits import MAX_INTEGER
from cobalance.settings import GroupSettings

_count = itertools.count()


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return (
        f"memory://offsets-{next(_count)}" if request.param == "memory" else str(request.getfixturevalue("redis_url"))
    )


def test_no_offset_is_taken_that_could_fall_unseen(url: str) -> None:
    """Up to 2**53 - 1 every decrease is refused. Higher offsets (such as times in ns), or those below -1 (before the
    first), are an error before they are sent.
    """
    name = f"offsets-{next(_count)}"
    transport = open_transport(url)
    Coordinator(transport, name).create(GroupSettings())
    with BlockingGroup(name, ["r0"], redis_url=url) as group:
        group.wait_held("r0", timeout=60)
        group.commit("r0", MAX_INTEGER)
        with pytest.raises(OffsetRegressed):
            group.commit("r0", MAX_INTEGER - 1)
        for unusable in (MAX_INTEGER + 1, 1_700_000_000_000_000_100, -2):
            with pytest.raises(UsageError, match="give a whole number"):
                group.commit("r0", unusable)
        assert [row.committed for row in Coordinator(transport, name).resources()] == [MAX_INTEGER]
    transport.close()
