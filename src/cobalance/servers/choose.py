"""Which server is taken: the one the environment names, the machine's own program, a container, or a fresh package."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import attrs

from cobalance.servers import apt, docker
from cobalance.servers.find import find_rabbitmq, find_redis
from cobalance.servers.rabbitmq import PrivateRabbitMQ
from cobalance.servers.redis import PrivateRedis
from cobalance.servers.unavailable import ServerUnavailable

REDIS_URL = "COBALANCE_REDIS_URL"
AMQP_URL = "COBALANCE_AMQP_URL"
MANAGEMENT_URL = "COBALANCE_MANAGEMENT_URL"

Program = TypeVar("Program")


@attrs.frozen
class Servers:
    """A Redis and a RabbitMQ that answer."""

    redis_url: str = attrs.field(repr=False)
    """May hold a password, and so is not in the repr."""
    amqp_url: str = attrs.field(repr=False)
    """May hold a password, and so is not in the repr."""
    management_url: str | None = attrs.field(repr=False)
    """RabbitMQ's management API, None when it was not asked for or not named."""
    redis_origin: str
    """How the Redis was found: environment, local, docker or apt."""
    rabbitmq_origin: str
    """How the RabbitMQ was found: environment, local, docker or apt."""

    def environment(self) -> dict[str, str]:
        """The environment variables by which another process finds the same servers."""
        named = {REDIS_URL: self.redis_url, AMQP_URL: self.amqp_url, MANAGEMENT_URL: self.management_url}
        return {name: url for name, url in named.items() if url}


@attrs.frozen
class GivenServer:
    """A server somebody else runs, named by an environment variable."""

    url: str = attrs.field(repr=False)
    """Where it listens."""
    management_url: str | None = attrs.field(default=None, repr=False)
    """A RabbitMQ's management API, when that was named, too."""
    origin: str = "environment"
    """How it was found."""

    def close(self) -> None:
        """Leave it alone: it is not ours to stop."""


OwnRedis: TypeAlias = PrivateRedis | docker.ContainerRedis
"""A Redis that is ours to stop, freeze and empty."""

OwnRabbitMQ: TypeAlias = PrivateRabbitMQ | docker.ContainerRabbitMQ
"""A RabbitMQ that is ours to stop, freeze and empty."""

RedisServer: TypeAlias = GivenServer | OwnRedis
"""Any Redis that answers."""

RabbitMQServer: TypeAlias = GivenServer | OwnRabbitMQ
"""Any RabbitMQ that answers."""


@contextmanager
def running(*, management: bool = False) -> Iterator[Servers]:
    """A Redis and a RabbitMQ for the time of the block; what was started for it is gone afterwards.

    `management` asks a RabbitMQ that has to be started for its management API. Raises ServerUnavailable.
    """
    redis = redis_server()
    try:
        rabbitmq = rabbitmq_server(management=management)
        try:
            yield Servers(redis.url, rabbitmq.url, rabbitmq.management_url, redis.origin, rabbitmq.origin)
        finally:
            rabbitmq.close()
    finally:
        redis.close()


def redis_server() -> RedisServer:
    """The Redis that COBALANCE_REDIS_URL names, or a private one. Close it after use."""
    url = os.environ.get(REDIS_URL)
    return GivenServer(url) if url else private_redis()


def rabbitmq_server(*, management: bool = False) -> RabbitMQServer:
    """The RabbitMQ that COBALANCE_AMQP_URL names, or a private one. Close it after use."""
    url = os.environ.get(AMQP_URL)
    if url:
        return GivenServer(url, os.environ.get(MANAGEMENT_URL) or None)
    return private_rabbitmq(management=management)


def private_redis(options: Sequence[str] = ()) -> OwnRedis:
    """A Redis of our own, to be stopped, frozen and emptied at will. `options` go on its command line."""
    program, origin = _program(find_redis, "redis-server", variable=REDIS_URL)
    if program is None:
        return docker.ContainerRedis(options)
    return PrivateRedis(program, options=options, origin=origin)


def private_rabbitmq(
    *, management: bool = False, plugins: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> OwnRabbitMQ:
    """A RabbitMQ of our own, to be stopped, frozen and emptied at will. `settings` are lines for rabbitmq.conf."""
    program, origin = _program(find_rabbitmq, "rabbitmq-server", variable=AMQP_URL)
    if program is None:
        return docker.ContainerRabbitMQ(management=management, plugins=plugins, settings=settings)
    return PrivateRabbitMQ(program, management=management, plugins=plugins, settings=settings, origin=origin)


def _program(find: Callable[[], Program | None], package: str, *, variable: str) -> tuple[Program | None, str]:
    """The program and how it was found; no program means Docker."""
    if (program := find()) is not None:
        return program, "local"
    if docker.engine_answers():
        return None, "docker"
    if not apt.can_install():
        raise ServerUnavailable(_nothing_found(package, variable))
    with apt.only_installer():
        if (program := find()) is None:
            apt.install([package])
            program = find()
    if program is None:
        raise ServerUnavailable(
            f"apt-get installed {package}, but its program was not found. PATH or packages are odd."
        )
    return program, "apt"


def _nothing_found(package: str, variable: str) -> str:
    brew = f"brew install {package.removesuffix('-server')}"
    install = brew if sys.platform == "darwin" else f"sudo apt-get install {package}"
    return (
        f"{package} is missing: it is neither on PATH nor in a usual folder, no Docker engine answers, and this is not "
        f"root on Debian or Ubuntu, who could install it. Run `{install}`, or start Docker and `pip install "
        f"'cobalance[servers]'`, or set {variable} to the URL of a server that runs."
    )
