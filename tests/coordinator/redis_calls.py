"""Calls to a real Redis, and how they fail."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
import redis as redis_py
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from cobalance import GroupSettings, errors, servers
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import Script

KEYS = ("{t}:counter",)
INCR = Script.of("incr", "return redis.call('INCR', KEYS[1])")
PUBLISH = Script.of("publish", "return redis.call('PUBLISH', '{t}:n', '5')")
QUICK = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=100, revocation_timeout_ms=10_000)
SECRET = "s3cret"
WAIT_S = 60


def failure(url: str, script: Script = INCR, timeout_ms: int = 500) -> errors.CobalanceError:
    """The error of a call, which must come in time and contain no secret in any representation."""
    started = time.monotonic()
    with (
        closing(open_transport(url, call_timeout_ms=timeout_ms)) as transport,
        pytest.raises(errors.CobalanceError) as caught,
    ):
        transport.call(script, KEYS, [])
    assert time.monotonic() - started < 15
    error = caught.value
    assert SECRET not in f"{error} {error!r} {error.args} {transport!r}"
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


def freeze(server: servers.OwnRedis) -> None:
    """Pauses a server, and returns once it really stops answering: the signal takes a moment."""
    server.pause()
    with redis_py.Redis.from_url(server.url, socket_timeout=0.05, retry=Retry(NoBackoff(), 0)) as client:
        while True:
            try:
                client.ping()
            except redis_errors.TimeoutError:
                return
