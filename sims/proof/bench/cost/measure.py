"""Measures groups of all sizes, one after the other, on a Redis of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis

from cobalance.servers import private_redis
from proof.bench import coordinator
from proof.bench.cost.changes import changes, founder_alone, yardstick
from proof.bench.cost.results import Costs
from proof.bench.server import Server

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from proof.bench.figures import Figure

MEMBERS = (10, 100, 1_000, 10_000)
RESOURCES = (100, 1_000, 10_000, 100_000)
"""As many as a group may have, cobalance.limits."""

SIZES = tuple(
    (members, resources)
    for members in MEMBERS
    for resources in RESOURCES
    if members < 10_000 or resources in (100, 100_000)
)
"""The largest number of members with the fewest and with the most resources, for they take minutes."""

SHORT = ((10, 100), (20, 100))


def measure(sizes: Sequence[tuple[int, int]]) -> Generator[tuple[Figure, Costs]]:
    """Yields the heartbeat's figure and the same object after each change, so that Ctrl-C loses only what was under way."""
    with private_redis() as own:
        server = Server(redis.Redis.from_url(own.url, protocol=2))
        heartbeat = coordinator.heartbeat(server, own.url)
        costs = Costs(one_us=heartbeat.peer or 0.0)
        rested: set[int] = set()
        alone: dict[int, int] = {}
        for members, resources in sizes:
            if resources not in alone:
                alone[resources] = founder_alone(server, resources)
            is_rested = members in rested
            for it in changes(server, members, resources, alone=alone[resources], is_rest_measured=not is_rested):
                costs.add(it)
                yield heartbeat, costs
            rested.add(members)
            costs.yardstick_us += yardstick(server)
