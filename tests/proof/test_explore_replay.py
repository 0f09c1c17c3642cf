"""What an exploration executed has the same results on a real Redis and on every Lua."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cobalance.servers import OwnRedis
from proof.explore.cli import LUAS
from proof.explore.replay import InMemoryRedis, RealRedis, digest_of, replay
from proof.explore.scope import SCOPES
from proof.explore.search import Search
from proof.explore.world import Transitions

pytestmark = pytest.mark.thorough

SAMPLE = 3
"""Replay every n-th execution."""


@pytest.fixture(scope="module")
def world() -> Transitions:
    """Some thousand executions."""
    world = Transitions(SCOPES["2x1"], digest=digest_of)
    Search(world).run()
    return world


@pytest.fixture
def real(private_redis: OwnRedis) -> Iterator[RealRedis]:
    """A server that may be emptied."""
    engine = RealRedis(private_redis.url)
    yield engine
    engine.close()


def test_a_real_redis_agrees(world: Transitions, real: RealRedis) -> None:
    """Reply and data are the same after each of them."""
    replayed = replay(world.coordinator, real)
    assert replayed.executions == len(world.coordinator.outcomes)
    assert replayed.mismatches == ()


@pytest.mark.parametrize("lua", LUAS)
def test_every_lua_agrees(world: Transitions, lua: str) -> None:
    """Unordered replies are shuffled differently."""
    assert replay(world.coordinator, InMemoryRedis(lua), every=SAMPLE).mismatches == ()


def test_a_difference_is_seen(world: Transitions, real: RealRedis) -> None:
    """A replay that cannot fail proves nothing: a script that lies about its version is caught."""
    real.replace("heartbeat", "G.version = G.version + 1", "G.version = G.version + 2")
    assert replay(world.coordinator, real).mismatches
