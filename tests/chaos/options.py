"""The options of a run, and fixed figures."""

from __future__ import annotations

from typing import Literal

import attrs

from cobalance.rabbitmq.consume.key_settings import Order
from cobalance.settings import GroupSettings

Kind = Literal["classic", "quorum", "stream"]

Servers = Literal["alone", "rabbitmq-cluster", "redis-sentinel", "redis-cluster"]
"""One Redis and one RabbitMQ; or three RabbitMQ nodes; or a Redis with two replicas and three Sentinels; or a Redis
Cluster of three masters and their replicas.
"""

SETTINGS = GroupSettings(
    session_timeout_ms=3_000,
    heartbeat_interval_ms=600,
    revocation_timeout_ms=6_000,
    rejoin_grace_ms=0,
    gather_ms=100,
)
"""Short, so that many faults fit into a minute; each fault below is longer or shorter than these on purpose."""

WAYS = "COBALANCE_CHAOS_WAYS"
"""The environment variable that tells a member by which ports it reaches the Redis servers that others name."""

RATE = 120
"""Messages published a second, over all partitions."""

HANDLER_MS = (2.0, 12.0)
SLOW_MS = 60_000
"""A handler that dawdles does so until the file exists that its message names, but never for longer than this."""

KEYS = 5
"""Keys of each partition, if messages are ordered by key."""

PREFETCH = 10
SLOW_COMMIT_MS = 50
COMMIT_EVERY = 5
"""On queues without offsets of their own, members commit the position of every n-th message to Redis, fenced."""

CONVERGE_S = 60.0
"""After a fault has ended the group must be even again within this time."""

PENDING_S = 5.0
"""A revocation reaches its holder within about a heartbeat."""

DRAIN_S = 90.0
"""At the end, everything published must be handled within this time."""


@attrs.frozen(kw_only=True)
class Options:
    """The options of one run."""

    kind: Kind = "classic"
    servers: Servers = "alone"
    seed: int = 1
    seconds: float = 0.0
    """How long faults go on; every kind of fault happens at least once, however short this is."""
    partitions: int = 8
    members: int = 3
    order: Order = "partition"
    """By key, each partition has several keys, whose messages are handled side by side."""
    management: bool = False
