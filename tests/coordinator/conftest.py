"""The same coordinator tests run on a real Redis, and on three Luas in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py
from tests.coordinator.backends import Backend, MemoryBackend, RedisBackend
from tests.coordinator.driver import Group

from cobalance import servers

LUAS = [
    pytest.param("luajit21", marks=pytest.mark.in_process),
    *(pytest.param(lua, marks=pytest.mark.thorough) for lua in ("lua51", "lua54")),
]


@pytest.fixture(params=[*LUAS, "redis"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param != "redis":
        yield MemoryBackend(request.param)
        return
    redis_backend = RedisBackend(request.getfixturevalue("redis_admin_url"))
    yield redis_backend
    redis_backend.close()


@pytest.fixture
def group(backend: Backend) -> Group:
    """A new group without resources or members."""
    return Group(backend)


@pytest.fixture
def admin(private_redis: servers.OwnRedis) -> Iterator[redis_py.Redis]:
    """An ordinary client of the test's own Redis."""
    with redis_py.Redis.from_url(private_redis.url, protocol=2) as client:
        yield client
