"""The servers of a run: one of each, or one of them as a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

import attrs
from tests.chaos.options import Options, Servers
from tests.faults.rabbitmq_servers import RabbitMQCluster
from tests.faults.redis_servers import Cluster, Watched

from cobalance import servers

REPLICA_LAG_S = 2
"""After this long without a word from a replica, a master refuses writes ..."""

DOWN_AFTER_MS = 4_000
"""... which is, and has to be, sooner than the Sentinels appoint another one."""


class Known(Protocol):
    """How members reach a server."""

    @property
    def url(self) -> str:
        """For members, and for us."""

    @property
    def ports(self) -> Mapping[int, int]:
        """The port named by the URL and the servers → the real port."""


@attrs.frozen
class Alone:
    """One server."""

    server: servers.OwnRedis | servers.OwnRabbitMQ

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def ports(self) -> dict[int, int]:
        port = urlsplit(self.url).port
        assert port is not None
        return {port: port}


def _redis(stack: ExitStack) -> Alone:
    server = servers.private_redis()
    stack.callback(server.close)
    return Alone(server)


def _sentinel(stack: ExitStack) -> Watched:
    careful = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", str(REPLICA_LAG_S))
    return Watched(stack, replicas=2, down_after_ms=DOWN_AFTER_MS, options=careful)


REDIS: dict[Servers, Callable[[ExitStack], Known]] = {
    "alone": _redis,
    "rabbitmq-cluster": _redis,
    "redis-sentinel": _sentinel,
    "redis-cluster": partial(Cluster, node_timeout_ms=1_000),
}


def start_redis(options: Options, stack: ExitStack) -> Known:
    """Starts Redis; it stops with the stack."""
    return REDIS[options.servers](stack)


def start_rabbitmq(options: Options, stack: ExitStack) -> Known:
    """Starts RabbitMQ; it stops with the stack."""
    if options.servers == "rabbitmq-cluster":
        return RabbitMQCluster(stack)
    server = servers.private_rabbitmq(management=options.management)
    stack.callback(server.close)
    return Alone(server)
