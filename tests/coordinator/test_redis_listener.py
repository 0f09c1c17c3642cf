"""Hints from a real Redis: whatever happens to the listener's connection or its receiver, they come again."""

from __future__ import annotations

import logging
import os
import queue
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis as redis_py
from tests.coordinator.redis_calls import KEYS, PUBLISH, WAIT_S, freeze

from cobalance import servers
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.redis import listener as listener_module
from cobalance.coordinator.transport import LISTENING, RESYNC, Transport

Heard = queue.Queue[tuple[str, int]]


@contextmanager
def hearing(url: str) -> Iterator[tuple[Transport, Heard]]:
    """A listener that hears hints, and what it has heard since."""
    heard: Heard = queue.Queue()
    with (
        closing(open_transport(url)) as transport,
        closing(transport.listen(lambda *hint: heard.put(hint))) as listener,
    ):
        listener.subscribe("{t}:n")
        assert heard.get(timeout=WAIT_S) == ("{t}:n", LISTENING)
        yield transport, heard


def test_a_listener_comes_back(
    private_redis: servers.OwnRedis, admin: redis_py.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """After a lost connection and after a restart it resubscribes by itself, and reports that hints may have been
    missed.
    """
    caplog.set_level(logging.INFO)
    with hearing(private_redis.url) as (transport, heard):
        admin.client_kill_filter(_type="pubsub")
        assert heard.get(timeout=WAIT_S) == ("{t}:n", LISTENING)
        private_redis.restart(empty=True)
        assert heard.get(timeout=WAIT_S) == ("{t}:n", LISTENING)
        transport.call(PUBLISH, KEYS, [])
        assert heard.get(timeout=WAIT_S) == ("{t}:n", 5)
    assert "Hints are interrupted" in caplog.text


def test_subscriptions_that_are_ended_at_once_are_made_ever_more_rarely(
    private_redis: servers.OwnRedis, admin: redis_py.Redis
) -> None:
    """As by something in between that does not stand them: each makes its member ask, so that pauses grow."""
    heard: queue.Queue[float] = queue.Queue()

    def receive(*_: object) -> None:
        heard.put(time.monotonic())
        admin.client_kill_filter(_type="pubsub")

    with closing(open_transport(private_redis.url)) as transport, closing(transport.listen(receive)) as listener:
        listener.subscribe("{t}:n")
        times = [heard.get(timeout=WAIT_S) for _ in range(7)]
    assert times[-1] - times[0] >= sum(listener_module.BACKOFF_S.pause(failures) for failures in range(1, 6))


def test_a_fault_of_the_receiver_does_not_end_hints(
    private_redis: servers.OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next hint arrives."""
    heard: queue.Queue[int] = queue.Queue()

    def receive(_: str, version: int) -> None:
        if version == LISTENING:
            raise ValueError("a fault")
        heard.put(version)

    with closing(open_transport(private_redis.url)) as transport, closing(transport.listen(receive)) as listener:
        listener.subscribe("{t}:n")
        while transport.call(PUBLISH, KEYS, []) == 0:
            pass
        assert heard.get(timeout=WAIT_S) == 5
    assert "could not be handed on" in caplog.text


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """More than select() can tell apart."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
def test_hints_reach_a_process_with_many_open_files(private_redis: servers.OwnRedis) -> None:
    """Such as a web server."""
    with hearing(private_redis.url) as (transport, heard):
        transport.call(PUBLISH, KEYS, [])
        assert heard.get(timeout=WAIT_S) == ("{t}:n", 5)


def test_a_listener_survives_a_bug(
    private_redis: servers.OwnRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and hints come again."""
    faults = [ValueError("a bug")]
    opens = listener_module._Session.open

    def fail_once(session: listener_module._Session, *home: Any) -> None:
        if faults:
            raise faults.pop()
        opens(session, *home)

    monkeypatch.setattr(listener_module, "REFUSED_S", 0.05)
    monkeypatch.setattr(listener_module._Session, "open", fail_once)
    with hearing(private_redis.url):
        pass
    assert "Hints have failed" in caplog.text


def test_garbage_on_a_channel_is_a_reason_to_ask(private_redis: servers.OwnRedis, admin: redis_py.Redis) -> None:
    """However long it is. A number is not garbage, though nobody may know it yet."""
    with hearing(private_redis.url) as (_, heard):
        for garbage in ("9" * 5_000, "9" * 17, "", "x"):
            admin.publish("{t}:n", garbage)
            assert heard.get(timeout=WAIT_S) == ("{t}:n", RESYNC)
        for number in (2**53 - 1, -99):
            admin.publish("{t}:n", str(number))
            assert heard.get(timeout=WAIT_S) == ("{t}:n", number)


def kill(server: servers.OwnRedis) -> None:
    server.kill()


def test_a_listener_closes_promptly_whatever_the_server_does(private_redis: servers.OwnRedis) -> None:
    """Frozen, or gone."""
    with closing(open_transport(private_redis.url)) as transport:
        heard: queue.Queue[tuple[str, int]] = queue.Queue()
        listening = [transport.listen(lambda *hint: heard.put(hint)) for _ in range(2)]
        for listener in listening:
            listener.subscribe("{t}:n")
            heard.get(timeout=WAIT_S)
        fates: tuple[Callable[[servers.OwnRedis], None], ...] = (freeze, kill)
        for listener, fate in zip(listening, fates, strict=True):
            fate(private_redis)
            started = time.monotonic()
            listener.close()
            assert time.monotonic() - started < 15
            assert not listener._thread.is_alive()  # type: ignore[attr-defined]
