"""An admin goes on in a forked process, as under ``gunicorn --preload``, with connections of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import pytest
from tests.faults.redis_servers import cluster
from tests.names import unique

from cobalance import servers
from cobalance.admin import GroupAdmin
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.redis.address import RedisAddress
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.coordinator.transport import Script

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

WAIT_S = 60
FORKS = 5
ECHO = Script.of("echo", "return ARGV[2]")


def collecting(admin: GroupAdmin) -> Callable[[], object]:
    metrics = admin.metrics()
    return lambda: list(metrics.collect())


CALLS: dict[str, Callable[[GroupAdmin], Callable[[], object]]] = {
    "list": lambda admin: admin.list,
    "watch": lambda admin: admin.watch("g").snapshot,
    "metrics": collecting,
}


@contextmanager
def started(what: str) -> Iterator[str]:
    """The URL of such a Redis."""
    if what == "in memory":
        yield f"memory://{unique('forked')}"
        return
    redis: AbstractContextManager[Any] = cluster() if what == "a cluster" else servers.private_redis()
    with redis as it:
        yield it.url


@pytest.fixture(params=["one server", "a cluster", "in memory"])
def admin(request: pytest.FixtureRequest) -> Iterator[GroupAdmin]:
    """Of a Redis with one group."""
    with started(request.param) as url, GroupAdmin(url, amqp_url=None) as it:
        it.create("g")
        yield it


def in_fork(call: Callable[[], object]) -> int:
    """Calls it in a fork of this process. Returns 0, or how the fork ended if the call failed or did not return."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(WAIT_S)
            call()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def forked_beside(call: Callable[[], object]) -> list[int]:
    """How forks ended that make this call while a thread of their parent makes it again and again."""
    is_over, began = threading.Event(), threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            call()
            began.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert began.wait(WAIT_S)
        return [in_fork(call) for _ in range(FORKS)]
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("call", CALLS)
def test_a_fork_waits_for_no_thread_of_its_parent(admin: GroupAdmin, call: str) -> None:
    """A thread of the parent is in the middle of a call, which the fork knows nothing of."""
    assert forked_beside(CALLS[call](admin)) == [0] * FORKS


def test_a_fork_opens_a_store_of_its_own_while_its_parent_opens_one() -> None:
    """The names of stores have a lock, too."""

    def open_one() -> None:
        with GroupAdmin(f"memory://{unique('forked')}", amqp_url=None) as admin:
            admin.list()

    assert forked_beside(open_one) == [0] * FORKS


def test_a_fork_takes_no_answer_of_its_parent() -> None:
    """Nor does it end the parent's connection, whether it uses or closes its copy."""
    with servers.private_redis() as redis:
        keys = group_keys("g")
        with closing(RedisTransport(RedisAddress.parse(redis.url), call_timeout_ms=WAIT_S * 1000)) as transport:
            connection = transport.ask("CLIENT", "ID", doing="asking")
            assert transport.call(ECHO, keys, ["first"]) == b"first"
            answer = transport.post(ECHO, keys, ["second"])

            def ask() -> None:
                assert transport.call(ECHO, keys, ["third"]) == b"third"
                assert transport.ask("CLIENT", "ID", doing="asking") != connection

            assert in_fork(ask) == 0
            assert in_fork(transport.close) == 0
            assert answer() == b"second"
            assert transport.ask("CLIENT", "ID", doing="asking") == connection
