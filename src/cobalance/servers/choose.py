"""Chooses a server: the one the environment names, the machine's own program, a container, or a new package."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
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
Started = TypeVar("Started")

PORT_TAKEN = re.compile("could_not_start_listener|eaddrinuse|Address already in use")
"""In the log of a server whose port another process took after it had been chosen."""


@attrs.frozen
class Servers:
    """The addresses of a running Redis and a running RabbitMQ."""

    redis_url: str = attrs.field(repr=False)
    """May hold a password, so it is not in the repr."""
    amqp_url: str = attrs.field(repr=False)
    """May hold a password, so it is not in the repr."""
    management_url: str | None = attrs.field(repr=False)
    """RabbitMQ's management API; None if it was neither requested nor named."""
    redis_origin: str
    """environment, local, docker or apt."""
    rabbitmq_origin: str
    """environment, local, docker or apt."""

    def environment(self) -> dict[str, str]:
        """The environment variables that point another process to the same servers."""
        named = {REDIS_URL: self.redis_url, AMQP_URL: self.amqp_url, MANAGEMENT_URL: self.management_url}
        return {name: url for name, url in named.items() if url}


@attrs.frozen
class GivenServer:
    """A server named by an environment variable, not started by us."""

    url: str = attrs.field(repr=False)
    management_url: str | None = attrs.field(default=None, repr=False)
    """RabbitMQ's management API, if it was named too."""
    origin: str = "environment"

    def close(self) -> None:
        """Does nothing: the server is not ours to stop."""


OwnRedis: TypeAlias = PrivateRedis | docker.ContainerRedis
"""A Redis of our own, which may be stopped, frozen and emptied."""

OwnRabbitMQ: TypeAlias = PrivateRabbitMQ | docker.ContainerRabbitMQ
"""A RabbitMQ of our own, which may be stopped, frozen and emptied."""

RedisServer: TypeAlias = GivenServer | OwnRedis

RabbitMQServer: TypeAlias = GivenServer | OwnRabbitMQ


@contextmanager
def running(*, management: bool = False) -> Iterator[Servers]:
    """A Redis and a RabbitMQ for the duration of the block. What was started for it is removed afterwards.

    `management` requests the management API of a RabbitMQ that has to be started. Raises ServerUnavailable.
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
    """Starts a private Redis, which may be stopped, frozen and emptied. `options` are added to its command line."""
    program, origin = _program(find_redis, "redis-server", variable=REDIS_URL)
    if program is None:
        return docker.ContainerRedis(options)
    return _started(partial(PrivateRedis, program, options=options, origin=origin))


def private_rabbitmq(
    *, management: bool = False, plugins: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> OwnRabbitMQ:
    """Starts a private RabbitMQ, which may be stopped, frozen and emptied. `settings` are lines for rabbitmq.conf."""
    program, origin = _program(find_rabbitmq, "rabbitmq-server", variable=AMQP_URL)
    if program is None:
        return docker.ContainerRabbitMQ(management=management, plugins=plugins, settings=settings)
    return _started(
        partial(PrivateRabbitMQ, program, management=management, plugins=plugins, settings=settings, origin=origin)
    )


def _started(start: Callable[[], Started]) -> Started:
    """Starts a server, twice more on other ports if another process was quicker."""
    for _ in range(2):
        try:
            return start()
        except ServerUnavailable as error:
            if not PORT_TAKEN.search(str(error)):
                raise
    return start()


def _program(find: Callable[[], Program | None], package: str, *, variable: str) -> tuple[Program | None, str]:
    """Returns the program and how it was found; None means Docker."""
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
